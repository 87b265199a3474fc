"""Decide which offsets a replay publishes again: a time window or named ranges, resolved once against the log. Pure.

A window ``[since, until)`` has a part of the log, ``[offset at since, offset at until)`` of each partition. The offset
at a moment is the first one whose record's timestamp is at or after it, and the readable end when there is none. These
offsets never decrease as the moment grows, in any order of timestamps, so neighbouring parts tile the log. If
timestamps are out of order, records of the window lie elsewhere as well: ``windows`` finds them.

Worked example, timestamps of ``orders[0]``: 10:05, 10:01, 11:00, 10:59. The offset at 10:00 is 0, at 11:00 it is 2, at
12:00 it is the end, 4: the part of 10:00 to 11:00 is ``orders[0] 0..2``, the next one ``orders[0] 2..4``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from typing_extensions import override

from batchledger.model.batch import Batch, DeliveryMode, Lane, LogState, Position, QuarantinedRecord, RecordOrigin
from batchledger.model.counting import describe_count
from batchledger.model.errors import ExpiredError, ReplayRefusedError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_offsets,
    describe_ranges,
    find_gaps,
    intersect,
    merge_ranges,
)
from batchledger.model.records.times import TimeSpan, to_milliseconds
from batchledger.planning.live import Plan

RANGES_AT_ONCE = 500
BYTES_AT_ONCE = 32 * 2**20
_RANGES_IN_COMMAND = 8


@dataclass(frozen=True, slots=True)
class Window:
    """The records whose timestamp lies in ``[since, until)``. Raises ValueError unless both have a zone and order."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if self.since.tzinfo is None or self.until.tzinfo is None:
            raise ValueError(f"{self}: a moment needs a zone, such as 2026-11-21T00:00:00Z")
        if self.since >= self.until:
            raise ValueError(f"{self}: the window is empty, it has to end after it begins")

    @override
    def __str__(self) -> str:
        return f"{self.since.isoformat()} to {self.until.isoformat()}"

    @property
    def span(self) -> TimeSpan:
        """The timestamps of its records."""
        return TimeSpan(to_milliseconds(self.since), to_milliseconds(self.until))


@dataclass(frozen=True, slots=True)
class Interval(Window):
    """A window as one of many that a backfill goes through: it takes a part of the log, which no other one takes."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The records of these offsets that are in quarantine; read from the bytes kept there, whatever Kafka still has."""

    ranges: tuple[OffsetRange, ...]

    @override
    def __str__(self) -> str:
        return f"quarantine, {describe_ranges(self.ranges)}"


@dataclass(frozen=True, slots=True)
class Replay:
    """A request to publish offsets again.

    ``allow_expired``: leave out what Kafka has removed, and record it, instead of refusing.
    """

    what: Window | Quarantined | tuple[OffsetRange, ...]
    allow_expired: bool = False

    @override
    def __str__(self) -> str:
        return describe_ranges(self.what) if isinstance(self.what, tuple) else str(self.what)


@dataclass(frozen=True, slots=True)
class ResolvedReplay:
    """What a replay means on the log as it is: the ranges that can be read, and what is gone for good.

    ``empty`` names partitions that had records and hold none any more, as an idle one does after its retention.
    ``notes`` are sentences for people to read before.
    """

    ranges: tuple[OffsetRange, ...]
    expired: tuple[OffsetRange, ...] = ()
    empty: tuple[TopicPartition, ...] = ()
    notes: tuple[str, ...] = ()


def resolve_window(
    log: LogState,
    since_by_partition: Mapping[TopicPartition, int],
    until_by_partition: Mapping[TopicPartition, int],
) -> ResolvedReplay:
    """Return a window's part of the log, given the first offset at or after its two moments; absent: there is none.

    A range that begins where the log does may have lost its beginning: the records before it could belong to the window
    as well, and nothing shows it any more. Everything below the log start then counts as expired. For an empty
    partition this holds for every window, today's included.

    A limit: if timestamps are out of order, records of a window that begins beyond the log start may be gone too, and
    nothing that Kafka still holds shows it. In 13:00, 11:00, 11:30, 12:30 the first has expired; the part of 12:00 to
    15:00 is ``3..4``, and the lost record of 13:00 is not noticed. ``windows`` notices it once its whole range
    has expired.
    """
    ranges, expired, empty = [], [], []
    for partition, held in sorted(log.log_by_partition.items()):
        start = max(min(since_by_partition.get(partition, held.end), held.end), held.log_start)
        until = min(until_by_partition.get(partition, held.end), held.end)
        if start < until:
            ranges.append(OffsetRange(partition, start, until))
        if start <= held.log_start and held.log_start > 0:
            expired.append(OffsetRange(partition, 0, held.log_start))
            if held.log_start >= held.end:
                empty.append(partition)
    return ResolvedReplay(tuple(ranges), tuple(expired), tuple(empty))


