"""The idempotent consumer through whole runs: batches, restarts and crashes at every point of every delivery mode."""

from collections import Counter
from datetime import timedelta

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import DeliveryMode
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Deduplication
from batchledger.planning.live import Limits
from tests.fakes.crash import SINKS, CrashOnce, SimulatedCrashError, copies_after_crash, sinks_and_crashes
from tests.fakes.foreign_sink import store_of
from tests.fakes.history import prove
from tests.fakes.world import PIPELINE, World, catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    """Batches of at most three records over two partitions, in which ids come again."""
    world = World(
        foreign=store_of(request.param),
        limits=Limits(max_records=3),
        deduplication=Deduplication(("message_id",), remember=timedelta(days=30)),
    )
    world.broker.create_topic("orders", 2)
    send(world, ORDERS_0, "abacadae")
    send(world, ORDERS_1, "aafgf")
    return world


def send(world: World, partition: TopicPartition, ids: str) -> None:
    world.broker.append(partition, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))


def copies_by_id(world: World) -> Counter[str]:
    return Counter(row["message_id"] for row in world.sink.read_target())


def assert_proved(world: World) -> None:
    """The ledger's balances and the target agree, as ``verify`` sees them."""
    verification = prove(world.sink, PIPELINE)
    assert verification.holds, verification.findings


def test_each_message_id_is_visible_once_whatever_the_batches(world: World) -> None:
    catch_up(world)
    assert copies_by_id(world) == Counter("abcdefg")
    counted = [line for each in world.database.committed.batches.values() for line in each.balances]
    assert sum(line.duplicates for line in counted) == 6
    assert sum(len(listed) for listed in world.database.committed.duplicates.values()) == 6
    assert_proved(world)


@pytest.mark.parametrize(("world", "delivery", "point"), sinks_and_crashes(), indirect=["world"])
def test_crash_while_a_batch_with_duplicates_is_published_then_a_retry(
    world: World, delivery: DeliveryMode, point: str
) -> None:
    """Another run takes over: at least once, with a memory of keys, is effectively once.

    It is not if a sink has committed by itself, no run asks it, and the ledger remembers none of the keys.
    """
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    if point == "sink_committed" and delivery is not DeliveryMode.EXACTLY_ONCE:
        assert set(copies_by_id(world)) == set("abcdefg")
    elif copies_after_crash(delivery, point, is_foreign=world.foreign is not None) == 0:
        # The keys of the lost rows were not remembered, so a later record with the same key is accepted.
        assert set(copies_by_id(world).values()) == {1}
        assert set("abcdefg") - set(copies_by_id(world)) <= {"b"}
    else:
        assert copies_by_id(world) == Counter("abcdefg")
        assert_proved(world)


def test_negative_control_without_deduplication_the_ids_do_repeat(world: World) -> None:
    world.deduplication = None
    catch_up(world)
    assert copies_by_id(world) == Counter("abacadae" + "aafgf")


@pytest.mark.parametrize("point", ["between_commits", "positions_moved", "before_commit"])
def test_negative_control_without_keys_at_least_once_does_repeat_the_rows_of_a_batch(world: World, point: str) -> None:
    world.deduplication, world.delivery = None, DeliveryMode.AT_LEAST_ONCE
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    assert set(world.times_published().values()) == {1, 2}
