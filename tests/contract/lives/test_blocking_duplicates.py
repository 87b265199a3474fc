"""``dedupe.duplicates: block``: a message that comes again stops the batch that brings it, until a person says so."""

from dataclasses import replace
from datetime import timedelta

import pytest

from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.model.batch import Decision
from batchledger.model.errors import BatchBlockedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Deduplication, DuplicatePolicy
from batchledger.planning.replay import Replay
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import CrashOnce, SimulatedCrashError

ORDERS_0 = TopicPartition("orders", 0)
BLOCKING = Deduplication(("message_id",), timedelta(days=30), DuplicatePolicy.BLOCK)
ANA = Decision("ana", "the producer was restarted")


def world_of(ids: str, rules: Deduplication = BLOCKING) -> StoredWorld:
    world = StoredWorld(deduplication=rules)
    world.broker.create_topic("orders", 1)
    send(world, ids)
    return world


def send(world: StoredWorld, ids: str) -> None:
    world.broker.append(ORDERS_0, *(f'{{"message_id": "{each}"}}'.encode() for each in ids))


def blocked(world: StoredWorld, run: str = "run") -> BatchBlockedError:
    with pytest.raises(BatchBlockedError, match="no_duplicate_messages") as error:
        run_batch.run_once(world.process(), run)
    return error.value


def test_message_that_comes_twice_in_one_batch_blocks_it_and_is_named() -> None:
    world = world_of("abca")
    error = blocked(world)
    assert "orders[0]@3 (repeats orders[0]@0)" in str(error)
    assert f'batchledger records {world.pipeline} "orders[0] 3..4"' in str(error)
    assert world.times_published() == {}


def test_message_of_an_earlier_batch_blocks_the_batch_that_repeats_it() -> None:
    world = world_of("ab")
    run_batch.run_once(world.process(), "first")
    send(world, "cb")
    assert "orders[0]@3 (repeats orders[0]@1)" in str(blocked(world))
    assert len(world.times_published()) == 2


def test_message_that_comes_again_after_a_crash_blocks_the_batch() -> None:
    world = world_of("ab")
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("before_commit")), "dies")
    run_batch.run_once(world.process(), "first")
    send(world, "a")
    assert "orders[0]@2 (repeats orders[0]@0)" in str(blocked(world))


def test_messages_that_come_once_pass() -> None:
    world = world_of("abc")
    run_batch.run_once(world.process(), "first")
    send(world, "def")
    run_batch.run_once(world.process(), "second")
    assert len(world.times_published()) == 6


def test_accepted_duplicates_are_dropped_and_not_told_again_by_a_replay() -> None:
    world = world_of("aba")
    batch_id = blocked(world).batch_id
    decisions.accept(world.process(), batch_id, ANA)
    assert sorted(offset for _, offset in world.times_published()) == [0, 1]
    asked = Replay((OffsetRange(ORDERS_0, 0, 3),))
    replay = plans.plan_replay(world.process(), asked, "again", ANA, "again")
    assert replay is not None
    run_batch.take_through(world.process(), replay.batch_id, "again")
    assert sorted(offset for _, offset in world.times_published()) == [0, 1]


def test_negative_control_with_drop_the_same_message_is_dropped_and_nothing_is_blocked() -> None:
    world = world_of("abca", replace(BLOCKING, duplicates=DuplicatePolicy.DROP))
    run_batch.run_once(world.process(), "run")
    assert sorted(offset for _, offset in world.times_published()) == [0, 1, 2]
