"""What of a pipeline people are to know, derived from what is stored: the ledger, and a survey of the source. Pure.

Nothing hangs on the memory of a run, so every run, the ledger's audit and the command line find the same. No text of an
exception that a transform, Spark or a table has raised is passed on: it may hold a record's values.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from batchledger.lifecycle.platform import Deadlines
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity
from batchledger.model.incidents import Condition, Findings, IncidentKind, Key
from batchledger.model.offsets import count_offsets, describe_ranges
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.stored_facts import JudgedBatch, StoredFacts
from batchledger.monitoring.health import (
    PipelineHealth,
    PipelineState,
    Threats,
    describe_duration,
    describe_transaction,
)

FAILURES_TO_TELL = 2
# Retention deletes whole segments, so the last quarter of its time is the time to act.
EXPIRY_SHARE = 0.25
CHECKS_TOLD = 20
_QUARANTINE_STEPS = (1, 100, 10_000, 1_000_000)
NAMES_IN_TITLE = 2

_OF_LEDGER = frozenset(
    {
        IncidentKind.BLOCKED,
        IncidentKind.BLOCKED_TOO_LONG,
        IncidentKind.CHECK_FAILED,
        IncidentKind.QUARANTINED,
        IncidentKind.FAILING,
        IncidentKind.FRESHNESS,
        IncidentKind.UNREACHABLE,
    }
)
_OF_THREATS = frozenset({IncidentKind.STUCK_TRANSACTION, IncidentKind.EXPIRY_NEAR, IncidentKind.LAG})
# Their subject is a batch, and they are over with it.
_OF_BATCH = frozenset(
    {IncidentKind.BLOCKED, IncidentKind.BLOCKED_TOO_LONG, IncidentKind.FAILING, IncidentKind.STALE_ATTEMPT}
)


def find_conditions(stored: StoredFacts, health: PipelineHealth, deadlines: Deadlines, now: datetime) -> Findings:
    """Return everything that people are to know of the pipeline.

    What the survey could not ask is left out of what was looked for, so that nothing ends because Kafka is silent.
    """
    found = (
        *_of_batches(stored, deadlines, now),
        *_of_publication(stored),
        *_of_quarantine(stored.quarantine, health.pipeline),
        *_of_freshness(stored, health.pipeline, deadlines, now),
        *_of_survey(health),
        *(_of_threats(health.pipeline, health.threats, deadlines, now) if health.threats else ()),
    )
    return Findings(found, _OF_LEDGER | _find_asked(health), _find_unknown(stored), dict(_explain_ends(stored)))


def _find_asked(health: PipelineHealth) -> frozenset[IncidentKind]:
    """Return what the survey can say is over. Of another topic nobody knows what the old one has lost."""
    if health.state is PipelineState.UNKNOWN:
        return frozenset()
    if health.state is PipelineState.SOURCE_CHANGED:
        return frozenset({IncidentKind.SOURCE_CHANGED})
    source = frozenset({IncidentKind.LOSS, IncidentKind.SOURCE_CHANGED})
    return source if health.threats is None else source | _OF_THREATS


def _find_unknown(stored: StoredFacts) -> frozenset[Key]:
    """A check that had nothing to judge does not say that what it once found is over."""
    return frozenset(
        _key_of(facts.batch, check)
        for facts in stored.newest_published
        for check in facts.checks
        if check.outcome is Outcome.EMPTY
    )


def _explain_ends(stored: StoredFacts) -> Iterator[tuple[Key, str]]:
    """Say of each open incident of a batch or a check how it is over, if it is."""
    judged = {
        _key_of(facts.batch, check): (facts, check) for facts in stored.newest_published for check in facts.checks
    }
    for each in stored.open_incidents:
        _, kind, _ = each.key
        if each.batch_state is BatchState.DISCARDED and (kind in _OF_BATCH or kind == IncidentKind.CHECK_FAILED):
            yield each.key, "discarded"
        elif kind in _OF_BATCH and each.batch_state is not None and each.batch_state.is_permitted:
            accepted = "accepted by a person" if each.is_accepted else ""
            published = "published" if each.batch_state is BatchState.PUBLISHED else ""
            yield each.key, " and ".join(part for part in (accepted, published) if part)
        elif kind == IncidentKind.CHECK_FAILED:
            yield each.key, _explain_check(*judged[each.key]) if each.key in judged else "not asked for any more"
        elif kind == IncidentKind.QUARANTINED:
            left = stored.quarantine.records
            yield each.key, f"{left:,} are left" if left else "nothing is in quarantine any more"


def _explain_check(facts: JudgedBatch, check: CheckResult) -> str:
    if check.passed:
        return f"passed in {facts.batch.subject}"
    return f"accepted in {facts.batch.subject}" if facts.is_accepted else "only recorded now"


def _of_batches(stored: StoredFacts, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    for facts in stored.open_batches:
        batch = facts.batch
        if facts.is_blocked:
            yield _blocked(facts)
            age = now - facts.blocked_since if facts.blocked_since else timedelta()
            if deadlines.blocked is not None and age > deadlines.blocked:
                title = f"blocked for more than {describe_duration(deadlines.blocked)}"
                line = f"{batch.label} waits for a person since {facts.blocked_since:%Y-%m-%d %H:%M} UTC"
                yield _of_batch(batch, IncidentKind.BLOCKED_TOO_LONG, title, (line, *_tell_retake(facts)))
        else:
            # A critical check that could not run leaves the batch as it is.
            yield from _failed_checks(batch, (each for each in facts.checks if each.outcome is Outcome.NOT_RUN))
        if facts.failures_in_a_row >= FAILURES_TO_TELL:
            attempts = f"{facts.failures_in_a_row} attempts of {batch.label} in a row have failed"
            lines = (
                f"{attempts}, the newest in run {batch.attempt_run}",
                f"the newest error is of its {facts.failed_step} step" if facts.failed_step else "",
                "the errors are in the output of the command below, and in the tasks' logs",
            )
            title = f"failing — {facts.failures_in_a_row} attempts in a row"
            yield _of_batch(batch, IncidentKind.FAILING, title, tuple(filter(None, lines)))


def _blocked(facts: JudgedBatch) -> Condition:
    batch, failed = facts.batch, [each for each in facts.checks if each.blocks]
    names = ", ".join(each.name for each in failed[:NAMES_IN_TITLE])
    more = f" and {len(failed) - NAMES_IN_TITLE} more" if len(failed) > NAMES_IN_TITLE else ""
    title = f"blocked — {names}{more}" if failed else "blocked"
    count = count_offsets(batch.ranges)
    offsets = f"{count:,} {'offset' if count == 1 else 'offsets'} in {describe_ranges(batch.ranges)}"
    lines = (
        f"{batch.label} stays invisible: {offsets}",
        *_tell_retake(facts),
        *(_describe_check(each) for each in failed[:CHECKS_TOLD]),
    )
    return _of_batch(batch, IncidentKind.BLOCKED, title, lines)


def _tell_retake(facts: JudgedBatch) -> tuple[str, ...]:
    batch = facts.batch
    return (f"attempt {batch.attempt} has taken it again and is not judged yet",) if facts.is_taken_again else ()


def _of_publication(stored: StoredFacts) -> Iterator[Condition]:
    """Find what failed in the newest published batches; a critical check only where no person has accepted it."""
    for published in stored.newest_published:
        told = (each for each in published.checks if not (published.is_accepted and each.blocks))
        yield from _failed_checks(published.batch, told)


def _of_quarantine(content: QuarantineContent, pipeline: str) -> Iterator[Condition]:
    """Find that records are in quarantine, and again when there are a hundred times as many.

    One incident for each of ``_QUARANTINE_STEPS`` that is reached, until fewer are left.
    """
    command, kind = f"batchledger quarantine list {pipeline}", IncidentKind.QUARANTINED
    for step in _QUARANTINE_STEPS:
        if content.records >= step:
            more = f"{step:,} or more"
            subject, title = ("", content.title) if step == 1 else (more, f"{more} records in quarantine")
            yield Condition(pipeline, kind, subject, Severity.WARNING, title, content.lines, command)


def _failed_checks(batch: Batch, checks: Iterable[CheckResult]) -> Iterator[Condition]:
    for check in checks:
        if check.severity is Severity.INFO or check.outcome not in (Outcome.FAILED, Outcome.NOT_RUN):
            continue
        is_judged = check.outcome is Outcome.FAILED
        what = "check failed" if is_judged else "check could not run"
        yield Condition(
            *_key_of(batch, check),
            check.severity,
            f"{what} — {check.name}",
            (f"{batch.label} is {batch.state}", _describe_check(check)),
            f"batchledger batch {batch.batch_id}",
            batch.batch_id,
            batch.attempt_run,
        )


def _key_of(batch: Batch, check: CheckResult) -> tuple[str, IncidentKind, str]:
    """A live batch goes on with the check of the one before; a replay says nothing of others."""
    subject = check.name if batch.lane is Lane.LIVE else f"{check.name}, {batch.subject}"
    return batch.pipeline, IncidentKind.CHECK_FAILED, subject


def _of_freshness(stored: StoredFacts, pipeline: str, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    """Before the first publication the time counts from the first plan."""
    since, limit = stored.published_at or stored.known_since, deadlines.freshness
    if since is not None and limit is not None and now - since > limit:
        title = f"nothing published for more than {describe_duration(limit)}"
        first = "the last publication was" if stored.published_at else "nothing was published since the first plan"
        line = f"{first} at {since:%Y-%m-%d %H:%M} UTC, {describe_duration(now - since)} ago"
        command = f"batchledger batches {pipeline}"
        yield Condition(pipeline, IncidentKind.FRESHNESS, "", Severity.WARNING, title, (line,), command)


def _of_survey(health: PipelineHealth) -> Iterator[Condition]:
    kind, severity, title = {
        PipelineState.LOSS: (IncidentKind.LOSS, Severity.CRITICAL, "unread records are lost"),
        PipelineState.SOURCE_CHANGED: (IncidentKind.SOURCE_CHANGED, Severity.CRITICAL, "the topic is another one"),
        PipelineState.UNKNOWN: (IncidentKind.UNREACHABLE, Severity.WARNING, "the source cannot be asked"),
    }.get(health.state, (None, Severity.INFO, ""))
    if kind is not None:
        command = f"batchledger plan {health.pipeline}"
        yield Condition(health.pipeline, kind, "", severity, title, (health.detail,), command)


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
    subject, command = batch.subject, f"batchledger batch {batch.batch_id}"
    return Condition(
        batch.pipeline, kind, subject, Severity.CRITICAL, title, lines, command, batch.batch_id, batch.attempt_run
    )


def _describe_check(check: CheckResult) -> str:
    return f"{check.name}: {check.public_detail}"
