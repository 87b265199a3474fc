"""Checks that compare a live batch with the ones before it, or with the clock.

This module makes a few numbers from what the ledger and the rows hold: a ratio, an age, a share, a distance. Great
Expectations judges them as a table of one row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

import pandas as pd
import psycopg
from great_expectations import expectations as gxe
from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.metadata_types import FailureSeverity
from psycopg import sql

from batchledger.checks.distributions import (
    LEAST_NUMBERS,
    NULLS,
    PERCENTILES,
    Distribution,
    measure_distance,
    observe_distribution,
)
from batchledger.checks.judging import judge_table
from batchledger.checks.outcomes import explain_exception
from batchledger.model.checks import CheckResult, JudgedCheck, Outcome, RequestedCheck, Suite
from batchledger.ports import CheckedBatch, RecentBatch, RowsToCheck

LEAST_BATCHES = 5
DEFAULT_BATCHES = 20
_SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ExpectBatchRowsToBeNearRecent(gxe.ExpectColumnValuesToBeBetween):
    """Expect as many rows as in the batches before, within ratios of their median."""


class ExpectNewestRecordToBeYoungerThan(gxe.ExpectColumnValuesToBeBetween):
    """Expect the newest record to be young, as of the moment at which the batch was planned."""


class ExpectShareQuarantinedToBeAtMost(gxe.ExpectColumnValuesToBeBetween):
    """Expect few records of the batch to be set aside."""


class ExpectColumnDistributionToStayNearRecent(gxe.ExpectColumnValuesToBeBetween):
    """Expect the values of a column to be distributed as in the batches before."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A number to be judged and what it means; without a number there is nothing to judge, and ``meaning`` says why.

    ``kept`` is what later batches are compared with.
    """

    meaning: str
    number: float | None = None
    kept: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Subject:
    check: RequestedCheck
    rows: RowsToCheck
    batch: CheckedBatch

    @property
    def recent(self) -> Sequence[RecentBatch]:
        """The batches that the check compares with."""
        return self.batch.recent[: _count_batches(self.check)]


@dataclass(frozen=True, slots=True)
class _Statistic:
    """The name of one type's number, how it is found, and which expectation judges it with which bounds."""

    column: str
    expectation: type[gxe.ExpectColumnValuesToBeBetween]
    measure: Callable[[_Subject], Measured]
    bounds: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def is_statistical(check: RequestedCheck) -> bool:
    """Whether the check is one of this module's."""
    return check.type in _STATISTICS


@dataclass(frozen=True)
class StatisticalChecks:
    """The checks of a pipeline file that compare batches."""

    requested: tuple[RequestedCheck, ...]

    @property
    def recent_batches(self) -> int:
        """How many earlier batches are needed."""
        return max((_count_batches(each) for each in self.requested), default=0)

    def judge(self, rows: RowsToCheck, batch: CheckedBatch) -> Sequence[JudgedCheck]:
        """Return one entry per check, in their order."""
        measured = {each.name: _measure(_Subject(each, rows, batch)) for each in self.requested}
        numbers = {each: found.number for each, found in measured.items() if isinstance(found, Measured)}
        judged = _validate([each for each in self.requested if numbers.get(each.name) is not None], numbers)
        return [JudgedCheck(_explain(each, measured[each.name], judged.get(each.name))) for each in self.requested]


def _count_batches(check: RequestedCheck) -> int:
    compares = check.type in (_ROWS, _DISTRIBUTION)
    return int(check.arguments.get("batches", DEFAULT_BATCHES)) if compares else 0


def _measure(subject: _Subject) -> Measured | str:
    """Return the number, or why it could not be found."""
    try:
        return _STATISTICS[subject.check.type].measure(subject)
    except psycopg.Error as error:
        return explain_exception(f"(psycopg.errors.{type(error).__name__}) {error.diag.message_primary or error}")


def _validate(
    checks: Sequence[RequestedCheck], numbers: Mapping[str, float | None]
) -> Mapping[str, ExpectationValidationResult | str]:
    columns = {each.name: f"{_STATISTICS[each.type].column} ({each.name})" for each in checks}
    table = pd.DataFrame({columns[name]: [numbers[name]] for name in columns})
    expectations = {each.name: _build(each, columns[each.name]) for each in checks}
    return judge_table(table, expectations, {"result_format": "SUMMARY"})


def _build(check: RequestedCheck, column: str) -> gxe.ExpectColumnValuesToBeBetween:
    statistic = _STATISTICS[check.type]
    return statistic.expectation(
        column=column,
        **statistic.bounds(check.arguments),
        meta={"check": check.name},
        severity=FailureSeverity(check.severity.value),
        description=f"{check.name}: {statistic.expectation.__doc__}",
    )


