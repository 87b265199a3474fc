"""What a watch reads of tables in PostgreSQL: coordinates of every kind, bounds, and a role that may only read."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.watching.counting import OffsetCounter
from batchledger.watching.postgres import PostgresTable
from batchledger.watching.relation import Relation
from batchledger.watching.table import ENDLESS, RowCoordinates
from tests.contract.warehouses import create_role, role_of

ORDERS = TopicPartition("orders", 0)


@dataclass
class Database:
    """A database, and a name for a table of this test."""

    dsn: str
    name: str = field(default_factory=lambda: f"foreign_{uuid4().hex[:10]}")

    def run(self, statement: str) -> None:
        """Run statements, in which ``{t}`` is the table."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement.replace("{t}", self.name).encode())

    def table(
        self, offset: str, max_rows: int | None = None, seconds: float = 600, topics: tuple[str, ...] = ()
    ) -> PostgresTable:
        """The table, read by its offsets; with topics, column t names them."""
        coordinates = RowCoordinates("p", offset, "t" if topics else None)
        return PostgresTable(Relation(self.dsn, self.name, seconds), coordinates, topics or ("orders",), max_rows)


@pytest.fixture
def database(warehouse_dsn: str) -> Iterator[Database]:
    made = Database(warehouse_dsn)
    yield made
    made.run("drop table if exists {t} cascade")


def read(table: PostgresTable, spans: list[OffsetRange] | None = None) -> tuple[list[str], int]:
    counter = OffsetCounter([OffsetRange(ORDERS, 0, 100), OffsetRange(TopicPartition("refunds", 0), 0, 100)])
    for words in table.count(spans):
        counter.add(words)
    counted = counter.finish((), {ORDERS: 100})
    return [str(each) for each in counted.held], counted.stray


@pytest.mark.parametrize(
    ("columns", "rows", "offset", "strays"),
    [
        ("p int, o bigint", "(0, 3), (0, 4), (0, null)", "o", 1),
        ("p smallint, o int", "(0, 3), (0, 4), (null, 4)", "o", 1),
        ("p text, o text", "('0', '3'), ('0', '4'), ('0', '4.0'), ('zero', '4'), ('0', '')", "o", 3),
        ("p numeric, o numeric(20)", "(0, 3), (0, 4), (0.5, 4), (0, -1)", "o", 2),
        ("p int, o jsonb", """(0, '{"at": {"n": 3}}'), (0, '{"at": {"n": "4"}}'), (0, '[]')""", "o:at.n", 1),
        ("p int, o json", "(0, '{\"offset\": 3}'), (0, '{\"offset\": 4}'), (0, '{\"offset\": true}')", "o.offset", 1),
        ("p int, o jsonb", "(0, '3'), (0, '4'), (0, 'null')", "o", 1),
        ("p int, \"Odd Name\" bigint", "(0, 3), (0, 4)", "Odd Name", 0),
    ],
)  # fmt: skip
def test_coordinates_are_read_from_columns_of_every_kind(
    database: Database, columns: str, rows: str, offset: str, strays: int
) -> None:
    database.run(f"create table {{t}} ({columns})")
    database.run(f"insert into {{t}} values {rows}")  # noqa: S608 -- rows of the table above
    assert read(database.table(offset)) == (["orders[0] 3..5"], strays)
    span = [OffsetRange(ORDERS, 4, ENDLESS)]
    assert read(database.table(offset), span) == (["orders[0] 4..5"], 0)


def test_coordinates_are_read_from_composite_types_and_domains(database: Database) -> None:
    database.run(
        "create domain {t}_offset as bigint check (value >= 0); create type {t}_meta as (part int, at {t}_offset); "
        "create type {t}_outer as (inner_meta {t}_meta, extra jsonb); create table {t} (p int, meta {t}_outer); "
        "insert into {t} values (0, row(row(0, 3), '{\"offset\": 7}')), (0, row(row(0, 4), '{}'))"
    )
    try:
        assert read(database.table("meta.inner_meta.at")) == (["orders[0] 3..5"], 0)
        assert read(database.table("meta.extra.offset")) == (["orders[0] 7..8"], 1)
        with pytest.raises(ConfigurationError, match=r"has no meta\.inner_meta\.there for the offset"):
            read(database.table("meta.inner_meta.there"))
        with pytest.raises(ConfigurationError, match="type int8 has no parts"):
            read(database.table("meta.inner_meta.at.x"))
    finally:
        database.run("drop table {t}; drop type {t}_outer; drop type {t}_meta; drop domain {t}_offset")


def test_offset_of_a_floating_type_is_refused_because_it_would_not_be_exact(database: Database) -> None:
    database.run("create table {t} (p int, o double precision)")
    with pytest.raises(ConfigurationError, match="2⁵³"):
        read(database.table("o"))


