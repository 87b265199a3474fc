"""Keys are compared by the table and by the ledger: both have to tell them apart in the same way, or it is said."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.sessions import connect
from batchledger.formats.arrow_types import arrow_schema
from batchledger.model.errors import KeyConflictError, TargetChangedError
from batchledger.model.records.columns import parse_columns
from batchledger.sinks.merging.key_equality import has_equality_of_rows
from batchledger.sinks.staging.tables import postgres_type
from batchledger.sinks.table.silent_changes import changes_values
from tests.contract import life
from tests.contract.test_refused_rows import alter
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, open_postgres

LOOSE = "create collation if not exists {s}.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
CITEXT = "create extension if not exists citext schema public"


@pytest.fixture
def story(warehouse_dsn: str) -> Iterator[Story]:
    """A table with the key (carrier, flight), which has one row."""
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1))
        yield story


def alter_target(story: Story, *statements: str) -> None:
    assert isinstance(story.warehouse, PostgresWarehouse)
    alter(story.warehouse, *statements)


OWN_EQUALITY = {
    "citext": ((CITEXT, "alter table {t} alter carrier type public.citext"), "carrier is (public.)?citext"),
    "domain over citext": (
        (CITEXT, "create domain {s}.code as public.citext", "alter table {t} alter carrier type {s}.code"),
        "carrier is (public.)?citext",
    ),
    "collation of the column": (
        (LOOSE, "alter table {t} alter carrier type text collate {s}.loose"),
        "collation loose",
    ),
    "collation of the index": (
        (
            LOOSE,
            "alter table {t} drop constraint orders_pkey",
            "create unique index on {t} (carrier collate {s}.loose, flight)",
        ),
        "collation loose",
    ),
    "number as text": (("alter table {t} alter flight type text",), "flight is text, and the rows have integer"),
}


@pytest.mark.parametrize(("statements", "told"), OWN_EQUALITY.values(), ids=OWN_EQUALITY)
def test_key_that_the_table_compares_in_its_own_way_is_refused_before_anything_is_staged(
    story: Story, statements: Sequence[str], told: str
) -> None:
    alter_target(story, *statements)
    with pytest.raises(TargetChangedError, match=rf"(?s)compares a column of sink\.key in its own way.*{told}"):
        story.stage(Record("aa", None))
    assert [row["delay"] for row in story.warehouse.read_target()] == [1]


def test_equality_of_its_own_beside_the_key_is_no_reason_to_refuse(story: Story) -> None:
    """Negative control: other columns, and a deterministic collation."""
    alter_target(
        story,
        LOOSE,
        "alter table {t} alter message_id type text collate {s}.loose",
        'alter table {t} alter carrier type varchar(9) collate "C"',
    )
    story.publish(Record("aa", 2), Record("AA", None))
    assert story.state() == {("aa", 1): 2}


def test_key_that_the_table_would_cut_in_silence_is_refused_by_coordinates(story: Story) -> None:
    """PostgreSQL cuts blanks at the end of a text that is too long, and says nothing."""
    alter_target(story, "alter table {t} alter carrier type varchar(2)")
    attempt = story.stage(Record("DL", 1), Record("DL ", 2), Record("UA ", None))
    life.audit(story.warehouse, attempt)
    with pytest.raises(KeyConflictError, match="longer than its column") as refused:
        life.publish(story.warehouse, attempt)
    assert refused.value.coordinates == ("orders[0]@2",)
    assert story.state() == {("AA", 1): 1}


MOMENT = datetime(2026, 11, 27, 1, 2, 3, 456789, UTC)
ROWS: Sequence[tuple[pa.Field, Sequence[Any]]] = [
    (pa.field("k", pa.string()), ["a", "A", "a ", "ä", "a\u0308", "1", "1.0", ""]),
    (pa.field("k", pa.int16()), [0, 1, -1]),
    (pa.field("k", pa.int64()), [0, 1, 2**53, 2**53 + 1]),
    (pa.field("k", pa.decimal128(10, 2)), [Decimal("1.10"), Decimal("1.1"), Decimal("0.00"), Decimal("-1.10")]),
    (pa.field("k", pa.float64()), ["0", "-0", "NaN", "1.5"]),
    (pa.field("k", pa.bool_()), [True, False]),
    (pa.field("k", pa.date32()), [date(2026, 11, 27), date(2026, 11, 28)]),
    (pa.field("k", pa.timestamp("us", "UTC")), [MOMENT, MOMENT.replace(microsecond=0)]),
    (pa.field("k", pa.timestamp("us")), [MOMENT.replace(tzinfo=None), datetime(2026, 1, 1)]),  # noqa: DTZ001
    (pa.field("k", pa.binary()), [r"\x00", r"\x0000"]),
    (arrow_schema(parse_columns("k uuid"))[0], [str(UUID(int=0)), str(UUID(int=2**128 - 1)), str(UUID(int=10))]),
]
COLUMNS = (
    "text", "character varying", "character varying(5)", "character(5)", "name", "citext",
    "smallint", "integer", "bigint", "numeric", "numeric(12,3)", "real", "double precision", "money", "boolean", "date",
    "timestamp with time zone", "timestamp without time zone", "time without time zone", "bytea", "uuid", "jsonb",
)  # fmt: skip


COMPARED = """
    select coalesce(bool_and((a.k = b.k) = (t.k = b.k)) and bool_and((a.k = b.k) = (t.k = u.k)), true)
    from staged a join target t using (n), staged b join target u using (n)"""


@contextmanager
def types_of_their_own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that knows citext, and a collation under which letters and their capitals are equal."""
    with connect(dsn) as connection:
        connection.execute(CITEXT)
        connection.execute("create schema loose")
        connection.execute(LOOSE.format(s="loose").encode())
        yield connection
        connection.rollback()


