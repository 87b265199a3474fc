"""The contract of ``Decisions.adopt_target``, and whose a table is after a restore has mixed the oids."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from batchledger.lifecycle import delivery
from batchledger.lifecycle.requirement import require_own_target
from batchledger.model.batch import Decided, DecisionKind, Target
from batchledger.model.effects import proving
from batchledger.model.errors import DecisionRefusedError, TargetChangedError
from tests.contract import life
from tests.contract.decided import BY_ANA, record_of
from tests.contract.life import FIRST, SECOND
from tests.contract.warehouses import PostgresWarehouse, Warehouse

PROOF = proving(3, 1, 1)


def target_of(warehouse: Warehouse) -> Target:
    """What the sink names as it is now."""
    target = warehouse.sink.find_target()
    assert target is not None
    return target


def test_adopted_target_is_recorded_once_and_takes_the_next_batch(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    before = target_of(warehouse)
    warehouse.replace_target()
    found = target_of(warehouse)
    assert warehouse.ledger.list_targets().get(warehouse.pipeline) == before != found
    record = record_of(warehouse.decisions.adopt_target(warehouse.pipeline, found, BY_ANA, PROOF))
    assert (record.kind, record.batch_id, record.decided_by) == (DecisionKind.ADOPT_TARGET, None, BY_ANA.decided_by)
    assert record.before == {"target": before.name, "identity": before.identity}
    assert record.after == {"target": found.name, "identity": found.identity, **PROOF.after}
    again = warehouse.decisions.adopt_target(warehouse.pipeline, found, BY_ANA, PROOF)
    assert again == Decided(None, is_new=False)
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.target_coordinates(warehouse) == life.rows_of([SECOND])


def test_rehearsed_adoption_leaves_the_target_as_it_was(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    before = target_of(warehouse)
    decided = warehouse.decisions.rehearsal.adopt_target(warehouse.pipeline, Target("else", "1/2/3"), BY_ANA, PROOF)
    assert record_of(decided).after["identity"] == "1/2/3"  # type: ignore[index]
    assert warehouse.ledger.list_targets().get(warehouse.pipeline) == before
    assert warehouse.read_pipeline_decisions() == []


def test_pipeline_that_has_published_nothing_adopts_nothing(warehouse: Warehouse) -> None:
    with pytest.raises(DecisionRefusedError, match="has published nothing yet"):
        warehouse.decisions.adopt_target(warehouse.pipeline, Target("else", "1/2/3"), BY_ANA, PROOF)


@pytest.fixture
def two(warehouse_dsn: str) -> Iterator[tuple[PostgresWarehouse, PostgresWarehouse]]:
    """Two pipelines of one ledger with a table each."""
    first, second = PostgresWarehouse(warehouse_dsn), PostgresWarehouse(warehouse_dsn)
    for each in (first, second):
        life.take_to_published(each, FIRST)
    yield first, second
    for each in (first, second):
        each.drop()


def move(first: PostgresWarehouse, second: PostgresWarehouse) -> None:
    """Let both tables have been in another cluster: there the second one had the oid that the first one has now."""
    oid = target_of(first).identity.rpartition("/")[2]
    with psycopg.connect(first.dsn) as connection:
        for pipeline, was in ((first.pipeline, f"7/5/{oid}1"), (second.pipeline, f"7/5/{oid}")):
            query = "update batchledger.pipeline set target_identity = %s where name = %s"
            connection.execute(query, [was, pipeline])


def test_oid_that_another_pipelines_table_had_elsewhere_makes_a_table_nobody_elses(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    first, second = two
    move(first, second)
    attempt = first.ledger.open_attempt(life.store(first, SECOND, run="run-2").batch_id, "run-2")
    with pytest.raises(TargetChangedError) as refused:
        require_own_target(life.platform(first), attempt)
    assert (refused.value.pipeline, refused.value.found) == (first.pipeline, target_of(first).identity)
    assert f"batchledger adopt-target {first.pipeline} --reason WHY" in str(refused.value)
    for each in (first, second):
        each.decisions.adopt_target(each.pipeline, target_of(each), BY_ANA, PROOF)
        life.take_to_published(each, SECOND, run="run-3")
        assert life.target_coordinates(each) == life.rows_of([FIRST, SECOND])


def test_table_that_waits_for_its_adoption_is_not_taken_by_a_pipeline_that_is_new(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    first, second = two
    move(first, second)
    new = replace(second, pipeline=f"{second.pipeline}_new")
    attempt = new.ledger.open_attempt(life.store(new, FIRST).batch_id, "run-1")
    with pytest.raises(TargetChangedError) as refused:
        require_own_target(life.platform(new), attempt)
    assert (refused.value.pipeline, refused.value.owner) == (new.pipeline, second.pipeline)


def put_strangers(warehouse: PostgresWarehouse) -> None:
    """Let the table hold the next rows already, of a batch that the ledger has lost."""
    with psycopg.connect(warehouse.dsn) as connection:
        table = sql.Identifier(warehouse.schema, "orders")
        insert = "insert into {} (_topic, _partition, _offset, _batch_id) select 'orders', 0, {}, 999999999"
        for offset in (SECOND.start, SECOND.start + 1):
            connection.execute(sql.SQL(insert).format(table, sql.Literal(offset)))


def deliver_second(warehouse: PostgresWarehouse) -> None:
    """Publish the next batch as a run does."""
    delivery.deliver(life.platform(warehouse), life.take_to_audited(warehouse, SECOND, run="run-2"))


def test_ledger_that_was_restored_finds_rows_that_none_of_its_batches_has_written(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    store, _ = two
    put_strangers(store)
    with psycopg.connect(store.dsn) as connection:
        connection.execute("update batchledger.pipeline set ledger_mark = 'before' where name = %s", [store.pipeline])
    with pytest.raises(TargetChangedError, match=r"2 rows of orders\[0\] 3\.\.5 that") as refused:
        deliver_second(store)
    assert refused.value.pipeline == store.pipeline
    assert life.next_offsets(store) == {SECOND.partition: SECOND.start}


def test_ledger_that_was_restored_together_with_its_table_goes_on(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    store, _ = two
    with psycopg.connect(store.dsn) as connection:
        connection.execute("update batchledger.pipeline set ledger_mark = 'before' where name = %s", [store.pipeline])
    deliver_second(store)
    assert life.target_coordinates(store) == life.rows_of([FIRST, SECOND])


def test_negative_control_a_table_that_is_not_looked_through_holds_the_rows_twice(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    store, _ = two
    put_strangers(store)
    deliver_second(store)
    assert life.target_coordinates(store) == sorted(life.rows_of([FIRST, SECOND, SECOND]))


def test_two_pipelines_cannot_adopt_one_table(two: tuple[PostgresWarehouse, PostgresWarehouse]) -> None:
    first, second = two
    with pytest.raises(DecisionRefusedError, match="belongs to another pipeline"):
        second.decisions.adopt_target(second.pipeline, target_of(first), BY_ANA, PROOF)


def test_negative_control_by_oid_alone_the_table_would_be_taken_for_another_pipelines(
    two: tuple[PostgresWarehouse, PostgresWarehouse],
) -> None:
    """What a restore did when the oid was all that was kept."""
    first, second = two
    with psycopg.connect(first.dsn) as connection:
        query = "update batchledger.pipeline set target_identity = %s where name = %s"
        for pipeline, identity in ((first.pipeline, "gone"), (second.pipeline, target_of(first).identity)):
            connection.execute(query, [identity, pipeline])
    attempt = first.ledger.open_attempt(life.store(first, SECOND, run="run-2").batch_id, "run-2")
    with pytest.raises(TargetChangedError) as refused:
        require_own_target(life.platform(first), attempt)
    assert (refused.value.pipeline, refused.value.owner) == (first.pipeline, second.pipeline)
