"""What a person can do about a batch whose rows are visible while its position is not, and whose records are gone."""

from datetime import timedelta

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept, accept_loss, rewind
from batchledger.model.batch import BatchState, Decision, DeliveryMode
from batchledger.model.errors import DecisionRefusedError, LossError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Deduplication
from batchledger.planning.live import StartPolicy
from batchledger.planning.rewind import Rewind
from tests.contract.lives.world import StoredWorld
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.fakes.world import catch_up

ORDERS_0 = TopicPartition("orders", 0)
BY_ANA = Decision("ana@host", "the producer is known to lose records")


@pytest.fixture
def between_commits() -> StoredWorld:
    """The first batch was killed between its two commits, and then Kafka removed its first records."""
    rules = Deduplication(("message_id",), timedelta(days=9999))
    world = StoredWorld(delivery=DeliveryMode.AT_LEAST_ONCE, deduplication=rules)
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "killed")
    world.broker.expire(ORDERS_0, before=4)
    return world


def test_batch_between_its_commits_whose_records_expired_is_published_by_accepting_it(
    between_commits: StoredWorld,
) -> None:
    world, lost = between_commits, OffsetRange(ORDERS_0, 0, 4)
    (number,) = (each.batch_id for each in world.batches())
    with pytest.raises(LossError):
        run_batch.run_once(world.process(), "again")
    with pytest.raises(DecisionRefusedError, match="rows are visible already") as refused:
        accept_loss(world.process(), [lost], BY_ANA)
    assert refused.value.batch_id == number
    assert f"batchledger accept {number} " in str(refused.value)
    assert accept(world.process(), number, BY_ANA).is_new
    assert not accept(world.process(), number, BY_ANA).is_new
    assert world.process().ledger.load_batch(number).state is BatchState.PUBLISHED
    assert sorted(world.times_published().values()) == [1] * 10
    assert world.staging_tables() == []
    world.assert_proved()
    assert plans.plan(world.process(), "next") is None


def test_batch_between_its_commits_that_lost_its_staging_too_leaves_by_emptying_the_table(
    between_commits: StoredWorld,
) -> None:
    world = between_commits
    (number,) = (each.batch_id for each in world.batches())
    world.process().ledger.open_attempt(number, "killed too")
    with pytest.raises(DecisionRefusedError, match="is planned"):
        accept(world.process(), number, BY_ANA)
    rewind(world.process(), Rewind(StartPolicy.EARLIEST, truncate=True, allow_expired=True), BY_ANA)
    accept_loss(world.process(), [OffsetRange(ORDERS_0, 0, 4)], BY_ANA)
    catch_up(world)
    assert sorted(offset for _, offset in world.times_published()) == [*range(4, 10)]
    world.assert_proved()
