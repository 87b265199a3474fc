"""What of a pipeline people are to know, derived from what is stored: the ledger, and a survey of the source. Pure.

Nothing hangs on the memory of a run, so every run, the ledger's audit and the command line find the same. No text of an
exception that a transform, Spark or a table has raised is passed on: it may hold a record's values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from batchledger.batch import Batch, BatchState
from batchledger.checking import CheckResult, Outcome, Severity
from batchledger.health import PipelineHealth, PipelineState, Threats, describe_duration, describe_transaction
from batchledger.incidents import Condition, IncidentKind
from batchledger.offsets import count_offsets, describe_ranges
from batchledger.pipeline import Deadlines
from batchledger.stored_facts import BatchFacts, StoredFacts

FAILURES_TO_TELL = 2
# Retention deletes whole segments, so the last quarter of its time is the time to act.
EXPIRY_SHARE = 0.25
CHECKS_TOLD = 20
NAMES_IN_TITLE = 2

_OF_LEDGER = frozenset(
    {
        IncidentKind.BLOCKED,
        IncidentKind.BLOCKED_TOO_LONG,
        IncidentKind.CHECK_FAILED,
        IncidentKind.FAILING,
        IncidentKind.FRESHNESS,
        IncidentKind.UNREACHABLE,
    }
)
_OF_SOURCE = frozenset({IncidentKind.LOSS, IncidentKind.SOURCE_CHANGED})
_OF_THREATS = frozenset({IncidentKind.STUCK_TRANSACTION, IncidentKind.EXPIRY_NEAR, IncidentKind.LAG})
KINDS_OF_A_LOOK = _OF_LEDGER | _OF_SOURCE | _OF_THREATS


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look has found, and which kinds it could look for."""

    found: tuple[Condition, ...] = ()
    looked_for: frozenset[IncidentKind] = field(default_factory=frozenset)

    def without(self, kinds: frozenset[IncidentKind]) -> "Findings":
        """Return what is of other kinds."""
        return Findings(tuple(each for each in self.found if each.kind not in kinds), self.looked_for - kinds)

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(self.found + other.found, self.looked_for | other.looked_for)


def find_conditions(stored: StoredFacts, health: PipelineHealth, deadlines: Deadlines, now: datetime) -> Findings:
    """Return everything that people are to know of the pipeline.

    What the survey could not ask is left out of what was looked for, so that nothing ends because Kafka is silent.
    """
    looked_for = _OF_LEDGER
    if health.state is not PipelineState.UNKNOWN:
        looked_for |= _OF_SOURCE
    if health.threats is not None:
        looked_for |= _OF_THREATS
    found = (
        *_of_batches(stored, deadlines, now),
        *_of_publication(stored),
        *_of_freshness(stored, health.pipeline, deadlines, now),
        *_of_survey(health),
        *(_of_threats(health.pipeline, health.threats, deadlines, now) if health.threats else ()),
    )
    return Findings(found, looked_for)


