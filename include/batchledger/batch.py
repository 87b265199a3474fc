"""The life of a batch as frozen values: its plan, its states, its attempts, its position in the source.

A batch is one plan and its life: ``planned -> staged -> audited -> published``, or ``blocked`` / ``discarded``. A new
attempt takes the batch back to ``planned`` with the same ranges (I5) and a higher number (I4). No I/O here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from batchledger.checking import CheckResult, find_unjudged, permit_publication
from batchledger.errors import (
    BatchBlockedError,
    CheckNotRunError,
    DecisionRefusedError,
    FencedError,
    PipelinePausedError,
    PositionConflictError,
    PredecessorPendingError,
    ReplayRefusedError,
)
from batchledger.offsets import OffsetRange, TopicPartition, count_offsets


class BatchState(StrEnum):
    """Where a batch is in its life."""

    PLANNED = "planned"
    STAGED = "staged"
    AUDITED = "audited"
    PUBLISHED = "published"
    BLOCKED = "blocked"
    DISCARDED = "discarded"

    @property
    def is_final(self) -> bool:
        """Whether no attempt may be opened any more."""
        return self in (BatchState.PUBLISHED, BatchState.DISCARDED)


class Lane(StrEnum):
    """``live`` moves the position; ``replay`` publishes old ranges again and never moves it."""

    LIVE = "live"
    REPLAY = "replay"


class DeliveryMode(StrEnum):
    """What a crash while publishing may do to a batch: nothing, repeat its rows, or lose them."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class RecordOrigin(StrEnum):
    """Where the stage step reads the records of a batch: from Kafka, or the bytes that quarantine has kept of them."""

    KAFKA = "kafka"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Batch:
    """One stored plan with its present state; ``attempt`` is 0 until the first attempt is opened.

    ``delivery`` is the mode of the pipeline when the batch was planned; all its attempts keep it. A dry run is staged
    and audited like any replay, never published, and ends discarded.
    """

    batch_id: int
    pipeline: str
    lane: Lane
    state: BatchState
    attempt: int
    attempt_run: str | None
    ranges: tuple[OffsetRange, ...]
    lag_left_records: int
    planned_at: datetime
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    origin: RecordOrigin = RecordOrigin.KAFKA
    is_dry_run: bool = False

    @property
    def subject(self) -> str:
        """How what belongs to one pipeline names the batch: ``batch 17``."""
        return f"batch {self.batch_id}"

    @property
    def label(self) -> str:
        """How messages name the batch: ``batch 17 of flights``."""
        return f"{self.subject} of {self.pipeline}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a batch. ``number`` is the fencing token that every later write carries."""

    batch: Batch
    number: int
    run: str


def fenced_by(found: Batch, attempt: Attempt) -> FencedError:
    """Say by whom ``attempt`` was superseded, given the batch as the ledger has it now."""
    if found.state is BatchState.DISCARDED:
        return closed(found, attempt.run)
    return FencedError(
        f"{found.label}: attempt {attempt.number} of run {attempt.run} is fenced by attempt {found.attempt} of run "
        f"{found.attempt_run}, which has the batch {found.state}. This attempt changed nothing visible.",
        batch_id=found.batch_id,
        attempt=found.attempt,
    )


def closed(found: Batch, run: str) -> FencedError:
    """Say why no attempt of ``run`` may be opened any more: the batch is published, or it was discarded."""
    if found.is_dry_run:
        message = f"{found.label} was a dry run, which is over and discarded; run {run} changes nothing."
    elif found.state is BatchState.DISCARDED:
        what_next = (
            "What is left of its offsets is planned again."
            if found.lane is Lane.LIVE
            else "The rows that it would have replaced stay; ask for the replay again where it is still wanted."
        )
        message = (
            f"{found.label} was discarded by a person's decision, run {run} changes nothing. See who and why: "
            f"batchledger batch {found.batch_id}. {what_next}"
        )
    else:
        message = (
            f"{found.label} cannot be attempted again: attempt {found.attempt} of run {found.attempt_run} has it "
            f"{found.state}. Nothing is left to do for run {run}."
        )
    return FencedError(message, batch_id=found.batch_id, attempt=found.attempt)


def never_published(batch: Batch) -> ReplayRefusedError:
    """Say that a dry run changes nothing, whoever asks for it."""
    return ReplayRefusedError(
        f"{batch.label} is a dry run, which is never published; ask for the replay itself.", batch_id=batch.batch_id
    )


