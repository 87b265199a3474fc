"""A backlog drains by itself, in batches whose size follows the target, one run after the other."""

from dataclasses import dataclass, field, replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Decided, Decision
from batchledger.model.offsets import TopicPartition, count_offsets
from batchledger.planning.live import Limits
from tests.contract.warehouses import MemoryWarehouse
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.world import PIPELINE, World, assert_exactly_once

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
RECORDS_A_SECOND = 3_000


@pytest.fixture
def world() -> World:
    """30,000 records, to be taken in batches of four seconds."""
    world = World(limits=Limits(max_records=1_000_000, target_duration_seconds=4.0))
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 20_000)
    world.produce(ORDERS_1, 10_000)
    return world


def run_as_if_measured(world: World, run: str) -> int:
    """Take one batch, as if it had taken what its records take; return how many they were, 0 when nothing is left."""
    batch = run_batch.run_once(world.process(), run)
    if batch is None:
        return 0
    offsets = count_offsets(batch.ranges)
    MemoryWarehouse(world.database, PIPELINE).stretch(batch.batch_id, offsets / RECORDS_A_SECOND)
    return offsets


def test_s131_backlog_is_taken_in_batches_whose_size_follows_the_target_duration(world: World) -> None:
    sizes = [run_as_if_measured(world, f"run-{number}") for number in range(4)]
    assert sizes == [10_000, 12_000, 8_000, 0]
    assert_exactly_once(world)


def test_limit_on_records_goes_before_the_target_duration(world: World) -> None:
    world.limits = Limits(max_records=3_000, target_duration_seconds=4.0)
    assert [run_as_if_measured(world, f"run-{number}") for number in range(3)] == [3_000] * 3


def test_plan_says_which_size_was_chosen_and_why(world: World) -> None:
    assert "the first one is small" in str(plans.preview(world.process()).size)
    run_as_if_measured(world, "run-1")
    assert str(plans.preview(world.process()).size) == (
        "up to 12,000 records for a target of 4 s: recent batches took about 0.0 s and 333.3 s a million records"
    )
    world.limits = Limits(max_records=1_000_000)
    unlimited = plans.preview(world.process())
    assert (unlimited.size, count_offsets(unlimited.ranges)) == (None, 20_000)


def test_i5_open_batch_keeps_its_ranges_whatever_size_would_be_chosen_now(world: World) -> None:
    """A second run takes the open batch; it plans no other one beside it."""
    run_as_if_measured(world, "run-1")
    planned = plans.plan(world.process(), "run-2")
    assert planned is not None
    MemoryWarehouse(world.database, PIPELINE).stretch(planned.batch_id - 1, 600.0)
    assert plans.plan(world.process(), "run-3") == planned
    assert len(world.database.committed.batches) == 2


def test_runs_that_queue_behind_a_drained_backlog_find_nothing_and_store_nothing(world: World) -> None:
    """Five people press Trigger while a run that catches up starts one more."""
    world.limits = Limits(max_records=15_000)
    took = [run_as_if_measured(world, f"run-{number}") for number in range(6)]
    assert took == [15_000, 15_000, 0, 0, 0, 0]
    assert len(world.database.committed.batches) == 2
    assert_exactly_once(world)


@dataclass(frozen=True)
class CountingDecisions(MemoryDecisions):
    """Decisions that note who asked for a trigger to be recorded; each would wait for the publications before it."""

    asked: list[str] = field(default_factory=list)

    def trigger(self, batch_id: int, decision: Decision) -> Decided:
        self.asked.append(decision.decided_by)
        return super().trigger(batch_id, decision)


def test_trigger_that_was_stored_with_the_plan_is_not_recorded_and_waited_for_a_second_time(world: World) -> None:
    counting = CountingDecisions(world.database)
    platform = replace(world.process(), decisions=counting)
    ana, ben = Decision("ana", "catch up"), Decision("ben", "catch up")
    batch = plans.plan(platform, "run-1", decision=ana)
    assert batch is not None
    assert counting.asked == []
    plans.plan(platform, "run-2", decision=ben)
    assert counting.asked == ["ben"]
    assert [each.decided_by for each in platform.decisions.load_decisions(batch.batch_id)] == ["ana", "ben"]
