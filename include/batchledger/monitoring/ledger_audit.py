"""The questions of a periodic audit of a pipeline, and the messages about the answers. Pure.

Each question is about facts that were gathered once (``audit_questions``); Great Expectations judges them
(``checks/ledger.py``). A question that could not be asked is unanswered, never passed. An
audit of the newest batches says what it has not looked at, and does not end an incident that lies there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from batchledger.model.batch import BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.findings import IncidentKind, LedgerCheck, Place, WatchCheck, list_kinds
from batchledger.model.incidents import Condition, Findings
from batchledger.monitoring.health import PipelineHealth
from batchledger.proof.newest import Coverage

FINDINGS_SHOWN = 20


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
    """One thing that was looked at. ``value`` is at most the limit of its question when it is as it should be.

    ``command`` answers it if the catalogue's does not.
    """

    subject: str
    value: float
    detail: str = ""
    command: str = ""
    batch_id: int | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One check with its facts. ``scope`` says what was looked at; ``unanswered`` why that was impossible.

    ``proved`` is what holds when nothing is found, if that is not the same for every pipeline.
    """

    check: LedgerCheck | WatchCheck
    scope: str
    facts: tuple[Fact, ...] = ()
    limit: float = 0
    unanswered: str = ""
    proved: str = ""

    @property
    def promise(self) -> str:
        """What holds when nothing is found."""
        return self.proved or self.check.row.promise

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
    """The outcome of one audit. ``findings`` are what people are to know, what every run finds too among it.

    ``health`` is how the pipeline stood meanwhile.
    """

    pipeline: str
    audited_at: datetime
    coverage: Coverage
    checks: tuple[CheckResult, ...]
    findings: Findings
    health: PipelineHealth

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that found something, or could not run."""
        return tuple(each for each in self.checks if each.outcome in (Outcome.FAILED, Outcome.NOT_RUN))

    @property
    def exit_code(self) -> int:
        """0 nothing found; 3 everything that was found waits for a person; 1 otherwise."""
        if not self.failed:
            return 0
        is_waiting = all(
            each.outcome is Outcome.FAILED and LedgerCheck(each.name).row.needs_person for each in self.failed
        )
        return 3 if is_waiting else 1


def find_own(
    pipeline: str, questions: Iterable[Question], checks: Iterable[CheckResult], coverage: Coverage
) -> Findings:
    """Return the incidents that only an audit finds, and the kinds of them that this audit can say are over.

    A check that could not run ends no incident. An audit of a part of the history ends no incident of the history: an
    earlier audit may have found something in the rest.
    """
    outcome_by_name = {each.name: each.outcome for each in checks}
    own = [each for each in questions if each.check.row.kind in list_kinds(Place.AUDIT)]
    unknown = {each.check.row.kind for each in own if outcome_by_name[each.check] is Outcome.NOT_RUN}
    if not coverage.is_complete:
        unknown.add(IncidentKind.LEDGER_FINDING)
    found = [
        condition
        for each in own
        if outcome_by_name[each.check] is Outcome.FAILED
        for condition in _tell_question(pipeline, each)
    ]
    return Findings(tuple(found), frozenset(each.check.row.kind for each in own) - unknown)


def _tell_question(pipeline: str, question: Question) -> Iterator[Condition]:
    """Yield a condition for each batch without a run, for each place that a proof names, else one for all."""
    kind = question.check.row.kind
    if kind.row.is_of_batch:
        yield from (_tell(pipeline, question, each) for each in question.excesses)
    elif kind is IncidentKind.LEDGER_FINDING:
        yield from _tell_places(pipeline, question)
    else:
        yield Condition.of(kind, pipeline, lines=question.tell_excesses())


def _tell_places(pipeline: str, question: Question) -> Iterator[Condition]:
    """Yield a condition for each of the first places, so a further wrong batch is reported too; the rest is one."""
    lines_by_place: dict[str, list[str]] = {}
    for each in question.excesses:
        lines_by_place.setdefault(each.subject, []).append(each.detail)
    told = {place: tuple(lines_by_place[place]) for place in list(lines_by_place)[:FINDINGS_SHOWN]}
    if more := len(lines_by_place) - len(told):
        told["more places"] = (f"and {more:,} more places",)
    for place, lines in told.items():
        title = f"{question.check.row.happened}: {place}"
        yield Condition.of(question.check.row.kind, pipeline, title, lines, subject=f"{question.check}, {place}")


def _tell(pipeline: str, question: Question, fact: Fact) -> Condition:
    kind, lines = question.check.row.kind, (fact.detail,)
    told = Condition.of(kind, pipeline, lines=lines, subject=fact.subject, batch_id=fact.batch_id, run=fact.run)
    return replace(told, command=fact.command or told.command)
