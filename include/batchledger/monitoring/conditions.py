"""What of a pipeline people are to know, derived from what is stored: the ledger, and a survey of the source. Pure.

Nothing hangs on the memory of a run, so every run, the ledger's audit and the command line find the same. No text of an
exception that a transform, Spark or a table has raised is passed on: it may hold a record's values.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from batchledger.lifecycle.platform import Deadlines
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome, Severity, sort_causes_first
from batchledger.model.counting import describe_count
from batchledger.model.findings import IncidentKind, PipelineState, Place, list_kinds
from batchledger.model.incidents import Condition, Findings, Key
from batchledger.model.offsets import count_offsets
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.refusals import ways_out
from batchledger.model.stored_facts import JudgedBatch, StoredFacts
from batchledger.monitoring.health import PipelineHealth, Threats, describe_duration, describe_transaction

FAILURES_TO_TELL = 2
# Retention deletes whole segments, so the last quarter of its time is the time to act.
EXPIRY_SHARE = 0.25
CHECKS_TOLD = 20
PLACES_TOLD = 5
_QUARANTINE_STEPS = (1, 100, 10_000, 1_000_000)
NAMES_IN_TITLE = 2


def find_conditions(stored: StoredFacts, health: PipelineHealth, deadlines: Deadlines, now: datetime) -> Findings:
    """Return everything that people are to know of the pipeline.

    What the survey could not ask is left out of what was looked for, so that nothing ends because Kafka is silent. A
    symptom neither begins nor ends beside its cause: one cause is one message.
    People need to know nothing of a retired pipeline.
    """
    if health.state is PipelineState.RETIRED:
        return Findings((), list_kinds(Place.LEDGER, Place.SURVEY, Place.THREATS))
    found = (
        *_of_batches(stored, health.threats, deadlines, now),
        *_of_publication(stored),
        *_of_quarantine(stored.quarantine, health.pipeline),
        *_of_freshness(stored, health, deadlines, now),
        *_of_survey(health),
        *(_of_threats(health.pipeline, health.threats, deadlines, now) if health.threats else ()),
    )
    asked, unknown = list_kinds(Place.LEDGER) | _find_asked(health), _find_unknown(stored)
    if any(each.kind.row.state is health.state for each in found):
        symptoms = {kind for kind in IncidentKind if kind.row.is_symptom}
        found = tuple(each for each in found if each.kind not in symptoms)
        unknown |= {(health.pipeline, kind, "") for kind in symptoms}
    return Findings(found, asked, unknown, dict(_explain_ends(stored)))


def _find_asked(health: PipelineHealth) -> frozenset[IncidentKind]:
    """Return what the survey can say is over. Losses of a replaced topic are unknown."""
    if health.state is PipelineState.UNKNOWN:
        return frozenset({IncidentKind.UNREACHABLE})
    if health.state is PipelineState.SOURCE_CHANGED:
        return frozenset({IncidentKind.UNREACHABLE, IncidentKind.SOURCE_CHANGED, IncidentKind.TOPIC_AWAITED})
    return list_kinds(Place.SURVEY) if health.threats is None else list_kinds(Place.SURVEY, Place.THREATS)


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
        kind = IncidentKind(each.key[1])
        is_of_batch = kind.row.is_of_batch
        if each.batch_state is BatchState.DISCARDED and (is_of_batch or kind is IncidentKind.CHECK_FAILED):
            yield each.key, "discarded"
        elif is_of_batch and each.batch_state is not None and each.batch_state.is_permitted:
            accepted = "accepted by a person" if each.is_accepted else ""
            published = "published" if each.batch_state is BatchState.PUBLISHED else ""
            yield each.key, " and ".join(part for part in (accepted, published) if part)
        elif kind is IncidentKind.CHECK_FAILED:
            yield each.key, _explain_check(*judged[each.key]) if each.key in judged else "not asked for any more"
        elif kind is IncidentKind.QUARANTINED:
            left = stored.quarantine.records
            yield each.key, f"{left:,} are left" if left else "nothing is in quarantine any more"


def _explain_check(facts: JudgedBatch, check: CheckResult) -> str:
    if check.passed:
        return f"passed in {facts.batch.subject}"
    return f"accepted in {facts.batch.subject}" if facts.is_accepted else "only recorded now"


def _of_batches(
    stored: StoredFacts, threats: Threats | None, deadlines: Deadlines, now: datetime
) -> Iterator[Condition]:
    for facts in stored.open_batches:
        batch = facts.batch
        # A replay holds no record back.
        waiting = tell_waiting(threats, now) if batch.lane is Lane.LIVE else ()
        if facts.is_blocked:
            yield _blocked(facts, waiting)
            age = now - facts.blocked_since if facts.blocked_since else timedelta()
            if deadlines.blocked is not None and age > deadlines.blocked:
                more = f" for more than {describe_duration(deadlines.blocked)}"
                line = f"{batch.label} waits for a person since {facts.blocked_since:%Y-%m-%d %H:%M} UTC"
                lines = (line, *_tell_retake(facts), *waiting, *_tell_ways(facts))
                yield _of_batch(batch, IncidentKind.BLOCKED_TOO_LONG, more, lines)
        else:
            # A critical check that could not run leaves the batch as it is.
            yield from _failed_checks(batch, (each for each in facts.checks if each.outcome is Outcome.NOT_RUN))
        if facts.failures_in_a_row >= FAILURES_TO_TELL:
            attempts = f"{facts.failures_in_a_row} attempts of {batch.label} in a row have failed"
            lines = (
                f"{attempts}, the newest in run {batch.attempt_run}",
                *([f"the newest error is of its {facts.failed_step} step"] if facts.failed_step else []),
                "the errors are in the output of the command below, and in the tasks' logs",
                *waiting,
                "",
                f"Remove the cause, then try it again: batchledger run {batch.pipeline} --batch {batch.batch_id}",
            )
            more = f" — {facts.failures_in_a_row} attempts in a row"
            yield _of_batch(batch, IncidentKind.FAILING, more, lines)


def _blocked(facts: JudgedBatch, waiting: Iterable[str]) -> Condition:
    batch, failed = facts.batch, sort_causes_first(each for each in facts.checks if each.blocks)
    names = ", ".join(each.name for each in failed[:NAMES_IN_TITLE])
    more = f" and {len(failed) - NAMES_IN_TITLE} more" if len(failed) > NAMES_IN_TITLE else ""
    lines = (
        *_tell_offsets(batch),
        *_tell_retake(facts),
        *(line for each in failed[:CHECKS_TOLD] for line in _tell_check(each)),
        *waiting,
        *_tell_ways(facts),
    )
    return _of_batch(batch, IncidentKind.BLOCKED, f" — {names}{more}" if failed else "", lines)


def _tell_offsets(batch: Batch) -> tuple[str, ...]:
    """Say how much is invisible: one range beside the number, several on lines of their own."""
    told = f"{batch.label} stays invisible: {describe_count(count_offsets(batch.ranges), 'offset')} in"
    if len(batch.ranges) == 1:
        return (f"{told} {batch.ranges[0]}",)
    return f"{told} {len(batch.ranges):,} ranges", *tell_some([str(each) for each in batch.ranges])


def _tell_ways(facts: JudgedBatch) -> tuple[str, ...]:
    """Return the commands between which a person decides; a batch that was taken again has nothing to decide yet."""
    return () if facts.is_taken_again else ("", *ways_out(facts.batch, facts.checks).splitlines())


def tell_waiting(threats: Threats | None, now: datetime) -> tuple[str, ...]:
    """Say how many records wait, and when the first of them may be gone; nothing if that is not known."""
    if threats is None or not threats.unread_records:
        return ()
    first = threats.first_to_expire
    expiry = f", the oldest may expire {_when(first.expires_at - now)}" if first and first.expires_at else ""
    return (f"{describe_count(threats.unread_records, 'record waits', 'records wait')}{expiry}",)


def _when(left: timedelta) -> str:
    return f"in {describe_duration(left)}" if left > timedelta() else "at any moment"


def _tell_retake(facts: JudgedBatch) -> tuple[str, ...]:
    batch = facts.batch
    return (f"attempt {batch.attempt} has taken it again and is not judged yet",) if facts.is_taken_again else ()


def _of_publication(stored: StoredFacts) -> Iterator[Condition]:
    """Find what failed in the newest published batches; a critical check only if no person has accepted it."""
    for published in stored.newest_published:
        told = (each for each in published.checks if not (published.is_accepted and each.blocks))
        yield from _failed_checks(published.batch, told)


def _of_quarantine(content: QuarantineContent, pipeline: str) -> Iterator[Condition]:
    """Find that records are in quarantine, and again when there are a hundred times as many.

    One incident for each of ``_QUARANTINE_STEPS`` that is reached, until fewer are left.
    """
    for step in _QUARANTINE_STEPS:
        if content.records >= step:
            more = f"{step:,} or more"
            subject, title = ("", content.title) if step == 1 else (more, f"{more} records in quarantine")
            told = Condition.of(IncidentKind.QUARANTINED, pipeline, lines=content.lines, subject=subject)
            yield replace(told, title=title)


def _failed_checks(batch: Batch, checks: Iterable[CheckResult]) -> Iterator[Condition]:
    for check in checks:
        if check.severity is Severity.INFO or check.outcome not in (Outcome.FAILED, Outcome.NOT_RUN):
            continue
        pipeline, kind, subject = _key_of(batch, check)
        lines = (f"{batch.label} is {batch.state}", *_tell_check(check))
        named, run = f" — {check.name}", batch.attempt_run
        told = Condition.of(kind, pipeline, named, lines, subject=subject, batch_id=batch.batch_id, run=run)
        title = told.title if check.outcome is Outcome.FAILED else f"check could not run{named}"
        yield replace(told, severity=check.severity, title=title)


def _key_of(batch: Batch, check: CheckResult) -> tuple[str, IncidentKind, str]:
    """A live batch goes on with the check of the one before; a replay says nothing of others."""
    subject = check.name if batch.lane is Lane.LIVE else f"{check.name}, {batch.subject}"
    return batch.pipeline, IncidentKind.CHECK_FAILED, subject


def _of_freshness(
    stored: StoredFacts, health: PipelineHealth, deadlines: Deadlines, now: datetime
) -> Iterator[Condition]:
    """Before the first publication the time counts from the first plan.

    If records wait, it counts from the oldest of them at the earliest: the first one after an idle day is not late.
    """
    since, limit, threats = stored.published_at or stored.known_since, deadlines.freshness, health.threats
    if since is None or limit is None:
        return
    oldest = threats and threats.oldest_unread and threats.oldest_unread.oldest_unread_at
    if now - max(since, oldest or since) > limit:
        first = "the last publication was" if stored.published_at else "nothing was published since the first plan"
        line = f"{first} at {since:%Y-%m-%d %H:%M} UTC, {describe_duration(now - since)} ago"
        idle = "nothing is unread: see whether the producers still write"
        waiting = (idle,) if threats and not threats.unread_records else tell_waiting(threats, now)
        more = f" for more than {describe_duration(limit)}"
        yield Condition.of(IncidentKind.FRESHNESS, health.pipeline, more, (line, *waiting))


def _of_survey(health: PipelineHealth) -> Iterator[Condition]:
    for kind in list_kinds(Place.SURVEY):
        if kind.row.state is health.state:
            yield Condition.of(kind, health.pipeline, lines=tuple(health.detail.splitlines()))


def _of_threats(pipeline: str, threats: Threats, deadlines: Deadlines, now: datetime) -> Iterator[Condition]:
    for each in threats.transactions:
        if each.is_stuck:
            kind, where = IncidentKind.STUCK_TRANSACTION, str(each.partition)
            lines = tuple(describe_transaction(each, now).splitlines())
            yield Condition.of(kind, pipeline, f" in {where}", lines, subject=where)
    expiring, oldest = threats.first_to_expire, threats.oldest_unread
    if expiring and expiring.expires_at and expiring.oldest_unread_at:
        left, retention = expiring.expires_at - now, expiring.expires_at - expiring.oldest_unread_at
        if left <= retention * EXPIRY_SHARE:
            lines = (
                f"{expiring.partition}@{expiring.next_offset}: the oldest unread record may expire {_when(left)}",
                *tell_waiting(threats, now),
                "",
                f"Let the pipeline run: batchledger run {pipeline} --until-caught-up",
                "If it cannot, raise retention.ms of the topic first.",
            )
            yield Condition.of(IncidentKind.EXPIRY_NEAR, pipeline, lines=lines)
    if oldest and oldest.oldest_unread_at and deadlines.lag is not None:
        age = now - oldest.oldest_unread_at
        if age > deadlines.lag:
            first = f"the oldest record, {oldest.partition}@{oldest.next_offset}, is {describe_duration(age)} old"
            line = f"{threats.unread_records:,} unread offsets; {first}"
            more = f" of more than {describe_duration(deadlines.lag)}"
            yield Condition.of(IncidentKind.LAG, pipeline, more, (line,))


def _of_batch(batch: Batch, kind: IncidentKind, more: str, lines: tuple[str, ...]) -> Condition:
    """Return a condition whose subject is the batch."""
    run = batch.attempt_run
    return Condition.of(kind, batch.pipeline, more, lines, subject=batch.subject, batch_id=batch.batch_id, run=run)


def _tell_check(check: CheckResult) -> tuple[str, ...]:
    """Return what a check has found: the clauses of its detail, then its examples, each on a line of its own."""
    detail, examples, command = check.take_apart()
    first, *clauses = detail.split("; ")
    told = [f"{check.name}: {first}", *(f"  {each}" for each in clauses)]
    told += ["  for example", *tell_some(examples)] if examples else []
    return (*told, f"  See the records with: {command}") if command else tuple(told)


def tell_some(places: Sequence[str]) -> tuple[str, ...]:
    """Return the first of some offsets, each on a line of its own, and how many more there are."""
    more = len(places) - PLACES_TOLD
    return (*(f"    {each}" for each in places[:PLACES_TOLD]), *([f"    and {more:,} more"] if more > 0 else []))
