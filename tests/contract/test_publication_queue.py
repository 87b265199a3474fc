"""Who waits for whom when several batches of one pipeline want to publish; only a real PostgreSQL has such a queue."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from batchledger.batch import Attempt
from batchledger.offsets import OffsetRange, TopicPartition
from tests.contract.life import apply, take_replay_to_audited, take_to_audited, take_to_published
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

ORDERS_0 = TopicPartition("orders", 0)
PUBLISHED = OffsetRange(ORDERS_0, 0, 6)


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def count_waiting(warehouse: PostgresWarehouse) -> int:
    """How many publications of the pipeline wait for a lock now."""
    query = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() "
        "and query like '%pg_advisory_xact_lock%'"
    )
    with psycopg.connect(warehouse.dsn) as connection:
        return int(connection.execute(query).fetchall()[0][0])


def test_live_batch_waits_for_one_replay_however_many_are_in_line(warehouse: PostgresWarehouse) -> None:
    take_to_published(warehouse, PUBLISHED)
    replays = [take_replay_to_audited(warehouse, PUBLISHED, run=f"again-{number}") for number in range(4)]
    live = take_to_audited(warehouse, OffsetRange(ORDERS_0, 6, 9), run="run-2")
    order: list[int] = []

    def publish(attempt: Attempt) -> None:
        with warehouse.ledger.publication(attempt) as publication:
            apply(warehouse, publication)
            order.append(attempt.batch.batch_id)

    with ThreadPoolExecutor(4) as pool, ExitStack() as first:
        publication = first.enter_context(warehouse.ledger.publication(replays[0]))
        waiting = [pool.submit(publish, each) for each in replays[1:]]
        wait_until(lambda: count_waiting(warehouse) == 3)
        waiting.append(pool.submit(publish, live))
        wait_until(lambda: count_waiting(warehouse) == 4)
        apply(warehouse, publication)
        first.close()
        for each in waiting:
            each.result()
    assert order[0] == live.batch.batch_id
    assert warehouse.prove().findings == ()