def _of_batches(stored: StoredFacts, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    for facts in stored.open_batches:
        batch = facts.batch
        if batch.state is BatchState.BLOCKED:
            yield _blocked(facts)
            age = now - facts.blocked_since if facts.blocked_since else timedelta()
            if deadlines.blocked is not None and age > deadlines.blocked:
                title = f"blocked for more than {describe_duration(deadlines.blocked)}"
                line = f"{batch.label} waits for a person since {facts.blocked_since:%Y-%m-%d %H:%M} UTC"
                yield _of_batch(batch, IncidentKind.BLOCKED_TOO_LONG, title, (line,))
        else:
            # A critical check that could not run leaves the batch as it is.
            yield from _failed_checks(batch, (each for each in facts.checks if each.outcome is Outcome.NOT_RUN))
        if facts.failures_in_a_row >= FAILURES_TO_TELL:
            attempts = f"{facts.failures_in_a_row} attempts of {batch.label} in a row have failed"
            lines = (
                f"{attempts}, the newest in run {batch.attempt_run}",
                "the errors are in the output of the command below, and in the tasks' logs",
            )
            title = f"failing — {facts.failures_in_a_row} attempts in a row"
            yield _of_batch(batch, IncidentKind.FAILING, title, lines)


def _blocked(facts: BatchFacts) -> Condition:
    batch, failed = facts.batch, [each for each in facts.checks if each.blocks]
    names = ", ".join(each.name for each in failed[:NAMES_IN_TITLE])
    more = f" and {len(failed) - NAMES_IN_TITLE} more" if len(failed) > NAMES_IN_TITLE else ""
    title = f"blocked — {names}{more}" if failed else "blocked"
    offsets = f"{count_offsets(batch.ranges):,} offsets in {describe_ranges(batch.ranges)}"
    lines = (
        f"{batch.label} stays invisible: {offsets}",
        *(_describe_check(each) for each in failed[:CHECKS_TOLD]),
    )
    return _of_batch(batch, IncidentKind.BLOCKED, title, lines)


def _of_publication(stored: StoredFacts) -> Iterator[Condition]:
    """Find what failed in the newest published batch; a critical check only where no person has accepted it."""
    if stored.newest_published is not None:
        published = stored.newest_published
        told = (each for each in published.checks if not (published.is_accepted and each.blocks))
        yield from _failed_checks(published.batch, told)


def _failed_checks(batch: Batch, checks: Iterable[CheckResult]) -> Iterator[Condition]:
    for check in checks:
        if check.severity is Severity.INFO or check.outcome not in (Outcome.FAILED, Outcome.NOT_RUN):
            continue
        is_judged = check.outcome is Outcome.FAILED
        what = "check failed" if is_judged else "check could not run"
        yield Condition(
            batch.pipeline,
            IncidentKind.CHECK_FAILED,
            check.name,
            check.severity,
            f"{what} — {check.name}",
            (f"{batch.label} is {batch.state}", _describe_check(check)),
            f"batchledger batch {batch.batch_id}",
            batch.batch_id,
            batch.attempt_run,
        )


def _of_freshness(stored: StoredFacts, pipeline: str, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    since, limit = stored.published_at, deadlines.freshness
    if since is not None and limit is not None and now - since > limit:
        title = f"nothing published for more than {describe_duration(limit)}"
        line = f"the last publication was at {since:%Y-%m-%d %H:%M} UTC, {describe_duration(now - since)} ago"
        command = f"batchledger batches {pipeline}"
        yield Condition(pipeline, IncidentKind.FRESHNESS, "", Severity.WARNING, title, (line,), command)


def _of_survey(health: PipelineHealth) -> Iterator[Condition]:
    kind, title = {
        PipelineState.LOSS: (IncidentKind.LOSS, "unread records are lost"),
        PipelineState.SOURCE_CHANGED: (IncidentKind.SOURCE_CHANGED, "the topic is another one"),
        PipelineState.UNKNOWN: (IncidentKind.UNREACHABLE, "cannot be looked at"),
    }.get(health.state, (None, ""))
    if kind is not None:
        command = f"batchledger plan {health.pipeline}"
        yield Condition(health.pipeline, kind, "", Severity.CRITICAL, title, (health.detail,), command)


def _of_threats(pipeline: str, threats: Threats, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    command = f"batchledger plan {pipeline}"
    for each in threats.transactions:
        if each.is_stuck:
            title, kind = f"stuck transaction in {each.partition}", IncidentKind.STUCK_TRANSACTION
            line = describe_transaction(each, now)
            yield Condition(pipeline, kind, str(each.partition), Severity.CRITICAL, title, (line,), command)
    expiring, oldest = threats.first_to_expire, threats.oldest_unread
    if expiring and expiring.expires_at and expiring.oldest_unread_at:
        left, retention = expiring.expires_at - now, expiring.expires_at - expiring.oldest_unread_at
        if left <= retention * EXPIRY_SHARE:
            when = f"in {describe_duration(left)}" if left > timedelta() else "at any moment"
            line = f"{expiring.partition}@{expiring.next_offset}: the oldest unread record may expire {when}"
            title = "unread records are about to expire"
            yield Condition(pipeline, IncidentKind.EXPIRY_NEAR, "", Severity.CRITICAL, title, (line,), command)
    if oldest and oldest.oldest_unread_at and deadlines.lag is not None:
        age = now - oldest.oldest_unread_at
        if age > deadlines.lag:
            first = f"the oldest record, {oldest.partition}@{oldest.next_offset}, is {describe_duration(age)} old"
            line = f"{threats.unread_records:,} unread offsets; {first}"
            title = f"lag of more than {describe_duration(deadlines.lag)}"
            yield Condition(pipeline, IncidentKind.LAG, "", Severity.WARNING, title, (line,), command)


def _of_batch(batch: Batch, kind: IncidentKind, title: str, lines: tuple[str, ...]) -> Condition:
    """Return a critical condition whose subject is the batch."""
    subject, command = f"batch {batch.batch_id}", f"batchledger batch {batch.batch_id}"
    return Condition(
        batch.pipeline, kind, subject, Severity.CRITICAL, title, lines, command, batch.batch_id, batch.attempt_run
    )


def _describe_check(check: CheckResult) -> str:
    return f"{check.name}: {check.public_detail}"
