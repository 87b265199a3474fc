"""What a periodic audit of a pipeline asks, and what people are told of the answers. Pure.

Each question is about facts that were gathered once (``audit_questions``); Great Expectations judges them
(``adapters/expectations/ledger_expectations.py``). A question that could not be asked is unanswered, never passed. An
audit of the newest batches says what it has not looked at, and does not end an incident that lies there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from batchledger.model.batch import BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.incidents import Condition, Findings, IncidentKind
from batchledger.proof.newest import Coverage

FINDINGS_SHOWN = 20


class LedgerCheck(StrEnum):
    """What an audit asks. The first eight prove the history, the others look at what is going on."""

    RANGES_MEET = "published_ranges_meet"
    RANGES_DISJOINT = "published_ranges_are_disjoint"
    ROWS_WRITTEN = "positions_moved_with_their_rows"
    BALANCES_CLOSE = "published_balances_close"
    HELD_ONCE = "offsets_are_held_once"
    TARGET = "target_holds_what_was_accepted"
    QUARANTINE = "quarantine_holds_what_was_set_aside"
    DUPLICATES = "duplicates_are_listed"
    STALE_ATTEMPT = "no_attempt_is_stale"
    BLOCKED = "no_batch_is_blocked_for_too_long"
    STAGING = "no_staging_is_orphaned"
    LOSS = "no_unread_record_is_lost"
    SOURCE = "source_is_the_same"
    STUCK = "no_transaction_is_stuck"
    EXPIRY = "no_unread_record_expires_soon"
    LAG = "lag_is_within_its_deadline"

    @property
    def kind(self) -> IncidentKind:
        """The incident that it opens when it fails."""
        return _KIND_BY_CHECK.get(self, IncidentKind.LEDGER_FINDING)

    @property
    def failure(self) -> str:
        """What has happened when a check of our own fails, in a few words; the others are told by ``conditions``."""
        return _FAILURES[self]

    @property
    def severity(self) -> Severity:
        """How much a failure matters: what is wrong or is about to be, or what somebody should look at."""
        return Severity.WARNING if self in _WARNINGS else Severity.CRITICAL

    @property
    def needs_person(self) -> bool:
        """Whether a failure contradicts nothing, and waits for a decision of a person."""
        return self in _NEED_PERSON


PROOF_BY_INVARIANT = {
    "I1": LedgerCheck.RANGES_MEET,
    "I2": LedgerCheck.RANGES_DISJOINT,
    "I3": LedgerCheck.ROWS_WRITTEN,
    "I7": LedgerCheck.BALANCES_CLOSE,
    "I8": LedgerCheck.HELD_ONCE,
    "target": LedgerCheck.TARGET,
    "quarantine": LedgerCheck.QUARANTINE,
    "duplicate": LedgerCheck.DUPLICATES,
}

_FAILURES = {
    LedgerCheck.RANGES_MEET: "published ranges do not meet",
    LedgerCheck.RANGES_DISJOINT: "published ranges overlap",
    LedgerCheck.ROWS_WRITTEN: "a position moved without its rows",
    LedgerCheck.BALANCES_CLOSE: "a balance does not close",
    LedgerCheck.HELD_ONCE: "offsets are held twice, or by nobody",
    LedgerCheck.TARGET: "the target differs from the ledger",
    LedgerCheck.QUARANTINE: "quarantine differs from the ledger",
    LedgerCheck.DUPLICATES: "the list of duplicates differs from the ledger",
    LedgerCheck.STALE_ATTEMPT: "nobody works on an open batch",
    LedgerCheck.STAGING: "staging is left behind",
}
_KIND_BY_CHECK = {
    LedgerCheck.STALE_ATTEMPT: IncidentKind.STALE_ATTEMPT,
    LedgerCheck.BLOCKED: IncidentKind.BLOCKED_TOO_LONG,
    LedgerCheck.STAGING: IncidentKind.ORPHANED_STAGING,
    LedgerCheck.LOSS: IncidentKind.LOSS,
    LedgerCheck.SOURCE: IncidentKind.SOURCE_CHANGED,
    LedgerCheck.STUCK: IncidentKind.STUCK_TRANSACTION,
    LedgerCheck.EXPIRY: IncidentKind.EXPIRY_NEAR,
    LedgerCheck.LAG: IncidentKind.LAG,
}
_WARNINGS = (LedgerCheck.STALE_ATTEMPT, LedgerCheck.STAGING, LedgerCheck.LAG)
_NEED_PERSON = (LedgerCheck.BLOCKED, LedgerCheck.LOSS, LedgerCheck.SOURCE, LedgerCheck.STUCK)


@dataclass(frozen=True, slots=True)
class AuditLimits:
    """From when on something is a finding.

    Housekeeping runs once a day; staging that is orphaned for longer says that it does not.
    """

    stale_after: timedelta = timedelta(hours=1)
    orphaned_after: timedelta = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that is neither published nor discarded.

    ``last_step_at`` is when its newest attempt was opened, or ended a step, or when it was planned. ``is_used`` is
    whether some connection works on the staging of that attempt right now.
    """

    batch_id: int
    lane: Lane
    state: BatchState
    attempt: int
    run: str | None
    last_step_at: datetime
    is_dry_run: bool = False
    is_used: bool = False

    @property
    def subject(self) -> str:
        """How incidents name it."""
        return f"batch {self.batch_id}"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that was looked at. ``value`` is at most the limit of its question when it is as it should be."""

    subject: str
    value: float
    detail: str = ""
    command: str = ""
    batch_id: int | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One check with its facts. ``scope`` says what was looked at; ``unanswered`` why that was impossible.

    ``promise`` is what holds when nothing is found, where that is not the same for every pipeline.
    """

    check: LedgerCheck
    scope: str
    facts: tuple[Fact, ...] = ()
    limit: float = 0
    unanswered: str = ""
    promise: str = ""

    @property
    def excesses(self) -> tuple[Fact, ...]:
        """The facts that are beyond the limit."""
        return tuple(each for each in self.facts if each.value > self.limit)

    def tell_excesses(self) -> tuple[str, ...]:
        """Return what is beyond the limit, the first ``FINDINGS_SHOWN`` of it, and how much there is in all."""
        shown = [each.detail for each in self.excesses[:FINDINGS_SHOWN]]
        more = len(self.excesses) - len(shown)
        return (*shown, f"and {more:,} more") if more else tuple(shown)


