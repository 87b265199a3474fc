"""What the steps of one pipeline work with: its rules, and the adapters that the wiring has chosen."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from batchledger.lifecycle.following import Follow, follow_nothing
from batchledger.lifecycle.tracing import Trace, trace_nothing
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import Attempt, Batch, DeliveryMode, Position
from batchledger.model.checks import Severity
from batchledger.model.offsets import TopicPartition
from batchledger.model.presence import Patience
from batchledger.model.progress import Reading
from batchledger.model.records.quarantine import QuarantineLimit
from batchledger.model.records.rules import Deduplication, SequenceRule, SinkMode, UnknownFieldPolicy
from batchledger.model.requests import TwoPersonOrder
from batchledger.planning.live import Limits, StartPolicy
from batchledger.ports import (
    Auditor,
    CrashHook,
    Decisions,
    Evidence,
    Ledger,
    Presences,
    RowChecks,
    RowStream,
    Sink,
    SourceLog,
    Stager,
    no_crash,
)
from batchledger.proof.verification import Verification


@dataclass(frozen=True, slots=True)
class PipelineRules:
    """What a pipeline file decides about planning and accounting.

    ``row_rules`` tells what makes rows of records from every other way: columns, ``protect``, the transform's name.
    """

    name: str
    topics: tuple[str, ...]
    limits: Limits
    start: StartPolicy = StartPolicy.EARLIEST
    start_at: datetime | None = None
    holes: HolePolicy = HolePolicy.NONE
    has_transform: bool = False
    delivery: DeliveryMode = DeliveryMode.EXACTLY_ONCE
    deduplication: Deduplication | None = None
    sequence: SequenceRule | None = None
    mode: SinkMode = SinkMode.APPEND
    quarantine_limit: QuarantineLimit = field(default_factory=QuarantineLimit)
    unknown_fields: UnknownFieldPolicy = UnknownFieldPolicy.IGNORE
    is_json: bool = True
    second_person: tuple[TwoPersonOrder, ...] = ()
    row_rules: str = ""
    has_checks: bool = False

    @property
    def severity_of_numbers(self) -> Severity:
        """How much missing and repeated numbers matter, if there is a sequence."""
        return self.sequence.severity if self.sequence else Severity.CRITICAL


@dataclass(frozen=True, slots=True)
class Deadlines:
    """After how long something becomes an incident; None: never.

    ``lag`` is the age of the oldest unread record, ``freshness`` the time since the last publication, ``blocked`` how
    long a batch may wait for a person.
    """

    lag: timedelta | None = None
    freshness: timedelta | None = None
    blocked: timedelta | None = None


def require_nothing(*_: Batch) -> None:
    """Refuse nothing."""


FindStream = Callable[[], Callable[[Attempt], AbstractContextManager[RowStream]] | None]


@dataclass(frozen=True)
class Outlook:
    """What shows how one pipeline stands, and what its next batch would take: its rules, its log, its ledger."""

    rules: PipelineRules
    source: SourceLog
    ledger: Ledger
    decisions: Decisions


@dataclass(frozen=True)
class Platform(Outlook):
    """Everything the steps of one pipeline need. ``make_stager`` is called only by the stage step: it opens Spark.

    ``make_row_checks`` is None if the pipeline file asks for no checks. ``follow`` tells people how far the stage
    step is, ``trace`` where the time of steps goes. ``prove`` compares the whole target with the ledger.
    ``require_secret`` refuses to hash columns or keys with another secret than before, ``require_known_erasures`` a
    batch that may bring back what was erased. ``patience`` is for how long it leaves a batch to another run; ``held``
    the batch that this process is at work on, or the one that has started it for a step. ``find_stream`` returns what
    opens a stream of rows into the target; None if there is no such way. ``find_gate`` is asked before a stream
    begins and before it commits: why its rows have to wait, if they do.
    """

    presences: Presences
    evidence: Evidence
    sink: Sink
    make_stager: Callable[[], Stager]
    make_auditor: Callable[[], Auditor]
    prove: Callable[[], Verification]
    require_secret: Callable[[], None] = field(default=require_nothing)
    require_known_erasures: Callable[[Batch], None] = field(default=require_nothing)
    make_row_checks: Callable[[], RowChecks] | None = None
    crash: CrashHook = field(default=no_crash)
    follow: Follow = field(default=follow_nothing)
    trace: Trace = field(default=trace_nothing)
    patience: Patience = field(default=Patience())
    held: int | None = None
    find_stream: FindStream = field(default=lambda: None)
    find_gate: Callable[[], str] = field(default=lambda: "")


StageStep = Callable[[Platform, int, str], Batch]


def load_positions(platform: Outlook) -> dict[TopicPartition, Position]:
    """Return where the pipeline is in the topics that its file names; a topic that it read before is left out."""
    rules = platform.rules
    found = platform.ledger.load_positions(rules.name)
    return {each.partition: each for each in found if each.partition.topic in rules.topics}


def look_at_reading(platform: Platform, attempt: Attempt) -> Reading:
    """Return what an attempt that is being staged has read so far: finished parts of the read, and running tasks.

    A part that has just ended may be in neither for a moment. Records in quarantine and skipped tombstones count once
    their part has ended.
    """
    # In this order: a part that ends between the two would otherwise count twice.
    seen = platform.evidence.count_seen(attempt)
    arriving = platform.sink.count_arriving(attempt)
    return Reading(seen, arriving) if platform.rules.has_transform else Reading(seen + arriving)
