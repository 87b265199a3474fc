"""Decide the exact ranges of the next live batch from positions, what Kafka holds, and limits. Pure; no I/O.

Keeps I1 and I2 by construction: every range starts at the stored next offset of its partition and ends at or before
the readable end. What cannot be planned safely (a lost range, another topic under the old name) is raised, never
skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from batchledger.model.batch import (
    Batch,
    DecisionKind,
    DeliveryMode,
    Lane,
    LogState,
    Position,
    RecordOrigin,
    TopicIdentity,
)
from batchledger.model.counting import describe_count
from batchledger.model.errors import LossError, TopicAwaitedError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, describe_ranges
from batchledger.planning.batch_size import BatchSize

_NEW_NAME = "Or read the topic again under a new pipeline name, into a new table."


class StartPolicy(StrEnum):
    """Where a pipeline starts in a topic that it has never read; used once."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch takes. Fewer than ``min_records`` wait until ``max_delay_seconds`` have passed.

    ``target_duration_seconds`` is how long a batch should take; None lets every batch take up to ``max_records``.
    """

    max_records: int
    min_records: int = 1
    max_delay_seconds: float = 300.0
    target_duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of one batch, not stored yet. ``ranges`` holds no empty range; no range at all means nothing to do.

    ``stable_offset_by_held_back`` names the partitions in which an open transaction holds records back, with their
    last stable offset. ``delivery`` is stored with the ranges, so that a retry delivers as the first attempt did.
    ``expired`` is what a replay leaves out because Kafka has removed it; one that ``is_dry_run`` is never published.
    ``size`` is what a target duration allowed. ``notes`` are sentences for people to read before.
    """

    ranges: tuple[OffsetRange, ...]
    lag_left_records: int
    first_positions: tuple[Position, ...] = ()
    stable_offset_by_held_back: Mapping[TopicPartition, int] = field(default_factory=dict)
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    lane: Lane = Lane.LIVE
    expired: tuple[OffsetRange, ...] = ()
    size: BatchSize | None = None
    origin: RecordOrigin = RecordOrigin.KAFKA
    is_dry_run: bool = False
    notes: tuple[str, ...] = ()

    @property
    def request_kind(self) -> DecisionKind:
        """The kind of decision that asks for this replay."""
        if self.is_dry_run:
            return DecisionKind.DRY_RUN
        return DecisionKind.QUARANTINE_REPLAY if self.origin is RecordOrigin.QUARANTINE else DecisionKind.REPLAY

    def supersedes(self, open_replay: Batch) -> bool:
        """Whether this replay takes the place of an open one that the same run has asked for before.

        A dry run changes nothing, so it takes the place of dry runs only.
        """
        return open_replay.is_dry_run or not self.is_dry_run

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.ranges


def choose_first_positions(
    positions: Mapping[TopicPartition, Position],
    log: LogState,
    start: StartPolicy,
    offset_by_partition_at_start: Mapping[TopicPartition, int],
) -> tuple[Position, ...]:
    """Return a position for every partition that has none.

    A topic that is read for the first time starts where ``start`` says; a timestamp after the last record means the
    end, never offset 0 (S14), and so does one whose record arrived only after ``log`` was read. A partition that was
    added to a topic already being read starts at offset 0 (S7): what it held before it was noticed belongs to the
    pipeline too.
    """
    known_topics = {partition.topic for partition in positions}
    first = []
    for partition, held in sorted(log.log_by_partition.items()):
        if partition in positions:
            continue
        if partition.topic in known_topics:
            offset = 0
        elif start is StartPolicy.EARLIEST:
            offset = held.log_start
        elif start is StartPolicy.LATEST:
            offset = held.end
        else:
            offset = min(offset_by_partition_at_start.get(partition, held.end), held.end)
        first.append(Position(partition, offset, offset, log.identity_by_topic[partition.topic]))
    return tuple(first)


