"""Judges checks of a pipeline file on rows in memory, where Great Expectations surely says what PostgreSQL would say.

Its engine for pandas judges the same expectation, with the same arguments, on the same values. That agrees with its SQL
for the expectations, types and arguments of this module: ``tests/integration/test_checks_in_memory.py`` compares both.
Every other check is left unjudged, with the reason: patterns, orders of texts and conditions mean something else in
PostgreSQL, and statistics need earlier batches.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import find_type
from batchledger.model.checks import JudgedCheck, RequestedCheck
from batchledger.model.records.types import DecimalOf, Floating, Integer, Json, Scalar, ScalarType

if TYPE_CHECKING:
    from great_expectations.datasource.fluent.interfaces import Batch

_Type = ScalarType | Json | None
_Arguments = Mapping[str, Any]
_Rule = Callable[[_Type, _Arguments], bool]


def explain_unjudged(check: RequestedCheck, rows: pa.Table) -> str:
    """Return why a check cannot be judged on rows in memory; an empty text if it can."""
    allowed, fits = _RULES.get(check.type, (frozenset(), None))
    if fits is None or not check.arguments.keys() <= allowed | {"column", "mostly"}:
        return "PostgreSQL or earlier batches are needed to judge it"
    column = check.arguments.get("column")
    if column is None:
        return ""
    if column not in rows.column_names:
        return f"the rows have no column {column}"
    field, values = rows.schema.field(column), rows[column]
    if pa.types.is_floating(field.type) and pc.any(pc.is_nan(values)).as_py():
        return f"{column} holds NaN, which PostgreSQL orders"
    return "" if fits(find_type(field), check.arguments) else f"PostgreSQL is needed to judge it of {field.type}"


def judge_in_memory(checks: Sequence[RequestedCheck], folder: Path, rows: pa.Table) -> Mapping[str, JudgedCheck]:
    """Return what comes of checks that can be judged here, by their names. Imports Great Expectations."""
    from batchledger.checks.requested import build_checks
    from batchledger.checks.rows import judge_rows

    return judge_rows(build_checks(checks, folder), partial(_open_batch, rows), rows.num_rows)


def _open_batch(rows: pa.Table) -> "Batch":
    import pandas as pd

    from batchledger.checks.judging import open_context

    # As objects of Python: with types of its own, pandas makes floats of integers beside a null.
    columns = {name: pd.Series(rows[name].to_pylist(), dtype=object) for name in rows.column_names}
    source = open_context().data_sources.add_pandas("rows")
    asset = source.add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": pd.DataFrame(columns)})


def _has_values(type_: _Type, arguments: _Arguments) -> bool:
    wanted = str if type_ is Scalar.STRING else int
    values = arguments["value_set"]
    is_known = type_ is Scalar.STRING or isinstance(type_, Integer)
    return is_known and isinstance(values, list) and all(type(each) is wanted for each in values)


def _has_bounds(type_: _Type, arguments: _Arguments) -> bool:
    # PostgreSQL compares a decimal and a float as floats, Python exactly.
    wanted = (int, float) if type_ is Floating.DOUBLE else (int,)
    bounds = [arguments.get(each) for each in ("min_value", "max_value")]
    is_number = type_ is Floating.DOUBLE or isinstance(type_, Integer | DecimalOf)
    return is_number and all(each is None or type(each) in wanted for each in bounds)


def _is_exact(type_: _Type) -> bool:
    return type_ is Scalar.STRING or isinstance(type_, Integer | DecimalOf)


_BOUNDS = frozenset({"min_value", "max_value", "strict_min", "strict_max"})
_RULES: Mapping[str, tuple[frozenset[str], _Rule]] = {
    "expect_column_values_to_not_be_null": (frozenset(), lambda type_, asked: True),
    "expect_column_values_to_be_null": (frozenset(), lambda type_, asked: True),
    "expect_column_values_to_be_unique": (frozenset(), lambda type_, asked: _is_exact(type_)),
    "expect_column_values_to_be_in_set": (frozenset({"value_set"}), _has_values),
    "expect_column_values_to_not_be_in_set": (frozenset({"value_set"}), _has_values),
    "expect_column_values_to_be_between": (_BOUNDS, _has_bounds),
    "expect_column_value_lengths_to_be_between": (_BOUNDS, lambda type_, asked: type_ is Scalar.STRING),
    "expect_column_value_lengths_to_equal": (frozenset({"value"}), lambda type_, asked: type_ is Scalar.STRING),
    "expect_table_row_count_to_be_between": (_BOUNDS, lambda type_, asked: True),
    "expect_table_row_count_to_equal": (frozenset({"value"}), lambda type_, asked: True),
}
"""The expectations, their arguments besides ``column`` and ``mostly``, and the types that they are judged of."""
