"""The facts of an audit: each function asks one thing of what was gathered, and names what is wrong. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from batchledger.lifecycle.platform import Deadlines
from batchledger.model.batch import BatchState
from batchledger.model.counting import describe_count
from batchledger.model.findings import IncidentKind, LedgerCheck, PipelineState, Place, list_kinds
from batchledger.model.housekeeping import StagingTable
from batchledger.model.incidents import Condition, Findings
from batchledger.model.records.rules import SinkMode
from batchledger.monitoring.health import PipelineHealth, describe_duration
from batchledger.monitoring.ledger_audit import AuditLimits, Fact, OpenBatch, Question
from batchledger.proof.newest import Coverage
from batchledger.proof.verification import Verification

_PROOFS = tuple(each for each in LedgerCheck if each.row.invariant)
# What every run finds too.
_SHARED = tuple(each for each in LedgerCheck if each.row.kind not in list_kinds(Place.AUDIT))


def ask_proof(verification: Verification, coverage: Coverage) -> Iterator[Question]:
    """Ask what the proof of the history has found; since when it has looked is part of every answer.

    Nothing is asked about a target that was not compared.
    """
    counts = ((verification.batches, "batch", "batches"), (verification.offsets, "offset"), (verification.rows, "row"))
    size = ", ".join(describe_count(*each) for each in counts)
    scope = size if coverage.since is None else f"{size} since {coverage.since:%Y-%m-%d %H:%M:%S} UTC"
    clean = (Fact(scope, 0),) if verification.batches else ()
    for check in _PROOFS:
        if check is LedgerCheck.TARGET and verification.not_compared:
            continue
        found = tuple(
            Fact(each.where, 1, f"{each.where}: {each.detail}")
            for each in verification.findings
            if each.invariant == check.row.invariant
        )
        differs = check is LedgerCheck.TARGET and verification.mode is not SinkMode.APPEND
        proved = f"{verification.proved_of_target}." if differs else ""
        yield Question(check, scope, found or clean, proved=proved)


def leave_unproved(reason: str) -> Iterator[Question]:
    """Say that the history could not be proved."""
    return (Question(check, "", unanswered=reason) for check in _PROOFS)


def ask_open_batches(batches: Sequence[OpenBatch], now: datetime, limits: AuditLimits) -> Question:
    """Ask whether a batch is open that no run works on.

    Its newest attempt has ended no step for ``stale_after``, and no connection uses its staging. A blocked batch waits
    for a person.
    """
    working = [each for each in batches if each.state is not BatchState.BLOCKED]
    return Question(
        LedgerCheck.STALE_ATTEMPT,
        f"{describe_count(len(working), 'batch', 'batches')} at work",
        tuple(_stale_fact(each, now) for each in working),
        limits.stale_after.total_seconds(),
    )


def ask_staging(tables: Iterable[StagingTable], now: datetime, limits: AuditLimits) -> Question:
    """Ask whether tables lie in staging that housekeeping should have removed."""
    facts = tuple(_staging_fact(each, now, limits) for each in tables if each.is_over)
    return Question(
        LedgerCheck.STAGING,
        f"{len(facts)} staging tables of attempts that are over",
        facts,
        limits.orphaned_after.total_seconds(),
    )


def ask_findings(findings: Findings, health: PipelineHealth, deadlines: Deadlines, now: datetime) -> Iterator[Question]:
    """Ask for what every run looks for as well, so that runs and audits never contradict each other.

    A question that Kafka could not answer is unanswered. If the source is another one, no more is asked about it. If it
    has lost records, threats to the remaining ones are left out. A deadline is asked about only if it is set. A
    retired pipeline was not looked at, so nothing is asked.
    """
    if health.state is PipelineState.RETIRED:
        return
    unasked = {LedgerCheck.LAG} if deadlines.lag is None else set()
    if deadlines.blocked is None:
        unasked.add(LedgerCheck.BLOCKED)
    if health.state in (PipelineState.SOURCE_CHANGED, PipelineState.LOSS, PipelineState.AWAITING):
        unasked |= {LedgerCheck.STUCK, LedgerCheck.EXPIRY, LedgerCheck.LAG}
    if health.state is PipelineState.SOURCE_CHANGED:
        unasked.add(LedgerCheck.LOSS)
    for check in _SHARED:
        if check in unasked or _is_hidden(check.row.kind, findings):
            continue
        found = tuple(_found_fact(each) for each in findings.found if each.kind is check.row.kind)
        unanswered = "" if check.row.kind in findings.looked_for else health.detail
        scope = _describe_scope(check, health, now)
        yield Question(check, scope, found or (Fact(scope, 0),), unanswered=unanswered)


def _is_hidden(kind: IncidentKind, findings: Findings) -> bool:
    """Whether it is a symptom beside its cause, so that nothing is said of it."""
    return kind.row.is_symptom and kind in findings.looked_for and any(each is kind for _, each, _ in findings.unknown)


def _describe_scope(check: LedgerCheck, health: PipelineHealth, now: datetime) -> str:
    """Say what was looked at, with the numbers that matter although nothing is wrong with them."""
    if check is LedgerCheck.BLOCKED:
        return "the open batches"
    if health.threats is None or check in (LedgerCheck.SOURCE, LedgerCheck.LOSS):
        return "the position of each partition"
    if check is LedgerCheck.STUCK:
        return f"{len(health.threats.transactions)} open transactions"
    unread, first = f"{health.threats.unread_records:,} unread records", health.threats.first_to_expire
    if check is LedgerCheck.EXPIRY and first is not None and first.expires_at is not None:
        return f"{unread}, the oldest may expire in {describe_duration(first.expires_at - now)}"
    return unread


def _found_fact(condition: Condition) -> Fact:
    detail = "; ".join(each.strip() for each in condition.facts)
    return Fact(condition.subject, 1, detail, batch_id=condition.batch_id, run=condition.run)


def _stale_fact(batch: OpenBatch, now: datetime) -> Fact:
    idle = timedelta() if batch.is_used else max(now - batch.last_step_at, timedelta())
    who = f"attempt {batch.attempt} of run {batch.run}" if batch.run else "no attempt"
    kind = "a dry run" if batch.is_dry_run else f"{batch.state}, lane {batch.lane}"
    command = f"batchledger discard {batch.batch_id} --reason WHY" if batch.is_dry_run else ""
    detail = f"{batch.subject} is {kind}; {who} has ended no step for {describe_duration(idle)}"
    return Fact(batch.subject, idle.total_seconds(), detail, command, batch.batch_id, batch.run)


def _staging_fact(table: StagingTable, now: datetime, limits: AuditLimits) -> Fact:
    """A table whose end is unknown counts as twice as old as the limit."""
    age = 2 * limits.orphaned_after if table.over_since is None else max(now - table.over_since, timedelta())
    told = "at an unknown time" if table.over_since is None else f"{describe_duration(age)} ago"
    detail = f"{table.name} of an attempt that was over {told}"
    return Fact(table.name, age.total_seconds(), detail, batch_id=table.batch_id)
