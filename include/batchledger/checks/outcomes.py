"""Turns what Great Expectations says of an expectation into a check result, without the values of any record.

It keeps counts, and what was observed if that is a count, a share, a mean or a name. It keeps no value of a record,
such as the largest one, and no text of an error that may quote one.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from great_expectations.core import ExpectationValidationResult

from batchledger.checks.requested import BuiltCheck
from batchledger.model.checks import CheckResult, JudgedCheck, Offender, Outcome, RequestedCheck, Suite
from batchledger.model.offsets import OffsetRange, merge_ranges, single_offset

SHOWN = 20
LONGEST_REASON = 400
LONGEST_ARGUMENT = 100

_COUNTS = (
    "element_count",
    "unexpected_count",
    "unexpected_percent",
    "missing_count",
    "missing_percent",
    "unexpected_percent_total",
    "unexpected_percent_nonmissing",
)
_OBSERVED_WITHOUT_VALUES = (
    "expect_table_row_count_to_be_between",
    "expect_table_row_count_to_equal",
    "expect_table_column_count_to_be_between",
    "expect_table_column_count_to_equal",
    "expect_table_columns_to_match_ordered_list",
    "expect_table_columns_to_match_set",
    "expect_column_type_to_be",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
    "expect_column_mean_to_be_between",
    "expect_column_stdev_to_be_between",
    "expect_column_sum_to_be_between",
    "expect_column_unique_value_count_to_be_between",
    "expect_column_proportion_of_unique_values_to_be_between",
    "expect_column_proportion_of_non_null_values_to_be_between",
    "expect_column_kl_divergence_to_be_less_than",
    "unexpected_rows_expectation",
)
_DATABASE_ERROR = re.compile(r"\(psycopg\.(?:errors\.)?(?P<name>\w+)\)\s*(?P<text>[^\n]*)")
# What Great Expectations says of a check that does not fit the table.
_ABOUT_COLUMNS = re.compile(
    r'[Cc]olumn "[^"]*" in \S+ does not exist|\w+ metrics cannot be computed on column of type \w+'
)
_RAISED = re.compile(r"^(?:\w+\.)*(?P<name>\w+)(?::|$)", re.MULTILINE)


def explain(built: BuiltCheck, result: ExpectationValidationResult, rows: int, limit: int) -> JudgedCheck:
    """Return what came of a check over so many ``rows``; up to ``limit`` failing rows were asked for."""
    # Without the number of elements the counts are of distinct values. The library's pages expect the shares, too.
    is_of_rows = result.result.get("element_count") is not None
    counts = {name: result.result[name] for name in _COUNTS if is_of_rows and result.result.get(name) is not None}
    outcome, detail = _judge(built, result, counts, rows)
    failing = _read_coordinates(result.result.get("partial_unexpected_index_list") or ())
    observed: dict[str, Any] = {"rows": rows, **counts, **_read_observed(built, result)}
    check = built.check
    told = CheckResult(
        check.name,
        outcome,
        detail,
        observed,
        check.severity,
        Suite.PIPELINE,
        _reduce(built, result, counts),
        check.on_failure,
    )
    if outcome is not Outcome.FAILED:
        return JudgedCheck(told)
    examples = tuple(map(Offender, failing[:SHOWN]))
    if not built.sets_aside:
        return JudgedCheck(told, examples)
    return JudgedCheck(told, examples, tuple(merge_ranges(failing)), len(failing) >= limit)


def tell_not_run(check: RequestedCheck, error: Exception) -> CheckResult:
    """Return the result of a check that Great Expectations could not judge at all."""
    reason = explain_exception(str(error), type(error).__name__)
    return CheckResult(
        check.name,
        Outcome.NOT_RUN,
        f"could not run: {reason}",
        {},
        check.severity,
        Suite.PIPELINE,
        on_failure=check.on_failure,
    )


def explain_exception(message: str, traceback: str = "") -> str:
    """Say what went wrong, without a value of a record: the text of an error may quote one.

    The text is shown if it is about columns or a statement, else only the name of the error.
    """
    about_columns = _ABOUT_COLUMNS.search(message)
    if about_columns is not None:
        return about_columns[0]
    found = _DATABASE_ERROR.search(message)
    if found is None:
        raised = [each["name"] for each in _RAISED.finditer(traceback) if each["name"].endswith(("Error", "Exception"))]
        return f"it ended with {raised[0] if raised else 'an error'}"
    kind = getattr(psycopg.errors, found["name"], None) or getattr(psycopg, found["name"], None)
    # A function raises in its author's words.
    quoting = psycopg.DataError | psycopg.IntegrityError | psycopg.errors.RaiseException
    if isinstance(kind, type) and issubclass(kind, quoting):
        return f"the database refuses a value with {found['name']}"
    return f"the database says {found['name']}: {found['text']}"[:LONGEST_REASON]


def _judge(
    built: BuiltCheck, result: ExpectationValidationResult, counts: Mapping[str, Any], rows: int
) -> tuple[Outcome, str]:
    if built.needs_rows and rows == 0:
        return Outcome.EMPTY, "no row to judge"
    error = _find_exception(result.exception_info)
    if error is not None:
        return Outcome.NOT_RUN, f"could not run: {error}"
    if built.needs_rows and counts.get("element_count") == 0:
        return Outcome.EMPTY, f"{rows:,} rows, and none that row_condition selects"
    if "element_count" in counts:
        total, unexpected = int(counts["element_count"]), int(counts["unexpected_count"])
        missing = int(counts.get("missing_count", 0))
        if total == missing and "missing_count" in counts:
            return Outcome.EMPTY, f"{total:,} rows, and all values are null"
        mostly = built.check.arguments.get("mostly", 1)
        share = f", {unexpected / (total - missing):.2%}" if unexpected else ""
        allowed = f"; mostly: {mostly}" if mostly != 1 else ""
        nulls = f", {missing:,} are null" if missing else ""
        detail = f"{unexpected:,} of {total - missing:,} do not pass{share}{nulls}{allowed}"
        return (Outcome.PASSED if result.success else Outcome.FAILED), detail
    seen = _read_observed(built, result)
    found = f"observed {seen['observed']}" if seen else "what was observed is not kept: it may be a value of a record"
    if "observed_value" not in result.result:
        found = "as it should be" if result.success else "not as it should be"
    asked = {name: value for name, value in built.check.arguments.items() if name not in ("column", "column_list")}
    wanted = ", ".join(f"{name}: {_shorten(value)}" for name, value in asked.items())
    detail = f"{rows:,} rows: {found}" + (f"; asked for {wanted}" if wanted else "")
    return (Outcome.PASSED if result.success else Outcome.FAILED), detail


def _shorten(argument: Any) -> str:
    """Return what a check was asked for; a set of values may have thousands, and messages carry the text."""
    text = str(argument)
    if len(text) <= LONGEST_ARGUMENT:
        return text
    entries = f" ({len(argument):,} entries)" if isinstance(argument, list | dict) else ""
    return f"{text[:LONGEST_ARGUMENT]}…{entries}"


def _find_exception(info: Mapping[str, Any] | None) -> str | None:
    """Explain the first exception; the information is about one, or about one for each metric."""
    for each in [info or {}, *(each for each in (info or {}).values() if isinstance(each, Mapping))]:
        if each.get("raised_exception"):
            return explain_exception(str(each.get("exception_message")), str(each.get("exception_traceback")))
    return None


def _read_observed(built: BuiltCheck, result: ExpectationValidationResult) -> dict[str, Any]:
    whole: dict[str, Any] = result.to_json_dict()
    value = whole["result"].get("observed_value")
    if built.check.type not in _OBSERVED_WITHOUT_VALUES or value is None:
        return {}
    # JSON knows neither "not a number" nor infinity.
    return {"observed": str(value) if isinstance(value, float) and not math.isfinite(value) else value}


def _read_coordinates(rows: Sequence[Mapping[str, Any]]) -> list[OffsetRange]:
    places = sorted({(row["_topic"], row["_partition"], row["_offset"]) for row in rows})
    return [single_offset(*place) for place in places]


def _reduce(built: BuiltCheck, result: ExpectationValidationResult, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result as Great Expectations serialises it, without values of records."""
    whole: dict[str, Any] = result.to_json_dict()
    config = whole["expectation_config"]
    kwargs = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    seen = _read_observed(built, result)
    error = _find_exception(result.exception_info)
    return {
        "success": whole["success"],
        "expectation_config": {**config, "kwargs": kwargs},
        "result": {**counts, **({"observed_value": seen["observed"]} if seen else {})},
        "meta": {},
        "exception_info": {
            "raised_exception": error is not None,
            "exception_message": error,
            # Its page cannot be rendered without a text.
            "exception_traceback": None if error is None else "",
        },
    }
