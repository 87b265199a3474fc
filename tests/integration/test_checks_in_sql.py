"""Checks of a pipeline file on rows that are really staged in PostgreSQL: each finds its fault, and passes its twin."""

import gc
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from batchledger.books.history import list_decisions
from batchledger.checks.rows import PipelineChecks
from batchledger.model.batch import Attempt
from batchledger.model.checks import CheckResult, JudgedCheck, OnFailure, Outcome, RequestedCheck, Severity
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.ports import CheckedBatch, RecentBatch
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

ORDERS = TopicPartition("orders", 0)
RANGE = OffsetRange(ORDERS, 0, 20)
SECRET = "SECRET 4711"  # noqa: S105 -- stands for what a record holds
SCHEMA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        pa.field("number", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("is_late", pa.bool_()),
    ]
)
FAULTS: Mapping[int, Mapping[str, Any]] = {
    4: {"number": None},
    7: {"name": SECRET},
    9: {"amount": -5.0},
    11: {"number": 10},
}
NAMES = [f"n{number}" for number in range(20)]

Row = dict[str, Any]


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A warehouse of this test's own."""
    yield from open_postgres(warehouse_dsn)


def row(offset: int) -> Row:
    return {
        "_topic": "orders",
        "_partition": 0,
        "_offset": offset,
        "_timestamp": life.NOW,
        "number": offset,
        "name": f"n{offset}",
        "amount": float(offset),
        "is_late": offset % 2 == 0,
    }


def stage(
    warehouse: PostgresWarehouse,
    faults: Mapping[int, Mapping[str, Any]] = FAULTS,
    alter: Callable[[Row], Row] = lambda each: each,
    count: int = 20,
) -> Attempt:
    rows = [alter({**row(offset), **faults.get(offset, {})}) for offset in range(count)]
    batch = life.store(warehouse, RANGE)
    return life.stage(warehouse, batch, rows=pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def judge(
    warehouse: PostgresWarehouse,
    attempt: Attempt,
    *checks: RequestedCheck,
    recent: Sequence[RecentBatch] = (),
    folder: Path = Path(),
) -> list[JudgedCheck]:
    with life.open_rows(warehouse, attempt) as rows:
        return list(PipelineChecks(checks, folder).judge(rows, CheckedBatch(attempt.batch, 20, 0, recent)))


def judge_one(warehouse: PostgresWarehouse, attempt: Attempt, kind: str, **arguments: Any) -> CheckResult:
    (judged,) = judge(warehouse, attempt, RequestedCheck("c", kind, arguments))
    return judged.result


ROW_LEVEL = [
    ("expect_column_values_to_not_be_null", {"column": "number"}, [4]),
    ("expect_column_values_to_be_between", {"column": "amount", "min_value": 0}, [9]),
    ("expect_column_values_to_be_in_set", {"column": "name", "value_set": NAMES}, [7]),
    ("expect_column_values_to_not_be_in_set", {"column": "name", "value_set": [SECRET]}, [7]),
    ("expect_column_values_to_match_regex", {"column": "name", "regex": "^n[0-9]+$"}, [7]),
    ("expect_column_values_to_not_match_regex", {"column": "name", "regex": "SECRET"}, [7]),
    ("expect_column_values_to_match_like_pattern", {"column": "name", "like_pattern": "n%"}, [7]),
    ("expect_column_value_lengths_to_be_between", {"column": "name", "max_value": 3}, [7]),
    ("expect_column_values_to_be_unique", {"column": "number"}, [10, 11]),
    (
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "amount", "column_B": "number", "or_equal": True},
        [9],
    ),
    (
        "expect_column_values_to_be_between",
        {"column": "amount", "min_value": 9, "row_condition": 'col("_offset") > 8'},
        [9],
    ),
]


@pytest.mark.parametrize(("type_", "arguments", "offsets"), ROW_LEVEL, ids=[each[0] for each in ROW_LEVEL])
def test_row_level_check_names_exactly_the_failing_rows_and_passes_their_clean_twin(
    warehouse: PostgresWarehouse, type_: str, arguments: dict[str, Any], offsets: list[int]
) -> None:
    attempt = stage(warehouse)
    check = RequestedCheck("c", type_, arguments, on_failure=OnFailure.QUARANTINE)
    (found,) = judge(warehouse, attempt, check)
    assert found.result.outcome is Outcome.FAILED
    assert list(map(str, found.examples)) == [f"orders[0]@{each}" for each in offsets]
    assert [at for each in found.failing for at in range(each.start, each.until)] == offsets
    warehouse.sink.drop_staging(attempt)
    batch = warehouse.ledger.open_attempt(attempt.batch.batch_id, "twin").batch
    twin = life.stage(warehouse, batch, "twin", rows=pa.RecordBatch.from_pylist([*map(row, range(20))], schema=SCHEMA))
    (clean,) = judge(warehouse, twin, check)
    assert (clean.result.outcome, clean.failing) == (Outcome.PASSED, ())