def stage_again(batch: Batch) -> str:
    """Say who stages an open batch again: of a replay nobody does so by himself."""
    if batch.lane is Lane.LIVE:
        return "the next run stages the batch again"
    return f"stage it again with: batchledger run {batch.pipeline} --batch {batch.batch_id}"


def still_held(batch: Batch) -> DecisionRefusedError:
    """Say that what is to be given up is staged, so that the batch may still publish it."""
    return DecisionRefusedError(
        f"{batch.label} holds records of these offsets: attempt {batch.attempt} of run {batch.attempt_run} has it "
        f"{batch.state}. Let that run go on. When it is gone for good, give up what it has staged too: "
        f"--discard-batch {batch.batch_id}.",
        batch_id=batch.batch_id,
    )


def published_already(batch: Batch) -> DecisionRefusedError:
    """Say that nothing is left to decide about a batch."""
    return DecisionRefusedError(
        f"{batch.label} is published, by attempt {batch.attempt} of run {batch.attempt_run}: nothing is left to "
        f"decide. To publish its offsets again: batchledger replay {batch.pipeline}.",
        batch_id=batch.batch_id,
    )


def rows_visible(batch: Batch) -> DecisionRefusedError:
    """Say that a batch cannot be given up between its two commits: nobody would account for its rows."""
    return DecisionRefusedError(
        f"{batch.label} is {batch.state}, and its rows are visible already, as at_least_once commits them first. "
        f"Nothing was changed. Let it publish the position too: batchledger run {batch.pipeline} --batch "
        f"{batch.batch_id}. Where Kafka has removed its records, publish what is staged: batchledger accept "
        f"{batch.batch_id}. Where its staging is gone as well: skip or accept-loss with --discard-batch "
        f"{batch.batch_id} leave its rows, which verify names from then on; or empty the table: batchledger rewind "
        f"{batch.pipeline} --to earliest --truncate --allow-expired.",
        batch_id=batch.batch_id,
    )


def position_conflict(batch: Batch, found: Mapping[TopicPartition, int | None]) -> PositionConflictError:
    """Say where the stored position is not the start of its range; ``found`` is the stored next offset by partition.

    Behind the start everywhere: the batch before this one is not published yet, so the same step may succeed later.
    """
    moved = [each for each in batch.ranges if found.get(each.partition) != each.start]
    is_early = all((found.get(each.partition) or 0) < each.start for each in moved)
    both = "; ".join(f"{each.partition} expected {each.start}, found {found.get(each.partition)}" for each in moved)
    what_next = (
        "An earlier batch has to be published first; this one waits and is tried again"
        if is_early
        else f"Somebody else moved it; nothing was changed. See who: batchledger batches {batch.pipeline}"
    )
    kind = PredecessorPendingError if is_early else PositionConflictError
    return kind(
        f"{batch.label} cannot be published: the stored position is not where its ranges start: {both}. {what_next}.",
        batch_id=batch.batch_id,
    )


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Offsets that a published batch holds: their rows, and their lines in quarantine, are its own."""

    batch_id: int
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """Where a record lies that is in quarantine, and how many bytes its key and its value have."""

    partition: TopicPartition
    offset: int
    size_bytes: int

    @property
    def range(self) -> OffsetRange:
        """Its offset alone."""
        return OffsetRange(self.partition, self.offset, self.offset + 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided: who, and why."""

    decided_by: str
    reason: str


class DecisionKind(StrEnum):
    """What people decide, as the ledger and the command line name it."""

    ACCEPT_LOSS = "accept-loss"
    SKIP = "skip"
    ACCEPT = "accept"
    DISCARD = "discard"
    REWIND = "rewind"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    TRIGGER = "trigger"
    REPLAY = "replay"
    DRY_RUN = "dry-run"
    QUARANTINE_REPLAY = "quarantine-replay"
    QUARANTINE_DROP = "quarantine-drop"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision as the ledger keeps it for ever. ``batch_id`` is None where it is about the pipeline as a whole.

    ``before`` and ``after`` are what it changed: JSON values, or objects of them by partition, range or batch.
    """

    decision_id: int
    kind: str
    pipeline: str
    batch_id: int | None
    decided_by: str
    reason: str
    decided_at: datetime
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of a decision: its record, and whether it ``is_new`` or stood already, so that nothing was changed.

    Without a record nothing was to be changed, and nobody has ever decided it.
    """

    record: DecisionRecord | None
    is_new: bool = True


