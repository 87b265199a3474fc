"""The facts of an audit: each function asks one thing of what was gathered, and names what is wrong. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from batchledger.batch import BatchState
from batchledger.health import PipelineHealth, PipelineState, Threats, describe_duration, describe_threats
from batchledger.housekeeping import StagingTable
from batchledger.ledger_audit import PROOF_BY_INVARIANT, AuditLimits, Fact, LedgerCheck, OpenBatch, Question
from batchledger.verification import Verification
from batchledger.window import Coverage

_OF_SOURCE = (LedgerCheck.LOSS, LedgerCheck.SOURCE, LedgerCheck.STUCK, LedgerCheck.EXPIRY, LedgerCheck.LAG)


def ask_proof(verification: Verification, coverage: Coverage) -> Iterator[Question]:
    """Ask what the proof of the history has found; what it has not looked at is part of every answer."""
    size = f"{verification.batches:,} batches, {verification.offsets:,} offsets, {verification.rows:,} rows"
    unproved = "; ".join(coverage.describe_unproved())
    scope = f"{size} ({unproved})" if unproved else size
    command = f"batchledger verify {verification.pipeline}"
    proved = (Fact(scope, 0),) if verification.batches else ()
    for invariant, check in PROOF_BY_INVARIANT.items():
        found = tuple(
            Fact(each.where, 1, f"{each.where}: {each.detail}", command)
            for each in verification.findings
            if each.invariant == invariant
        )
        yield Question(check, scope, found or proved)


def leave_unproved(reason: str) -> Iterator[Question]:
    """Say that the history could not be proved."""
    return (Question(check, "", unanswered=reason) for check in PROOF_BY_INVARIANT.values())


def ask_open_batches(
    pipeline: str, batches: Sequence[OpenBatch], now: datetime, limits: AuditLimits
) -> Iterator[Question]:
    """Ask whether a batch is open that nobody works on, or that waits for a person for too long.

    Nobody works on a batch whose newest attempt has ended no step for ``stale_after`` while nobody uses its staging.
    """
    blocked = [each for each in batches if each.state is BatchState.BLOCKED]
    working = [each for each in batches if each.state is not BatchState.BLOCKED]
    yield Question(
        LedgerCheck.STALE_ATTEMPT,
        f"{len(working)} batches at work",
        tuple(_stale_fact(pipeline, each, now) for each in working),
        limits.stale_after.total_seconds(),
    )
    if limits.blocked is not None:
        yield Question(
            LedgerCheck.BLOCKED,
            f"{len(blocked)} blocked batches",
            tuple(_blocked_fact(each, now) for each in blocked),
            limits.blocked.total_seconds(),
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


def ask_source(health: PipelineHealth, now: datetime, limits: AuditLimits) -> Iterator[Question]:
    """Ask what threatens the unread records. What could not be asked of Kafka is unanswered.

    Of another source nothing else is asked, and of one that has lost records not what threatens those that are left.
    """
    if health.state is PipelineState.UNKNOWN:
        asked = [each for each in _OF_SOURCE if each is not LedgerCheck.LAG or limits.lag is not None]
        yield from (Question(each, "", unanswered=health.detail) for each in asked)
        return
    yield _ask_state(health, PipelineState.SOURCE_CHANGED, LedgerCheck.SOURCE)
    if health.state is not PipelineState.SOURCE_CHANGED:
        yield _ask_state(health, PipelineState.LOSS, LedgerCheck.LOSS)
    if health.threats is not None:
        yield from _ask_threats(health.pipeline, health.threats, now, limits)


def _ask_state(health: PipelineHealth, state: PipelineState, check: LedgerCheck) -> Question:
    is_so = health.state is state
    command = f"batchledger plan {health.pipeline}"
    fact = Fact("", float(is_so), health.detail if is_so else "", command)
    return Question(check, "the position of each partition", (fact,))


def _ask_threats(pipeline: str, threats: Threats, now: datetime, limits: AuditLimits) -> Iterator[Question]:
    stuck = tuple(
        Fact(str(each.partition), float(each.is_stuck), _describe_alone(threats, str(each.partition), now))
        for each in threats.transactions
    )
    yield Question(LedgerCheck.STUCK, f"{len(stuck)} open transactions", stuck or (Fact("no open transaction", 0),))
    unread = f"{threats.unread_records:,} unread records"
    yield Question(LedgerCheck.EXPIRY, unread, _expiry_facts(pipeline, threats, now, limits))
    if limits.lag is not None:
        oldest = threats.oldest_unread
        since = oldest.oldest_unread_at if oldest and oldest.oldest_unread_at else now
        age = max(now - since, timedelta())
        detail = f"{unread}, the oldest of {describe_duration(age)} ago"
        fact = Fact("", age.total_seconds(), detail, f"batchledger plan {pipeline}")
        yield Question(LedgerCheck.LAG, unread, (fact,), limits.lag.total_seconds())


def _expiry_facts(pipeline: str, threats: Threats, now: datetime, limits: AuditLimits) -> tuple[Fact, ...]:
    """Return whether the oldest unread record expires soon: in a quarter of its topic's retention, at most in a day."""
    first = threats.first_to_expire
    if first is None or first.expires_at is None or first.oldest_unread_at is None:
        return (Fact("no unread record expires", 0),)
    left = first.expires_at - now
    is_soon = left <= min(limits.expiry_within, (first.expires_at - first.oldest_unread_at) / 4)
    when = f"in {describe_duration(left)}" if left > timedelta() else "at any moment"
    detail = f"{first.partition}: the oldest of {threats.unread_records:,} unread records may expire {when}"
    return (Fact("", float(is_soon), detail, f"batchledger run {pipeline} --until-caught-up"),)


def _stale_fact(pipeline: str, batch: OpenBatch, now: datetime) -> Fact:
    idle = timedelta() if batch.is_used else max(now - batch.last_step_at, timedelta())
    who = f"attempt {batch.attempt} of run {batch.run}" if batch.run else "no attempt"
    kind = "a dry run" if batch.is_dry_run else f"{batch.state}, lane {batch.lane}"
    again = f"batchledger run {pipeline} --batch {batch.batch_id}"
    command = f"batchledger discard {batch.batch_id} --reason WHY" if batch.is_dry_run else again
    detail = f"{batch.subject} is {kind}; {who} has ended no step for {describe_duration(idle)}"
    return Fact(batch.subject, idle.total_seconds(), detail, command, batch.batch_id, batch.run)


def _blocked_fact(batch: OpenBatch, now: datetime) -> Fact:
    age = max(now - batch.last_step_at, timedelta())
    detail = f"{batch.subject} of lane {batch.lane} is blocked since {describe_duration(age)}"
    command = f"batchledger batch {batch.batch_id}"
    return Fact(batch.subject, age.total_seconds(), detail, command, batch.batch_id, batch.run)


def _staging_fact(table: StagingTable, now: datetime, limits: AuditLimits) -> Fact:
    """A table that nobody has written down the end of is as old as can be."""
    age = 2 * limits.orphaned_after if table.over_since is None else max(now - table.over_since, timedelta())
    told = "at an unknown time" if table.over_since is None else f"{describe_duration(age)} ago"
    detail = f"{table.name} of an attempt that was over {told}"
    return Fact(table.name, age.total_seconds(), detail, "batchledger housekeeping", table.batch_id)


def _describe_alone(threats: Threats, partition: str, now: datetime) -> str:
    return next((line for line in describe_threats(threats, now) if line.startswith(f"{partition}: an open")), "")
