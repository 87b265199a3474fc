"""What only a real table can do to an erasure: lack the column, have another type, keep what is deleted, hide it."""

from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from batchledger.model.batch import Decided
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from tests.contract import life
from tests.contract.decided import BY_ANA, record_of
from tests.contract.life import FIRST
from tests.contract.messages import BY_ID, Messages
from tests.contract.warehouses import PostgresWarehouse

WAREHOUSES = ("postgres",)
VALUE = "orders[0]@1"
LETTERS = "abc"


def erase(warehouse: PostgresWarehouse, key: str = f"message_id={VALUE}") -> Decided:
    parsed = ErasureKey.parse([key])
    return warehouse.decisions.erase(
        warehouse.pipeline, parsed, BY_ANA, lambda access: warehouse.sink.erase(access, parsed)
    )


def change_target(warehouse: PostgresWarehouse, statement: str) -> None:
    """Run a statement about ``{target}``, in the schema ``{schema}``."""
    schema = sql.Identifier(warehouse.schema)
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(sql.SQL(statement).format(target=sql.Identifier(warehouse.schema, "orders"), schema=schema))


def test_column_that_the_table_lacks_is_refused(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(DecisionRefusedError, match="has no column customer"):
        erase(warehouse, "customer=4711")


def test_value_that_does_not_fit_its_column_is_refused_and_not_quoted(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(DecisionRefusedError, match=r"_offset \(bigint\)") as refused:
        erase(warehouse, f"_offset={LETTERS}")
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


def test_table_that_keeps_deleted_rows_refuses_the_erasure(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(
        warehouse,
        "create function {schema}.keep() returns trigger language plpgsql as $$ begin return null; end $$;"
        "create trigger keeper before delete on {target} for each row execute function {schema}.keep()",
    )
    with pytest.raises(DecisionRefusedError, match=r"(?s)keeps 1 rows.*keeper"):
        erase(warehouse)
    assert warehouse.read_pipeline_decisions() == []


def test_table_that_has_lost_the_column_of_an_erased_key_takes_no_replay(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    change_target(warehouse, "alter table {target} add customer text default 'a'")
    erase(warehouse, "customer=b")
    change_target(warehouse, "alter table {target} drop customer")
    with pytest.raises(TargetChangedError, match="has lost column customer"):
        life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))


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


def test_staging_that_a_task_still_writes_refuses_the_erasure(warehouse: PostgresWarehouse) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    with psycopg.connect(warehouse.dsn) as task:
        table = sql.Identifier("batchledger_staging", f"b{batch_id}_a1_rows")
        task.execute(sql.SQL("lock table {} in row exclusive mode").format(table))
        with pytest.raises(DecisionRefusedError, match=r"(?s)is in use.*Nothing was erased"):
            erase(warehouse)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_ledger_keeps_the_value_nowhere(warehouse: PostgresWarehouse, warehouse_dsn: str) -> None:
    life.take_to_published(warehouse, FIRST)
    erase(warehouse)
    owner = replace(warehouse, dsn=warehouse_dsn)
    assert _find_in_ledger(owner, warehouse.pipeline) >= {"batch", "decision", "erased_key", "position"}
    assert _find_in_ledger(owner, VALUE) == set()


def _find_staging(warehouse: PostgresWarehouse, batch_id: int) -> set[str]:
    query = "select tablename from pg_tables where schemaname = 'batchledger_staging' and tablename like %s"
    with psycopg.connect(warehouse.dsn) as connection:
        return {name for (name,) in connection.execute(query, [f"b{batch_id}\\_%"])}


def _find_in_ledger(warehouse: PostgresWarehouse, text: str) -> set[str]:
    """The tables of the ledger that hold a text in a row of the pipeline."""
    found = set()
    with psycopg.connect(warehouse.dsn) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'batchledger'").fetchall()
        for (table,) in tables:
            query = sql.SQL(
                "select from {} t where position(%s in t::text) > 0 and position(%s in t::text) > 0 limit 1"
            )
            named = query.format(sql.Identifier("batchledger", table))
            if connection.execute(named, [text, warehouse.pipeline]).rowcount:
                found.add(table)
    return found
