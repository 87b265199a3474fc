"""The checks that a pipeline file asks for, judged on the rows that would be published; failing rows are set aside.

Judging reads (I6). Setting aside is a step of its own, within the attempt's own staging: a record is first kept in the
staged quarantine with its bytes and then loses its row, so that it may be counted twice after a crash, never not at
all. A repeated step ends with the same. Afterwards everything is judged anew, because a row that was a
duplicate of one that is gone would be published now. The last judgement is of exactly the rows that are published.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.source_identity import require_same_topics
from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.balance import StagedRange
from batchledger.model.batch import Attempt, Batch, RecordOrigin
from batchledger.model.checks import (
    CheckResult,
    FailedRecord,
    JudgedCheck,
    Offender,
    OnFailure,
    Outcome,
    Severity,
    Suite,
    list_failed,
)
from batchledger.model.counting import describe_count
from batchledger.model.offsets import describe_ranges, merge_ranges
from batchledger.model.records.numbering import NumberFacts
from batchledger.ports import CheckedBatch, RowChecks

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
    """What came of the checks of a pipeline file, what staging holds, and how many rows checks have set aside of it.

    ``staged``, ``numbers`` and ``unmatched`` are of exactly the rows, and of the duplicates among them, that the checks
    have judged.
    """

    results: tuple[CheckResult, ...]
    set_aside: int
    staged: Sequence[StagedRange]
    numbers: NumberFacts | None
    unmatched: UnmatchedDeletions | None = None


@dataclass(frozen=True, slots=True)
class _Round:
    """One judgement of the rows."""

    judged: Sequence[JudgedCheck]
    staged: Sequence[StagedRange]
    numbers: NumberFacts | None
    unmatched: UnmatchedDeletions | None

    @property
    def failing(self) -> Sequence[JudgedCheck]:
        """The checks whose failing rows are to be set aside."""
        return [each for each in self.judged if _is_to_be_set_aside(each.result)]

    def refuse(self, refusal: str) -> "_Round":
        """Let the checks block whose failing rows stay where they are."""
        return replace(self, judged=[_refuse(each, refusal) for each in self.judged])


def judge_rows(platform: Platform, attempt: Attempt) -> RowAudit:
    """Judge the rows that would be published, and set aside those that fail a check of that policy.

    What an earlier audit of the attempt has set aside stays so, whatever the checks are by now, and is reported.

    Raises StagingLostError, ServiceUnavailableError when records that are to be set aside cannot be read now, and
    TopicChangedError if they come from another topic than the staged rows.
    """
    earlier = platform.evidence.list_set_aside(attempt)
    if earlier:
        # The process that has set them aside may have died before it removed their rows.
        platform.sink.remove_staged(attempt, merge_ranges(each.range for each in earlier))
    checks = platform.make_row_checks() if platform.make_row_checks else None
    last = _judge_in_rounds(platform, attempt, checks)
    set_aside = platform.evidence.list_set_aside(attempt) if checks else earlier
    results = [_tell_set_aside(each, set_aside, earlier, attempt.batch) for each in last.judged]
    told = (*results, *_tell_unasked(results, set_aside, attempt.batch))
    return RowAudit(told, len(set_aside), last.staged, last.numbers, last.unmatched)


def _judge_in_rounds(platform: Platform, attempt: Attempt, checks: RowChecks | None) -> _Round:
    found = _judge(platform, attempt, checks)
    for _ in range(ROUNDS):
        if not found.failing:
            return found
        refusal = _set_aside(platform, attempt, found.failing)
        if refusal:
            return found.refuse(refusal)
        found = _judge(platform, attempt, checks)
    return found.refuse(f"rows still fail after {ROUNDS} rounds of setting aside")


def _judge(platform: Platform, attempt: Attempt, checks: RowChecks | None) -> _Round:
    with platform.sink.read_staged(attempt) as staged:
        judged = checks.judge(staged.show(), _describe_batch(platform, attempt, checks)) if checks else ()
        # Afterwards: a row that no check has seen any more, because a twin has set it aside, must not be counted.
        return _Round(judged, staged.summarise(), staged.count_numbers(), staged.count_unmatched())


def _describe_batch(platform: Platform, attempt: Attempt, checks: RowChecks) -> CheckedBatch:
    batch, seen = attempt.batch, platform.evidence.summarise(attempt)
    recent = platform.ledger.load_recent(batch.pipeline, checks.recent_batches) if checks.recent_batches else ()
    return CheckedBatch(batch, sum(each.visible for each in seen), sum(each.quarantined for each in seen), recent)


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
    logger.info(
        "%s attempt %d sets %s aside", attempt.batch.label, attempt.number, describe_count(len(failed), "record")
    )
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


def _tell_set_aside(
    judged: JudgedCheck, set_aside: Sequence[FailedRecord], earlier: Sequence[FailedRecord], batch: Batch
) -> CheckResult:
    """Say of a check which records were set aside for it: it has failed, although what is left passes."""
    result = judged.name_examples(batch.pipeline)
    records = _set_aside_for(result.name, set_aside)
    if not records or result.outcome is Outcome.NOT_RUN:
        return result
    aside = describe_count(len(records), "record that did not pass", "records that did not pass")
    said = f"left: {result.detail}; set aside: {aside}"
    noted = replace(result, outcome=Outcome.FAILED, detail=said).with_observed(set_aside=len(records))
    before = len(_set_aside_for(result.name, earlier))
    if before:
        noted = noted.with_note(
            f"{before:,} of them by an earlier audit of this attempt, as the check was then. {_start_afresh(batch)}"
        )
    return noted.with_offenders(batch.pipeline, _name(records))


def _tell_unasked(
    results: Sequence[CheckResult], set_aside: Sequence[FailedRecord], batch: Batch
) -> Sequence[CheckResult]:
    """Say which records lie aside for checks that the pipeline file does not ask for any more."""
    asked = {each.name for each in results}
    names = dict.fromkeys(name for each in set_aside for name in each.checks if name not in asked)
    told = []
    for name in names:
        records = _set_aside_for(name, set_aside)
        detail = (
            f"{len(records):,} records were set aside by an earlier audit of this attempt, and the pipeline file does "
            f"not ask for the check any more. {_start_afresh(batch)}"
        )
        result = CheckResult(
            name,
            Outcome.FAILED,
            detail,
            {"set_aside": len(records)},
            suite=Suite.PIPELINE,
            on_failure=OnFailure.QUARANTINE,
        )
        told.append(result.with_offenders(batch.pipeline, _name(records)))
    return told


def _start_afresh(batch: Batch) -> str:
    return (
        "They stay aside for this attempt; until it is published, all records are judged anew with: "
        f"batchledger run {batch.pipeline} --batch {batch.batch_id}"
    )


def _set_aside_for(check: str, set_aside: Sequence[FailedRecord]) -> Sequence[FailedRecord]:
    return [each for each in set_aside if check in each.checks]


def _name(records: Sequence[FailedRecord]) -> Sequence[Offender]:
    return [Offender(each.range) for each in records[:OFFENDERS_SHOWN]]
