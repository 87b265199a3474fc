"""Rows that a table refuses are named one by one, with the column or constraint, and never with a value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from batchledger.lifecycle.delivery import name_refused
from batchledger.model.batch import Attempt
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import RowsRefusedError, TargetRefusedError
from batchledger.model.offsets import OffsetRange
from batchledger.sinks.table import refused_rows
from batchledger.sinks.table.target import TargetTable
from tests.contract import life
from tests.contract.decided import BY_ANA
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.test_refused_rows import DEFERRED, alter, trigger
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, Warehouse, open_postgres

WIDE = OffsetRange(ORDERS_0, 3, 403)
LONG = "x" * 12
"""Too long for the columns of these tests."""


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A target that has taken a first batch of three rows."""
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        yield warehouse


def take_to_audited(warehouse: PostgresWarehouse, texts: dict[int, str | None]) -> Attempt:
    """Rows with a short text each, except those at these offsets."""
    rows = life.batch_of_rows(life.rows_of([WIDE]))
    at = rows.schema.get_field_index("message_id")
    values = [texts.get(offset, f"m{offset}") for offset in range(WIDE.start, WIDE.until)]
    rows = rows.set_column(at, "message_id", pa.array(values, pa.string()))
    attempt = life.stage(warehouse, life.store(warehouse, WIDE, run="run-2"), "run-2", rows=rows)
    life.audit(warehouse, attempt)
    return attempt


def refuse(warehouse: PostgresWarehouse, attempt: Attempt) -> TargetRefusedError:
    """Publish in vain, and return what people hear."""
    before = warehouse.read_target()
    with pytest.raises(RowsRefusedError) as refused:
        life.publish(warehouse, attempt)
    named = name_refused(life.platform(warehouse), attempt, refused.value)
    assert warehouse.read_target() == before
    assert LONG not in str(named)
    return named


@dataclass(frozen=True)
class Case:
    """A target, rows that it refuses by offset, and what is said of these."""

    statements: Sequence[str]
    texts: dict[int, str | None]
    notes: dict[int, str]


