"""Who waits for whom when several batches of one pipeline want to publish; only a real PostgreSQL has such a queue."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from batchledger.database import sessions
from batchledger.model.batch import Attempt, Decision
from batchledger.model.errors import TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.contract.life import apply, store, store_replay, take_replay_to_audited, take_to_audited, take_to_published
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

ORDERS_0 = TopicPartition("orders", 0)
PUBLISHED = OffsetRange(ORDERS_0, 0, 6)
OTHER = OffsetRange(TopicPartition("orders", 1), 0, 3)
ANA = Decision("ana@host", "because")


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without a longer limit of its own gives up at once."""
    monkeypatch.setitem(sessions.PINNED, "lock_timeout", "50ms")


def note_expired(warehouse: PostgresWarehouse) -> None:
    warehouse.ledger.note_expired(warehouse.pipeline, [PUBLISHED], ANA, "request")


WAITS: dict[str, Callable[[PostgresWarehouse], object]] = {
    "store_plan": lambda warehouse: store(warehouse, OffsetRange(ORDERS_0, 6, 9)),
    "store_replay": lambda warehouse: store_replay(warehouse, PUBLISHED),
    "store_first_positions": lambda warehouse: warehouse.ledger.store_first_positions(warehouse.pipeline, []),
    "drop_quarantined": lambda warehouse: warehouse.decisions.drop_quarantined(warehouse.pipeline, [PUBLISHED], ANA),
    "note_expired": note_expired,
    "pause": lambda warehouse: warehouse.decisions.pause(warehouse.pipeline, ANA),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("step", WAITS)
def test_what_needs_the_pipeline_waits_as_long_as_a_publication_may_take(
    warehouse: PostgresWarehouse, step: str
) -> None:
    """Others have given up waiting for it meanwhile."""
    take_to_published(warehouse, PUBLISHED)
    replay = take_replay_to_audited(warehouse, PUBLISHED)
    with ThreadPoolExecutor(1) as pool, warehouse.ledger.publication(replay) as publication:
        waiting = pool.submit(WAITS[step], warehouse)
        publisher = publication.connection.info.backend_pid
        wait_until(lambda: waiting.done() or warehouse.count_kept_waiting(publisher) == 1)
        with sessions.connect(warehouse.dsn) as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("select 1 from batchledger.pipeline where name = %s for update", [warehouse.pipeline])
        assert not waiting.done()
    waiting.result()


@pytest.mark.usefixtures("impatient")
def test_live_batch_waits_for_its_turn_as_long_as_a_replay_may_take(warehouse: PostgresWarehouse) -> None:
    take_to_published(warehouse, PUBLISHED)
    replay = take_replay_to_audited(warehouse, PUBLISHED)
    live = take_to_audited(warehouse, OffsetRange(ORDERS_0, 6, 9), run="run-2")
    with ThreadPoolExecutor(1) as pool, warehouse.ledger.publication(replay) as publication:
        waits = pool.submit(_wait_in_publication, warehouse, live)
        wait_until(lambda: waits.done() or count_waiting(warehouse) == 1)
        apply(warehouse, publication)
    assert waits.result() == "10min"


def _wait_in_publication(warehouse: PostgresWarehouse, attempt: Attempt) -> str:
    """Publish, and return how long a lock is waited for meanwhile."""
    with warehouse.ledger.publication(attempt) as publication:
        apply(warehouse, publication)
        ((wait,),) = publication.connection.execute("show lock_timeout").fetchall()
        return str(wait)


@pytest.mark.usefixtures("impatient")
def test_open_transactions_are_noted_while_a_publication_is_going_on(warehouse: PostgresWarehouse) -> None:
    take_to_published(warehouse, PUBLISHED, OTHER)
    live = take_to_audited(warehouse, OffsetRange(ORDERS_0, 6, 9), run="run-2")
    seen = {ORDERS_0: 6, OTHER.partition: 3}
    with warehouse.ledger.publication(live) as publication:
        apply(warehouse, publication)
        warehouse.ledger.note_held_back(warehouse.pipeline, seen)
    held_back = {each.partition: each.held_back_at for each in warehouse.ledger.load_positions(warehouse.pipeline)}
    assert held_back == {ORDERS_0: None, OTHER.partition: 3}
    warehouse.ledger.note_held_back(warehouse.pipeline, seen)
    held_back = {each.partition: each.held_back_at for each in warehouse.ledger.load_positions(warehouse.pipeline)}
    assert held_back == seen


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


def make_table_of_nobody(warehouse: PostgresWarehouse) -> None:
    """Leave a table to which no pipeline has published, and which takes no record twice."""
    take_to_published(replace(warehouse, pipeline=f"{warehouse.pipeline}_before"), PUBLISHED)
    orders, new = (sql.Identifier(warehouse.schema, name) for name in ("orders", "new"))
    statements = (
        "create table {new} (like {orders} including all)",
        "alter table {new} add unique (_partition, _offset)",
        "drop table {orders}",
        "alter table {new} rename to orders",
    )
    with psycopg.connect(warehouse.dsn) as connection:
        for each in statements:
            connection.execute(sql.SQL(each).format(orders=orders, new=new))


def test_s111_two_first_publications_to_one_table_meet_at_its_name_and_not_at_its_rows(
    warehouse: PostgresWarehouse,
) -> None:
    """Otherwise the table would refuse the second one's rows, as repeated, and the message would be about them."""
    make_table_of_nobody(warehouse)
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other")
    attempt, late = (take_to_audited(each, PUBLISHED) for each in (warehouse, other))
    with ThreadPoolExecutor(1) as pool, warehouse.ledger.publication(attempt) as publication:
        apply(warehouse, publication)
        waiting = pool.submit(_wait_in_publication, other, late)
        wait_until(lambda: warehouse.count_kept_waiting(publication.connection.info.backend_pid) == 1)
    with pytest.raises(TargetChangedError, match="belongs to another pipeline"):
        waiting.result()
