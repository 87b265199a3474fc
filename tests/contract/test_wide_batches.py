"""A batch of many partitions: no statement of the ledger reads a table once a range, whatever PostgreSQL expects.

Its statistics know nothing of a batch that was stored a moment ago, and of nothing one row is expected.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql

from batchledger.database.transactions import ranges_as_arrays, read_sql
from batchledger.ledger.evidence_tables import quarantine_table, visible_table
from batchledger.model.balance import WitnessedRange
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.contract import life
from tests.contract.warehouses import PostgresWarehouse, open_postgres

LEDGER = "batchledger.ledger"
RANGES = [OffsetRange(TopicPartition("orders", number), 0, 3) for number in range(300)]
POISON = [(each.partition, 1) for each in RANGES]


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def count_loops(dsn: str, statement: sql.Composed, parameters: Mapping[str, Any]) -> Mapping[str, int]:
    """Execute a statement, leave nothing of it, and return how often it has read each table."""
    with psycopg.connect(dsn) as connection:
        explained = sql.SQL("explain (analyze, timing off, format json) {}").format(statement)
        (((found,),),) = connection.execute(explained, parameters).fetchall()
        connection.rollback()
    loops: dict[str, int] = {}
    nodes = [found["Plan"]]
    for node in nodes:
        nodes.extend(node.get("Plans", ()))
        if "Scan" in node["Node Type"] and "Relation Name" in node:
            table = node["Relation Name"]
            loops[table] = max(loops.get(table, 0), node["Actual Loops"])
    return loops


def test_wide_batch_is_published_as_any_other(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_published(warehouse, *RANGES)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).ranges == tuple(RANGES)
    assert set(life.next_offsets(warehouse).values()) == {3}
    assert warehouse.prove().findings == ()


def test_evidence_is_read_once_however_many_ranges_it_is_about(
    warehouse: PostgresWarehouse, warehouse_dsn: str
) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, *RANGES), poison=POISON)
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(each, 3, 1) for each in RANGES]
    tables = {"visible": visible_table(attempt), "quarantine": quarantine_table(attempt)}
    statement = read_sql(LEDGER, "summarise_evidence").format(**tables)
    loops = count_loops(warehouse_dsn, statement, {"batch_id": attempt.batch.batch_id})
    name = f"b{attempt.batch.batch_id}_a{attempt.number}"
    assert {loops[f"{name}_visible"], loops[f"{name}_quarantine"]} == {1}


def test_storing_a_plan_looks_the_pipeline_up_once(warehouse: PostgresWarehouse, warehouse_dsn: str) -> None:
    batch = life.take_to_published(warehouse, *RANGES).batch
    following = [OffsetRange(each.partition, 3, 5) for each in RANGES]
    statement = read_sql(LEDGER, "insert_ranges").format()
    parameters = {"batch_id": batch.batch_id, "pipeline": warehouse.pipeline, **ranges_as_arrays(following)}
    assert count_loops(warehouse_dsn, statement, parameters)["pipeline"] == 1
