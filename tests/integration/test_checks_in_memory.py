"""Checks on rows in memory say what PostgreSQL says of the same rows: for each expectation, type and argument."""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchledger.checks import in_memory
from batchledger.checks.in_memory import explain_unjudged, judge_in_memory
from batchledger.checks.rows import PipelineChecks
from batchledger.model.checks import JudgedCheck, OnFailure, Outcome, RequestedCheck
from batchledger.ports import CheckedBatch
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.integration.test_checks_in_sql import RANGE

SCHEMA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("small", pa.int16()),
        ("big", pa.int64()),
        ("price", pa.decimal128(20, 2)),
        ("weight", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("gone", pa.string()),
    ]
)
LARGE = 2**60 + 1
"""No double: pandas would make one of it in a column with a null."""
TEXTS = ["a", "A", "a ", "", "é", "e\u0301", "𝄞", "a\nb", "'; --", None, "a", "10", "9"]
BIGS = [0, 1, -1, LARGE, LARGE - 1, None, 5, 5, 2**63 - 1, -(2**63), 7, 8, 9]
PRICES = [None, *(Decimal(each) / 100 for each in (0, 1, -1, 105, 110, 110, 10**17, 10**17 + 1, 3, 4, 5, 6))]
WEIGHTS = [0.0, -0.0, 0.1, 0.30000000000000004, 1e300, float("inf"), float("-inf"), None, 5e-324, 1.0, 2.0, 2.0, 3.0]
ROWS = [
    {
        "_topic": "orders",
        "_partition": 0,
        "_offset": offset,
        "_timestamp": life.NOW,
        "text": TEXTS[offset],
        "small": None if offset == 3 else offset // 2,
        "big": BIGS[offset],
        "price": PRICES[offset],
        "weight": WEIGHTS[offset],
        "flag": [True, False, None][offset % 3],
        "day": None if offset == 4 else date(2026, 1, 1 + offset),
    }
    for offset in range(len(TEXTS))
]
BOUNDS: Mapping[str, list[dict[str, Any]]] = {
    "small": [
        {"min_value": 2},
        {"max_value": 2, "strict_max": True},
        {"min_value": 1, "max_value": 3, "strict_min": True},
    ],
    "big": [{"min_value": LARGE}, {"max_value": LARGE - 1, "strict_max": True}, {"min_value": -(2**63)}],
    "price": [{"min_value": 1}, {"max_value": 10**15, "strict_max": True}],
    "weight": [{"min_value": 0, "strict_min": True}, {"min_value": 0.1, "max_value": 0.3}, {"max_value": 1e300}],
}
SETS: Mapping[str, list[list[Any]]] = {
    "text": [["a", "é"], ["", "a ", "'; --"], ["10"]],
    "small": [[0, 1, 2]],
    "big": [[LARGE, 5], [2**63 - 1]],
}
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("expect_column_values_to_not_be_null", {"column": each.name}) for each in SCHEMA if each.name[0] != "_"),
    *(("expect_column_values_to_be_null", {"column": each}) for each in ("text", "gone", "day")),
    ("expect_column_values_to_not_be_null", {"column": "text", "mostly": 0.9}),
    ("expect_column_values_to_not_be_null", {"column": "text", "mostly": 0.95}),
    *(("expect_column_values_to_be_unique", {"column": each}) for each in ("text", "small", "big", "price", "gone")),
    *(
        ("expect_column_values_to_be_in_set", {"column": name, "value_set": each})
        for name in SETS
        for each in SETS[name]
    ),
    *(
        ("expect_column_values_to_not_be_in_set", {"column": name, "value_set": each})
        for name in SETS
        for each in SETS[name]
    ),
    *(("expect_column_values_to_be_between", {"column": name, **each}) for name in BOUNDS for each in BOUNDS[name]),
    ("expect_column_value_lengths_to_be_between", {"column": "text", "min_value": 1, "max_value": 2}),
    ("expect_column_value_lengths_to_be_between", {"column": "gone", "min_value": 1}),
    ("expect_column_value_lengths_to_equal", {"column": "text", "value": 1}),
    ("expect_table_row_count_to_be_between", {"min_value": 13, "max_value": 13}),
    ("expect_table_row_count_to_be_between", {"min_value": 14}),
    ("expect_table_row_count_to_equal", {"value": 12}),
]
CHECKS = [RequestedCheck(f"c{number}", kind, asked) for number, (kind, asked) in enumerate(CASES)]
ASIDE = [
    RequestedCheck(f"a{number}", kind, asked, on_failure=OnFailure.QUARANTINE)
    for number, (kind, asked) in enumerate(CASES)
    if kind.startswith("expect_column") and "mostly" not in asked
]


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A warehouse of this test's own."""
    yield from open_postgres(warehouse_dsn)


