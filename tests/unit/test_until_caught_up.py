"""Catching up ends at the log ends that were seen when it began."""

from itertools import count

import pytest

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.catching_up import catch_up
from batchledger.model.batch import Batch
from batchledger.model.errors import AtWorkError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Limits
from tests.fakes.crash import Interrupt
from tests.fakes.world import ORDERS_0, ORDERS_1, World, assert_exactly_once

MOST_BATCHES = 50


def take_all(world: World, arriving: int = 0) -> list[Batch]:
    """Catch up while so many records arrive during each batch."""
    numbers, taken = count(1), []

    def arrive(point: str) -> None:
        if point == "attempt_opened" and arriving:
            world.produce(ORDERS_0, arriving)

    for batch in catch_up(world.process(crash=arrive), lambda: f"run-{next(numbers)}", wait=lambda _: None):
        taken.append(batch)
        assert len(taken) < MOST_BATCHES, "it never ends"
    return taken


def test_catching_up_beside_a_producer_that_never_rests_ends_at_the_log_ends_of_the_first_moment(world: World) -> None:
    assert [each.ranges for each in take_all(world, arriving=3)] == [
        (OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5))
    ]


def test_catching_up_beside_a_producer_that_is_faster_ends_too(world: World) -> None:
    """Each batch takes six records, and ten arrive meanwhile."""
    world.limits = Limits(max_records=6)
    taken = take_all(world, arriving=10)
    read = world.process().ledger.load_positions("orders_copy")
    assert all(each.next_offset >= end for each, end in zip(read, (10, 5), strict=True))
    assert len(taken) < 6


def test_negative_control_going_on_until_nothing_is_left_never_ends(world: World) -> None:
    """As it was: each batch finds what arrived during the one before."""

    def arrive(point: str) -> None:
        if point == "attempt_opened":
            world.produce(ORDERS_0, 3)

    platform = world.process(crash=arrive)
    assert all(run_batch.run_once(platform, f"run-{number}") is not None for number in range(MOST_BATCHES))


def test_backlog_is_drained_batch_by_batch(world: World) -> None:
    world.limits = Limits(max_records=4)
    assert len(take_all(world)) == 4
    assert_exactly_once(world)
    assert take_all(world) == []


def test_topic_without_a_record_has_nothing_to_catch_up_with() -> None:
    world = World()
    world.broker.create_topic("orders", 2)
    assert take_all(world) == []


def test_run_at_work_is_waited_for_and_what_it_left_is_taken(world: World) -> None:
    """The one that catches up begins while the first batch is staged by another run, which then goes on."""
    world.limits = Limits(max_records=6)
    waits: list[float] = []

    class DoneError(Exception):
        pass

    def come() -> None:
        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 5:
                raise DoneError

        with pytest.raises(DoneError):
            list(catch_up(world.process(), lambda: "catching up", wait=wait))

    first = run_batch.run_once(world.process(crash=Interrupt("staged", come)), "first")
    assert first is not None
    assert (first.attempt, len(waits)) == (1, 5)
    assert len(take_all(world)) == 2
    assert_exactly_once(world)


def test_wait_ends_when_others_have_read_to_the_ends(world: World) -> None:
    begun = []

    def finish(_: float) -> None:
        begun.append(run_batch.run_once(world.process(), "first", 1))

    planned = run_batch.plan(world.process(), "first")
    assert planned is not None
    with world.process().presences.hold(1, "first", world.patience):
        with pytest.raises(AtWorkError):
            run_batch.run_once(world.process(), "second")
        assert list(catch_up(world.process(), lambda: "second", wait=finish)) == []
    assert len(begun) == 1
    assert_exactly_once(world)
