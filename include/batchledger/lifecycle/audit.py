"""Judges the staging of an attempt, by all facts about it, and stores the result.

An audit compares the read records with the staged rows (I7), and reads offsets without a record once more. The checks
of the pipeline file judge the rows. Judging changes only the result (I6), and the attempt's own staging if a check sets
rows aside (``row_audit``).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from batchledger.lifecycle.outcome import Next, find_next
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.row_audit import OFFENDERS_SHOWN, RowAudit, judge_rows
from batchledger.lifecycle.source_identity import positions_of, require_same_topics
from batchledger.lifecycle.tracing import StepPart
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.balance import (
    balance_batch,
    classify_holes,
    combine_witnesses,
    count_classes,
    find_unexplained,
)
from batchledger.model.batch import Attempt, Batch, BatchState, Lane, RecordOrigin
from batchledger.model.checks import CheckResult, IntegrityCheck, Outcome, describe_outcomes
from batchledger.model.errors import FencedError, StagingLostError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import DuplicatePolicy, UnknownFieldPolicy
from batchledger.model.refusals import blocked, fenced_by, not_judged, stage_again

logger = logging.getLogger(__name__)


def judge_attempt(platform: Platform, attempt: Attempt, state: BatchState, holes: "FoundHoles | None" = None) -> Batch:
    """Judge the staged rows and store the result. ``state`` is the state that the batch has to be in until then.

    ``holes`` are what ``look_into_holes`` has returned, if that was before.

    An audit that repeats an outdated one judges the rows again: otherwise a row that is no longer a duplicate would be
    published unjudged.

    Returns the batch as a twin of this step has left it, if one was faster.
    """
    batch = attempt.batch
    try:
        with platform.trace(StepPart.JUDGE_ROWS, attempt):
            rows = judge_rows(platform, attempt)
        with platform.trace(StepPart.GATHER_FACTS, attempt):
            facts = _gather_facts(platform, attempt, rows, holes or look_into_holes(platform, attempt))
    except StagingLostError as error:
        # A newer attempt has removed its tables, or a twin that has published from them.
        chosen, found = find_next(platform, attempt, error, {BatchState.PUBLISHED})
        if chosen is Next.TAKE_RESULT:
            return found
        raise (fenced_by(found, attempt) if chosen is Next.LEAVE else error) from error
    _require_staging(attempt, facts)
    with platform.trace(StepPart.JUDGE_FACTS, attempt):
        judged = platform.make_auditor().judge(facts)
        checks = (*_with_offenders(judged, platform, attempt, facts), *rows.results)
    try:
        with platform.trace(StepPart.STORE_RESULT, attempt, facts.balances):
            batch = platform.ledger.record_audit(attempt, facts.balances, checks, state)
    except FencedError as error:
        # Airflow may start a twin of this step, which was faster with the same attempt.
        chosen, found = find_next(platform, attempt, error, [each for each in BatchState if each.is_permitted])
        if chosen is Next.TAKE_RESULT:
            return found
        raise
    platform.crash("audited")
    _tell_outcome(batch, checks)
    return batch


def _require_staging(attempt: Attempt, facts: AttemptFacts) -> None:
    batch = attempt.batch
    if facts.reported > facts.set_aside and not any(each.staged for each in facts.ranges):
        raise StagingLostError(
            f"{batch.label} has lost its staged rows. Nothing is visible.",
            why=f"Attempt {attempt.number} staged {facts.reported} rows, and all are gone. A crash of the database "
            "empties unlogged tables.",
            advice=stage_again(batch),
            batch_id=batch.batch_id,
        )


def _tell_outcome(batch: Batch, checks: Sequence[CheckResult]) -> None:
    """Log the outcome of an audit. Raises BatchBlockedError or CheckNotRunError."""
    if batch.state is BatchState.BLOCKED:
        raise blocked(batch, checks)
    if batch.state is BatchState.STAGED:
        raise not_judged(batch, checks)
    logger.info("%s attempt %d audited: %s", batch.label, batch.attempt, describe_outcomes(checks))
    for each in checks:
        if each.outcome in (Outcome.FAILED, Outcome.NOT_RUN):
            logger.warning("%s: %s check %s %s: %s", batch.label, each.severity, each.name, each.outcome, each.detail)


def _gather_facts(platform: Platform, attempt: Attempt, rows: RowAudit, holes: "FoundHoles") -> AttemptFacts:
    """Gather all facts about one staged attempt, after its rows were judged."""
    batch, ledger, rules = attempt.batch, platform.ledger, platform.rules
    seen = platform.evidence.summarise(attempt)
    ranges = combine_witnesses(seen, rows.staged, count_classes([each.range for each in seen], holes.by_class))
    facts = AttemptFacts(
        ranges=ranges,
        balances=balance_batch(ranges, rules.holes, rules.has_transform),
        reported=ledger.load_staged(attempt).reported_rows,
        set_aside=rows.set_aside,
        is_blocked_by_duplicates=rules.deduplication is not None
        and rules.deduplication.duplicates is DuplicatePolicy.BLOCK,
        unexplained_holes=tuple(holes.unexplained),
        unmatched=rows.unmatched,
        quarantine_limit=rules.quarantine_limit if batch.origin is RecordOrigin.KAFKA else None,
    )
    if (severity := rules.unknown_fields.severity) is not None:
        unknown = platform.evidence.summarise_unknown_fields(attempt)
        # What is kept is not lost. Then only a field without a name is left to judge.
        if unknown.records or rules.unknown_fields is not UnknownFieldPolicy.KEEP:
            facts = replace(facts, unknown_fields=unknown, severity_of_unknown_fields=severity)
    if facts.drains:
        facts = replace(facts, quarantine=platform.evidence.summarise_quarantine(attempt))
    if batch.lane is Lane.REPLAY:
        return facts
    return replace(
        facts,
        positions=positions_of(batch, ledger),
        published=tuple(ledger.find_published(batch)),
        numbers=rows.numbers,
        severity_of_numbers=rules.severity_of_numbers,
    )


class FoundHoles(NamedTuple):
    """The offsets without a record, by what a second read says of them, and those that the pipeline does not allow."""

    by_class: Mapping[str, Sequence[OffsetRange]]
    unexplained: Sequence[OffsetRange]


def look_into_holes(platform: Platform, attempt: Attempt) -> FoundHoles:
    """Read the offsets without a record a second time. Raises TopicChangedError."""
    holes = platform.evidence.find_holes(attempt)
    if not holes or attempt.batch.origin is not RecordOrigin.KAFKA:
        return FoundHoles({}, holes)
    by_class = classify_holes(holes, platform.source.look_into(holes))
    # Another topic of the same name would have shown other records.
    require_same_topics(platform, attempt.batch)
    return FoundHoles(by_class, find_unexplained(by_class, platform.rules.holes))


def _with_offenders(
    checks: Sequence[CheckResult], platform: Platform, attempt: Attempt, facts: AttemptFacts
) -> tuple[CheckResult, ...]:
    """Let each failed check name its offenders. The others are not asked: that may cost seconds."""
    failed = {IntegrityCheck(each.name) for each in checks if each.outcome is Outcome.FAILED}
    if not failed:
        return tuple(checks)
    known = facts.name_offenders()
    found = {**known, **platform.sink.find_offenders(attempt, failed - known.keys(), OFFENDERS_SHOWN)}
    by_name = {check.value: found.get(check, ())[:OFFENDERS_SHOWN] for check in failed}
    pipeline = attempt.batch.pipeline
    return tuple(each.with_offenders(pipeline, by_name.get(each.name, ())) for each in checks)
