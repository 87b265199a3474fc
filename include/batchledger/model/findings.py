"""The catalogue of everything that can be wrong with a pipeline or a watched table, with the words for it.

A kind of incident is one row, with the state of a pipeline meanwhile. A check of the audit of the ledger is one row,
with the kind that it opens. The names are stored and printed; nothing else relates them. Pure; no I/O.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum, auto
from typing import Any, Self

from batchledger.model.checks import Severity

_BATCH = "batchledger batch {batch_id}"
_PLAN = "batchledger plan {pipeline}"
_WATCH = "batchledger watch {pipeline}"


class PipelineState(StrEnum):
    """The state of a pipeline or of a watch, the worst first. ``running`` is known only if Airflow can be asked."""

    LOSS = "loss"
    SOURCE_CHANGED = "source changed"
    WRONG = "wrong"
    BLOCKED = "blocked"
    FAILING = "failing"
    CANNOT_SAY = "cannot say"
    STUCK = "stuck transaction"
    FILE_GONE = "file gone"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    RUNNING = "running"
    UNREAD = "unread records"
    AWAITING = "waits for its topic"
    NEVER_LOOKED = "never looked"
    CAUGHT_UP = "caught up"
    PROVED = "proved"
    RETIRED = "retired"


STATES_OF_WATCHES = (
    PipelineState.WRONG,
    PipelineState.CANNOT_SAY,
    PipelineState.NEVER_LOOKED,
    PipelineState.PROVED,
)
"""No pipeline has them. A watch may also be ``unknown``."""


class Place(Enum):
    """Where a look finds an incident. Only a look at the same place can say that it is over."""

    LEDGER = auto()
    SURVEY = auto()
    """The positions, compared with the source."""
    THREATS = auto()
    """The unread records of a source that has answered."""
    AUDIT = auto()
    """The audit of the ledger alone. Its questions about the other places belong to these places."""
    CHANNELS = auto()
    WATCH = auto()
    """A look at a table that others write."""


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of incident.

    ``happened`` begins its title. ``command`` shows or answers it, and names ``{pipeline}``, ``{subject}`` or
    ``{batch_id}``. ``state`` is the state of the pipeline meanwhile, if the kind has its own. ``is_of_batch``: its
    subject is a batch, and it ends with the batch. No message is sent if it ends within its ``patience``.
    ``is_symptom``: it follows from every kind with a state of its own, and tells nothing new beside it.
    """

    name: str
    place: Place
    happened: str
    command: str
    severity: Severity = Severity.CRITICAL
    state: PipelineState | None = None
    is_of_batch: bool = False
    patience: timedelta = timedelta()
    is_symptom: bool = False


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check of the audit of the ledger, or of a look at a watched table.

    ``kind`` is the incident that it opens, ``promise`` what holds if it finds nothing. ``needs_person``: its findings
    contradict nothing, and wait for a decision. A proof of the history calls it ``invariant``; ``happened`` begins the
    title of its findings.
    """

    name: str
    kind: "IncidentKind"
    promise: str
    needs_person: bool = False
    invariant: str = ""
    happened: str = ""


class _Catalogued(StrEnum):
    """A name with its row."""

    row: Any

    def __new__(cls, row: Any) -> Self:
        """Return the name."""
        member = str.__new__(cls, row.name)
        member._value_ = row.name
        member.row = row
        return member


class IncidentKind(_Catalogued):
    """The kinds of incident. A look says which kinds it has looked for."""

    row: KindRow

    BLOCKED = KindRow("blocked", Place.LEDGER, "blocked", _BATCH, state=PipelineState.BLOCKED, is_of_batch=True)
    BLOCKED_TOO_LONG = KindRow("blocked_too_long", Place.LEDGER, "blocked", _BATCH, is_of_batch=True)
    # It has the severity of the check.
    CHECK_FAILED = KindRow("check_failed", Place.LEDGER, "check failed", _BATCH)
    QUARANTINED = KindRow(
        "quarantined", Place.LEDGER, "records in quarantine", "batchledger quarantine list {pipeline}", Severity.WARNING
    )
    FAILING = KindRow("failing", Place.LEDGER, "failing", _BATCH, state=PipelineState.FAILING, is_of_batch=True)
    FRESHNESS = KindRow(
        "freshness",
        Place.LEDGER,
        "nothing published",
        "batchledger batches {pipeline}",
        Severity.WARNING,
        is_symptom=True,
    )
    UNREACHABLE = KindRow(
        "unreachable",
        Place.SURVEY,
        "the source cannot be asked",
        _PLAN,
        Severity.WARNING,
        PipelineState.UNKNOWN,
        # A restart of the broker takes less.
        patience=timedelta(minutes=1),
    )
    LOSS = KindRow("loss", Place.SURVEY, "unread records are lost", _PLAN, state=PipelineState.LOSS)
    SOURCE_CHANGED = KindRow(
        "source_changed",
        Place.SURVEY,
        "the topic is missing, or another one",
        _PLAN,
        state=PipelineState.SOURCE_CHANGED,
    )
    TOPIC_AWAITED = KindRow(
        "topic_awaited",
        Place.SURVEY,
        "its topic is not there yet",
        _PLAN,
        Severity.WARNING,
        PipelineState.AWAITING,
    )
    STUCK_TRANSACTION = KindRow(
        "stuck_transaction", Place.THREATS, "stuck transaction", _PLAN, state=PipelineState.STUCK
    )
    EXPIRY_NEAR = KindRow("expiry_near", Place.THREATS, "unread records are about to expire", _PLAN)
    LAG = KindRow("lag", Place.THREATS, "lag", _PLAN, Severity.WARNING, is_symptom=True)
    STALE_ATTEMPT = KindRow(
        "stale_attempt",
        Place.AUDIT,
        "no run works on an open batch",
        "batchledger run {pipeline} --batch {batch_id}",
        Severity.WARNING,
        is_of_batch=True,
    )
    ORPHANED_STAGING = KindRow(
        "orphaned_staging", Place.AUDIT, "staging is left behind", "batchledger housekeeping", Severity.WARNING
    )
    # The check has the words. The command can end the incident: it proves the whole history.
    LEDGER_FINDING = KindRow("ledger_finding", Place.AUDIT, "", "batchledger audit {pipeline} --newest 0")
    CHANNEL_FAILING = KindRow(
        "channel_failing",
        Place.CHANNELS,
        "alert channel does not deliver",
        "batchledger alerts test {subject}",
        Severity.WARNING,
    )
    TABLE_WRONG = KindRow("table_wrong", Place.WATCH, "the table is wrong", _WATCH)
    TABLE_UNPROVED = KindRow("table_unproved", Place.WATCH, "the table cannot be proved", _WATCH, Severity.WARNING)


def list_kinds(*places: Place) -> frozenset[IncidentKind]:
    """Return the kinds of these places."""
    return frozenset(each for each in IncidentKind if each.row.place in places)


def _proof(name: str, invariant: str, happened: str, promise: str) -> CheckRow:
    return CheckRow(name, IncidentKind.LEDGER_FINDING, promise, invariant=invariant, happened=happened)


class LedgerCheck(_Catalogued):
    """The checks of an audit. The first nine prove the history, the others look at the present."""

    row: CheckRow

    RANGES_MEET = _proof(
        "published_ranges_meet",
        "I1",
        "published ranges do not meet",
        "The published ranges of each partition meet without a gap, up to its position (I1).",
    )
    RANGES_DISJOINT = _proof(
        "published_ranges_are_disjoint",
        "I2",
        "published ranges overlap",
        "No offset was published by two live batches of one epoch (I2).",
    )
    ROWS_WRITTEN = _proof(
        "positions_moved_with_their_rows",
        "I3",
        "a position moved without its rows",
        "Every batch that has moved the position has written its rows (I3).",
    )
    BALANCES_CLOSE = _proof(
        "published_balances_close",
        "I7",
        "a balance does not close",
        "Every offset of every published range is accounted for (I7).",
    )
    HELD_ONCE = _proof(
        "offsets_are_held_once",
        "I8",
        "offsets are held twice, or by no batch",
        "Exactly one batch holds the rows of each published offset (I8).",
    )
    TARGET = _proof(
        "target_holds_what_was_accepted",
        "target",
        "the target differs from the ledger",
        "The target holds the rows that the ledger has accepted, and no others.",
    )
    QUARANTINE = _proof(
        "quarantine_holds_what_was_set_aside",
        "quarantine",
        "quarantine differs from the ledger",
        "Quarantine holds the records that the ledger has set aside.",
    )
    DUPLICATES = _proof(
        "duplicates_are_listed",
        "duplicate",
        "the list of duplicates differs from the ledger",
        "Every duplicate that was dropped is listed with the record that came first.",
    )
    DECISIONS = _proof(
        "decisions_are_unchanged",
        "decision",
        "a decision was changed, removed or added",
        "Every decision about the pipeline stands as it was recorded.",
    )
    STALE_ATTEMPT = CheckRow(
        "no_attempt_is_stale",
        IncidentKind.STALE_ATTEMPT,
        "Every open batch that is not blocked has an attempt that gets on.",
    )
    STAGING = CheckRow(
        "no_staging_is_orphaned",
        IncidentKind.ORPHANED_STAGING,
        "The staging tables of attempts that are over are removed within a day.",
    )
    BLOCKED = CheckRow(
        "no_batch_is_blocked_for_too_long",
        IncidentKind.BLOCKED_TOO_LONG,
        "No batch waits for a person for longer than the deadline of the pipeline.",
        needs_person=True,
    )
    SOURCE = CheckRow(
        "source_is_the_same",
        IncidentKind.SOURCE_CHANGED,
        "The stored positions belong to the topics that are there.",
        needs_person=True,
    )
    LOSS = CheckRow(
        "no_unread_record_is_lost",
        IncidentKind.LOSS,
        "Kafka has kept every record that was not read yet.",
        needs_person=True,
    )
    STUCK = CheckRow(
        "no_transaction_is_stuck",
        IncidentKind.STUCK_TRANSACTION,
        "No producer's open transaction holds records back for longer than it may live.",
        needs_person=True,
    )
    EXPIRY = CheckRow(
        "no_unread_record_expires_soon",
        IncidentKind.EXPIRY_NEAR,
        "The oldest unread record has time left before its topic may delete it.",
    )
    LAG = CheckRow(
        "lag_is_within_its_deadline",
        IncidentKind.LAG,
        "The oldest unread record is younger than the deadline of the pipeline.",
    )


class WatchCheck(_Catalogued):
    """The checks of a look at a watched table."""

    row: CheckRow

    GAPS = CheckRow("no_gaps", IncidentKind.TABLE_WRONG, "Each record that is due has a row.")
    DUPLICATES = CheckRow("no_duplicates", IncidentKind.TABLE_WRONG, "No record has more than one row.")
    WRONG_ROWS = CheckRow("no_wrong_rows", IncidentKind.TABLE_WRONG, "Each row has its record, and is as it was.")
    FRESHNESS = CheckRow("freshness", IncidentKind.TABLE_WRONG, "The newest records that are due have their rows.")
    VOLUME = CheckRow(
        "volume", IncidentKind.TABLE_UNPROVED, "Each offset that is due is a row, or a hole with a cause."
    )
