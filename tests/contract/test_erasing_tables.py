"""What only a real table can do to an erasure: lack the column, have another type, keep what is deleted, hide it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.books.history import list_batches, load_batch_history
from batchledger.ledger import erasures
from batchledger.ledger.housekeeping import PostgresHousekeeping
from batchledger.ledger.rows import Cursor
from batchledger.model.batch import Batch, Decided
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from batchledger.model.housekeeping import OVER_FOR, StagingTable
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.rules import Upsert
from batchledger.sinks.staging.key_secret import know_secret
from batchledger.sinks.staging.tables import under_secret
from tests.conftest import as_superuser
from tests.contract import life
from tests.contract.decided import BY_ANA, record_of
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.contract.messages import BY_ID, Messages
from tests.contract.updates import BY_OFFSET, Record, Story
from tests.contract.warehouses import PostgresWarehouse, create_role, role_of
from tests.fakes.work import ROW_SCHEMA

WAREHOUSES = ("postgres",)
VALUE = "orders[0]@1"
LETTERS = "abc"
NOON, HOUR = datetime(1990, 3, 1, 12, tzinfo=UTC), timedelta(hours=1)


def erase(warehouse: PostgresWarehouse, *keys: str) -> Decided:
    parsed = ErasureKey.parse(keys or [f"message_id={VALUE}"])
    return warehouse.decisions.erase(
        warehouse.pipeline, parsed, BY_ANA, lambda access: warehouse.sink.erase(access, parsed)
    )


def change_target(warehouse: PostgresWarehouse, statement: str, **parts: sql.Composable) -> None:
    """Run a statement about ``{target}``, in the schema ``{schema}``."""
    target, schema = sql.Identifier(warehouse.schema, "orders"), sql.Identifier(warehouse.schema)
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(sql.SQL(statement).format(target=target, schema=schema, **parts))


def test_batches_say_how_many_of_their_rows_were_erased(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    life.take_to_published(warehouse, SECOND, run="run-2")
    erase(warehouse)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    listed = list_batches(warehouse.dsn, warehouse.pipeline)
    assert [each.rows_erased for each in listed] == [1, 0, 1]
    for each in listed:
        ranges = load_batch_history(warehouse.dsn, each.batch_id).ranges
        assert sum(found.rows_erased for found in ranges) == each.rows_erased


def test_column_that_the_table_lacks_is_refused(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(DecisionRefusedError, match="has no column customer"):
        erase(warehouse, "customer=4711")


def test_value_that_does_not_fit_its_column_is_refused_and_not_quoted(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add customer bigint")
    with pytest.raises(DecisionRefusedError, match=r"customer \(bigint\)") as refused:
        erase(warehouse, f"customer={LETTERS}")
    assert LETTERS not in str(refused.value)
    assert refused.value.__suppress_context__


def test_type_that_knows_no_equality_is_refused(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add payload json")
    with pytest.raises(DecisionRefusedError, match=r"payload \(json\)"):
        erase(warehouse, "payload=[]")


def test_value_longer_than_its_column_is_not_cut_off_to_another_key(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, f"alter table {{target}} alter message_id type varchar({len(VALUE)})")
    record = record_of(erase(warehouse, f"message_id={VALUE}2"))
    assert (record.before or {})["rows"] == 0
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_number_is_erased_and_stays_erased_however_it_is_written(warehouse: PostgresWarehouse) -> None:
    """``1`` and ``1.00`` are one number, and two texts."""
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add amount numeric default 1.00")
    erase(warehouse, "amount=1")
    assert life.target_coordinates(warehouse) == []
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert life.target_coordinates(warehouse) == []
    assert warehouse.prove().findings == ()


def test_rows_stay_erased_when_the_column_becomes_a_text(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add amount smallint default 7")
    erase(warehouse, "amount=7")
    change_target(warehouse, "alter table {target} alter amount type text")
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert life.target_coordinates(warehouse) == []


@pytest.fixture(params=["intervalstyle = 'iso_8601'", "datestyle = 'German'", "PGDATESTYLE=German", "PGTZ=Asia/Tokyo"])
def abroad(request: pytest.FixtureRequest, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A login whose sessions write moments in another way, by its role or, until ``monkeypatch`` is undone, for all."""
    with create_role(warehouse_dsn) as dsn:
        settings = ["superuser", f"set {request.param}"]
        if request.param.startswith("PG"):
            monkeypatch.setenv(*request.param.split("="))
            settings.pop()
        with psycopg.connect(as_superuser(warehouse_dsn)) as connection:
            for each in settings:
                connection.execute(f"alter role {role_of(dsn)} {each}".encode())
        yield dsn


