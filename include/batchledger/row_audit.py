"""The checks that a pipeline file asks for, judged on the rows that would be published; failing rows are set aside.

Judging reads (I6). Setting aside is a step of its own, within the attempt's own staging: a record is first kept in the
staged quarantine with its bytes and then loses its row, so that it may be counted twice after a crash, never not at
all; whoever repeats the step ends with the same. Afterwards everything is judged anew, because a row that was a
duplicate of one that is gone would be published now. The last judgement is of exactly the rows that are published.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchledger.batch import Attempt, RecordOrigin
from batchledger.checking import (
    CheckResult,
    FailedRecord,
    JudgedCheck,
    Offender,
    OnFailure,
    Outcome,
    Severity,
    list_failed,
)
from batchledger.offsets import describe_ranges, merge_ranges
from batchledger.pipeline import Platform
from batchledger.ports import CheckedBatch, RowChecks
from batchledger.source_identity import require_same_topics

logger = logging.getLogger(__name__)

MOST_RECORDS_SET_ASIDE = 100_000
MOST_BYTES_SET_ASIDE = 256 * 1024 * 1024
ROUNDS = 10
OFFENDERS_SHOWN = 20


def require_usable_checks(platform: Platform) -> None:
    """Raise ConfigurationError when a check of the pipeline file cannot be judged on any rows."""
    if platform.make_row_checks is not None:
        platform.make_row_checks().require_usable()


@dataclass(frozen=True, slots=True)
class RowAudit:
    """What came of the checks of a pipeline file, and how many staged rows were set aside by them."""

    results: tuple[CheckResult, ...] = ()
    set_aside: int = 0


def judge_rows(platform: Platform, attempt: Attempt) -> RowAudit:
    """Judge the rows that would be published, and set aside those that fail a check of that policy.

    Raises StagingLostError, and ServiceUnavailableError when records that are to be set aside cannot be read now.
    """
    if platform.make_row_checks is None:
        return RowAudit()
    checks = platform.make_row_checks()
    judged = _judge(platform, attempt, checks)
    for _ in range(ROUNDS):
        failing = [each for each in judged if _is_to_be_set_aside(each.result)]
        if not failing:
            break
        refusal = _set_aside(platform, attempt, failing)
        if refusal:
            judged = [_refuse(each, refusal) for each in judged]
            break
        judged = _judge(platform, attempt, checks)
    else:
        judged = [_refuse(each, f"rows still fail after {ROUNDS} rounds of setting aside") for each in judged]
    set_aside = platform.evidence.list_set_aside(attempt)
    pipeline = attempt.batch.pipeline
    results = [_tell_set_aside(each.name_examples(pipeline), set_aside, pipeline) for each in judged]
    return RowAudit(tuple(results), len(set_aside))


def _judge(platform: Platform, attempt: Attempt, checks: RowChecks) -> Sequence[JudgedCheck]:
    batch, seen = attempt.batch, platform.evidence.summarise(attempt)
    recent = platform.ledger.load_recent(batch.pipeline, checks.recent_batches) if checks.recent_batches else ()
    checked = CheckedBatch(batch, sum(each.visible for each in seen), sum(each.quarantined for each in seen), recent)
    with platform.sink.open_rows(attempt) as rows:
        return checks.judge(rows, checked)


def _is_to_be_set_aside(result: CheckResult) -> bool:
    is_critical = result.severity is Severity.CRITICAL
    return is_critical and result.outcome is Outcome.FAILED and result.on_failure is OnFailure.QUARANTINE


def _set_aside(platform: Platform, attempt: Attempt, failing: Sequence[JudgedCheck]) -> str:
    """Set the failing rows aside; return why it cannot be done, or an empty text."""
    failed = list_failed(failing)
    if not failed:
        return "the failing rows cannot be named"
    held = len(platform.evidence.list_set_aside(attempt))
    if any(each.has_more for each in failing) or held + len(failed) > MOST_RECORDS_SET_ASIDE:
        return f"more than {MOST_RECORDS_SET_ASIDE:,} rows are to be set aside, which is no exception any more"
    ranges = merge_ranges(each.range for each in failed)
    logger.info("%s attempt %d sets %d records aside", attempt.batch.label, attempt.number, len(failed))
    if attempt.batch.origin is RecordOrigin.QUARANTINE:
        records = platform.evidence.read_quarantine(attempt.batch)
    else:
        records = platform.source.read_records(ranges, MOST_BYTES_SET_ASIDE)
        # A topic that was created anew under the name would have given other records for the same offsets.
        require_same_topics(platform, attempt.batch)
    missing = platform.evidence.set_aside(attempt, failed, records)
    if missing:
        return (
            f"{describe_ranges(missing, limit=3)} cannot be set aside: Kafka has removed the records, or all of them "
            f"have more than {MOST_BYTES_SET_ASIDE // 1024 // 1024} MiB"
        )
    platform.crash("set_aside")
    platform.sink.remove_staged(attempt, ranges)
    platform.crash("rows_removed")
    return ""


def _refuse(judged: JudgedCheck, refusal: str) -> JudgedCheck:
    """Let a check block whose failing rows stay where they are."""
    if not _is_to_be_set_aside(judged.result):
        return judged
    return replace(judged, result=replace(judged.result, on_failure=OnFailure.BLOCK).with_note(refusal))


def _tell_set_aside(result: CheckResult, set_aside: Sequence[FailedRecord], pipeline: str) -> CheckResult:
    """Say of a check which records were set aside for it: it has failed, although what is left passes."""
    records = [each for each in set_aside if result.name in each.checks]
    if not records or result.outcome is Outcome.NOT_RUN:
        return result
    told = replace(result, outcome=Outcome.FAILED).with_observed(set_aside=len(records))
    noted = told.with_note(f"{len(records):,} records did not pass and were set aside")
    return noted.with_offenders(pipeline, [Offender(each.range) for each in records[:OFFENDERS_SHOWN]])