def _explain(
    check: RequestedCheck, measured: Measured | str, judged: ExpectationValidationResult | str | None
) -> CheckResult:
    def result(outcome: Outcome, detail: str, observed: Mapping[str, Any]) -> CheckResult:
        return CheckResult(
            check.name, outcome, detail, observed, check.severity, Suite.PIPELINE, on_failure=check.on_failure
        )

    if isinstance(measured, str):
        return result(Outcome.NOT_RUN, f"could not run: {measured}", {})
    kept = dict(measured.kept or {})
    if isinstance(judged, str):
        return result(Outcome.NOT_RUN, f"could not run: {judged}", kept)
    if measured.number is None or judged is None:
        return result(Outcome.EMPTY, f"nothing to judge: {measured.meaning}", kept)
    asked = ", ".join(f"{name}: {value}" for name, value in check.arguments.items() if name != "column")
    outcome = Outcome.PASSED if judged.success else Outcome.FAILED
    told = result(outcome, f"{measured.meaning}; asked for {asked}", {**kept, "number": measured.number})
    return replace(told, validation=judged.to_json_dict())


def _compare_rows(subject: _Subject) -> Measured:
    rows, recent = subject.rows, [each.accepted for each in subject.recent]
    if len(recent) < LEAST_BATCHES:
        return Measured(f"{len(recent)} earlier batches, {LEAST_BATCHES} are needed")
    usual = median(recent)
    if usual == 0:
        return Measured(f"half of the {len(recent)} batches before had no rows")
    ratio = rows.accepted / usual
    return Measured(f"{rows.accepted:,} rows, {ratio:.3f} of the median {usual:,.0f} of {len(recent)} batches", ratio)


def _measure_age(subject: _Subject) -> Measured:
    rows = subject.rows
    query = sql.SQL("select extract(epoch from %s - max(_timestamp))::float8 from {}")
    with rows.connection.cursor() as cursor:
        cursor.execute(query.format(sql.Identifier(rows.table)), [subject.batch.batch.planned_at])
        ((age,),) = cursor.fetchall()
    if age is None:
        return Measured("no row has a timestamp")
    return Measured(f"the newest record was {age:,.0f} s old when the batch was planned", age)


def _measure_share(subject: _Subject) -> Measured:
    batch = subject.batch
    if batch.visible == 0:
        return Measured("no record was read")
    share = batch.quarantined / batch.visible
    return Measured(f"{batch.quarantined:,} of {batch.visible:,} records are set aside, {share:.2%}", share)


def _compare_distribution(subject: _Subject) -> Measured:
    if subject.rows.checked == 0:
        return Measured("no row to judge")
    present = observe_distribution(subject.rows, subject.check.arguments["column"])
    before = [each.observed.get(subject.check.name, {}) for each in subject.recent]
    recent = [each[present.kind] for each in before if present.kind in each]
    of_nulls, nulls_meaning = _compare_nulls(present, [each[NULLS] for each in before if NULLS in each])
    if present.numbers and len(recent) >= LEAST_BATCHES:
        distance = max(measure_distance(present, recent), of_nulls)
        meaning = f"the distance of the values to the {len(recent)} batches before is {distance:.3f}"
        return Measured(meaning + nulls_meaning, distance, present.kept)
    if of_nulls > subject.check.arguments["max_distance"]:
        return Measured(f"the values cannot be compared{nulls_meaning}", of_nulls, present.kept)
    # As many nulls as before say nothing of the other values.
    of_numbers = f" of {LEAST_NUMBERS} numbers or more" if present.kind == PERCENTILES else ""
    reason = f"{len(recent)} earlier batches{of_numbers}, {LEAST_BATCHES} are needed"
    return Measured(reason if present.numbers else "no row has a number", kept=present.kept)


def _compare_nulls(present: Distribution, recent: Sequence[float]) -> tuple[float, str]:
    """Return how far the share of rows without a number is from the usual one, and say so; 0 if that is unknown."""
    if present.kind != PERCENTILES or len(recent) < LEAST_BATCHES:
        return 0.0, ""
    usual = mean(recent)
    return abs(present.nulls - usual), f"; {present.nulls:.1%} of the rows have no number, usually {usual:.1%}"


_ROWS = "expect_batch_rows_to_be_near_recent"
_DISTRIBUTION = "expect_column_distribution_to_stay_near_recent"
_STATISTICS: Mapping[str, _Statistic] = {
    _ROWS: _Statistic(
        "rows to median of recent rows",
        ExpectBatchRowsToBeNearRecent,
        _compare_rows,
        lambda asked: {"min_value": asked.get("min_ratio"), "max_value": asked.get("max_ratio")},
    ),
    "expect_newest_record_to_be_younger_than": _Statistic(
        "age of the newest record in seconds",
        ExpectNewestRecordToBeYoungerThan,
        _measure_age,
        lambda asked: {"max_value": float(asked["max_age"][:-1]) * _SECONDS_BY_UNIT[asked["max_age"][-1]]},
    ),
    "expect_share_quarantined_to_be_at_most": _Statistic(
        "share of records set aside",
        ExpectShareQuarantinedToBeAtMost,
        _measure_share,
        lambda asked: {"max_value": asked["max_share"]},
    ),
    _DISTRIBUTION: _Statistic(
        "distance to recent batches",
        ExpectColumnDistributionToStayNearRecent,
        _compare_distribution,
        lambda asked: {"max_value": asked["max_distance"]},
    ),
}
