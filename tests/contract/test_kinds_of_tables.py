"""A target is a table that keeps the rows that it takes; anything else is refused before anything is staged."""

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from psycopg import sql

from batchledger.model.errors import TargetChangedError
from tests.conftest import as_superuser
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.test_refused_rows import alter
from tests.contract.test_swallowed_rows import ADOPTED, PARTITIONED
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, open_postgres

VIEW = ("alter table {t} rename to really", "create view {t} as select * from {s}.really where _offset < 4")
ELSEWHERE = (
    "create table {s}.elsewhere (like {t})",
    "create rule moved as on insert to {t} do instead insert into {s}.elsewhere values (new.*)",
)
KINDS: dict[str, tuple[Sequence[str], str]] = {
    "view": (VIEW, "orders is a view"),
    "materialized view": (
        ("alter table {t} rename to really", "create materialized view {t} as select * from {s}.really"),
        "orders is a materialized view",
    ),
    "index": (
        ("alter table {t} rename to really", "create index orders on {s}.really (_offset)"),
        "orders is an index",
    ),
    "unlogged table": (("alter table {t} set unlogged",), r"(?s)orders is unlogged.*alter table \S+ set logged"),
    "rule": (ELSEWHERE, r"(?s)rules that do something instead: moved.*disable rule moved"),
    "partition with a rule": (
        (
            "drop table {t}",
            PARTITIONED,
            "create table {s}.part partition of {t} for values in (0)",
            "create rule gone as on delete to {s}.part do instead nothing",
        ),
        r"Partition \S+\.part of \S+\.orders has rules",
    ),
}


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A target that has taken a first batch, and is about to become another one."""
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        yield warehouse


@pytest.mark.parametrize(("statements", "told"), KINDS.values(), ids=KINDS)
def test_relation_that_may_lose_rows_is_refused_before_anything_is_staged(
    table: PostgresWarehouse, statements: Sequence[str], told: str
) -> None:
    alter(table, *statements, ADOPTED)
    with pytest.raises(TargetChangedError, match=told) as refused:
        life.take_to_audited(table, SECOND, run="run-2")
    assert refused.value.subject == f"{table.schema}.orders"
    with pytest.raises(TargetChangedError, match=told):
        table.sink.find_target()
    assert life.next_offsets(table) == {ORDERS_0: 3}


def test_table_that_becomes_a_view_after_staging_is_refused_by_the_publication(table: PostgresWarehouse) -> None:
    attempt = life.take_to_audited(table, SECOND, run="run-2")
    alter(table, *VIEW, ADOPTED)
    with pytest.raises(TargetChangedError, match="is a view"):
        life.publish(table, attempt)
    assert life.next_offsets(table) == {ORDERS_0: 3}


def test_foreign_table_is_no_target(table: PostgresWarehouse) -> None:
    """Its server need not exist: the catalog says what it is."""
    with psycopg.connect(as_superuser(table.dsn)) as connection:
        # The wrapper is undone with the transaction.
        target = sql.Identifier(table.schema, "orders")
        connection.execute("create foreign data wrapper far")
        connection.execute("create server far foreign data wrapper far")
        connection.execute(sql.SQL("drop table {}").format(target))
        connection.execute(sql.SQL("create foreign table {} (_offset bigint) server far").format(target))
        attempt = life.store(table, SECOND, run="run-2")
        with pytest.raises(TargetChangedError, match=r"(?s)orders is a foreign table.*another server"):
            table.sink.claim_target(table.ledger.open_attempt(attempt.batch_id, "run-2"), connection)
        connection.rollback()


def test_partitioned_table_and_rules_that_are_disabled_or_only_add_take_rows(table: PostgresWarehouse) -> None:
    """Negative control."""
    alter(
        table,
        "drop table {t}",
        PARTITIONED,
        "create table {s}.part partition of {t} for values in (0)",
        "create table {s}.log (n int)",
        "create rule beside as on insert to {t} do also insert into {s}.log values (1)",
        "create rule gone as on delete to {s}.part do instead nothing",
        "alter table {s}.part disable rule gone",
        ADOPTED,
    )
    life.take_to_published(table, SECOND, run="run-2")
    assert life.target_coordinates(table) == life.rows_of([SECOND])


def test_tables_that_inherit_are_refused_if_rows_are_applied_by_key(warehouse_dsn: str) -> None:
    """No unique index covers them. Rows that are appended are found in all of them."""
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1))
        alter(warehouse, "create table {s}.more () inherits ({t})")
        with pytest.raises(TargetChangedError, match="has tables that inherit from it"):
            story.stage(Record("AA", 2))
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        alter(warehouse, "create table {s}.more () inherits ({t})")
        life.take_to_published(warehouse, SECOND, run="run-2")
        assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
