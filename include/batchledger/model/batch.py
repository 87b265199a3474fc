"""The life of a batch as frozen values: its plan, its states, its attempts, its position in the source.

A batch is one plan and its life: ``planned -> staged -> audited -> published``, or ``blocked`` / ``discarded``. A new
attempt takes the batch back to ``planned`` with the same ranges (I5) and a higher number (I4). An audited batch is
``committing`` while a sink commits it by itself: the sink is asked before anything else is done (I9). No I/O here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from batchledger.model.actors import Actor
from batchledger.model.checks import CheckResult, find_unjudged, permit_publication
from batchledger.model.offsets import OffsetRange, TopicPartition


class BatchState(StrEnum):
    """Where a batch is in its life."""

    PLANNED = "planned"
    STAGED = "staged"
    AUDITED = "audited"
    COMMITTING = "committing"
    PUBLISHED = "published"
    BLOCKED = "blocked"
    DISCARDED = "discarded"

    @property
    def is_final(self) -> bool:
        """Whether no attempt may be opened any more."""
        return self in (BatchState.PUBLISHED, BatchState.DISCARDED)

    @property
    def is_permitted(self) -> bool:
        """Whether the batch has passed its audit, or a person has accepted it."""
        return self in (BatchState.AUDITED, BatchState.COMMITTING, BatchState.PUBLISHED)


class Step(StrEnum):
    """What an attempt does with a batch, in this order."""

    STAGE = "stage"
    AUDIT = "audit"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The error that ended a step of an attempt. ``quoted`` is its whole text if that may quote a value of a record."""

    step: Step
    error: str
    quoted: str = field(default="", compare=False, repr=False)


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
    """Where the stage step reads the records of a batch: from Kafka, or from the bytes in quarantine."""

    KAFKA = "kafka"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Batch:
    """One stored plan with its present state; ``attempt`` is 0 until the first attempt is opened.

    ``delivery`` is the mode of the pipeline when the batch was planned; all its attempts keep it. A dry run is staged
    and audited like any replay, never published, and ends discarded. ``announced_ends`` is for a sink that commits by
    itself: the ends of its log by partition, when the batch's commit was first announced; None if no run has recorded
    them.
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
    announced_ends: tuple[int, ...] | None = None

    @property
    def subject(self) -> str:
        """The batch's name within its pipeline: ``batch 17``."""
        return f"batch {self.batch_id}"

    @property
    def label(self) -> str:
        """The batch's name in messages: ``batch 17 of flights``."""
        return f"{self.subject} of {self.pipeline}"

    def takes_over(self, replaced: "Sequence[HeldRange]") -> bool:
        """Whether rows of the batch may replace rows of the target; a replay's always may.

        ``replaced``: what other batches hold of its ranges. Earlier decisions about these rows count then.
        """
        return bool(replaced) or self.lane is Lane.REPLAY


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a batch. ``number`` is the fencing token that every later write carries."""

    batch: Batch
    number: int
    run: str


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Offsets that a published batch holds: their rows, and their lines in quarantine, belong to it."""

    batch_id: int
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """The place of a quarantined record, how many bytes its key and its value have, and whether these were kept."""

    partition: TopicPartition
    offset: int
    size_bytes: int
    is_kept: bool = True

    @property
    def range(self) -> OffsetRange:
        """Its offset alone."""
        return OffsetRange(self.partition, self.offset, self.offset + 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided: who, and why. ``uid`` and ``host`` as for ``Actor``.

    ``request_id`` is the request of another person that the decision carries out.
    """

    decided_by: str
    reason: str
    uid: int | None = None
    host: str | None = None
    request_id: int | None = None

    @property
    def actor(self) -> Actor:
        """Who decided."""
        return Actor(self.decided_by, self.uid, self.host)


class DecisionKind(StrEnum):
    """What people decide, as the ledger and the command line name it."""

    ACCEPT_LOSS = "accept-loss"
    SKIP = "skip"
    ACCEPT = "accept"
    DISCARD = "discard"
    REWIND = "rewind"
    ADOPT_TARGET = "adopt-target"
    ADOPT_ROWS = "adopt-rows"
    PAUSE = "pause"
    RESUME = "resume"
    RETIRE = "retire"
    RENAME = "rename"
    RETRY = "retry"
    TRIGGER = "trigger"
    REPLAY = "replay"
    DRY_RUN = "dry-run"
    QUARANTINE_REPLAY = "quarantine-replay"
    QUARANTINE_DROP = "quarantine-drop"
    ERASE = "erase"
    REQUEST = "request"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision as the ledger keeps it for ever. ``batch_id`` is None if it is about the pipeline as a whole.

    ``before`` and ``after`` say what it changed: JSON values, or objects of them by partition, range or batch.
    ``request_id`` and ``requested_by``: the request that it carries out or withdraws. ``requested_order`` is what a
    request asks for.
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
    uid: int | None = None
    host: str | None = None
    database_role: str | None = None
    request_id: int | None = None
    requested_by: str | None = None
    requested_order: Mapping[str, Any] | None = None

    @property
    def decision(self) -> Decision:
        """Who decided, and why, as the person gave it."""
        return Decision(self.decided_by, self.reason, self.uid, self.host)

    @property
    def actor(self) -> Actor:
        """Who decided, with the role that the database has recorded."""
        return Actor(self.decided_by, self.uid, self.host, self.database_role)

    @property
    def people(self) -> str:
        """Who decided, and whose request it was: ``ben (role batchledger), request 17 of ana``."""
        asked = "" if self.request_id is None else f", request {self.request_id} of {self.requested_by}"
        return f"{self.actor}{asked}"

    @property
    def subject(self) -> str:
        """What was decided, in a word or two: ``rewind``, ``request of rewind``."""
        return self.kind if self.requested_order is None else f"{self.kind} of {self.requested_order['kind']}"


@dataclass(frozen=True, slots=True)
class Decided:
    """What came of a decision: its record, and whether it ``is_new``. Else it stood already, and nothing was changed.

    ``record`` is None if nothing had to be changed and no such decision was ever made. ``warning`` names a consequence
    outside the ledger. ``means`` says the effect in sentences, when an order is explained, or what has followed.
    ``code`` is what a second person needs to confirm an erasure; nothing keeps it.
    """

    record: DecisionRecord | None
    is_new: bool = True
    warning: str = ""
    means: tuple[str, ...] = ()
    code: str = field(default="", repr=False)

    @property
    def is_requested(self) -> bool:
        """Whether nothing is done yet: the record is a request, which waits for a second person."""
        return self.record is not None and self.record.kind == DecisionKind.REQUEST


@dataclass(frozen=True, slots=True)
class Target:
    """The place of a pipeline's rows: its name as people write it, and an identity that no other of that name has."""

    name: str
    identity: str


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The cluster's id and the topic's own id, which tell it from another topic of the same name."""

    cluster_id: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What Kafka holds of one partition now: readable offsets are ``[log_start, end)``.

    ``end`` is the last stable offset. Behind it, an open transaction holds back ``held_back`` offsets.
    """

    log_start: int
    end: int
    held_back: int = 0

    @property
    def high_watermark(self) -> int:
        """The end of the log for readers of uncommitted records."""
        return self.end + self.held_back


@dataclass(frozen=True, slots=True)
class LogState:
    """What Kafka holds of a pipeline's topics at one moment."""

    identity_by_topic: Mapping[str, TopicIdentity]
    log_by_partition: Mapping[TopicPartition, PartitionLog]


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """What threatens the unread records of one partition.

    ``end`` is the last stable offset; a ``high_watermark`` above it means that an open transaction holds records back.
    ``oldest_unread_at`` is the timestamp of the first record, aborted or not, from ``next_offset`` to ``end``.
    ``expires_at`` is the earliest moment at which retention by time may delete it. Each moment is None if there is no
    such record or its timestamp is unknown. ``expires_at`` is also None if the topic keeps records for ever, or if its
    settings may not be read.
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
    ``held_back_at`` is the last stable offset if an open transaction holds records back there. Every plan since
    ``held_back_since`` has seen it. Both are None if the latest plan saw none. They say nothing about the position.
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
    """What a stage step leaves for the audit: invisible rows, and the evidence of what Kafka showed.

    ``reported_rows`` counts the rows that the writing tasks say they wrote. The audit compares it with staging.
    ``schema`` is what the records were decoded with, as a pipeline file declares it. ``row_rules`` tells the rules that
    made the rows from others (``PipelineRules``); None if an older version has staged them, which kept none.
    ``given_up``: why they did not stream, if that was tried.
    """

    reported_rows: int
    schema: str = ""
    row_rules: str | None = None
    given_up: str | None = None


def state_after_audit(checks: Sequence[CheckResult]) -> BatchState:
    """Return what an audit makes of a batch: audited, blocked, or still staged if a critical check could not run."""
    if find_unjudged(checks):
        return BatchState.STAGED
    return BatchState.AUDITED if permit_publication(checks) else BatchState.BLOCKED