@dataclass(frozen=True, slots=True)
class LedgerAudit:
    """The outcome of one audit. ``findings`` are what people are to know, what every run finds too among it."""

    pipeline: str
    audited_at: datetime
    coverage: Coverage
    checks: tuple[CheckResult, ...]
    findings: Findings

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that found something, or could not run."""
        return tuple(each for each in self.checks if each.outcome in (Outcome.FAILED, Outcome.NOT_RUN))

    @property
    def exit_code(self) -> int:
        """0 nothing found; 3 everything that was found waits for a person; 1 otherwise."""
        if not self.failed:
            return 0
        is_waiting = all(each.outcome is Outcome.FAILED and LedgerCheck(each.name).needs_person for each in self.failed)
        return 3 if is_waiting else 1


def find_own(
    pipeline: str, questions: Iterable[Question], checks: Iterable[CheckResult], coverage: Coverage
) -> Findings:
    """Return what people are to know that only an audit finds, and which kinds of it this audit can say are over.

    Not those of a check that could not run, and none of the history when only a part of it was proved: an earlier audit
    may have found something in the rest.
    """
    outcome_by_name = {each.name: each.outcome for each in checks}
    own = [each for each in questions if each.check in _FAILURES]
    unknown = {each.check.kind for each in own if outcome_by_name[each.check] is Outcome.NOT_RUN}
    if not coverage.is_complete:
        unknown.add(IncidentKind.LEDGER_FINDING)
    found = [
        condition
        for each in own
        if outcome_by_name[each.check] is Outcome.FAILED
        for condition in _tell_question(pipeline, each)
    ]
    return Findings(tuple(found), frozenset(each.check.kind for each in own) - unknown)


def _tell_question(pipeline: str, question: Question) -> Iterator[Condition]:
    """One condition for each batch that nobody works on, and for each place that a proof names, else one for all."""
    if question.check is LedgerCheck.STALE_ATTEMPT:
        yield from (_tell(pipeline, question, each) for each in question.excesses)
    elif question.check.kind is IncidentKind.LEDGER_FINDING:
        yield from _tell_places(pipeline, question)
    else:
        yield _sum_up(pipeline, question, question.tell_excesses())


def _tell_places(pipeline: str, question: Question) -> Iterator[Condition]:
    """Tell of the first places one by one, so that a wrong batch is told although another one was; the rest is one."""
    lines_by_place: dict[str, list[str]] = {}
    for each in question.excesses:
        lines_by_place.setdefault(each.subject, []).append(each.detail)
    places = list(lines_by_place)
    for place in places[:FINDINGS_SHOWN]:
        yield _sum_up(pipeline, question, tuple(lines_by_place[place]), place)
    if len(places) > FINDINGS_SHOWN:
        yield _sum_up(pipeline, question, (f"and {len(places) - FINDINGS_SHOWN:,} more places",), "more places")


def _sum_up(pipeline: str, question: Question, lines: tuple[str, ...], place: str = "") -> Condition:
    return Condition(
        pipeline,
        question.check.kind,
        f"{question.check.value}, {place}" if place else "",
        question.check.severity,
        f"{question.check.failure}: {place}" if place else question.check.failure,
        lines,
        question.excesses[0].command,
    )


def _tell(pipeline: str, question: Question, fact: Fact) -> Condition:
    return Condition(
        pipeline,
        question.check.kind,
        fact.subject,
        question.check.severity,
        question.check.failure,
        (fact.detail,),
        fact.command,
        fact.batch_id,
        fact.run,
    )