def check_source(
    pipeline: str, positions: Sequence[Position], log: LogState, topics: Sequence[str], *, is_json: bool = True
) -> None:
    """Refuse to plan over a source that is not the one the positions belong to, or that lost unread offsets.

    Raises TopicChangedError (missing, other id, other cluster, fewer partitions, position beyond the end) or LossError
    (position below the log start) with every partition concerned and the choices.
    """
    check_topics(pipeline, log, topics, positions, is_json=is_json)
    check_identity(positions, log)
    ends = {each: held.end for each, held in log.log_by_partition.items()}
    beyond = [each for each in positions if each.next_offset > ends[each.partition]]
    if beyond:
        both = "\n".join(
            f"{each.partition}: the position is {each.next_offset}, the readable end is {ends[each.partition]}."
            for each in beyond
        )
        raise TopicChangedError(
            f"The position of {pipeline} lies beyond the end of the log. Nothing was planned.",
            why=f"{both}\nThe topic was truncated, or its data directory was restored from an older copy.",
            advice=f"Bring the records back.\n{_NEW_NAME}",
            subject=", ".join(str(each.partition) for each in beyond),
        )
    lost = find_losses(positions, log)
    if lost:
        named = " ".join(f'"{each}"' for each in lost)
        offsets = describe_count(count_offsets(lost), "offset was", "offsets were")
        raise LossError(
            f"{offsets} removed from Kafka before they were read: {describe_ranges(lost)}. Nothing was planned.",
            advice="Restore the records.\n"
            "Or go on without them; the ledger records it for ever: "
            f"batchledger accept-loss {pipeline} {named} --reason WHY\n"
            "Or read what is left under a new pipeline name, into a new table.",
            ranges=tuple(lost),
        )


def check_topics(
    pipeline: str, log: LogState, topics: Sequence[str], positions: Sequence[Position], *, is_json: bool = True
) -> None:
    """Raise TopicChangedError when a topic is missing; a topic with a position cannot be replaced by a new one.

    TopicAwaitedError, if the pipeline has read nothing at all.

    Sample records can be made for a pipeline whose values are JSON (``is_json``).
    """
    missing = [topic for topic in topics if topic not in log.identity_by_topic]
    if missing:
        read = [f"{each.partition}@{each.next_offset}" for each in positions if each.partition.topic in missing]
        if read:
            why = (
                f"The pipeline has read it up to {', '.join(read[:3])}{', …' if read[3:] else ''}. "
                "A topic that is created anew is another topic."
            )
            advice = f"Bring the topic back.\n{_NEW_NAME}"
        else:
            why = ""
            advice = "Create the topic, for example with kafka-topics.sh --create, or correct source.topics."
            if is_json:
                advice += f"\nFor a trial, create it and write records: batchledger produce {pipeline} --records 1000"
        named = ", ".join(missing)
        raise (TopicChangedError if positions else TopicAwaitedError)(
            f"Topic {named} does not exist in this Kafka cluster. Nothing was planned.",
            why=why,
            advice=advice,
            subject=named,
        )


def find_losses(positions: Sequence[Position], log: LogState) -> list[OffsetRange]:
    """Return what Kafka removed before it was read: from the position of a partition to its log start."""
    return [
        OffsetRange(each.partition, each.next_offset, log.log_by_partition[each.partition].log_start)
        for each in positions
        if each.next_offset < log.log_by_partition[each.partition].log_start
    ]


def plan_batch(
    positions: Sequence[Position],
    log: LogState,
    limits: Limits,
    seconds_since_published: float | None,
    first_positions: tuple[Position, ...] = (),
) -> Plan:
    """Return the ranges of the next batch: at most ``max_records`` offsets, exactly that many when the lag allows it.

    The share is fair: each lagging partition gets the same number of offsets, and what a short one leaves goes to the
    longer ones. Offsets that cannot be divided evenly go to the partitions from ``sum(next offsets) mod partitions``
    on, a starting point that moves by the size of each batch, so that a limit below the number of partitions starves
    none.

    Example: lags 2, 50, 100 and ``max_records=60`` take 2, 29 and 29.

    ``seconds_since_published`` is how long the pipeline has waited since its last batch; None when it never published.
    ``first_positions`` are the ``positions`` that are not stored yet; they are stored with the plan.
    """
    ordered = sorted(positions, key=lambda position: position.partition)
    lags = [log.log_by_partition[each.partition].end - each.next_offset for each in ordered]
    total = sum(lags)
    held_back = {each: held.end for each, held in log.log_by_partition.items() if held.held_back}
    if not is_enough(total, limits, seconds_since_published):
        return Plan((), total, first_positions, held_back)
    rotation = sum(each.next_offset for each in ordered) % len(ordered)
    ranges = tuple(
        OffsetRange(position.partition, position.next_offset, position.next_offset + share)
        for position, share in zip(ordered, share_fairly(lags, limits.max_records, rotation), strict=True)
        if share > 0
    )
    return Plan(ranges, total - count_offsets(ranges), first_positions, held_back)