AGGREGATES = [
    ("expect_column_mean_to_be_between", {"column": "amount", "min_value": 9.4}, True),
    ("expect_column_max_to_be_between", {"column": "amount", "max_value": 18}, False),
    ("expect_column_min_to_be_between", {"column": "amount", "min_value": 0}, False),
    ("expect_column_unique_value_count_to_be_between", {"column": "number", "min_value": 20}, True),
    ("expect_column_distinct_values_to_be_in_set", {"column": "name", "value_set": NAMES}, False),
    ("expect_compound_columns_to_be_unique", {"column_list": ["number", "_partition"]}, True),
    ("expect_table_row_count_to_be_between", {"min_value": 21}, True),
    ("expect_table_columns_to_match_set", {"column_set": ["number"]}, True),
    ("expect_column_to_exist", {"column": "missing"}, True),
    ("expect_column_values_to_be_of_type", {"column": "number", "type_": "TEXT"}, True),
    ("unexpected_rows_expectation", {"unexpected_rows_query": "select * from {batch} where amount < 0"}, True),
]


@pytest.mark.parametrize(("type_", "arguments", "is_told"), AGGREGATES, ids=[each[0] for each in AGGREGATES])
def test_check_of_a_column_or_the_table_fails(
    warehouse: PostgresWarehouse, type_: str, arguments: dict[str, Any], is_told: bool
) -> None:
    found = judge_one(warehouse, stage(warehouse), type_, **arguments)
    assert found.outcome is Outcome.FAILED, found.detail
    assert ("not kept" in found.detail) is not is_told


