"""The size of the next batch follows what the real ledger says that the newest ones took."""

from collections.abc import Iterator

import pytest

from batchledger import run_batch
from batchledger.batch import DeliveryMode
from batchledger.offsets import TopicPartition, count_offsets
from batchledger.planning import Limits
from tests.contract.warehouses import PostgresWarehouse
from tests.machine.worlds import PostgresWorld


@pytest.fixture
def world(warehouse_dsn: str) -> Iterator[PostgresWorld]:
    """A topic in memory, everything else in PostgreSQL; batches are to take four seconds."""
    limits = Limits(max_records=100_000, target_duration_seconds=4.0)
    world = PostgresWorld(warehouse_dsn, DeliveryMode.EXACTLY_ONCE, limits)
    world.broker.create_topic("orders", 2)
    yield world
    world.close()


def take_batch(world: PostgresWorld, records_a_second: int) -> int:
    """Take one batch, as if it had run at that speed; return how many records it took."""
    platform = world.platform()
    batch = run_batch.run_once(platform, "run")
    assert batch is not None
    offsets = count_offsets(batch.ranges)
    PostgresWarehouse(world.dsn, platform.rules.name).stretch(batch.batch_id, offsets / records_a_second)
    return offsets


def test_s131_batches_of_a_backlog_grow_and_shrink_towards_the_target_duration(world: PostgresWorld) -> None:
    """When everything becomes slower, one slow batch changes nothing, two do."""
    for number in range(2):
        world.broker.append(TopicPartition("orders", number), *[b'{"message_id": "m"}'] * 42_000)
    assert [take_batch(world, records_a_second=5_000) for _ in range(2)] == [10_000, 20_000]
    assert [take_batch(world, records_a_second=2_500) for _ in range(3)] == [20_000, 20_000, 10_000]
    assert [take_batch(world, records_a_second=2_500)] == [4_000]
    assert run_batch.run_once(world.platform(), "run") is None
    assert world.verify().holds
