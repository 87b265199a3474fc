"""The questions of a ledger audit, judged by Great Expectations: one expectation of our own, a column a question.

The facts are one small table: a row for each thing that was looked at, a column for each question. A cell is empty if
its row is not about the question. No value of a record is among them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.core import ExpectColumnValuesToBeBetween

from batchledger.checks.judging import judge_table
from batchledger.model.checks import CheckResult, Outcome, Suite
from batchledger.monitoring.ledger_audit import FINDINGS_SHOWN, Question

_RESULT_FORMAT = {"result_format": "COMPLETE", "unexpected_index_column_names": ["subject"]}


class ExpectFactsWithinLimit(ExpectColumnValuesToBeBetween):
    """Nothing that was looked at is beyond its limit; the description is the promise of the question."""


def build_expectation(question: Question) -> ExpectFactsWithinLimit:
    """Return the expectation about the facts of the question."""
    return ExpectFactsWithinLimit(
        column=question.check.value,
        min_value=0,
        max_value=question.limit,
        description=question.promise,
        meta={"check": question.check.value},
    )


def judge(questions: Sequence[Question]) -> list[CheckResult]:
    """Return one result for each question, in their order. Changes nothing (I6).

    A question without an answer has not run; one with nothing to judge is empty. Neither has passed.
    """
    answered = [each for each in questions if each.facts and not each.unanswered]
    expectations = {each.check.value: build_expectation(each) for each in answered}
    validations = judge_table(build_table(answered), expectations, _RESULT_FORMAT)
    return [_conclude(each, validations.get(each.check.value)) for each in questions]


def build_table(questions: Iterable[Question]) -> pd.DataFrame:
    """Return a row for each fact: its subject, and its value in the column of its question."""
    return pd.DataFrame(
        [{"subject": fact.subject, each.check.value: float(fact.value)} for each in questions for fact in each.facts]
    )


def _conclude(question: Question, validation: ExpectationValidationResult | str | None) -> CheckResult:
    if question.unanswered:
        return _result(question, Outcome.NOT_RUN, f"could not be asked: {question.unanswered}")
    if validation is None:
        return _result(question, Outcome.EMPTY, f"{question.scope}: nothing to judge")
    if isinstance(validation, str):
        return _result(question, Outcome.NOT_RUN, f"could not be judged: {validation}")
    if validation.success:
        return _result(question, Outcome.PASSED, f"{question.scope}: {question.promise}", validation)
    return _result(question, Outcome.FAILED, "; ".join(question.tell_excesses()), validation)


def _result(
    question: Question, outcome: Outcome, detail: str, validation: ExpectationValidationResult | None = None
) -> CheckResult:
    observed: dict[str, Any] = {"facts": len(question.facts), "limit": question.limit}
    if outcome is Outcome.FAILED:
        subjects = [each.subject for each in question.excesses[:FINDINGS_SHOWN]]
        observed |= {"findings": len(question.excesses), "subjects": subjects}
    stored, severity = None if validation is None else _shorten(validation), question.check.row.kind.row.severity
    return CheckResult(question.check.value, outcome, detail, observed, severity, Suite.LEDGER, stored)


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
