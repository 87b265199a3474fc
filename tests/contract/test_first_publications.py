"""Several runs of a pipeline that come to a target which does not exist yet: each finds it, or waits for it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from batchledger.database import sessions
from batchledger.lifecycle.requirement import require_own_target
from batchledger.sinks.table.target import TargetTable
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.warehouses import PostgresWarehouse, Warehouse, open_postgres
from tests.support import wait_until

WAREHOUSES = EVERY_SINK
COLUMNS = {"_partition": "integer", "_offset": "bigint", "message_id": "text"}


@pytest.fixture
def postgres(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def test_target_that_another_run_creates_between_the_questions_whose_it_is_is_the_pipelines_own(
    warehouse: Warehouse,
) -> None:
    first = life.take_to_audited(warehouse, life.FIRST)
    replay = warehouse.ledger.open_attempt(life.store_replay(warehouse, life.FIRST).batch_id, "again")
    waiting = [first]

    def followed(ask: Callable[..., object]) -> Callable[..., object]:
        def answer(*asked: object) -> object:
            found = ask(*asked)
            while waiting:
                life.publish(warehouse, waiting.pop())
            return found

        return answer

    ledger = SimpleNamespace(list_targets=followed(warehouse.ledger.list_targets))
    sink = SimpleNamespace(claim_target=followed(warehouse.sink.claim_target))
    require_own_target(life.platform(warehouse, ledger=ledger, sink=sink), replay)
    assert waiting == []
    assert life.target_coordinates(warehouse) == life.rows_of([life.FIRST])


def test_table_that_two_transactions_would_create_at_once_is_created_by_one_and_found_by_the_other(
    postgres: PostgresWarehouse,
) -> None:
    target: TargetTable = postgres.sink.target_table

    def create() -> dict[str, str]:
        with sessions.connect(postgres.dsn) as connection, connection.cursor() as cursor:
            target.create(cursor, COLUMNS)
            return target.read_columns(cursor)

    with (
        ThreadPoolExecutor(1) as threads,
        sessions.connect(postgres.dsn) as connection,
    ):
        target.create(connection.cursor(), COLUMNS)
        other = threads.submit(create)
        wait_until(lambda: other.done() or postgres.count_kept_waiting(connection.info.backend_pid) == 1)
        connection.commit()
        assert [*other.result()] == [*COLUMNS, "_batch_id"]