def is_compared_alike(connection: psycopg.Connection[Any], rows: pa.Field, values: Sequence[Any], type_: str) -> bool:
    """Whether values are equal in a column, and beside the rows, exactly if they are equal in the rows.

    A value that the column does not take says so by itself.
    """
    with connection.transaction(force_rollback=True):
        for name, of in (("staged", postgres_type(rows)), ("target", type_)):
            create = sql.SQL("create temporary table {} (n int, k {})")
            connection.execute(create.format(sql.Identifier(name), sql.SQL(of)))
        insert = sql.SQL("insert into staged values (%s, %s::{})").format(sql.SQL(postgres_type(rows)))
        for place, value in enumerate(values):
            connection.execute(insert, [place, str(value)])
            with suppress(psycopg.Error), connection.transaction():
                connection.execute("insert into target select * from staged where n = %s", [place])
        ((is_alike,),) = connection.execute(COMPARED).fetchall()
        return bool(is_alike)


@pytest.mark.parametrize("type_", COLUMNS)
def test_column_that_is_accepted_as_a_key_compares_as_the_rows_do(warehouse_dsn: str, type_: str) -> None:
    """Asked of PostgreSQL itself."""
    with types_of_their_own(warehouse_dsn) as connection:
        for rows, values in ROWS:
            if has_equality_of_rows(rows, type_) and not changes_values(rows, type_):
                assert is_compared_alike(connection, rows, values, type_), (rows.type, type_)


@pytest.mark.parametrize("type_", ["citext", "text collate loose.loose"])
def test_equality_of_its_own_is_what_the_comparison_finds(warehouse_dsn: str, type_: str) -> None:
    """Negative control."""
    with types_of_their_own(warehouse_dsn) as connection:
        assert not is_compared_alike(connection, *ROWS[0], type_)


def test_equal_numbers_have_one_hash(warehouse_dsn: str) -> None:
    """A deleted key is known by its hash: -0 and 0 are one key to the table, and to the ledger."""
    with connect(warehouse_dsn) as connection:
        for number in ("-0", "0"):
            query = "select jsonb_build_array(%s::float8)::text"
            assert connection.execute(query, [number]).fetchall() == [("[0]",)]
