"""A publication gives the table the columns that its rows need, if the pipeline allows it, with the rows or not at all.

The statement is ``Evolution`` of the rules, and docs/guides/schema.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.model.batch import Attempt, Decision, Lane
from batchledger.model.errors import RowsRefusedError, ServiceUnavailableError, TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Evolution, Upsert
from batchledger.planning.live import Plan
from batchledger.sinks.table import evolution
from batchledger.sinks.table.evolution import WIDER_TYPES, plan_changes
from batchledger.sinks.table.target import TargetTable
from tests.conftest import as_superuser
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse
from tests.fakes.crash import SimulatedCrashError

ORDERS_0 = TopicPartition("orders", 0)
FIRST, SECOND = OffsetRange(ORDERS_0, 0, 3), OffsetRange(ORDERS_0, 3, 5)
LARGEST_INT = 2**31 - 1


@pytest.fixture
def warehouse(warehouse_dsn: str) -> PostgresWarehouse:
    """A table with three rows, which have a number of 32 bits."""
    warehouse = PostgresWarehouse(warehouse_dsn)
    publish(warehouse, FIRST, pa.int32(), [1, 2, 3])
    return warehouse


def stage(
    warehouse: PostgresWarehouse, range_: OffsetRange, type_: pa.DataType, numbers: Sequence[Any], **more: Any
) -> Attempt:
    """Take rows with a number, and ``more`` columns of (type, values), to audited."""
    rows = life.batch_of_rows(life.rows_of([range_]))
    for name, (kind, values) in {"number": (type_, numbers), **more}.items():
        rows = rows.append_column(name, pa.array(values, kind))
    attempt = life.stage(warehouse, life.store(warehouse, range_, run=str(range_)), str(range_), rows=rows)
    life.audit(warehouse, attempt)
    return attempt


def stage_replay(warehouse: PostgresWarehouse, range_: OffsetRange, **more: Any) -> Attempt:
    """Take rows that are read again to audited, with the numbers 1, 2, 3 and ``more`` columns."""
    rows = life.batch_of_rows(life.rows_of([range_]))
    for name, (kind, values) in {"number": (pa.int32(), [1, 2, 3]), **more}.items():
        rows = rows.append_column(name, pa.array(values, kind))
    attempt = life.stage(warehouse, life.store_replay(warehouse, range_), "again", rows=rows)
    life.audit(warehouse, attempt)
    return attempt


def publish(
    warehouse: PostgresWarehouse, range_: OffsetRange, type_: pa.DataType, numbers: Sequence[Any], **more: Any
) -> None:
    """Publish such rows."""
    life.publish(warehouse, stage(warehouse, range_, type_, numbers, **more))


def die_before_commit(warehouse: PostgresWarehouse, attempt: Attempt) -> None:
    """Do all that a publication does but its commit."""
    with warehouse.ledger.publication(attempt) as publication:
        life.apply(warehouse, publication)
        raise SimulatedCrashError("rows_moved")


def columns_of(warehouse: PostgresWarehouse) -> Mapping[str, str]:
    """Type by name of what a reader sees now, without the columns that every table has."""
    query = (
        "select attname, format_type(atttypid, atttypmod) from pg_attribute "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"
    )
    with psycopg.connect(warehouse.dsn) as connection:
        found = dict(connection.execute(query, [f"{warehouse.schema}.orders"]).fetchall())
    return {name: type_ for name, type_ in found.items() if name[0] != "_" and name != "message_id"}


def values_of(warehouse: PostgresWarehouse, name: str) -> list[Any]:
    """The values of a column by offset."""
    return [row[name] for row in sorted(warehouse.read_target(), key=lambda row: row["_offset"])]


@pytest.mark.parametrize("allowed", [Evolution.ADD, Evolution.WIDEN])
def test_new_column_comes_with_the_rows_and_is_empty_in_older_ones(
    warehouse: PostgresWarehouse, allowed: Evolution
) -> None:
    warehouse = replace(warehouse, evolution=allowed)
    attempt = stage(warehouse, SECOND, pa.int32(), [4, 5], discount=(pa.float64(), [0.5, None]))
    assert columns_of(warehouse) == {"number": "integer"}
    life.publish(warehouse, attempt)
    assert columns_of(warehouse) == {"number": "integer", "discount": "double precision"}
    assert values_of(warehouse, "discount") == [None, None, None, 0.5, None]
    assert warehouse.prove().findings == ()


def test_without_leave_the_new_column_is_refused_before_anything_is_staged(warehouse: PostgresWarehouse) -> None:
    with pytest.raises(TargetChangedError, match=r"(?s)lacks discount.*sink\.evolve: add.*\"discount\" double"):
        stage(warehouse, SECOND, pa.int32(), [4, 5], discount=(pa.float64(), [0.5, None]))
    assert columns_of(warehouse) == {"number": "integer"}


def test_wider_type_comes_with_the_rows_and_older_values_stay(warehouse: PostgresWarehouse) -> None:
    warehouse = replace(warehouse, evolution=Evolution.WIDEN)
    publish(warehouse, SECOND, pa.int64(), [LARGEST_INT + 1, 5])
    assert columns_of(warehouse) == {"number": "bigint"}
    assert values_of(warehouse, "number") == [1, 2, 3, LARGEST_INT + 1, 5]


@pytest.mark.parametrize("allowed", [Evolution.NONE, Evolution.ADD])
def test_without_leave_the_table_refuses_what_is_too_wide(warehouse: PostgresWarehouse, allowed: Evolution) -> None:
    warehouse = replace(warehouse, evolution=allowed)
    attempt = stage(warehouse, SECOND, pa.int64(), [LARGEST_INT + 1, 5])
    with pytest.raises(RowsRefusedError, match="out of range"):
        life.publish(warehouse, attempt)
    assert columns_of(warehouse) == {"number": "integer"}
    assert values_of(warehouse, "number") == [1, 2, 3]


def test_publication_that_does_not_commit_leaves_the_table_as_it_was(warehouse: PostgresWarehouse) -> None:
    warehouse = replace(warehouse, evolution=Evolution.WIDEN)
    attempt = stage(warehouse, SECOND, pa.int64(), [4, 5], note=(pa.string(), ["a", "b"]))

    with pytest.raises(SimulatedCrashError):
        die_before_commit(warehouse, attempt)
    assert columns_of(warehouse) == {"number": "integer"}
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}
    life.publish(warehouse, attempt)
    assert columns_of(warehouse) == {"number": "bigint", "note": "text"}


PLACES = ("_topic", "_partition", "_offset", "_timestamp")


def alter(warehouse: PostgresWarehouse, statement: str) -> None:
    """Change the table behind the sink's back."""
    with psycopg.connect(warehouse.dsn) as connection:
        table = sql.Identifier(warehouse.schema, "orders")
        connection.execute(sql.SQL("alter table {} {}").format(table, sql.SQL(statement)))


