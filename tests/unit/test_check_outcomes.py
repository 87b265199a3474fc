"""What becomes of an expectation's result: an outcome, numbers, coordinates, and no value of any record."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView

from batchledger.checks.outcomes import explain, explain_exception
from batchledger.checks.requested import build_checks, is_row_level
from batchledger.config.check_entries import CheckEntry, find_types
from batchledger.model.checks import CheckResult, OnFailure, Outcome, RequestedCheck, Severity, describe_outcomes
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition

IN_SET = RequestedCheck("in_set", "expect_column_values_to_be_in_set", {"column": "b", "value_set": ["ok"]})
MEAN = RequestedCheck("mean", "expect_column_mean_to_be_between", {"column": "a", "min_value": 1})
MOST = RequestedCheck("most", "expect_column_max_to_be_between", {"column": "a", "max_value": 1})
ROWS = RequestedCheck("rows", "expect_table_row_count_to_be_between", {"min_value": 1})
ORDERS = TopicPartition("orders", 3)
SECRET = "a secret value"  # noqa: S105 -- stands for what a record holds
FINE: Mapping[str, Any] = {"raised_exception": False, "exception_traceback": None, "exception_message": None}


def failing(*offsets: int) -> dict[str, Any]:
    return {
        "element_count": 10,
        "unexpected_count": len(offsets),
        "unexpected_percent": min(100.0, 12.5 * len(offsets)),
        "missing_count": 2,
        "partial_unexpected_list": [SECRET],
        "partial_unexpected_counts": [{"value": SECRET, "count": 1}],
        "partial_unexpected_index_list": [
            {"_topic": "orders", "_partition": 3, "_offset": each, "b": SECRET} for each in offsets
        ],
    }


def judged(
    check: RequestedCheck,
    success: bool,
    result: Mapping[str, Any],
    info: Mapping[str, Any] = FINE,
    rows: int = 10,
    limit: int = 1000,
) -> Any:
    (built,) = build_checks([check], Path())
    validation = ExpectationValidationResult(
        success=success,
        expectation_config=built.expectation.configuration,
        result=dict(result),
        exception_info=dict(info),
        meta={},
    )
    return explain(built, validation, rows, limit)


def test_failed_check_names_the_first_failing_rows_and_how_many_there_are() -> None:
    found = judged(IN_SET, False, failing(9, 4)).name_examples("orders")
    assert found.outcome is Outcome.FAILED
    assert found.detail == (
        "2 of 8 do not pass, 25.00%, 2 are null, for example orders[3]@4, orders[3]@9. See the records with: "
        'batchledger records orders "orders[3] 4..5" "orders[3] 9..10"'
    )
    assert found.observed["coordinates"] == ["orders[3]@4", "orders[3]@9"]


def test_of_many_failing_rows_twenty_are_named() -> None:
    assert len(judged(IN_SET, False, failing(*range(30))).examples) == 20


def test_no_value_of_a_record_is_kept() -> None:
    found = judged(IN_SET, False, failing(9, 4)).result
    assert SECRET not in json.dumps([found.detail, found.observed, found.validation])
    assert found.validation["result"]["unexpected_count"] == 2


@pytest.mark.parametrize(("check", "is_kept"), [(MEAN, True), (MOST, False)])
def test_observed_mean_is_kept_and_an_observed_value_is_not(check: RequestedCheck, is_kept: bool) -> None:
    found = judged(check, False, {"observed_value": 77.125}).result
    assert ("77.125" in json.dumps([found.detail, found.observed, found.validation])) is is_kept


@pytest.mark.parametrize(
    ("check", "result", "info"),
    [
        (IN_SET, failing(9, 4), FINE),
        (MEAN, {"observed_value": 3.0}, FINE),
        (MOST, {"observed_value": 3.0}, FINE),
        (IN_SET, {}, {"raised_exception": True, "exception_message": "odd", "exception_traceback": "odd"}),
    ],
)
def test_data_docs_can_be_made_of_what_is_stored(
    check: RequestedCheck, result: Mapping[str, Any], info: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    stored = json.loads(json.dumps(judged(check, False, result, info).result.validation))
    config = ExpectationConfiguration(**stored.pop("expectation_config"))
    suite = ExpectationSuiteValidationResult(
        success=False,
        results=[ExpectationValidationResult(expectation_config=config, **stored)],
        suite_name="orders",
        statistics={"evaluated_expectations": 1, "successful_expectations": 0},
        meta={"run_id": {"run_name": "run", "run_time": "2026-11-21T00:00:00+00:00"}},
    )
    page = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(suite))
    assert "Failed" in page
    assert "error" not in caplog.text.lower()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("77.5")])
def test_result_can_be_stored_whatever_was_observed(value: object) -> None:
    found = judged(MEAN, False, {"observed_value": value}).result
    json.dumps([found.observed, found.validation], allow_nan=False)


def test_check_that_passes_by_mostly_sets_nothing_aside() -> None:
    check = RequestedCheck(**{**_fields(IN_SET), "on_failure": OnFailure.QUARANTINE})
    found = judged(check, True, failing(9))
    assert (found.result.outcome, found.failing) == (Outcome.PASSED, ())


def test_failing_rows_are_returned_where_they_are_to_be_set_aside_only() -> None:
    check = RequestedCheck(**{**_fields(IN_SET), "on_failure": OnFailure.QUARANTINE})
    found = judged(check, False, failing(9, 4, 5), limit=4)
    assert found.failing == (OffsetRange(ORDERS, 4, 6), OffsetRange(ORDERS, 9, 10))
    assert not found.has_more
    assert judged(check, False, failing(9, 4, 5), limit=3).has_more
    assert judged(IN_SET, False, failing(9, 4, 5)).failing == ()


@pytest.mark.parametrize(
    ("check", "result", "rows"),
    [
        (IN_SET, {"element_count": 0, "unexpected_count": 0, "missing_count": 0}, 0),
        (IN_SET, {"element_count": 5, "unexpected_count": 0, "missing_count": 5}, 5),
        (IN_SET, {"element_count": 0, "unexpected_count": 0, "missing_count": 0}, 5),
        (MEAN, {"observed_value": None}, 0),
    ],
)
def test_check_without_anything_to_judge_has_not_passed(
    check: RequestedCheck, result: Mapping[str, Any], rows: int
) -> None:
    assert judged(check, True, result, rows=rows).result.outcome is Outcome.EMPTY


def test_check_without_anything_to_judge_does_not_count_as_failed() -> None:
    passed, empty, failed = (CheckResult("it", each, "") for each in (Outcome.PASSED, Outcome.EMPTY, Outcome.FAILED))
    assert describe_outcomes([passed, empty, passed, empty]) == "2 of 2 checks passed, 2 had nothing to judge"
    assert describe_outcomes([passed]) == "1 of 1 check passed"
    assert describe_outcomes([passed, failed]) == "1 of 2 checks passed"


@pytest.mark.parametrize(("success", "outcome"), [(True, Outcome.PASSED), (False, Outcome.FAILED)])
def test_check_of_the_table_is_judged_without_rows(success: bool, outcome: Outcome) -> None:
    assert judged(ROWS, success, {"observed_value": 0}, rows=0).result.outcome is outcome


@pytest.mark.parametrize("of_each_metric", [False, True])
def test_check_that_broke_is_neither_passed_nor_failed(of_each_metric: bool) -> None:
    message = 'Error: The column "b" in BatchData does not exist.\nmore'
    info: dict[str, Any] = {"raised_exception": True, "exception_message": message}
    found = judged(IN_SET, False, {}, {"metric": info} if of_each_metric else info).result
    assert (found.outcome, found.blocks) == (Outcome.NOT_RUN, True)
    assert found.detail == 'could not run: column "b" in BatchData does not exist'


def test_value_that_the_database_quotes_is_not_told() -> None:
    message = f'(psycopg.errors.InvalidTextRepresentation) invalid input syntax for type integer: "{SECRET}"\n[SQL: …]'
    assert explain_exception(message) == "the database refuses a value with InvalidTextRepresentation"
    raised = f"(psycopg.errors.RaiseException) bad {SECRET}"
    assert explain_exception(raised) == "the database refuses a value with RaiseException"


def test_error_of_unknown_text_is_told_by_its_name() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "x.py", line 1, in parse\n'
        f"dateutil.parser._parser.ParserError: Unknown string format: {SECRET}\n"
        f"great_expectations.exceptions.exceptions.MetricResolutionError: Unknown string format: {SECRET}\n"
    )
    assert explain_exception(f"Unknown string format: {SECRET}", traceback) == "it ended with ParserError"
    assert explain_exception(SECRET) == "it ended with an error"


def test_fault_of_a_statement_is_told() -> None:
    message = "(psycopg.errors.UndefinedFunction) operator does not exist: text > integer\nLINE 1: …"
    assert explain_exception(message) == (
        "the database says UndefinedFunction: operator does not exist: text > integer"
    )


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (RequestedCheck("odd", "expect_column_values_to_be_in_set", {"column": 5}), "Check odd cannot be built"),
        (
            RequestedCheck("odd", "expect_column_values_to_not_be_null", {"column": "a", "row_condition": "a >"}),
            "Check odd cannot be built from its arguments. Nothing was staged.\nunable to parse condition",
        ),
        (RequestedCheck("odd", "json:dumps", {}), "json:dumps is no Expectation of Great Expectations"),
        (RequestedCheck("odd", "json:nothing", {}), "json:nothing cannot be loaded"),
        (
            RequestedCheck("odd", ROWS.type, {"min_value": 1}, on_failure=OnFailure.QUARANTINE),
            "Check odd names no failing rows",
        ),
    ],
)
def test_check_that_cannot_be_judged_is_refused(check: RequestedCheck, expected: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build_checks([check], Path())
    assert expected in str(refused.value)


def test_class_of_ones_own_is_loaded_from_beside_the_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "my_checks.py").write_text(
        "from great_expectations import expectations as gxe\n"
        "class ExpectSmallNumberOfMine(gxe.ExpectColumnValuesToBeBetween):\n"
        "    max_value: float = 9\n"
        "class ExpectRowsOfMine(gxe.ExpectTableRowCountToBeBetween):\n"
        "    min_value: int = 1\n"
    )
    check = RequestedCheck(
        "mine", "my_checks:ExpectSmallNumberOfMine", {"column": "a"}, Severity.CRITICAL, OnFailure.QUARANTINE
    )
    (built,) = build_checks([check], tmp_path)
    assert built.is_row_level
    with pytest.raises(ConfigurationError, match="names no failing rows"):
        build_checks([RequestedCheck("mine", "my_checks:ExpectRowsOfMine", on_failure=OnFailure.QUARANTINE)], tmp_path)


def _fields(check: RequestedCheck) -> dict[str, Any]:
    names: Sequence[str] = ("name", "type", "arguments", "severity", "on_failure")
    return {each: getattr(check, each) for each in names}


def test_long_set_of_values_is_shortened_where_people_are_told() -> None:
    values = [f"value {number}" for number in range(5000)]
    check = RequestedCheck(
        "distinct", "expect_column_distinct_values_to_be_in_set", {"column": "a", "value_set": values}
    )
    told = judged(check, False, {"observed_value": [SECRET]}).result
    assert "value_set: ['value 0', 'value 1'" in told.detail
    assert "… (5,000 entries)" in told.detail
    assert len(told.detail) < 300


@pytest.mark.parametrize("type_", sorted(find_types()))
def test_entries_and_classes_agree_on_which_checks_name_failing_rows(type_: str) -> None:
    """Files are read without the library, so the rule is written twice."""
    assert CheckEntry.model_construct(type=type_).is_row_level is is_row_level(get_expectation_impl(type_))
