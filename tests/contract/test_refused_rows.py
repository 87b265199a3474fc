"""A real PostgreSQL that does not take a row: its batch is blocked, and never tried for ever; bad weather is."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.transactions import transaction, translate_errors
from batchledger.lifecycle.requirement import check_rows
from batchledger.model.batch import Attempt, Staged
from batchledger.model.errors import (
    BatchledgerError,
    ConfigurationError,
    DatabaseRefusedError,
    RowsRefusedError,
    ServiceUnavailableError,
)
from batchledger.sinks.staging.tables import open_table
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

LONG = os.urandom(6_000).hex()
"""A value of 12 kB that does not compress, so that no index takes it."""


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A target that has taken a first batch, and is about to be altered."""
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        yield warehouse


def alter(warehouse: PostgresWarehouse, *statements: str) -> None:
    """Change the target behind the sink's back: ``{t}`` is the table, ``{s}`` its schema."""
    with psycopg.connect(warehouse.dsn) as connection:
        for each in statements:
            target = sql.Identifier(warehouse.schema, "orders")
            texts = {"lt": sql.Literal(target.as_string(connection)), "name": sql.Literal(f"{warehouse.schema}.orders")}
            parts = {"t": target, "s": sql.Identifier(warehouse.schema), **texts}
            connection.execute(sql.SQL(each).format(**parts))


def take_to_audited(warehouse: PostgresWarehouse, message_id: str = "a message") -> Attempt:
    rows = life.batch_of_rows(life.rows_of([SECOND]))
    at = rows.schema.get_field_index("message_id")
    rows = rows.set_column(at, "message_id", pa.array([message_id] * rows.num_rows))
    attempt = life.stage(warehouse, life.store(warehouse, SECOND, run="run-2"), "run-2", rows=rows)
    life.audit(warehouse, attempt)
    return attempt


def trigger(body: str, *, timing: str = "before insert on {t}", kind: str = "trigger") -> tuple[str, ...]:
    """The statements that let every row pass this body first."""
    return (
        f"create function {{s}}.act() returns trigger language plpgsql as $$ begin {body} end $$",
        f"create {kind} act {timing} for each row execute function {{s}}.act()",
    )


@dataclass(frozen=True)
class Refusal:
    """A target that does not take a row."""

    statements: tuple[str, ...]
    reason: str
    message_id: str = "a message"
    quoted: str = ""
    """What the whole text has, and the error has not."""


def raised(sqlstate: str) -> str:
    """What is left of words that may quote the row."""
    return rf"It says: \w+ \(SQLSTATE {sqlstate}\)\."


DEFERRED = {"timing": "after insert on {t} deferrable initially deferred", "kind": "constraint trigger"}
REFUSALS = {
    "index row too large": Refusal(("create index on {t} (message_id)",), "index row (size|requires)", LONG),
    "text too long": Refusal(("alter table {t} alter message_id type varchar(11)",), "value too long", "x" * 12),
    "number too large": Refusal(
        ("alter table {t} add n numeric(3) generated always as (length(message_id) * 70) stored",),
        "numeric field overflow",
        "x" * 100,
    ),
    "generated column divides by zero": Refusal(
        ("alter table {t} add n int generated always as (1 / (12 - length(message_id))) stored",),
        "division by zero",
        "x" * 12,
    ),
    "check constraint": Refusal(
        ("alter table {t} add check (length(message_id) < 12)",), "check constraint", "x" * 12, "x" * 12
    ),
    "row is there already": Refusal(
        ("update {t} set message_id = _offset::text", "create unique index on {t} (message_id)"),
        "duplicate key value violates unique constraint",
        "x" * 12,
        "x" * 12,
    ),
    "trigger casts a value": Refusal(
        trigger("perform new.message_id::int; return new;"), raised("22P02"), "x" * 12, "x" * 12
    ),
    "trigger raises": Refusal(trigger("raise 'no %', new.message_id;"), raised("P0001"), "x" * 12, "x" * 12),
    "trigger raises as if the server went down": Refusal(
        trigger("raise 'not today' using errcode = '57P01';"), raised("57P01"), quoted="not today"
    ),
    "trigger raises as if the connection were lost": Refusal(
        trigger("raise 'not today' using errcode = '08006';"), raised("08006"), quoted="not today"
    ),
    "trigger raises a code of its own": Refusal(
        trigger("raise 'not today' using errcode = 'ZZ123';"), raised("ZZ123"), quoted="not today"
    ),
    "trigger writes to a table that is gone": Refusal(
        trigger("insert into gone values (1); return new;"), "gone.* does not exist"
    ),
    "deferred trigger raises": Refusal(trigger("raise 'not today';", **DEFERRED), raised("P0001"), quoted="not today"),
    "deferred trigger raises as if the server went down": Refusal(
        trigger("raise 'not today' using errcode = '57P01';", **DEFERRED), raised("57P01"), quoted="not today"
    ),
    "deferred trigger divides by zero": Refusal(trigger("return 1 / 0;", **DEFERRED), "division by zero"),
}


