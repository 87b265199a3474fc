"""The idempotent consumer through whole runs: batches, restarts and crashes at every point of every delivery mode."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import DeliveryMode
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Deduplication
from batchledger.planning.live import Limits
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import BEFORE_PUBLISHING, CrashOnce, SimulatedCrashError, copies_after_crash, crash_points
from tests.fakes.world import catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


PUBLISHING_CRASHES = [
    (delivery, point) for delivery in DeliveryMode for point in crash_points(delivery) if point not in BEFORE_PUBLISHING
]
"""Before its publication no batch has touched what is remembered of keys."""


@pytest.fixture
def world() -> StoredWorld:
    return world_of()


def world_of(lake: Path | None = None) -> StoredWorld:
    """Batches of at most three records over two partitions, in which ids come again."""
    world = StoredWorld(
        lake=lake,
        limits=Limits(max_records=3),
        deduplication=Deduplication(("message_id",), remember=timedelta(days=30)),
    )
    world.broker.create_topic("orders", 2)
    send(world, ORDERS_0, "abaca")
    send(world, ORDERS_1, "aaf")
    return world


def send(world: StoredWorld, partition: TopicPartition, ids: str) -> None:
    world.broker.append(partition, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))


def copies_by_id(world: StoredWorld) -> Counter[str]:
    return Counter(row["message_id"] for row in world.read_target())


def test_each_message_id_is_visible_once_whatever_the_batches(world: StoredWorld) -> None:
    catch_up(world)
    assert copies_by_id(world) == Counter("abcf")
    assert sum(line.duplicates for line in world.balances()) == 4
    assert len(world.warehouse.read_duplicates()) == 4
    world.assert_proved()


@pytest.mark.parametrize(("delivery", "point"), PUBLISHING_CRASHES)
def test_crash_while_a_batch_with_duplicates_is_published_then_a_retry(
    world: StoredWorld, delivery: DeliveryMode, point: str
) -> None:
    """Another run takes over: at least once, with a memory of keys, is effectively once."""
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    if copies_after_crash(delivery, point) == 0:
        # The keys of the lost rows were not remembered, so a later record with the same key is accepted.
        assert set(copies_by_id(world).values()) == {1}
        assert set("abcf") - set(copies_by_id(world)) <= {"b"}
    else:
        assert copies_by_id(world) == Counter("abcf")
        world.assert_proved()


@pytest.mark.parametrize(
    ("delivery", "point"),
    [(DeliveryMode.EXACTLY_ONCE, "announced"), *((mode, "sink_committed") for mode in DeliveryMode)],
)
def test_crash_around_the_commit_of_a_sink_that_commits_by_itself_then_a_retry(
    tmp_path: Path, delivery: DeliveryMode, point: str
) -> None:
    """If no run asks the sink, the ledger remembers none of the keys that it has committed."""
    world = world_of(lake=tmp_path)
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    assert set(copies_by_id(world)) == set("abcf")
    if delivery is DeliveryMode.EXACTLY_ONCE:
        assert copies_by_id(world) == Counter("abcf")
        world.assert_proved()


def test_negative_control_without_deduplication_the_ids_do_repeat(world: StoredWorld) -> None:
    world.deduplication = None
    catch_up(world)
    assert copies_by_id(world) == Counter("abaca" + "aaf")


@pytest.mark.parametrize("point", ["between_commits", "positions_moved", "before_commit"])
def test_negative_control_without_keys_at_least_once_does_repeat_the_rows_of_a_batch(
    world: StoredWorld, point: str
) -> None:
    world.deduplication, world.delivery = None, DeliveryMode.AT_LEAST_ONCE
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    assert set(world.times_published().values()) == {1, 2}