def is_enough(unread_records: int, limits: Limits, seconds_since_published: float | None) -> bool:
    """Whether so many records make a batch: ``min_records``, or any after ``max_delay_seconds`` without a batch.

    Negative seconds come from a clock that was ahead. They say nothing of the wait, and records wait for no clock.
    """
    has_to_wait = seconds_since_published is not None and 0 <= seconds_since_published < limits.max_delay_seconds
    return unread_records > 0 and (unread_records >= limits.min_records or not has_to_wait)


def describe_idle(planned: Plan, limits: Limits) -> str:
    """Say why a live plan has no range, and what waits nevertheless."""
    reason = "every readable record is published"
    if planned.lag_left_records:
        waiting = describe_count(planned.lag_left_records, "record waits", "records wait")
        reason = (
            f"{waiting}: limits.min_records is {limits.min_records:,}, and "
            f"limits.max_delay, {limits.max_delay_seconds:g} s, has not passed since the last batch. To take them now, "
            "trigger a run in Airflow"
        )
    held_back = [f"{partition}@{at}" for partition, at in sorted(planned.stable_offset_by_held_back.items())]
    return f"{reason}; open transactions hold records back from {', '.join(held_back)} on" if held_back else reason


def share_fairly(lags: Sequence[int], limit: int, rotation: int = 0) -> list[int]:
    """Divide ``limit`` among ``lags``: no share exceeds its lag, and the smallest share is as large as possible.

    The sum is ``min(limit, sum(lags))``. Cost: O(n log n).
    """
    shares = [0] * len(lags)
    left = min(limit, sum(lags))
    waiting = sorted((index for index, lag in enumerate(lags) if lag > 0), key=lambda index: lags[index])
    for served, index in enumerate(waiting):
        even = left // (len(waiting) - served)
        if lags[index] > even:
            for longer in waiting[served:]:
                shares[longer] = even
            left -= even * (len(waiting) - served)
            break
        shares[index] = lags[index]
        left -= lags[index]
    for index in (*range(rotation, len(lags)), *range(rotation)):
        if left > 0 and shares[index] < lags[index]:
            shares[index] += 1
            left -= 1
    return shares


def check_identity(positions: Sequence[Position], log: LogState) -> None:
    """Raise TopicChangedError unless every position belongs to a partition of the very topic that it was stored for."""
    for position in positions:
        topic = position.partition.topic
        found = log.identity_by_topic.get(topic, TopicIdentity("unknown", "none: the topic is missing"))
        if found != position.identity:
            raise TopicChangedError(
                f"Topic {topic} is not the one that this pipeline was reading. Nothing was planned.",
                why=f"Expected id {position.identity.topic_id} on cluster {position.identity.cluster_id}, found id "
                f"{found.topic_id} on cluster {found.cluster_id}.\n"
                "The topic was deleted and created again, or the connection points to another cluster.",
                advice=f"Point the connection back.\n{_NEW_NAME}",
                subject=topic,
                expected=position.identity,
                found=found,
            )
        if position.partition not in log.log_by_partition:
            raise TopicChangedError(
                f"{position.partition} no longer exists, and topic {topic} has kept its id. Nothing was planned.",
                why=f"The position of the pipeline is {position.next_offset} there.",
                advice=f"Check the brokers' metadata.\n{_NEW_NAME}",
                subject=str(position.partition),
            )