def raise_log_starts(log: LogState, later: LogState) -> LogState:
    """Return the log with the ends that it had, and the starts that it has later: what expired between is gone.

    Offsets of moments are looked up between the two: expiry moves what is found, so the earlier start would not tell.
    """
    raised = {
        each: replace(held, log_start=max(held.log_start, later.log_by_partition[each].log_start))
        for each, held in log.log_by_partition.items()
    }
    return replace(log, log_by_partition=raised)


def resolve_ranges(pipeline: str, asked: Sequence[OffsetRange], log: LogState) -> ResolvedReplay:
    """Return what of the named ranges can be read. Raises ReplayRefusedError for what lies outside of the log."""
    overlaps = count_offsets(asked) - count_offsets(merge_ranges(asked))
    beyond = [
        each
        for each in asked
        if each.partition not in log.log_by_partition or each.until > log.log_by_partition[each.partition].end
    ]
    if overlaps or not any(asked):
        raise ReplayRefusedError(
            f"These offsets cannot be published again: {describe_ranges(asked) or 'no range at all'}.",
            advice='Name each offset once, and at least one, for example: "orders[3] 1200..1500"',
        )
    unknown = [each for each in beyond if each.partition not in log.log_by_partition]
    if unknown:
        known = ", ".join(str(each) for each in sorted(log.log_by_partition))
        raise ReplayRefusedError(f"{describe_ranges(unknown)} cannot be read.", why=f"{pipeline} reads {known}.")
    if beyond:
        ends = ", ".join(f"{each.partition} ends at {log.log_by_partition[each.partition].end}" for each in beyond)
        raise ReplayRefusedError(
            f"{describe_ranges(beyond)} cannot be read.",
            why=f"{ends}.",
            advice=f"Name ranges inside the log of {pipeline}'s topics.",
            ranges=tuple(beyond),
        )
    expired = _find_expired(asked, log)
    return ResolvedReplay(tuple(find_gaps(expired, within=merge_ranges(asked))), tuple(expired))


def plan_ranges(
    pipeline: str, replay: Replay, resolved: ResolvedReplay, first_positions: tuple[Position, ...] = ()
) -> Plan:
    """Return the plan of a replay; it has no range when there is nothing to publish again.

    ``first_positions`` are stored with it, so that the topic's identity is known from then on.

    A replay is delivered in one transaction whatever the pipeline's mode: it takes rows away. Raises ExpiredError when
    offsets that it asks for are gone, unless it allows for that.
    """
    if resolved.expired and not replay.allow_expired:
        expired = describe_count(count_offsets(resolved.expired), "offset")
        how = "that may belong to the window" if isinstance(replay.what, Window) else "of these"
        raise ExpiredError(
            f"The replay of {replay} for {pipeline} is refused. Nothing was changed.",
            why=f"Kafka has removed {expired} {how}: {describe_ranges(resolved.expired)}.{_describe_empty(resolved)}",
            advice="To publish what is left, and keep the rows of these offsets as they are: --allow-expired "
            "(allow_expired in the form)",
            ranges=tuple(resolved.expired),
        )
    return Plan(
        resolved.ranges,
        0,
        first_positions,
        delivery=DeliveryMode.EXACTLY_ONCE,
        lane=Lane.REPLAY,
        expired=resolved.expired,
        notes=resolved.notes,
    )


def plan_quarantined(records: Sequence[QuarantinedRecord]) -> Plan:
    """Return the plan of a replay of exactly these records; neighbours become one range."""
    ranges = tuple(merge_ranges(each.range for each in records))
    return Plan(ranges, 0, lane=Lane.REPLAY, origin=RecordOrigin.QUARANTINE)


def require_payloads(pipeline: str, records: Sequence[QuarantinedRecord]) -> None:
    """Raise ReplayRefusedError if quarantine has no bytes of some of the records, because the file protects columns."""
    without = merge_ranges(each.range for each in records if not each.is_kept)
    if without:
        named = [f'"{each}"' for each in without[:_RANGES_IN_COMMAND]]
        again, dropped = " ".join(f"--range {each}" for each in named), " ".join(named)
        raise ReplayRefusedError(
            f"Quarantine has no bytes of {describe_ranges(without)}. Nothing was changed.",
            why="The pipeline file protects columns, so the records were not written.",
            advice="Correct the schema or the producer, and read them from Kafka again while it has them: "
            f"batchledger replay {pipeline} {again} --reason WHY\nOr give them up: batchledger quarantine drop "
            f"{pipeline} {dropped} --reason WHY",
            ranges=tuple(without),
        )