def test_the_same_offset_in_two_topics_is_two_records(database: Database) -> None:
    database.run(
        "create table {t} (t text, p int, o bigint); "
        "insert into {t} values ('orders', 0, 3), ('refunds', 0, 3), ('others', 0, 3), (null, 0, 3)"
    )
    table = database.table("o", topics=("orders", "refunds"))
    assert read(table) == (["orders[0] 3..4", "refunds[0] 3..4"], 1)
    assert read(table, [OffsetRange(ORDERS, 0, 50)]) == (["orders[0] 3..4"], 0)
    assert not list(table.count_repeated([OffsetRange(ORDERS, 0, 50)]))


def test_rows_that_are_there_twice_are_named_with_their_place(database: Database) -> None:
    database.run(
        "create table {t} (p int, o bigint); insert into {t} values (0, 3), (0, 3), (0, 4), (0, 2), (0, 2), (0, 2)"
    )
    found = database.table("o").locate([OffsetRange(ORDERS, at, at + 1) for at in (2, 3)])
    assert [(str(each.offsets), each.rows) for each in found] == [("orders[0] 2..3", 3), ("orders[0] 3..4", 2)]
    assert found[1].places == ("(0,1)", "(0,2)")


def test_view_is_read_too_and_its_rows_have_no_place(database: Database) -> None:
    database.run(
        "create table {t} (p int, o bigint); insert into {t} values (0, 3), (0, 3); "
        "create view {t}_view as select * from {t}"
    )
    found = replace(database, name=f"{database.name}_view").table("o").locate([OffsetRange(ORDERS, 3, 4)])
    assert [(each.rows, each.places) for each in found] == [(2, ())]


def test_index_is_used_when_there_is_one_and_the_plan_says_so(database: Database) -> None:
    database.run(
        "create table {t} (p int, o bigint); insert into {t} select 0, o from generate_series(0, 99999) o; analyze {t}"
    )
    span = [OffsetRange(ORDERS, 99_990, ENDLESS)]
    assert database.table("o").estimate(span).how == f"seq scan of {database.name}"
    assert database.table("o").estimate(None).rows == pytest.approx(100_000, rel=0.1)
    database.run("create index {t}_at on {t} (p, o); analyze {t}")
    cost = database.table("o").estimate(span)
    assert cost.how.endswith(f"by {database.name}_at")
    assert cost.rows < 1000
    many = [OffsetRange(ORDERS, at, at + 1) for at in range(0, 1000, 2)]
    assert len(read(database.table("o"), many)[0]) == 64, "words of 64 offsets, as far as the counter has room"


def test_look_that_would_read_more_rows_than_allowed_is_refused_before_it_begins(database: Database) -> None:
    database.run(
        "create table {t} (p int, o bigint); insert into {t} select 0, o from generate_series(0, 9999) o; analyze {t}"
    )
    with pytest.raises(ConfigurationError, match="max_rows allows 5,000"):
        database.table("o", max_rows=5000).estimate(None)
    assert database.table("o", max_rows=50_000).estimate(None).rows == pytest.approx(10_000, rel=0.1)
    with pytest.raises(ConfigurationError, match="max_rows allows 5,000"):
        database.table("o", max_rows=5000).estimate([OffsetRange(ORDERS, 9_990, ENDLESS)])


def test_statement_that_takes_too_long_is_ended_and_says_which_bound(database: Database) -> None:
    database.run("create table {t} (p int, o bigint); insert into {t} select 0, 1 from generate_series(1, 3000000)")
    with pytest.raises(ConfigurationError, match=r"could not be read within 0.01 s"):
        read(database.table("o", seconds=0.01))


def test_table_that_is_not_there_and_column_that_is_not_there_are_named(database: Database) -> None:
    with pytest.raises(ConfigurationError, match=f"{database.name} is not there"):
        read(database.table("o"))
    database.run("create table {t} (p int)")
    with pytest.raises(ConfigurationError, match="has no o for the offset"):
        read(database.table("o"))


def test_role_that_may_only_read_the_table_is_enough_and_the_session_writes_nothing(
    database: Database, warehouse_dsn: str
) -> None:
    database.run("create table {t} (p int, o bigint); insert into {t} values (0, 3)")
    with create_role(warehouse_dsn) as dsn:
        reader = Database(dsn, database.name)
        with pytest.raises(ConfigurationError, match=f"grant select on {database.name}"):
            read(reader.table("o"))
        database.run(f"grant select (p, o) on {{t}} to {role_of(dsn)}")
        assert read(reader.table("o"))[0] == ["orders[0] 3..4"]
        refused = pytest.raises(psycopg.errors.ReadOnlySqlTransaction)
        with reader.table("o").relation.session("write") as cursor, refused:
            cursor.execute(sql.SQL("insert into {} values (0, 4)").format(sql.Identifier(database.name)))
        # Rows that a policy hides would count as missing.
        database.run("alter table {t} enable row level security")
        with pytest.raises(ConfigurationError, match="row security"):
            read(reader.table("o"))
