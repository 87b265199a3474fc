"""A table that would change values without an error is refused; PostgreSQL itself says which types do."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.sessions import connect
from batchledger.formats.arrow_types import arrow_schema
from batchledger.model.errors import TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import parse_columns
from batchledger.sinks.staging.tables import postgres_type
from batchledger.sinks.table.silent_changes import changes_values, describe_type
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse

MOMENT = datetime(2020, 2, 3, 12, 34, 56, 123456, UTC)
TYPES: Sequence[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int16(), [-(2**15), 1, 2**15 - 1]),
    (pa.int32(), [-(2**31), 1, 2**24 + 1]),
    (pa.int64(), [-(2**63), 1, 2**53 + 1]),
    (pa.float32(), [0.5, -1.25, 0.12345679, 2.0**100]),
    (pa.float64(), [0.1 + 0.2, -1.25, 1e300]),
    (pa.decimal128(6, 3), [Decimal("1.105"), Decimal("-999.999")]),
    (pa.decimal128(10, 3), [Decimal("1.105"), Decimal("-9999999.999"), Decimal("0.5")]),
    (pa.decimal128(38, 2), [Decimal("1234567890123456789.01"), Decimal("0.05"), Decimal("0.5")]),
    (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("0.05"), Decimal("12345678.91")]),
    (pa.string(), ["a", "a ", "long" * 40, "2026-11-25"]),
    (pa.date32(), [date(2026, 11, 25), date(1, 1, 1)]),
    (pa.timestamp("us", "UTC"), [MOMENT]),
    (pa.timestamp("us"), [MOMENT.replace(tzinfo=None)]),
    (pa.binary(), [r"\x0061"]),
]
ARRAYS = [
    (pa.list_(type_), [*([each, None] for each in values), [values[0]] * 40])
    for type_, values in TYPES
    if type_ != pa.timestamp("us", "UTC")
]
ROWS = [
    *((pa.field("value", type_), values) for type_, values in (*TYPES, *ARRAYS)),
    (arrow_schema(parse_columns("value uuid"))[0], ["1b4e28ba-2fa1-11d2-883f-0016d3cca427"]),
    (arrow_schema(parse_columns("value jsonb"))[0], ["1", '"x "', f'{{"a": "{"long" * 40}"}}']),
]
SCALARS = (
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "numeric(10,2)", "numeric(12,3)",
    "numeric(5)", "money", "text", "character varying", "character varying(5)", "character(5)", "name", '"char"',
    "date", "timestamp with time zone", "timestamp(3) with time zone", "timestamp without time zone",
    "timestamp(0) without time zone", "time without time zone", "time with time zone", "bytea", "jsonb", "uuid",
    "interval", "bit(8)", "json",
)  # fmt: skip
TABLE_TYPES = (*SCALARS, *(f"{each}[]" for each in SCALARS))


def is_changed(connection: psycopg.Connection[Any], rows: pa.Field, value: Any, type_: str) -> bool:
    """Whether a column takes the value without an error and holds another one."""
    of_rows = sql.SQL(postgres_type(rows))
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("create temporary table staged (v {})").format(of_rows))
        connection.execute(sql.SQL("create temporary table target (v {})").format(sql.SQL(type_)))
        given = (
            ("text[]", [None if each is None else str(each) for each in value])
            if isinstance(value, list)
            else ("text", str(value))
        )
        insert = sql.SQL("insert into staged values (%s::{}::{})").format(sql.SQL(given[0]), of_rows)
        connection.execute(insert, [given[1]])
        try:
            with connection.transaction():
                connection.execute("insert into target select v from staged")
        except psycopg.Error:
            return False
        same = sql.SQL("select {} = {} from target t, staged s").format(*map(sql.SQL, _compared(rows, type_)))
        try:
            return connection.execute(same).fetchall() != [(True,)]
        except (psycopg.errors.InvalidDatetimeFormat, psycopg.errors.InvalidTextRepresentation):
            # A time of day is no moment any more, and JSON that was cut is none.
            return True


def _compared(field: pa.Field, type_: str) -> tuple[str, str]:
    """What a column holds, and what the rows hold, as values of one type that holds both."""
    rows, of = (field.type.value_type, "[]") if pa.types.is_list(field.type) else (field.type, "")
    if pa.types.is_floating(rows) and not type_.startswith(("text", "char", "name")):
        return f"t.v::float8{of}", f"s.v::float8{of}"
    if pa.types.is_integer(rows) or pa.types.is_decimal(rows):
        is_money = type_.startswith("money")
        return f"t.v::numeric{of}" if is_money else f"t.v::text::numeric{of}", f"s.v::numeric{of}"
    return f"t.v::text::{postgres_type(field)}", "s.v"


@pytest.mark.parametrize("type_", TABLE_TYPES)
def test_exactly_the_types_that_change_values_in_silence_are_known(warehouse_dsn: str, type_: str) -> None:
    with connect(warehouse_dsn) as connection:
        found = {
            describe_type(rows): any(is_changed(connection, rows, value, type_) for value in values)
            for rows, values in ROWS
        }
    expected = {describe_type(rows): changes_values(rows, type_) for rows, _ in ROWS}
    assert {each: is_changed for each, is_changed in found.items() if is_changed is not expected[each]} == {}


@pytest.mark.parametrize("of", ["", "[]"], ids=["scalar", "array"])
@pytest.mark.parametrize("type_", ["numeric(10,2)", "price"])
def test_table_that_would_round_is_refused_before_anything_is_staged(warehouse_dsn: str, type_: str, of: str) -> None:
    """``price`` is a domain: it rounds as the type that it is made of."""
    warehouse = PostgresWarehouse(warehouse_dsn)
    first, second = (OffsetRange(TopicPartition("orders", 0), start, start + 1) for start in (0, 1))
    amounts = pa.array([Decimal("1.105")], pa.decimal128(10, 3))
    if of:
        amounts = pa.ListArray.from_arrays([0, 1], amounts)
    rows = life.batch_of_rows(life.rows_of([first])).append_column("amount", amounts)
    attempt = life.stage(warehouse, life.store(warehouse, first), rows=rows)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    table = sql.Identifier(warehouse.schema, "orders")
    with psycopg.connect(warehouse_dsn) as connection:
        domain = sql.Identifier(warehouse.schema, "price")
        connection.execute(sql.SQL("create domain {} as numeric(10,2)").format(domain))
        named = domain if type_ == "price" else sql.SQL(type_)
        alter = sql.SQL("alter table {} alter column amount type {}{}").format(table, named, sql.SQL(of))
        connection.execute(alter)
    rows = life.batch_of_rows(life.rows_of([second])).append_column("amount", amounts)
    with pytest.raises(TargetChangedError, match=r"(?s)change values of amount.*numeric\(10,2\).*numeric\(10,3\)"):
        life.stage(warehouse, life.store(warehouse, second, run="run-2"), "run-2", rows=rows)