@pytest.mark.parametrize(
    ("allowed", "lost"), [(Evolution.NONE, "_offset"), *((Evolution.ADD, each) for each in (*PLACES, "_batch_id"))]
)
def test_place_of_published_rows_that_was_dropped_is_never_added_anew(
    warehouse: PostgresWarehouse, allowed: Evolution, lost: str
) -> None:
    """Empty in the rows that are there, it would let a replay store them twice."""
    alter(warehouse, f"drop column {lost}")
    warehouse = replace(warehouse, evolution=allowed)
    with pytest.raises(
        TargetChangedError, match=rf"(?s)has lost {lost}\..*--truncate.*add column \"{lost}\""
    ) as refused:
        stage(warehouse, SECOND, pa.int32(), [4, 5])
    assert refused.value.pipeline == warehouse.pipeline
    with psycopg.connect(warehouse.dsn) as connection, connection.cursor() as cursor:
        types = {"_topic": "text", "_partition": "integer", "_offset": "bigint", "_timestamp": "timestamptz"}
        TargetTable((warehouse.schema, "orders"), evolution=allowed).evolve(cursor, types)
    assert lost not in warehouse.read_target()[0]


def test_table_of_ones_own_without_places_is_told_all_that_it_lacks_at_once(warehouse_dsn: str) -> None:
    """Also if publications add columns: no row is there yet, and no statement is asked for twice."""
    warehouse = PostgresWarehouse(warehouse_dsn, evolution=Evolution.ADD)
    with psycopg.connect(warehouse_dsn) as connection:
        schema = sql.Identifier(warehouse.schema)
        connection.execute(sql.SQL("create schema {0}; create table {0}.orders (message_id text)").format(schema))
    with pytest.raises(TargetChangedError, match=r"lacks _topic, .*_batch_id") as refused:
        publish(warehouse, FIRST, pa.int32(), [1, 2, 3])
    assert "sink.evolve" not in str(refused.value)
    statement = str(refused.value).partition("alter table")[2]
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute(f"alter table{statement}".encode())
    batch = warehouse.ledger.find_open_batch(warehouse.pipeline)
    assert batch is not None
    attempt = life.stage(warehouse, batch, "again")
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    assert len(warehouse.read_target()) == 3