def split_quarantined(records: Sequence[QuarantinedRecord]) -> list[Quarantined]:
    """Return the records in portions that one batch can hold: ``RANGES_AT_ONCE`` ranges and ``BYTES_AT_ONCE`` bytes.

    A record that is larger is a portion of its own.
    """
    portions: list[list[QuarantinedRecord]] = []
    size_bytes = ranges = 0
    last: QuarantinedRecord | None = None
    for each in sorted(records, key=lambda record: record.range):
        is_next = last is not None and last.range.until == each.offset and last.partition == each.partition
        size_bytes, ranges, last = size_bytes + each.size_bytes, ranges + (not is_next), each
        if not portions or size_bytes > BYTES_AT_ONCE or ranges > RANGES_AT_ONCE:
            portions.append([])
            size_bytes, ranges = each.size_bytes, 1
        portions[-1].append(each)
    return [Quarantined(tuple(merge_ranges(each.range for each in portion))) for portion in portions]


def check_portions(pipeline: str, asked: Quarantined, records: Sequence[QuarantinedRecord]) -> None:
    """Raise ReplayRefusedError if the records that quarantine has in these ranges are more than one batch.

    The error names the ranges that hold exactly the first portion: as few as possible, within the ranges asked for.
    Example: with a record at every second offset of ``orders[0] 0..9000``, it names ``orders[0] 0..999``.
    """
    portions = split_quarantined(records)
    if len(portions) <= 1:
        return
    # Portions follow each other, so between the first and the last record of one there is none of another.
    first = intersect(_span(portions[0].ranges), asked.ranges)
    raise ReplayRefusedError(
        f"The replay of {asked} for {pipeline} is refused: one run is one batch. Nothing was changed.",
        why=f"The {count_offsets(record.range for record in records):,} records would be {len(portions)} batches. One "
        f"holds {RANGES_AT_ONCE} separate ranges, and {BYTES_AT_ONCE // 2**20} MiB.",
        advice="Ask for the first of them alone, then for the others: "
        f"{describe_ranges(first, limit=len(first))}\n"
        f"Or take all, one batch after the other: batchledger quarantine replay {pipeline} RANGE... --reason WHY",
        ranges=tuple(first),
    )


def check_quarantined(batch: Batch, records: Sequence[QuarantinedRecord]) -> None:
    """Raise ReplayRefusedError when records of a stored replay have left quarantine since it was planned."""
    gone = find_gaps((each.range for each in records if each.is_kept), within=batch.ranges)
    if gone:
        raise ReplayRefusedError(
            f"{batch.label} cannot go on. Nothing was changed.",
            why=f"Since it was planned, {describe_ranges(gone)} left quarantine: another replay took the records, or a "
            "person dropped them.",
            advice="Ask again for what is left.",
            ranges=tuple(gone),
        )


def check_readable(batch: Batch, log: LogState) -> None:
    """Raise ExpiredError when Kafka has removed offsets of a stored replay since it was planned."""
    gone = _find_expired(batch.ranges, log)
    if gone:
        raise ExpiredError(
            f"{batch.label} cannot be read. Nothing was changed.",
            why=f"Since it was planned, Kafka has removed {describe_ranges(gone)}.",
            advice="Ask for the replay again.",
            ranges=tuple(gone),
        )


def _find_expired(ranges: Sequence[OffsetRange], log: LogState) -> list[OffsetRange]:
    """Return what of the ranges lies below the log start."""
    return intersect(ranges, (OffsetRange(each, 0, held.log_start) for each, held in log.log_by_partition.items()))


def _describe_empty(resolved: ResolvedReplay) -> str:
    if not resolved.empty:
        return ""
    starts = {each.partition: each.until for each in resolved.expired}
    named = "; ".join(f"{each} is empty, everything below {starts[each]} is gone" for each in resolved.empty)
    return f" {named}: it is no longer known whether a record of it belonged to the window."


def _span(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return for each partition of the ranges the one that reaches from its first offset to its last."""
    partitions = dict.fromkeys(each.partition for each in ranges)
    of_each = [[each for each in ranges if each.partition == partition] for partition in partitions]
    return [OffsetRange(held[0].partition, held[0].start, held[-1].until) for held in of_each]