def judge_by_postgres(warehouse: PostgresWarehouse, rows: pa.RecordBatch) -> dict[str, JudgedCheck]:
    attempt = life.stage(warehouse, life.store(warehouse, RANGE), rows=rows)
    with life.open_rows(warehouse, attempt) as opened:
        judged = PipelineChecks((*CHECKS, *ASIDE), Path()).judge(opened, CheckedBatch(attempt.batch, len(ROWS), 0))
    return {each.result.name: each for each in judged}


def tell(judged: JudgedCheck) -> tuple[Any, ...]:
    """What people and the next step see of a check."""
    result = judged.result
    return result.outcome, result.detail, result.blocks, judged.examples, judged.failing, judged.has_more


@pytest.mark.parametrize("count", [len(ROWS), 0], ids=["rows", "no row"])
def test_check_on_rows_in_memory_says_what_postgres_says(warehouse: PostgresWarehouse, count: int) -> None:
    rows = pa.RecordBatch.from_pylist(ROWS[:count], schema=SCHEMA)
    by_postgres = judge_by_postgres(warehouse, rows)
    table = pa.Table.from_batches([rows])
    assert [each for each in CHECKS if explain_unjudged(each, table)] == []
    in_memory_found = judge_in_memory([*CHECKS, *ASIDE], Path(), table)
    asked = {each.name: (each.type, each.arguments) for each in (*CHECKS, *ASIDE)}
    differing = {
        name: (asked[name], tell(each), tell(by_postgres[name]))
        for name, each in in_memory_found.items()
        if tell(each) != tell(by_postgres[name])
    }
    assert differing == {}
    outcomes = {each.result.outcome for each in in_memory_found.values()}
    assert outcomes == ({Outcome.PASSED, Outcome.FAILED, Outcome.EMPTY} if count else outcomes)


def test_every_expectation_that_is_judged_in_memory_is_compared() -> None:
    assert {kind for kind, _ in CASES} == set(in_memory._RULES)
    assert set(BOUNDS) | set(SETS) >= {"text", "small", "big", "price", "weight"}


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("expect_column_values_to_match_regex", {"column": "text", "regex": "a"}),
        ("expect_column_values_to_be_between", {"column": "text", "min_value": "a"}),
        ("expect_column_values_to_be_between", {"column": "day", "min_value": "2026-01-01"}),
        ("expect_column_values_to_be_between", {"column": "price", "min_value": 0.1}),
        ("expect_column_values_to_be_between", {"column": "small", "min_value": True}),
        ("expect_column_values_to_be_between", {"column": "big", "min_value": 0.5}),
        ("expect_column_values_to_be_unique", {"column": "weight"}),
        ("expect_column_values_to_be_in_set", {"column": "small", "value_set": ["1"]}),
        ("expect_column_values_to_be_in_set", {"column": "text", "value_set": ["a", None]}),
        ("expect_column_values_to_be_in_set", {"column": "weight", "value_set": [1]}),
        ("expect_column_values_to_not_be_null", {"column": "text", "row_condition": 'col("big") > 1'}),
        ("expect_column_values_to_not_be_null", {"column": "missing"}),
        ("expect_column_value_lengths_to_equal", {"column": "small", "value": 1}),
        ("expect_column_mean_to_be_between", {"column": "small", "min_value": 1}),
        ("expect_batch_rows_to_be_near_recent", {"min_ratio": 0.5}),
        ("rules:ExpectGoodRows", {"column": "text"}),
    ],
)
def test_other_check_is_not_judged_in_memory(kind: str, asked: dict[str, Any]) -> None:
    assert explain_unjudged(RequestedCheck("c", kind, asked), pa.Table.from_pylist(ROWS, SCHEMA))


def test_column_with_nan_is_not_judged_in_memory() -> None:
    """The negative control: pandas takes NaN for a null, and PostgreSQL for the largest number."""
    rows = pa.Table.from_pylist([*ROWS, {**ROWS[0], "weight": float("nan")}], SCHEMA)
    check = RequestedCheck("c", "expect_column_values_to_not_be_null", {"column": "weight"})
    assert explain_unjudged(check, rows)
    (judged,) = judge_in_memory([check], Path(), rows).values()
    assert "2 of 14 do not pass" in judged.result.detail