class Overtaken(psycopg.Cursor[Any]):
    """A cursor that lets a person act right after the columns of the table have been read."""

    act: Any = None

    def execute(self, query: Any, *arguments: Any, **more: Any) -> Any:
        done = super().execute(query, *arguments, **more)
        if self.act is not None and "format_type(a.atttypid" in str(query):
            act, self.act = self.act, None
            act()
        return done


def test_columns_are_read_once_so_that_no_advice_is_given_that_is_followed_already(
    warehouse: PostgresWarehouse,
) -> None:
    """A person adds the missing column between two looks at the table."""
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    batch = life.store(warehouse, SECOND, run="run-2")
    attempt = warehouse.ledger.open_attempt(batch.batch_id, "run-2")
    rows = life.batch_of_rows(life.rows_of([SECOND])).append_column("note", pa.array(["a", "b"]))
    rows = rows.append_column("number", pa.array([4, 5], pa.int32()))
    warehouse.sink.open_staging(attempt, rows.schema)
    with psycopg.connect(warehouse.dsn) as connection, Overtaken(connection) as cursor:
        cursor.act = lambda: alter(warehouse, "add column note text")
        warehouse.sink.require_fit(cursor, attempt, rows.schema)
        assert cursor.act is None


def test_two_publications_that_need_the_same_column_both_succeed(warehouse: PostgresWarehouse) -> None:
    """Both were staged when the table lacked it."""
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    live = stage(warehouse, SECOND, pa.int32(), [4, 5], note=(pa.string(), ["a", "b"]))
    replay = stage_replay(warehouse, FIRST, note=(pa.string(), ["x", "y", "z"]))
    for attempt in (replay, live):
        life.publish(warehouse, attempt)
    assert values_of(warehouse, "note") == ["x", "y", "z", "a", "b"]