@pytest.mark.parametrize(
    ("type_", "arguments"),
    [
        ("expect_column_mean_to_be_between", {"column": "amount", "min_value": 8}),
        ("expect_table_row_count_to_equal", {"value": 20}),
        ("expect_table_columns_to_match_set", {"column_set": SCHEMA.names}),
        ("expect_column_values_to_be_of_type", {"column": "number", "type_": "INTEGER"}),
        ("expect_column_values_to_be_between", {"column": "_timestamp", "min_value": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("expect_column_values_to_not_be_null", {"column": "number", "mostly": 0.95}),
        ("unexpected_rows_expectation", {"unexpected_rows_query": "select * from {batch} where amount > 100"}),
    ],
)
def test_check_that_holds_passes(warehouse: PostgresWarehouse, type_: str, arguments: dict[str, Any]) -> None:
    found = judge_one(warehouse, stage(warehouse), type_, **arguments)
    assert found.outcome is Outcome.PASSED, found.detail


@pytest.mark.parametrize(
    ("type_", "arguments", "reason"),
    [
        ("expect_column_values_to_not_be_null", {"column": "missing"}, '"missing" in BatchData does not exist'),
        ("expect_column_values_to_match_regex", {"column": "name", "regex": "("}, "InvalidRegularExpression"),
        ("expect_column_values_to_be_between", {"column": "name", "min_value": 0}, "column of type TEXT"),
        ("unexpected_rows_expectation", {"unexpected_rows_query": "select nothing from {batch}"}, "UndefinedColumn"),
        (
            "unexpected_rows_expectation",
            {"unexpected_rows_query": "select * from {batch} where name::int > 0"},
            "the database refuses a value with InvalidTextRepresentation",
        ),
        ("expect_column_distribution_to_stay_near_recent", {"column": "missing", "max_distance": 1}, "UndefinedColumn"),
    ],
)
def test_check_that_breaks_is_not_run_and_takes_no_other_with_it(
    warehouse: PostgresWarehouse, type_: str, arguments: dict[str, Any], reason: str
) -> None:
    broken = RequestedCheck("broken", type_, arguments)
    other = RequestedCheck("other", "expect_column_values_to_not_be_null", {"column": "name"})
    found = [each.result for each in judge(warehouse, stage(warehouse), broken, other)]
    assert [each.outcome for each in found] == [Outcome.NOT_RUN, Outcome.PASSED]
    assert reason in found[0].detail
    assert SECRET not in found[0].detail


def test_check_that_is_asked_for_twice_is_judged_twice(warehouse: PostgresWarehouse) -> None:
    checks = [RequestedCheck(name, ROW_LEVEL[0][0], ROW_LEVEL[0][1]) for name in ("once", "twice")]
    found = [each.result for each in judge(warehouse, stage(warehouse), *checks)]
    assert [(each.name, each.outcome) for each in found] == [("once", Outcome.FAILED), ("twice", Outcome.FAILED)]


def test_lost_connection_is_no_fault_of_the_checks(warehouse: PostgresWarehouse) -> None:
    attempt = stage(warehouse)

    def judge_while_the_database_lets_go() -> None:
        with life.open_rows(warehouse, attempt) as rows:
            with psycopg.connect(warehouse.dsn) as connection:
                connection.execute("select pg_terminate_backend(%s)", [rows.connection.info.backend_pid])
            check = RequestedCheck("c", ROW_LEVEL[0][0], ROW_LEVEL[0][1], Severity.WARNING)
            PipelineChecks((check,), Path()).judge(rows, CheckedBatch(attempt.batch, 20, 0))

    with pytest.raises(ServiceUnavailableError):
        judge_while_the_database_lets_go()


def test_checks_without_rows_are_empty_unless_they_are_of_the_table(warehouse: PostgresWarehouse) -> None:
    checks = [RequestedCheck(str(number), type_, dict(about)) for number, (type_, about, _) in enumerate(ROW_LEVEL)]
    rows = RequestedCheck("rows", "expect_table_row_count_to_be_between", {"min_value": 1})
    found = judge(warehouse, stage(warehouse, count=0), *checks, rows)
    assert {each.result.outcome for each in found[:-1]} == {Outcome.EMPTY}
    assert found[-1].result.outcome is Outcome.FAILED


def test_values_and_passwords_reach_neither_results_nor_logs(
    warehouse: PostgresWarehouse, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [
        RequestedCheck(str(number), type_, about)
        for number, (type_, about) in enumerate(
            [
                ("expect_column_values_to_match_regex", {"column": "name", "regex": "^n"}),
                ("expect_column_values_to_be_unique", {"column": "name"}),
                ("expect_column_max_to_be_between", {"column": "name", "max_value": datetime(2026, 1, 1, tzinfo=UTC)}),
                ("expect_column_distinct_values_to_be_in_set", {"column": "name", "value_set": ["n1"]}),
                ("expect_column_most_common_value_to_be_in_set", {"column": "name", "value_set": ["n1"]}),
                ("unexpected_rows_expectation", {"unexpected_rows_query": "select * from {batch}"}),
                (
                    "unexpected_rows_expectation",
                    {"unexpected_rows_query": "select * from {batch} where name::int > 0"},
                ),
                ("expect_column_distribution_to_stay_near_recent", {"column": "name", "max_distance": 0.1}),
            ]
        )
    ]
    attempt = stage(warehouse, {offset: {"name": SECRET} for offset in range(20)})
    with caplog.at_level(logging.DEBUG):
        found = [each.result for each in judge(warehouse, attempt, *checks)]
    said = json.dumps([[each.detail, each.observed, each.validation] for each in found]) + caplog.text
    said += "".join(capsys.readouterr())
    assert SECRET not in said
    assert str(conninfo_to_dict(warehouse.dsn)["password"]) not in said


def test_i6_session_of_the_checks_can_write_nothing_and_leaves_nothing(warehouse: PostgresWarehouse) -> None:
    attempt = stage(warehouse)
    with psycopg.connect(warehouse.dsn, autocommit=True) as connection:

        def list_relations() -> list[tuple[Any, ...]]:
            return connection.execute("select oid::regclass::text from pg_class order by 1").fetchall()

        before = list_relations()
        with life.open_rows(warehouse, attempt) as rows:
            for statement in ("delete from batchledger.position", "create table batchledger.odd ()"):
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    rows.connection.execute(statement)
            PipelineChecks((RequestedCheck("c", ROW_LEVEL[0][0], ROW_LEVEL[0][1]),), Path()).judge(
                rows, CheckedBatch(attempt.batch, 20, 0)
            )
        # A session cleans up after itself when it has ended.
        wait_until(lambda: list_relations() == before)


# Two statements in place of one: the first ends the transaction that can only read.
FORGERY = (
    "select * from {batch}) x; commit; begin read write; insert into batchledger.decision "
    "(pipeline, kind, decided_by, reason) values ('PIPELINE', 'pause', 'ceo', 'forged'); commit; "
    "select count(*) from (select * from {batch}"
)


def forge(warehouse: PostgresWarehouse) -> str:
    return FORGERY.replace("PIPELINE", warehouse.pipeline)


def test_i6_check_cannot_forge_a_decision_by_ending_its_transaction(warehouse: PostgresWarehouse) -> None:
    found = judge_one(
        warehouse, stage(warehouse), "unexpected_rows_expectation", unexpected_rows_query=forge(warehouse)
    )
    assert found.outcome is Outcome.NOT_RUN
    assert list_decisions(warehouse.dsn, warehouse.pipeline) == []


def test_without_the_cursor_of_checks_the_same_query_forges_a_decision(warehouse: PostgresWarehouse) -> None:
    """The negative control, as Great Expectations puts the query into its own."""
    with life.open_rows(warehouse, stage(warehouse)) as rows:
        query = f"select count(*) from ({forge(warehouse).format(batch=rows.table)}) x"  # noqa: S608
        psycopg.Cursor(rows.connection).execute(query.encode())
    assert [each.decided_by for each in list_decisions(warehouse.dsn, warehouse.pipeline)] == ["ceo"]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("select 1; select 2", psycopg.errors.SyntaxError),
        ("begin read write", psycopg.errors.ActiveSqlTransaction),
        ("select set_config('transaction_read_only', 'off', true)", psycopg.errors.ActiveSqlTransaction),
        ("do $$ begin commit; end $$", psycopg.errors.InvalidTransactionTermination),
        ("do $$ begin delete from batchledger.position; end $$", psycopg.errors.ReadOnlySqlTransaction),
        (
            "select nextval(pg_get_serial_sequence('batchledger.batch', 'batch_id'))",
            psycopg.errors.ReadOnlySqlTransaction,
        ),
    ],
)
def test_i6_statement_of_a_check_cannot_leave_its_transaction(
    warehouse: PostgresWarehouse, statement: str, error: type[psycopg.Error]
) -> None:
    with life.open_rows(warehouse, stage(warehouse)) as rows, pytest.raises(error):
        rows.connection.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "commit",
        "rollback",
        "commit and chain",
        "set default_transaction_read_only = off",
        "set session characteristics as transaction read write",
        "select set_config('default_transaction_read_only', 'off', false)",
    ],
)
def test_i6_statement_of_a_check_changes_nothing_for_the_next_one(warehouse: PostgresWarehouse, statement: str) -> None:
    with life.open_rows(warehouse, stage(warehouse)) as rows:
        rows.connection.execute(statement.encode())
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            rows.connection.execute("delete from batchledger.position")
        assert rows.connection.execute("show default_transaction_read_only").fetchall() == [("on",)]


