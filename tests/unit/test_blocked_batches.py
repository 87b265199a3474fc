"""What stops a batch or its pipeline: planted faults, lost records, another topic under the same name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.balance import HoleEvidence, HolePolicy
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import BatchBlockedError, LossError, ServiceUnavailableError, TopicChangedError
from batchledger.model.offsets import OffsetRange
from tests.fakes.source import MemorySourceLog, ids_of
from tests.fakes.world import ORDERS_0, PIPELINE, World, assert_exactly_once, catch_up, staged_twice


def test_duplicate_planted_in_staging_blocks_the_batch_and_names_check_and_coordinates(world: World) -> None:
    """S116, S120."""
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    message = str(blocked.value)
    assert "batch 1 of orders_copy is blocked: the position stays before its 15 offsets" in message
    assert "no_duplicate_offsets: rows that repeat an offset: 2, for example orders[0]@0, orders[1]@0" in message
    assert world.times_published() == Counter()
    assert {each.next_offset for each in world.process().ledger.load_positions(PIPELINE)} == {0}


def test_undeclared_hole_blocks_the_batch_and_names_the_offsets(world: World) -> None:
    world.broker.append_holes(ORDERS_0, 2)
    with pytest.raises(BatchBlockedError, match=r"2 offsets .*orders\[0\] 10\.\.12") as blocked:
        run_batch.run_once(world.process(), "run-1")
    assert blocked.value.failed == (IntegrityCheck.NO_UNEXPLAINED_HOLES, IntegrityCheck.BALANCE_CLOSES)
    assert world.times_published() == Counter()


def test_row_lost_on_the_way_to_staging_blocks_the_batch(world: World) -> None:
    with pytest.raises(BatchBlockedError, match=r"balance_closes: unexplained: \[1, 1\]"):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "run-1")
    assert world.times_published() == Counter()


def test_blocked_batch_stops_the_pipeline_until_it_is_taken_again(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    with pytest.raises(BatchBlockedError, match="no_duplicate_offsets"):
        plans.plan(world.process(), "run-2")
    run_batch.run_once(world.process(), "run-3", batch_id=1)
    assert_exactly_once(world)


def test_blocked_batch_cannot_be_published_by_its_run(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    with pytest.raises(BatchBlockedError, match="batch 1 of orders_copy is blocked"):
        run_batch.publish(world.process(), 1, "run-1")
    assert world.times_published() == Counter()


def test_s24_recreated_topic_stops_the_pipeline(world: World) -> None:
    catch_up(world)
    world.broker.delete_topic("orders")
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 50)
    before = world.times_published()
    with pytest.raises(TopicChangedError) as refused:
        run_batch.run_once(world.process(), "run-2")
    assert ids_of(refused.value) == ("topic-1", "topic-2")
    assert world.times_published() == before


def test_s37_unread_records_that_expired_stop_the_pipeline(world: World) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 5)
    world.broker.expire(ORDERS_0, before=12)
    with pytest.raises(LossError, match=r"orders\[0\] 10\.\.12"):
        run_batch.run_once(world.process(), "run-2")
    assert world.database.committed.positions[PIPELINE, ORDERS_0].next_offset == 10


def test_broker_down_is_retryable_and_stores_nothing(world: World) -> None:
    """S26."""
    world.broker.is_down = True
    before = world.database.committed
    with pytest.raises(ServiceUnavailableError) as error:
        plans.plan(world.process(), "run-1")
    assert error.value.retryable
    assert world.database.committed is before


def test_topic_that_is_recreated_while_its_holes_are_looked_into_is_noticed(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    world.broker.append_holes(ORDERS_0, 1)

    class RecreatedSourceLog(MemorySourceLog):
        def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
            found = super().look_into(holes)
            self.broker.delete_topic("orders")
            self.broker.create_topic("orders", 2)
            return found

    platform = replace(world.process(), source=RecreatedSourceLog(world.broker))
    with pytest.raises(TopicChangedError) as refused:
        run_batch.run_once(platform, "run-1")
    assert ids_of(refused.value) == ("topic-1", "topic-2")
    assert world.times_published() == Counter()
