"""The questions of a ledger audit, judged by Great Expectations: one expectation class of our own for each.

The facts are one small table with a row for each thing that was looked at, and a column for each question; where a row
is not about a question its column is empty. No value of a record is among them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import pandas as pd
from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.core import ExpectColumnValuesToBeBetween

from batchledger.adapters.expectations.judging import judge_table
from batchledger.adapters.expectations.promises import Promising
from batchledger.model.checks import CheckResult, Outcome, Suite
from batchledger.monitoring.ledger_audit import FINDINGS_SHOWN, LedgerCheck, Question

_RESULT_FORMAT = {"result_format": "COMPLETE", "unexpected_index_column_names": ["subject"]}


class ExpectFactsWithinLimit(Promising, ExpectColumnValuesToBeBetween):
    """Nothing that was looked at is beyond its limit.

    The first line of a class's text is its promise, which people read; ``check`` is the column and the stored name.
    """

    check: ClassVar[LedgerCheck]

    @classmethod
    def of(cls, question: Question) -> Self:
        """Return the expectation about the facts of the question."""
        return cls(
            column=cls.check.value,
            min_value=0,
            max_value=question.limit,
            description=question.promise or cls.promise(),
            meta={"check": cls.check.value},
        )


class ExpectPublishedRangesToMeet(ExpectFactsWithinLimit):
    """The published ranges of each partition meet without a gap, up to its position (I1)."""

    check: ClassVar = LedgerCheck.RANGES_MEET


class ExpectPublishedRangesToBeDisjoint(ExpectFactsWithinLimit):
    """No offset was published by two live batches of one epoch (I2)."""

    check: ClassVar = LedgerCheck.RANGES_DISJOINT


class ExpectPositionsToMoveWithTheirRows(ExpectFactsWithinLimit):
    """Every batch that has moved the position has written its rows (I3)."""

    check: ClassVar = LedgerCheck.ROWS_WRITTEN


class ExpectPublishedBalancesToClose(ExpectFactsWithinLimit):
    """Every offset of every published range is accounted for (I7)."""

    check: ClassVar = LedgerCheck.BALANCES_CLOSE


class ExpectOffsetsToBeHeldOnce(ExpectFactsWithinLimit):
    """Exactly one batch holds the rows of each published offset (I8)."""

    check: ClassVar = LedgerCheck.HELD_ONCE


class ExpectTargetToHoldWhatWasAccepted(ExpectFactsWithinLimit):
    """The target holds the rows that the ledger has accepted, and no others."""

    check: ClassVar = LedgerCheck.TARGET


class ExpectQuarantineToHoldWhatWasSetAside(ExpectFactsWithinLimit):
    """Quarantine holds the records that the ledger has set aside."""

    check: ClassVar = LedgerCheck.QUARANTINE


class ExpectDuplicatesToBeListed(ExpectFactsWithinLimit):
    """Every duplicate that was dropped is listed with the record that came first."""

    check: ClassVar = LedgerCheck.DUPLICATES


class ExpectAttemptsToMoveOn(ExpectFactsWithinLimit):
    """Every open batch that is not blocked has an attempt that gets on."""

    check: ClassVar = LedgerCheck.STALE_ATTEMPT


class ExpectBlockedBatchesToBeDecided(ExpectFactsWithinLimit):
    """No batch waits for a person for longer than the deadline of the pipeline."""

    check: ClassVar = LedgerCheck.BLOCKED


class ExpectStagingToBeRemoved(ExpectFactsWithinLimit):
    """The staging tables of attempts that are over are removed within a day."""

    check: ClassVar = LedgerCheck.STAGING


class ExpectUnreadRecordsToBeThere(ExpectFactsWithinLimit):
    """Kafka has kept every record that was not read yet."""

    check: ClassVar = LedgerCheck.LOSS


class ExpectSourceToBeTheSame(ExpectFactsWithinLimit):
    """The topics are those that the stored positions belong to."""

    check: ClassVar = LedgerCheck.SOURCE


class ExpectTransactionsToEnd(ExpectFactsWithinLimit):
    """No producer's open transaction holds records back for longer than it may live."""

    check: ClassVar = LedgerCheck.STUCK