def check(warehouse: PostgresWarehouse, attempt: Attempt) -> None:
    with warehouse.ledger.publication(attempt) as publication:
        check_rows(warehouse.sink, publication)


ASK = {"published": life.publish, "checked before": check}


@pytest.mark.parametrize("asked", ASK)
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_row_that_the_target_does_not_take_is_refused_for_good(
    table: PostgresWarehouse, refusal: Refusal, asked: str
) -> None:
    """At most once asks before it moves the position."""
    alter(table, *refusal.statements)
    attempt = take_to_audited(table, refusal.message_id)
    with pytest.raises(RowsRefusedError, match=refusal.reason) as refused:
        ASK[asked](table, attempt)
    assert not refused.value.retryable
    assert refused.value.exit_code == 3
    assert refusal.message_id not in str(refused.value)
    assert refusal.quoted in refused.value.quoted
    assert not refusal.quoted or refusal.quoted not in str(refused.value)
    assert life.target_coordinates(table) == life.rows_of([FIRST])
    assert life.next_offsets(table) == {ORDERS_0: 3}


WEATHER = {
    "session is ended": "perform pg_terminate_backend(pg_backend_pid()); return new;",
    "lock is not given": "perform from {s}.locked for update nowait; return new;",
    "lock is not given, and the error is raised again": (
        "begin perform from {s}.locked for update nowait; exception when others then raise; end; return new;"
    ),
    "server is read-only": "perform set_config('transaction_read_only', 'on', true); return new;",
}


@pytest.mark.parametrize("body", WEATHER.values(), ids=WEATHER)
def test_weather_in_the_middle_of_a_publication_is_tried_again(table: PostgresWarehouse, body: str) -> None:
    """Negative control: what passes by itself blocks nothing."""
    alter(table, "create table {s}.locked as select 1 as one", *trigger(body))
    attempt = take_to_audited(table)
    with psycopg.connect(table.dsn) as other:
        other.execute(sql.SQL("select from {}.locked for update").format(sql.Identifier(table.schema)))
        with pytest.raises(ServiceUnavailableError) as told:
            life.publish(table, attempt)
    assert told.value.retryable
    alter(table, "drop trigger act on {t}")
    assert life.publish(table, attempt) == 2


def test_statement_that_takes_too_long_waits_for_who_has_set_the_limit(table: PostgresWarehouse) -> None:
    """The code does not tell a statement_timeout of the role from a person who cancels; neither is about a row."""
    alter(table, *trigger("perform pg_cancel_backend(pg_backend_pid()); perform pg_sleep(60); return new;"))
    attempt = take_to_audited(table)
    with pytest.raises(ConfigurationError, match="canceling statement") as told:
        life.publish(table, attempt)
    assert not told.value.retryable
    assert "limits.max_records" in str(told.value)
    alter(table, "drop trigger act on {t}")
    assert life.publish(table, attempt) == 2


@pytest.mark.parametrize("change", ["rename carrier to airline", "drop carrier"])
def test_key_column_that_is_gone_after_the_audit_is_named(warehouse_dsn: str, change: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1))
        attempt = story.stage(Record("AA", 2))
        life.audit(warehouse, attempt)
        alter(warehouse, f"alter table {{t}} {change}")
        with pytest.raises(RowsRefusedError, match=r"column t\.carrier does not exist"):
            life.publish(story.warehouse, attempt)


def test_quarantined_record_that_the_ledger_does_not_take_is_refused_for_good(table: PostgresWarehouse) -> None:
    batch = life.store(table, SECOND, run="run-2")
    attempt = table.ledger.open_attempt(batch.batch_id, "run-2")
    poison = life.quarantine_of(life.rows_of([SECOND]))
    poison = poison.set_column(poison.schema.get_field_index("headers"), "headers", pa.array(["{no json"] * 2))
    life.witness(table.evidence.open(attempt), 0, batch.ranges, poison)
    table.sink.open_staging(attempt, life.batch_of_rows([]).schema)
    table.sink.seal_staging(attempt, [0])
    table.ledger.mark_staged(attempt, Staged(0))
    life.audit(table, attempt)
    with pytest.raises(RowsRefusedError, match="invalid input syntax for type json"):
        life.publish(table, attempt)