def test_rows_stay_erased_when_the_erasing_login_writes_dates_in_another_way(
    warehouse: PostgresWarehouse, abroad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(
        warehouse,
        "alter table {target} add born date default '1990-03-01', add at timestamp default '1990-03-01 12:00',"
        "add lasts interval default '1 day 02:00', add moment timestamptz default '1990-03-01 12:00+00'",
    )
    values = ("born=1990-03-01", "at=1990-03-01 12:00", "lasts=26:00 hours", "moment=1990-03-01 12:00+00")
    erase(replace(warehouse, dsn=abroad), *values)
    monkeypatch.undo()
    assert life.target_coordinates(warehouse) == []
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert life.target_coordinates(warehouse) == []


def test_comparison_finds_the_key_and_the_rows_as_a_session_of_another_zone_publishes_them(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's zone says what the column without a zone holds; the hash of the key has a zone of its own."""
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    moments = pa.array([NOON, NOON + HOUR, NOON + 2 * HOUR], pa.timestamp("us", "UTC"))
    rows = life.batch_of_rows(life.rows_of([FIRST])).append_column("moment", moments)
    publish_rows(warehouse, life.store(warehouse, FIRST), rows)
    change_target(warehouse, "alter table {target} add here timestamp")
    rows = rows.append_column("here", moments)
    publish_rows(warehouse, life.store_replay(warehouse, FIRST, run="wider"), rows)
    erase(warehouse, f"moment={NOON.isoformat()}")
    again = life.stage(warehouse, life.store_replay(warehouse, FIRST), "again", rows=rows)
    life.audit(warehouse, again)
    assert warehouse.sink.compare(again, 20) == Comparison(unchanged=2, erased_again=1)


def test_comparison_knows_erased_rows_by_their_offsets_if_the_column_is_the_targets_own(
    warehouse: PostgresWarehouse,
) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add amount smallint default 7")
    erase(warehouse, "amount=7")
    said = warehouse.sink.compare(life.take_replay_to_audited(warehouse, FIRST), 20)
    assert said == Comparison(absent_columns=("amount",), erased_again=3)


def test_row_that_gets_an_erased_key_from_the_table_is_erased_when_it_is_written(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    """Its offset is not known: an older record, or one that lay in quarantine."""
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add amount smallint default 7")
    erase(warehouse, "amount=7")
    forget_offsets(warehouse, warehouse_dsn)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    assert life.target_coordinates(warehouse) == []
    assert (warehouse.prove().findings, warehouse.prove().rows_erased) == ((), 3)


def forget_offsets(warehouse: PostgresWarehouse, owner: str) -> None:
    """Let the hash of the key alone tell what was erased."""
    with psycopg.connect(as_superuser(owner)) as connection:
        connection.execute("delete from batchledger.erased_offset where pipeline = %s", [warehouse.pipeline])


def amounts(*values: str, scale: int) -> pa.RecordBatch:
    """The rows of FIRST with decimals of that scale."""
    type_ = pa.decimal128(20, scale)
    column = pa.array([Decimal(each) for each in values], pa.decimal128(20, 2)).cast(type_)
    return life.batch_of_rows(life.rows_of([FIRST])).append_column("amount", column)


@pytest.mark.parametrize("scale", [2, 4])
@pytest.mark.parametrize("change", ["type numeric(20, 4)", "type numeric", "type text using amount::text"])
def test_row_erased_by_a_number_stays_erased_whatever_its_scale_becomes(
    warehouse: PostgresWarehouse, warehouse_dsn: str, scale: int, change: str
) -> None:
    rows = amounts("7.00", "7.50", "70.00", scale=2)
    publish_rows(warehouse, life.store(warehouse, FIRST), rows)
    change_target(warehouse, "alter table {target} alter amount type numeric(20, 2)")
    erase(warehouse, "amount=7")
    forget_offsets(warehouse, warehouse_dsn)
    change_target(warehouse, f"alter table {{target}} alter amount {change}")
    again = amounts("7.00", "7.50", "70.00", scale=scale)
    publish_rows(warehouse, life.store_replay(warehouse, FIRST), again)
    assert life.target_coordinates(warehouse) == [(ORDERS_0, 1), (ORDERS_0, 2)]


def test_key_that_an_older_version_has_hashed_by_its_text_stays_erased(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    """It knew no types and no offsets: ``7.00`` was hashed as it was written."""
    rows = amounts("7.00", "7.50", "70.00", scale=2)
    publish_rows(warehouse, life.store(warehouse, FIRST), rows)
    change_target(warehouse, "alter table {target} alter amount type numeric(20, 2)")
    erase(warehouse, "amount=7")
    forget_offsets(warehouse, warehouse_dsn)
    hashed = under_secret(sql.SQL("sha256(salt || convert_to('[\"7.00\"]', 'UTF8'))"))
    older = sql.SQL("update batchledger.erased_key set types = null, key_hash = {} where pipeline = %s").format(hashed)
    with psycopg.connect(as_superuser(warehouse_dsn)) as connection, connection.cursor() as cursor:
        know_secret(cursor, warehouse.read_secret)
        cursor.execute(older, [warehouse.pipeline])
    publish_rows(warehouse, life.store_replay(warehouse, FIRST), rows)
    assert life.target_coordinates(warehouse) == [(ORDERS_0, 1), (ORDERS_0, 2)]


def publish_rows(warehouse: PostgresWarehouse, batch: Batch, rows: pa.RecordBatch) -> None:
    attempt = life.stage(warehouse, batch, rows=rows)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)


def test_column_whose_texts_depend_on_a_country_is_refused(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add price money default 5")
    with pytest.raises(DecisionRefusedError, match=r"price of .* is money"):
        erase(warehouse, "price=5")


def test_table_that_keeps_deleted_rows_refuses_the_erasure(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(
        warehouse,
        "create function {schema}.keep() returns trigger language plpgsql as $$ begin return null; end $$;"
        "create trigger keeper before delete on {target} for each row execute function {schema}.keep()",
    )
    with pytest.raises(DecisionRefusedError, match=r"(?s)keeps 1 row of.*keeper"):
        erase(warehouse)
    assert warehouse.read_pipeline_decisions() == []


def test_table_that_has_lost_the_column_of_an_erased_key_takes_no_replay(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add customer text default 'a'")
    erase(warehouse, "customer=b")
    change_target(warehouse, "alter table {target} drop customer")
    replay = life.take_replay_to_audited(warehouse, FIRST)
    with pytest.raises(TargetChangedError, match="has lost column customer"):
        warehouse.sink.compare(replay, 20)
    with pytest.raises(TargetChangedError, match="has lost column customer"):
        life.publish(warehouse, replay)


def test_whole_texts_of_errors_go_because_they_may_quote_the_value(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST)
    quote = "update batchledger.attempt set quoted = %s, quoted_at = now() where batch_id = %s"
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(quote, [VALUE, attempt.batch.batch_id])
    erase(warehouse)
    with psycopg.connect(warehouse.dsn) as connection:
        query = "select count(*) from batchledger.attempt where batch_id = %s and quoted is not null"
        assert connection.execute(query, [attempt.batch.batch_id]).fetchall() == [(0,)]


def test_list_of_duplicates_keeps_their_places_without_the_hash(warehouse: PostgresWarehouse) -> None:
    store = warehouse.with_rules(BY_ID)
    Messages(store).live(p0="aabb")
    with psycopg.connect(warehouse.dsn) as connection:
        query = 'select "offset", key_hash is null from batchledger.duplicate where pipeline = %s order by 1'
        assert connection.execute(query, [warehouse.pipeline]).fetchall() == [(1, False), (3, False)]
        erase(store, "message_id=a")
        assert connection.execute(query, [warehouse.pipeline]).fetchall() == [(1, True), (3, False)]


def test_staging_that_a_dead_process_has_left_goes_too(warehouse: PostgresWarehouse) -> None:
    other = PostgresWarehouse(warehouse.dsn, f"{warehouse.pipeline}_other")
    try:
        mine, others = (life.take_to_published(each, FIRST).batch.batch_id for each in (warehouse, other))
        assert _find_staging(warehouse, mine)
        before = _find_staging(warehouse, others)
        erase(warehouse)
        assert _find_staging(warehouse, mine) == set()
        assert _find_staging(warehouse, others) == before != set()
    finally:
        other.drop()


def test_row_that_bears_the_id_of_another_pipelines_batch_is_not_counted_there(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    other = PostgresWarehouse(warehouse.dsn, f"{warehouse.pipeline}_other")
    try:
        life.take_to_published(warehouse, FIRST)
        batch_id = life.take_to_published(other, FIRST).batch.batch_id
        change_target(warehouse, "update {target} set _batch_id = {batch_id}", batch_id=sql.Literal(batch_id))
        # A policy would keep a role from it.
        erase(replace(warehouse, dsn=as_superuser(warehouse_dsn)))
        assert len(life.target_coordinates(warehouse)) == 2
        assert (other.prove().findings, other.prove().rows_erased) == ((), 0)
    finally:
        other.drop()


def test_place_that_only_a_copied_row_names_is_not_erased(warehouse: PostgresWarehouse) -> None:
    """Another person's record lies there, and is not read yet."""
    life.take_to_published(warehouse, FIRST)
    change_target(
        warehouse,
        "insert into {target} (_topic, _partition, _offset, _timestamp, message_id, _batch_id) "
        "select _topic, _partition, 4, _timestamp, message_id, _batch_id from {target} where _offset = 1",
    )
    assert record_of(erase(warehouse)).before == {"rows": 2, "remembered_keys": 0}
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.target_coordinates(warehouse) == [(ORDERS_0, offset) for offset in (0, 2, 3, 4)]
    assert warehouse.prove().findings == ()


def test_copied_row_leaves_no_version_of_its_key(warehouse: PostgresWarehouse) -> None:
    """Otherwise no record of the key could come before the place that the copy names."""
    story = Story(warehouse.with_rules(upsert=BY_OFFSET))
    story.publish(Record("AA", 1), Record("DL", 2))
    change_target(
        warehouse,
        "insert into {target} (_topic, _partition, _offset, _timestamp, carrier, flight, delay, _batch_id) "
        "select _topic, _partition, 9, _timestamp, 'UA', flight, delay, _batch_id from {target} where carrier = 'AA'",
    )
    erase(story.warehouse, "delay=1")  # type: ignore[arg-type]
    story.publish(Record("UA", 3))
    assert story.state() == {("DL", 1): 2, ("UA", 1): 3}


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("upsert", [None, Upsert(("message_id",))], ids=["append", "upsert"])
def test_row_that_an_older_version_has_staged_without_a_mark_stays_erased(
    warehouse: PostgresWarehouse, upsert: Upsert | None, is_marked: bool
) -> None:
    """An upgrade between two steps. It kept no rules of rows either."""
    warehouse = replace(warehouse, upsert=upsert)
    life.take_to_published(warehouse, FIRST)
    erase(warehouse)
    attempt = life.take_replay_to_audited(warehouse, FIRST)
    if not is_marked:
        staging = sql.Identifier("batchledger_staging", f"b{attempt.batch.batch_id}_a1_rows")
        change_target(warehouse, "update {staging} set _task = 0 where _task < 0", staging=staging)
    life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == [(ORDERS_0, 0), (ORDERS_0, 2)]
    assert (warehouse.prove().findings, warehouse.prove().rows_erased) == ((), 1)


def test_staging_that_a_task_still_writes_refuses_the_erasure(warehouse: PostgresWarehouse) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    with psycopg.connect(warehouse.dsn) as task:
        table = sql.Identifier("batchledger_staging", f"b{batch_id}_a1_rows")
        task.execute(sql.SQL("lock table {} in row exclusive mode").format(table))
        with pytest.raises(DecisionRefusedError, match=r"(?s)is in use.*Nothing was erased"):
            erase(warehouse)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_staging_of_another_role_is_named(warehouse: PostgresWarehouse, warehouse_dsn: str) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    (table, *_), owner = sorted(_find_staging(warehouse, batch_id)), sql.Identifier(role_of(warehouse_dsn))
    change_owner = sql.SQL("alter table {} owner to {}").format(sql.Identifier("batchledger_staging", table), owner)
    superuser = as_superuser(warehouse_dsn)
    with psycopg.connect(superuser) as connection:
        connection.execute(change_owner)
    assert f"1 staging table of other roles may hold the key, such as {table}" in erase(warehouse).warning
    assert _find_staging(warehouse, batch_id) == {table}
    assert erase(replace(warehouse, dsn=superuser)).warning == ""
    assert _find_staging(warehouse, batch_id) == set()


def test_staging_that_housekeeping_drops_meanwhile_is_no_fault(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    listing = erasures.list_staging

    def list_and_lose(cursor: Cursor, *, is_own: bool) -> list[StagingTable]:
        tables = listing(cursor, is_own=is_own)
        PostgresHousekeeping(warehouse.dsn).drop_staging([each for each in tables if each.batch_id == batch_id])
        return tables

    monkeypatch.setattr(erasures, "list_staging", list_and_lose)
    assert record_of(erase(warehouse)).after
    assert _find_staging(warehouse, batch_id) == set()


def test_more_staging_than_one_transaction_can_lock_refuses_the_erasure(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    with psycopg.connect(warehouse.dsn) as connection:
        for number in range(2, 202):
            table = sql.Identifier("batchledger_staging", f"b{batch_id}_a{number}_rows")
            connection.execute(sql.SQL("create table {} (row text)").format(table))
    with psycopg.connect(warehouse_dsn, autocommit=True) as other:
        with pytest.raises(psycopg.errors.OutOfMemory):
            other.execute("select pg_advisory_lock(number) from generate_series(1, 1000000) number")
        # The rest of the erasure has room.
        other.execute("select pg_advisory_unlock(number) from generate_series(1, 300) number")
        with pytest.raises(DecisionRefusedError, match=r"(?s)cannot lock them all.*housekeeping"):
            erase(warehouse)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
    erase(warehouse)
    assert _find_staging(warehouse, batch_id) == set()


def test_batch_between_its_two_commits_keeps_its_staging_until_its_run_is_over_for_certain(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    """at_most_once publishes first, and writes the rows from staging afterwards."""
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    with warehouse.ledger.publication(attempt) as publication:
        publication.advance_positions()
        publication.publish_quarantine()
        publication.mark_published()
    with pytest.raises(DecisionRefusedError, match=r"(?s)its rows are not there yet.*at_most_once"):
        erase(warehouse)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
    assert _find_staging(warehouse, attempt.batch.batch_id)
    earlier = "update batchledger.batch set published_at = published_at - %s where batch_id = %s"
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute(earlier, [OVER_FOR, attempt.batch.batch_id])
    erase(warehouse)
    assert _find_staging(warehouse, attempt.batch.batch_id) == set()


def test_ledger_keeps_the_value_nowhere(warehouse: PostgresWarehouse, warehouse_dsn: str) -> None:
    value = uuid4().hex
    store = warehouse.with_rules(BY_ID)
    attempt = life.stage(store, life.store(store, FIRST), poison=[(ORDERS_0, 1)], rows=_rows_with(value))
    life.audit(store, attempt)
    life.publish(store, attempt)
    quote = "update batchledger.attempt set quoted = %s, quoted_at = now() where batch_id = %s"
    set_aside = "update batchledger.quarantine set value = %s where batch_id = %s"
    with psycopg.connect(warehouse_dsn) as connection:
        connection.execute(quote, [value, attempt.batch.batch_id])
        connection.execute(set_aside, [f'{{"message_id": "{value}"}}'.encode(), attempt.batch.batch_id])
    staging = {f"batchledger_staging.{each}" for each in _find_staging(store, attempt.batch.batch_id) if "rows" in each}
    assert _find(as_superuser(warehouse_dsn), value) == {"batchledger.attempt", "batchledger.quarantine", *staging}
    erase(store, f"message_id={value}")
    assert _find(as_superuser(warehouse_dsn), value) == set()


def _find_staging(warehouse: PostgresWarehouse, batch_id: int) -> set[str]:
    query = "select tablename from pg_tables where schemaname = 'batchledger_staging' and tablename like %s"
    with psycopg.connect(warehouse.dsn) as connection:
        return {name for (name,) in connection.execute(query, [f"b{batch_id}\\_%"])}


def _rows_with(value: str) -> pa.RecordBatch:
    """The rows of FIRST without the second record; the first has ``value``."""
    rows = life.batch_of_rows([(ORDERS_0, 0), (ORDERS_0, 2)]).to_pylist()
    rows[0]["message_id"] = value
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def _find(dsn: str, value: str) -> set[str]:
    """The tables of ledger and staging that hold a value, as a text or as bytes."""
    found = set()
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select schemaname, tablename from pg_tables where schemaname in ('batchledger', 'batchledger_staging')"
        ).fetchall()
        for table in tables:
            query = sql.SQL("select from {} t where t::text like any (%s) limit 1").format(sql.Identifier(*table))
            if connection.execute(query, [[f"%{value}%", f"%{value.encode().hex()}%"]]).rowcount:
                found.add(".".join(table))
    return found