def test_while_others_read_the_publication_asks_again_and_no_reader_waits_behind_it(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    attempt = stage(warehouse, SECOND, pa.int32(), [4, 5], note=(pa.string(), ["a", "b"]))
    read = sql.SQL("select count(*) from {}.orders").format(sql.Identifier(warehouse.schema))
    seen = []
    with psycopg.connect(warehouse.dsn) as reader:
        reader.execute(read)

        def meanwhile(seconds: float) -> None:
            with psycopg.connect(warehouse.dsn, options="-c lock_timeout=1s") as another:
                seen.extend(another.execute(read).fetchall())
            if len(seen) == 3:
                reader.rollback()

        monkeypatch.setattr(evolution, "sleep", meanwhile)
        life.publish(warehouse, attempt)
    assert seen == [(3,)] * 3
    assert values_of(warehouse, "note") == [None, None, None, "a", "b"]


def test_reader_that_never_leaves_makes_the_publication_fail_for_now_and_is_named(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolution, "_TRIES_FOR_SECONDS", 0.0)
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    attempt = stage(warehouse, SECOND, pa.int32(), [4, 5], note=(pa.string(), ["a", "b"]))
    with psycopg.connect(warehouse.dsn, application_name="dashboard") as reader:
        reader.execute(sql.SQL("select count(*) from {}.orders").format(sql.Identifier(warehouse.schema)))
        with pytest.raises(ServiceUnavailableError, match=f"session {reader.info.backend_pid} of dashboard") as refused:
            life.publish(warehouse, attempt)
    assert refused.value.retryable
    assert columns_of(warehouse) == {"number": "integer"}
    life.publish(warehouse, attempt)
    assert values_of(warehouse, "note") == [None, None, None, "a", "b"]


def test_rewrite_of_a_large_table_is_refused_with_its_estimate_and_its_statement(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolution, "LARGEST_REWRITE_BYTES", 0)
    warehouse = replace(warehouse, evolution=Evolution.WIDEN)
    with pytest.raises(TargetChangedError, match=r"(?s)number to bigint.*GiB.*about .* s\.") as refused:
        stage(warehouse, SECOND, pa.int64(), [4, 5])
    (statement,) = [each for each in str(refused.value).splitlines() if "alter table" in each]
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(statement[statement.index("alter table") :].encode())
    publish(warehouse, SECOND, pa.int64(), [4, 5])
    assert columns_of(warehouse) == {"number": "bigint"}


def test_column_of_the_key_stays_as_it_is(warehouse_dsn: str) -> None:
    warehouse = PostgresWarehouse(warehouse_dsn, upsert=Upsert(("number",)), evolution=Evolution.WIDEN)
    publish(warehouse, FIRST, pa.int32(), [1, 2, 3])
    attempt = stage(warehouse, SECOND, pa.int64(), [LARGEST_INT + 1, 5])
    with pytest.raises(RowsRefusedError, match="out of range"):
        life.publish(warehouse, attempt)
    assert columns_of(warehouse) == {"number": "integer"}


def compare_dry_run(warehouse: PostgresWarehouse, columns: Mapping[str, tuple[Any, Sequence[Any]]]) -> Comparison:
    """What a dry run of the first three rows says, if they have these columns."""
    plan = Plan((FIRST,), 0, lane=Lane.REPLAY, is_dry_run=True)
    batch = warehouse.ledger.store_replay(warehouse.pipeline, plan, "dry", Decision("ana", "look"), None)
    rows = life.batch_of_rows(life.rows_of([FIRST]))
    for name, (type_, values) in columns.items():
        rows = rows.append_column(name, pa.array(values, type_))
    attempt = life.stage(warehouse, batch, "dry", rows=rows)
    life.audit(warehouse, attempt)
    return warehouse.sink.compare(attempt, 0)


def test_dry_run_compares_new_and_wider_columns_and_changes_nothing(warehouse: PostgresWarehouse) -> None:
    warehouse = replace(warehouse, evolution=Evolution.WIDEN)
    wider = {"number": (pa.int64(), [1, 2, LARGEST_INT + 1])}
    assert compare_dry_run(warehouse, wider) == Comparison(changed=1, unchanged=2)
    noted = {"number": (pa.int32(), [1, 2, 3]), "note": (pa.string(), ["x", None, None])}
    assert compare_dry_run(warehouse, noted) == Comparison(changed=1, unchanged=2)
    assert columns_of(warehouse) == {"number": "integer"}


def test_change_that_others_make_while_the_lock_is_waited_for_is_not_made_again(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person adds the column, as the message of a refusal says, and makes the other one wider than the rows need."""
    table = sql.Identifier(warehouse.schema, "orders")
    target = TargetTable((warehouse.schema, "orders"), evolution=Evolution.WIDEN)
    with (
        psycopg.connect(warehouse.dsn) as reader,
        psycopg.connect(warehouse.dsn) as person,
        psycopg.connect(warehouse.dsn) as publishing,
    ):
        reader.execute(sql.SQL("select count(*) from {}").format(table))

        def change(_: float) -> None:
            reader.rollback()
            alter = "alter table {} add column note text, alter column number type numeric"
            person.execute(sql.SQL(alter).format(table))
            person.commit()

        monkeypatch.setattr(evolution, "sleep", change)
        target.evolve(publishing.cursor(), {"number": "bigint", "note": "text"})
    assert columns_of(warehouse) == {"number": "numeric", "note": "text"}


def test_table_of_another_role_is_refused_before_anything_is_staged(warehouse: PostgresWarehouse) -> None:
    role = sql.Identifier(f"owner_of_{warehouse.schema}")
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    with psycopg.connect(as_superuser(warehouse.dsn)) as connection:
        connection.execute(sql.SQL("create role {}").format(role))
        changes = evolution.ColumnChanges({"note": "text"}, {})
        table = sql.Identifier(warehouse.schema, "orders")
        with connection.cursor() as cursor:
            evolution.require_changeable(cursor, table, "orders", changes)
            cursor.execute(sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(warehouse.schema), role))
            cursor.execute(sql.SQL("set role {}").format(role))
            with pytest.raises(TargetChangedError, match=r"(?s)does not own it.*add column \"note\" text"):
                evolution.require_changeable(cursor, table, "orders", changes)
        connection.rollback()


def test_partitions_count_as_the_table_that_they_are_of(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolution, "LARGEST_REWRITE_BYTES", 8_000)
    table = sql.Identifier(warehouse.schema, "parted")
    with psycopg.connect(warehouse.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("create table {} (n int) partition by range (n)").format(table))
        part = sql.Identifier(warehouse.schema, "parted_1")
        cursor.execute(sql.SQL("create table {} partition of {} for values from (0) to (9)").format(part, table))
        cursor.execute(sql.SQL("insert into {} values (1)").format(table))
        with pytest.raises(TargetChangedError, match="too large to widen n to bigint"):
            evolution.require_changeable(cursor, table, "parted", evolution.ColumnChanges({}, {"n": "bigint"}))
        connection.rollback()


@pytest.mark.parametrize("narrow", WIDER_TYPES)
def test_wider_type_holds_every_value_of_the_narrow_one(warehouse_dsn: str, narrow: str) -> None:
    """The statement behind ``WIDER_TYPES``, asked of PostgreSQL itself."""
    edges = {"smallint": [-(2**15), 0, 2**15 - 1], "integer": [-(2**31), 0, LARGEST_INT], "real": [0.1, -1.5, 2.0**100]}
    scalar, array, _ = narrow.partition("[]")
    with psycopg.connect(warehouse_dsn) as connection:
        for wide in WIDER_TYPES[narrow]:
            query = sql.SQL(
                "select every(v::{0}::{1}::{0} = v::{0}) from unnest(%s::float8[]) n, lateral (select {2}) w (v)"
            ).format(sql.SQL(narrow), sql.SQL(wide), sql.SQL("array[n, null]" if array else "n"))
            assert connection.execute(query, [edges[scalar]]).fetchall() == [(True,)]


def test_array_of_a_wider_type_comes_with_the_rows_and_out_of_range_it_is_refused(warehouse: PostgresWarehouse) -> None:
    """An element is what a scalar is: PostgreSQL takes one that fits, and says so if one does not."""
    small, big = pa.list_(pa.int32()), pa.list_(pa.int64())
    warehouse = replace(warehouse, evolution=Evolution.ADD)
    publish(warehouse, SECOND, pa.int32(), [4, 5], marks=(small, [[1, None], None]))
    third = OffsetRange(ORDERS_0, 5, 6)
    narrow = stage(warehouse, third, pa.int32(), [6], marks=(big, [[LARGEST_INT + 1]]))
    with pytest.raises(RowsRefusedError, match="out of range"):
        life.publish(warehouse, narrow)
    life.publish(replace(warehouse, evolution=Evolution.WIDEN), narrow)
    assert columns_of(warehouse) == {"number": "integer", "marks": "bigint[]"}
    assert values_of(warehouse, "marks") == [None, None, None, [1, None], None, [LARGEST_INT + 1]]


def test_nothing_is_planned_without_leave_or_need() -> None:
    known, staged = {"a": "integer"}, {"a": "bigint", "b": "text"}
    assert not plan_changes(Evolution.NONE, known, staged, ())
    assert not plan_changes(Evolution.WIDEN, staged, known, ())
    assert plan_changes(Evolution.ADD, known, staged, ()).added == {"b": "text"}
    assert plan_changes(Evolution.ADD, known, staged, ()).widened == {}
    assert plan_changes(Evolution.WIDEN, known, staged, ("a",)).widened == {}