class ExpectUnreadRecordsToLast(ExpectFactsWithinLimit):
    """The oldest unread record has time left before its topic may delete it."""

    check: ClassVar = LedgerCheck.EXPIRY


class ExpectLagWithinDeadline(ExpectFactsWithinLimit):
    """The oldest unread record is younger than the deadline of the pipeline."""

    check: ClassVar = LedgerCheck.LAG


EXPECTATIONS: dict[LedgerCheck, type[ExpectFactsWithinLimit]] = {
    each.check: each
    for each in (
        ExpectPublishedRangesToMeet,
        ExpectPublishedRangesToBeDisjoint,
        ExpectPositionsToMoveWithTheirRows,
        ExpectPublishedBalancesToClose,
        ExpectOffsetsToBeHeldOnce,
        ExpectTargetToHoldWhatWasAccepted,
        ExpectQuarantineToHoldWhatWasSetAside,
        ExpectDuplicatesToBeListed,
        ExpectAttemptsToMoveOn,
        ExpectBlockedBatchesToBeDecided,
        ExpectStagingToBeRemoved,
        ExpectUnreadRecordsToBeThere,
        ExpectSourceToBeTheSame,
        ExpectTransactionsToEnd,
        ExpectUnreadRecordsToLast,
        ExpectLagWithinDeadline,
    )
}


def judge(questions: Sequence[Question]) -> list[CheckResult]:
    """Return one result for each question, in their order. Changes nothing (I6).

    One that nobody could answer has not run; one with nothing to judge is empty. Both have not passed.
    """
    answered = [each for each in questions if each.facts and not each.unanswered]
    expectations = {each.check.value: EXPECTATIONS[each.check].of(each) for each in answered}
    validations = judge_table(build_table(answered), expectations, _RESULT_FORMAT)
    return [_conclude(each, validations.get(each.check.value)) for each in questions]


def build_table(questions: Iterable[Question]) -> pd.DataFrame:
    """Return a row for each fact: its subject, and its value in the column of its question."""
    return pd.DataFrame(
        [{"subject": fact.subject, each.check.value: float(fact.value)} for each in questions for fact in each.facts]
    )


def _conclude(question: Question, validation: ExpectationValidationResult | str | None) -> CheckResult:
    promise = question.promise or EXPECTATIONS[question.check].promise()
    if question.unanswered:
        return _result(question, Outcome.NOT_RUN, f"could not be asked: {question.unanswered}")
    if validation is None:
        return _result(question, Outcome.EMPTY, f"{question.scope}: nothing to judge")
    if isinstance(validation, str):
        return _result(question, Outcome.NOT_RUN, f"could not be judged: {validation}")
    if validation.success:
        return _result(question, Outcome.PASSED, f"{question.scope}: {promise}", validation)
    return _result(question, Outcome.FAILED, "; ".join(question.tell_excesses()), validation)


def _result(
    question: Question, outcome: Outcome, detail: str, validation: ExpectationValidationResult | None = None
) -> CheckResult:
    observed: dict[str, Any] = {"facts": len(question.facts), "limit": question.limit}
    if outcome is Outcome.FAILED:
        subjects = [each.subject for each in question.excesses[:FINDINGS_SHOWN]]
        observed |= {"findings": len(question.excesses), "subjects": subjects}
    stored = None if validation is None else _shorten(validation)
    return CheckResult(question.check.value, outcome, detail, observed, question.check.severity, Suite.LEDGER, stored)


def _shorten(validation: ExpectationValidationResult) -> dict[str, Any]:
    """Return the result as Great Expectations serialises it, without its lists of everything that was unexpected."""
    document: dict[str, Any] = dict(validation.to_json_dict())
    # Its page cannot be rendered without the share.
    counts = (
        "element_count",
        "unexpected_count",
        "unexpected_percent",
        "missing_count",
        "partial_unexpected_index_list",
    )
    document["result"] = {name: document["result"][name] for name in counts if name in document["result"]}
    return document