def paused_by(pause: DecisionRecord) -> PipelinePausedError:
    """Say who paused the pipeline, and why."""
    return PipelinePausedError(
        f"{pause.pipeline} is paused by {pause.decided_by} since {pause.decided_at:%Y-%m-%d %H:%M} UTC: {pause.reason}"
        f". Nothing new is planned until: batchledger resume {pause.pipeline} --reason WHY",
        pipeline=pause.pipeline,
    )


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """What tells a topic from another of the same name: the cluster's id and the id given at its creation."""

    cluster_id: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What Kafka holds of one partition now: readable offsets are ``[log_start, end)``.

    ``end`` is the last stable offset; behind it an open transaction holds ``held_back`` offsets back.
    """

    log_start: int
    end: int
    held_back: int = 0


@dataclass(frozen=True, slots=True)
class LogState:
    """What Kafka holds of a pipeline's topics at one moment."""

    identity_by_topic: Mapping[str, TopicIdentity]
    log_by_partition: Mapping[TopicPartition, PartitionLog]


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """What threatens the unread records of one partition.

    ``end`` is the last stable offset; a ``high_watermark`` above it means that an open transaction holds records back.
    ``oldest_unread_at`` is the timestamp of the first record, aborted or not, from ``next_offset`` to ``end``, and
    ``expires_at`` the earliest moment at which retention by time may delete it. Each moment is None when there is no
    such record or its timestamp is unknown; ``expires_at`` also when the topic keeps records for ever or its settings
    may not be read.
    """

    partition: TopicPartition
    next_offset: int
    end: int
    high_watermark: int
    oldest_unread_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a pipeline is in one partition: everything in ``[origin_offset, next_offset)`` has been accounted for.

    The live batches of the present epoch begin at ``epoch_start``: the origin, unless the pipeline was rewound.
    ``held_back_at`` is the last stable offset at which plans have seen an open transaction hold records back, without
    a break since ``held_back_since``; both are None when the latest plan saw none. They say nothing of the position.
    """

    partition: TopicPartition
    origin_offset: int
    next_offset: int
    identity: TopicIdentity
    held_back_at: int | None = field(default=None, compare=False)
    held_back_since: datetime | None = field(default=None, compare=False)
    rewound_to: int | None = None

    @property
    def epoch_start(self) -> int:
        """Where the live batches of the present epoch begin."""
        return self.origin_offset if self.rewound_to is None else self.rewound_to


@dataclass(frozen=True, slots=True)
class Staged:
    """What a stage step left behind for the audit: rows that nobody sees, and the evidence of what Kafka showed.

    ``reported_rows`` is what the writing tasks say they wrote, so that the audit can compare it with what is there.
    """

    reported_rows: int


def state_after_audit(checks: Sequence[CheckResult]) -> BatchState:
    """Return what an audit makes of a batch: audited, blocked, or still staged when a critical check could not run."""
    if find_unjudged(checks):
        return BatchState.STAGED
    return BatchState.AUDITED if permit_publication(checks) else BatchState.BLOCKED


def not_judged(batch: Batch, checks: Sequence[CheckResult]) -> CheckNotRunError:
    """Say which checks could not run, and what a person can do; it says nothing about the data."""
    broken = "; ".join(f"{check.name}: {check.detail}" for check in find_unjudged(checks))
    return CheckNotRunError(
        f"{batch.label} is not judged: {broken}. This says nothing about the data. The batch stays staged, nothing is "
        "visible. Correct the check, then clear the audit task of this run in Airflow with everything downstream, "
        "which judges what is staged; or stage and judge it anew: "
        f"batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )


def blocked(batch: Batch, checks: Sequence[CheckResult]) -> BatchBlockedError:
    """Say which checks block a batch, and what a person can do."""
    failed = "; ".join(f"{check.name}: {check.detail}" for check in checks if check.blocks)
    return BatchBlockedError(
        f"{batch.label} is blocked: the position stays before its {count_offsets(batch.ranges)} offsets. Failed: "
        f"{failed}. See it with: batchledger batch {batch.batch_id}. {ways_out(batch)}",
        batch_id=batch.batch_id,
    )


def ways_out(batch: Batch) -> str:
    """Say what a person can do with a blocked batch."""
    return (
        f"When the cause is removed, take it again with: batchledger run {batch.pipeline} --batch {batch.batch_id}. "
        f"When it cannot be, publish what is staged with: batchledger accept {batch.batch_id} --reason WHY, or let the "
        f"next run plan its offsets again with: batchledger discard {batch.batch_id} --reason WHY"
    )