def test_record_that_the_evidence_does_not_take_is_refused_for_good(table: PostgresWarehouse) -> None:
    batch = life.store(table, SECOND, run="run-2")
    attempt = table.ledger.open_attempt(batch.batch_id, "run-2")
    poison = life.quarantine_of(life.rows_of([SECOND]))
    poison = poison.set_column(poison.schema.get_field_index("error"), "error", pa.array(["a\0b"] * 2))
    with pytest.raises(RowsRefusedError, match=r"(?s)evidence .* refuses a record.*DataError"):
        life.witness(table.evidence.open(attempt), 0, batch.ranges, poison)


def test_row_that_staging_does_not_take_is_refused_for_good(table: PostgresWarehouse) -> None:
    attempt = table.ledger.open_attempt(life.store(table, SECOND, run="run-2").batch_id, "run-2")
    rows = life.batch_of_rows(life.rows_of([SECOND]))
    at = rows.schema.get_field_index("message_id")
    rows = rows.set_column(at, "message_id", pa.array(["a\0b", "c"]))
    with pytest.raises(RowsRefusedError, match=r"(?s)b\d+_a1_open refuses a row.*invalid"):
        life.write(table.sink.open_staging(attempt, rows.schema), 0, rows)


def test_limit_that_a_writer_meets_is_named_and_says_nothing_of_its_rows(table: PostgresWarehouse) -> None:
    """A writer runs in a Spark task, whose error is only text to the process that judges it."""
    attempt = table.ledger.open_attempt(life.store(table, SECOND, run="run-2").batch_id, "run-2")
    rows = life.batch_of_rows(life.rows_of([SECOND]))
    dsn = psycopg.conninfo.make_conninfo(table.dsn, options="-c statement_timeout=100")
    staging = replace(table.sink.open_staging(attempt, rows.schema), dsn=dsn)
    with psycopg.connect(table.dsn) as other:
        other.execute(sql.SQL("lock table {}").format(open_table(attempt)))
        with pytest.raises(ConfigurationError, match=r"(?s)to staging table .*canceling") as told:
            life.write(staging, 0, rows)
        assert "limits.max_records" in str(told.value)


def test_staging_with_more_columns_than_a_table_can_have_is_no_database_that_is_down(
    table: PostgresWarehouse,
) -> None:
    attempt = table.ledger.open_attempt(life.store(table, SECOND, run="run-2").batch_id, "run-2")
    schema = pa.schema([*life.batch_of_rows([]).schema, *(pa.field(f"c{n}", pa.int32()) for n in range(1600))])
    with pytest.raises(ConfigurationError, match="columns are too many") as told:
        table.sink.open_staging(attempt, schema)
    assert not told.value.retryable


@pytest.mark.parametrize(("about_rows", "expected"), [(True, RowsRefusedError), (False, DatabaseRefusedError)])
def test_only_what_is_about_rows_blocks_their_batch(
    table: PostgresWarehouse, about_rows: bool, expected: type[BatchledgerError]
) -> None:
    attempt = take_to_audited(table)
    with (
        pytest.raises(expected, match="division by zero"),
        transaction(table.dsn, "look", attempt if about_rows else None) as cursor,
    ):
        cursor.execute("select 1 / 0")


def test_two_that_create_the_same_schema_at_once_are_weather(table: PostgresWarehouse) -> None:
    """The unique index of the catalog refuses the second one, which says nothing of a row."""
    create = sql.SQL("create schema if not exists {}").format(sql.Identifier(f"{table.schema}_more"))
    waiting = "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"

    def create_too(other: psycopg.Connection) -> None:
        with translate_errors("create a schema"):
            other.execute(create)

    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(table.dsn) as connection,
        psycopg.connect(table.dsn, autocommit=True) as other,
    ):
        connection.execute(create)
        second = pool.submit(create_too, other)
        with psycopg.connect(table.dsn, autocommit=True) as observer:
            wait_until(lambda: observer.execute(waiting, [other.info.backend_pid]).fetchone())
        connection.commit()
        with pytest.raises(ServiceUnavailableError, match="pg_namespace"):
            second.result()
        connection.execute(sql.SQL("drop schema {}").format(sql.Identifier(f"{table.schema}_more")))