CASES = {
    "length": Case(
        ("alter table {t} alter message_id type varchar(11)",),
        {9: LONG, 400: LONG},
        dict.fromkeys((9, 400), "message_id: value too long for type character varying(11)"),
    ),
    "not null": Case(
        ("alter table {t} alter message_id set not null",),
        {7: None},
        {7: 'null value in column "message_id" of relation "orders" violates not-null constraint'},
    ),
    "check": Case(
        ("alter table {t} add constraint short check (length(message_id) < 12)",),
        {5: LONG},
        {5: 'new row for relation "orders" violates check constraint "short"'},
    ),
    "row of an earlier batch and of this one": Case(
        ("update {t} set message_id = _offset", "create unique index one on {t} (message_id)"),
        {4: "2", 6: "m5"},
        dict.fromkeys((4, 6), 'duplicate key value violates unique constraint "one"'),
    ),
    "foreign key": Case(
        (
            "create table {s}.known (id text primary key)",
            "insert into {s}.known select 'm' || n from generate_series(3, 402) n",
            "alter table {t} add constraint belongs foreign key (message_id) references {s}.known not valid",
        ),
        {8: LONG},
        {8: 'insert or update on table "orders" violates foreign key constraint "belongs"'},
    ),
    "trigger": Case(
        trigger("if length(new.message_id) > 11 then raise 'no %', new.message_id; end if; return new;"),
        {3: LONG},
        {3: "RaiseException (SQLSTATE P0001)"},
    ),
    "deferred trigger": Case(
        trigger("if length(new.message_id) > 11 then raise 'no %', new.message_id; end if; return new;", **DEFERRED),
        {402: LONG},
        {402: "RaiseException (SQLSTATE P0001)"},
    ),
    "trigger that swallows": Case(
        trigger("return case when length(new.message_id) < 12 then new end;"),
        {11: LONG},
        {11: "the table ignores it, without an error"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_that_the_table_refuses_are_named_with_column_or_constraint(table: PostgresWarehouse, case: Case) -> None:
    alter(table, *case.statements)
    named = refuse(table, take_to_audited(table, case.texts))
    assert named.coordinates == tuple(f"orders[0]@{offset} ({note})" for offset, note in case.notes.items())
    first = min(case.notes)
    assert f"See the records: batchledger records {table.pipeline} " in named.advice
    assert f'"orders[0] {first}..{first + 1}"' in named.advice


def test_row_that_staging_refuses_is_named_with_its_column(table: PostgresWarehouse) -> None:
    """PostgreSQL says its number among all rows of the task, when the last one was sent."""
    rows = life.batch_of_rows(life.rows_of([WIDE]))
    texts = pa.array(["a\0b" if offset in (300, 301) else LONG for offset in range(WIDE.start, WIDE.until)])
    rows = rows.set_column(rows.schema.get_field_index("message_id"), "message_id", texts)
    attempt = table.ledger.open_attempt(life.store(table, WIDE, run="run-2").batch_id, "run-2")
    writer = table.sink.open_staging(attempt, rows.schema)
    with pytest.raises(RowsRefusedError) as refused:
        life.write(writer, 0, rows.slice(0, 100), rows.slice(100, 150), rows.slice(250))
    named = 'orders[0]@300 (message_id: invalid byte sequence for encoding "UTF8": 0x00)'
    assert refused.value.coordinates == (named,)
    assert f"The first is {named}." in refused.value.why
    assert f'batchledger records {table.pipeline} "orders[0] 300..301"' in refused.value.advice


def test_of_rows_on_their_way_to_staging_only_the_coordinates_stay_in_memory(table: PostgresWarehouse) -> None:
    """A batch that comes from Spark, by Arrow's messages, lies in one piece of memory, which each column keeps."""
    rows = life.batch_of_rows(life.rows_of([WIDE]))
    at = rows.schema.get_field_index("message_id")
    rows = rows.set_column(at, "message_id", pa.array(["x" * 10_000] * rows.num_rows))
    attempt = table.ledger.open_attempt(life.store(table, WIDE, run="run-2").batch_id, "run-2")
    with table.sink.open_staging(attempt, rows.schema).open(0) as write:
        before = pa.total_allocated_bytes()
        for start in range(0, rows.num_rows, 100):
            write(pass_on(rows.slice(start, 100)))
        assert pa.total_allocated_bytes() - before < 100 * 10_000


def pass_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return next(iter(pa.ipc.open_stream(stream.getvalue())))


def test_first_ten_are_named_at_a_price_that_the_rows_bound(
    table: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is taken once, and a refused one costs no more than two pieces a halving."""
    alter(table, "alter table {t} alter message_id type varchar(11)")
    bad = range(20, 400, 20)
    attempt = take_to_audited(table, dict.fromkeys(bad, LONG))
    monkeypatch.setattr(refused_rows, "_LARGEST_PIECE", 32)
    asked, apply = [], TargetTable.apply

    def count(*arguments: Any, **options: Any) -> int:
        asked.append(arguments)
        return apply(*arguments, **options)

    monkeypatch.setattr(TargetTable, "apply", count)
    named = refuse(table, attempt)
    assert [each.partition(" ")[0] for each in named.coordinates] == [f"orders[0]@{offset}" for offset in bad[:10]]
    assert "The first 10 are" in named.why
    assert len(asked) < 400 // 32 + 10 * 2 * 6


def test_search_that_takes_too_long_names_what_it_has_found(
    table: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(table, "alter table {t} alter message_id type varchar(11)")
    attempt = take_to_audited(table, {9: LONG})
    monkeypatch.setattr(refused_rows, "_LOOKS_FOR_SECONDS", 0.0)
    assert refuse(table, attempt).coordinates == ()


def test_of_updates_only_the_newest_record_of_a_key_is_asked_about(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1))
        alter(warehouse, "alter table {t} add constraint early check (delay < 100)")
        attempt = story.stage(Record("DL", 100), Record("DL", 2), Record("AA", 3), Record("AA", 200))
        life.audit(story.warehouse, attempt)
        named = refuse(story.warehouse, attempt)  # type: ignore[arg-type]
        (only,) = named.coordinates
        assert only.startswith('orders[0]@4 (new row for relation "orders" violates check constraint "early")')


def test_deletion_that_the_table_refuses_is_named(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1), Record("DL", 1))
        alter(
            warehouse,
            "create table {s}.bags (carrier text, flight int, foreign key (carrier, flight) references {t})",
            "insert into {s}.bags values ('AA', 1)",
        )
        attempt = story.stage(Record("DL", None), Record("UA", 3), Record("AA", None))
        life.audit(story.warehouse, attempt)
        (only,) = refuse(story.warehouse, attempt).coordinates  # type: ignore[arg-type]
        assert only.startswith("orders[0]@4 (")
        assert "violates foreign key constraint" in only


def test_rows_of_a_replay_are_not_in_the_way_of_themselves(table: PostgresWarehouse) -> None:
    """The rows that it replaces are gone when the new ones are tried."""
    alter(table, "create unique index one on {t} (_topic, _partition, _offset)")
    alter(table, "alter table {t} add constraint short check (message_id <> 'orders[0]@1') not valid")
    attempt = life.take_replay_to_audited(table, FIRST)
    (only,) = refuse(table, attempt).coordinates
    assert only.startswith('orders[0]@1 (new row for relation "orders" violates check constraint "short")')


def test_row_of_an_erased_key_is_not_tried(table: PostgresWarehouse) -> None:
    """Its key would be refused, if it were still there."""
    erase(table, table, "message_id=orders[0]@1")
    alter(table, "alter table {t} add constraint short check (message_id < 'orders[0]@1') not valid")
    attempt = life.take_replay_to_audited(table, FIRST)
    (only,) = refuse(table, attempt).coordinates
    assert only.startswith('orders[0]@2 (new row for relation "orders" violates check constraint "short")')


def test_erased_record_of_updates_is_not_tried(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1), Record("DL", 2), Record("UA", 3))
        erase(warehouse, story.warehouse, "delay=2")
        alter(warehouse, "alter table {t} add constraint early check (delay < 2) not valid")
        attempt = story.stage_replay(OffsetRange(ORDERS_0, 0, 3))
        (only,) = refuse(story.warehouse, attempt).coordinates  # type: ignore[arg-type]
        assert only.startswith('orders[0]@2 (new row for relation "orders" violates check constraint "early")')


def erase(warehouse: PostgresWarehouse, rules: Warehouse, key: str) -> None:
    parsed = ErasureKey.parse([key])
    warehouse.decisions.erase(warehouse.pipeline, parsed, BY_ANA, lambda access: rules.sink.erase(access, parsed))


def test_objection_stays_as_it_is_if_the_rows_are_taken_by_now(table: PostgresWarehouse) -> None:
    """Negative control: a person has corrected the table meanwhile."""
    alter(table, "alter table {t} alter message_id type varchar(11)")
    attempt = take_to_audited(table, {9: LONG})
    with pytest.raises(RowsRefusedError) as refused:
        life.publish(table, attempt)
    alter(table, "alter table {t} alter message_id type text")
    assert name_refused(life.platform(table), attempt, refused.value) is refused.value