def test_class_of_ones_own_judges_rows(warehouse: PostgresWarehouse, tmp_path: Path) -> None:
    (tmp_path / "own_checks.py").write_text(
        "from great_expectations import expectations as gxe\n"
        "class ExpectAmountToBeReal(gxe.ExpectColumnValuesToBeBetween):\n"
        "    min_value: float = 0\n"
    )
    check = RequestedCheck(
        "mine", "own_checks:ExpectAmountToBeReal", {"column": "amount"}, on_failure=OnFailure.QUARANTINE
    )
    (found,) = judge(warehouse, stage(warehouse), check, folder=tmp_path)
    assert found.failing == (OffsetRange(ORDERS, 9, 10),)


MANY = 120


def drift_of(column: str) -> RequestedCheck:
    return RequestedCheck(
        "drift", "expect_column_distribution_to_stay_near_recent", {"column": column, "max_distance": 0.3}
    )


def observed_by(warehouse: PostgresWarehouse, check: RequestedCheck, attempt: Attempt) -> list[RecentBatch]:
    """A history of five batches like this one."""
    (judged,) = judge(warehouse, attempt, check)
    assert judged.result.outcome is Outcome.EMPTY
    return [RecentBatch(number, MANY, {check.name: judged.result.observed}) for number in range(5)]


def stage_again(
    warehouse: PostgresWarehouse, attempt: Attempt, alter: Callable[[Row], Row], count: int = MANY
) -> Attempt:
    """Stage other rows of the same batch."""
    batch = warehouse.ledger.open_attempt(attempt.batch.batch_id, "again").batch
    rows = pa.RecordBatch.from_pylist([alter(row(offset)) for offset in range(count)], schema=SCHEMA)
    return life.stage(warehouse, batch, "again", rows=rows)


@pytest.mark.parametrize(
    ("column", "alter"),
    [
        ("amount", lambda each: {**each, "amount": each["amount"] + 90}),
        ("amount", lambda each: {**each, "amount": None}),
        ("amount", lambda each: {**each, "amount": float("nan")}),
        ("amount", lambda each: {**each, "amount": each["amount"] if each["is_late"] else None}),
        ("number", lambda each: {**each, "number": each["number"] * 100}),
        ("name", lambda each: {**each, "name": "all the same"}),
        ("is_late", lambda each: {**each, "is_late": True}),
        ("name", lambda each: {**each, "name": None}),
    ],
)
def test_distribution_that_has_drifted_is_found_and_the_same_one_passes(
    warehouse: PostgresWarehouse, column: str, alter: Callable[[Row], Row]
) -> None:
    check, attempt = drift_of(column), stage(warehouse, {}, count=MANY)
    recent = observed_by(warehouse, check, attempt)
    (same,) = judge(warehouse, attempt, check, recent=recent)
    assert same.result.outcome is Outcome.PASSED, same.result.detail
    (drifted,) = judge(warehouse, stage_again(warehouse, attempt, alter), check, recent=recent)
    assert drifted.result.outcome is Outcome.FAILED, drifted.result.detail


def test_batch_whose_numbers_are_null_is_history_too(warehouse: PostgresWarehouse) -> None:
    """Else batches that are accepted as they are would use the history up."""
    check, attempt = drift_of("amount"), stage(warehouse, {}, lambda each: {**each, "amount": None}, count=MANY)
    recent = observed_by(warehouse, check, attempt)
    (same,) = judge(warehouse, attempt, check, recent=recent)
    assert (same.result.outcome, same.result.detail) == (Outcome.EMPTY, "nothing to judge: no row has a number")
    (drifted,) = judge(warehouse, stage_again(warehouse, attempt, lambda each: each), check, recent=recent)
    assert drifted.result.outcome is Outcome.FAILED, drifted.result.detail
    assert "0.0% of the rows have no number, usually 100.0%" in drifted.result.detail


def test_percentiles_of_few_numbers_are_not_kept_because_they_are_values_of_records(
    warehouse: PostgresWarehouse,
) -> None:
    check, attempt = drift_of("amount"), stage(warehouse, {9: {"amount": 471123.0}}, count=99)
    recent = observed_by(warehouse, check, attempt)
    assert {name: each for name, each in recent[0].observed["drift"].items() if name != "nulls"} == {}
    (same,) = judge(warehouse, attempt, check, recent=recent)
    assert same.result.detail == "nothing to judge: 0 earlier batches of 100 numbers or more, 5 are needed"
    turned_null = stage_again(warehouse, attempt, lambda each: {**each, "amount": None}, 99)
    (drifted,) = judge(warehouse, turned_null, check, recent=recent)
    assert drifted.result.outcome is Outcome.FAILED, drifted.result.detail
    said = json.dumps([[each.result.detail, each.result.observed, each.result.validation] for each in (same, drifted)])
    assert "471123" not in said


@pytest.mark.parametrize(("age", "outcome"), [(59, Outcome.PASSED), (61, Outcome.FAILED)])
def test_newest_record_is_as_old_as_it_was_when_the_batch_was_planned(
    warehouse: PostgresWarehouse, age: int, outcome: Outcome
) -> None:
    planned_at = life.store(warehouse, RANGE).planned_at
    newest = planned_at - timedelta(minutes=age)
    attempt = stage(warehouse, {}, lambda each: {**each, "_timestamp": newest - timedelta(minutes=each["_offset"])})
    found = judge_one(warehouse, attempt, "expect_newest_record_to_be_younger_than", max_age="1h")
    assert found.outcome is outcome, found.detail


def test_rows_stay_open_while_the_library_collects_what_it_has_used(warehouse: PostgresWarehouse) -> None:
    """Checks of two policies are judged one after the other, through one connection."""
    attempt, not_null = stage(warehouse), ("expect_column_values_to_not_be_null", {"column": "name"})
    checks = [RequestedCheck(each, *not_null, on_failure=each) for each in (OnFailure.BLOCK, OnFailure.QUARANTINE)]
    with life.open_rows(warehouse, attempt) as rows:
        for _ in range(2):
            PipelineChecks(tuple(checks), Path()).judge(rows, CheckedBatch(attempt.batch, 20, 0))
            gc.collect()
        assert rows.connection.execute("select 1").fetchone() == (1,)
