"""A batch whose rows the target refuses: the error names what works, and nothing else is recorded as a decision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import accept, discard, rehearse, rewind, skip
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, BatchState, Decision, DeliveryMode
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, IntegrityCheck, Offender, Outcome
from batchledger.model.claims import PreparedRows
from batchledger.model.errors import (
    BatchBlockedError,
    DecisionRefusedError,
    RowsRefusedError,
    ServiceUnavailableError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange
from batchledger.model.refusals import blocked, ways_out
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Replay
from batchledger.planning.rewind import Rewind
from batchledger.ports import RowsToPublish
from tests.fakes.database import coordinate_of
from tests.fakes.history import prove
from tests.fakes.sink import MemorySink
from tests.fakes.world import ORDERS_0, PIPELINE, World, assert_exactly_once, catch_up

BY_ANA = Decision("ana@host", "the table was altered")
REFUSAL = "table orders cannot take them. Nothing was published. Alter the table."


@dataclass(frozen=True)
class RefusingSink(MemorySink):
    """A target that takes no row as it is."""

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        raise TargetChangedError(REFUSAL)


def refusing(world: World) -> Platform:
    return replace(world.process(), sink=RefusingSink(world.database, "orders"))


def block(world: World) -> tuple[Batch, str]:
    """Run a batch that its target refuses; return it with what people read."""
    with pytest.raises(BatchBlockedError, match="accepted_by_target") as told:
        run_batch.run_once(refusing(world), "first")
    batch = world.process().ledger.find_open_batch(PIPELINE)
    assert batch is not None
    return batch, str(told.value)


def test_people_are_told_that_the_target_refuses_the_rows_and_of_no_way_that_does_not_work(world: World) -> None:
    batch, told = block(world)
    assert "Its rows may be published, but the target refuses them.\naccepted_by_target: table orders" in told
    assert "Alter the table.\nLook at it: batchledger batch" in told
    assert "batchledger accept" not in told
    assert f"batchledger run {PIPELINE} --batch {batch.batch_id}" in told
    assert f'batchledger skip {PIPELINE} "orders[0] 0..10" "orders[1] 0..5" --discard-batch {batch.batch_id}' in told
    with pytest.raises(BatchBlockedError) as again:
        run_batch.run_once(world.process(), "the next run")
    assert str(again.value) == told


@dataclass(frozen=True)
class NamingSink(MemorySink):
    """A target that refuses rows, and can or cannot say which."""

    is_down: bool = False

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        raise RowsRefusedError(REFUSAL, why="It says: too long.", advice="Alter the table.")

    def find_refused(self, rows: RowsToPublish, limit: int) -> Sequence[Offender]:
        """Name two rows."""
        if self.is_down:
            raise ServiceUnavailableError("the table does not answer")
        return [Offender(OffsetRange(ORDERS_0, at, at + 1), "code: too long") for at in (3, 7)]


@pytest.mark.parametrize("is_down", [False, True], ids=["found", "not found"])
def test_rows_that_the_target_refuses_are_named_in_what_people_read_and_never_keep_a_batch_from_being_blocked(
    world: World, is_down: bool
) -> None:
    sink = NamingSink(world.database, "orders", is_down=is_down)
    with pytest.raises(BatchBlockedError) as told:
        run_batch.run_once(replace(world.process(), sink=sink), "first")
    batch = world.process().ledger.find_open_batch(PIPELINE)
    assert batch is not None
    assert batch.state is BatchState.BLOCKED
    (refusal,) = [each for each in world.process().ledger.load_checks(batch.batch_id) if each.blocks]
    places = [] if is_down else ["orders[0]@3 (code: too long)", "orders[0]@7 (code: too long)"]
    assert refusal.observed.get("coordinates", []) == places
    for each in places:
        assert each in str(told.value)
        assert each in refusal.public_detail
    assert "too long." not in refusal.public_detail


@dataclass(frozen=True)
class UniqueSink(MemorySink):
    """A target with a unique index on the coordinates."""

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """Refuse a row that is there already."""
        prepared = super().publish(rows)
        places = [coordinate_of(row) for row in rows.connection.targets[self.table].rows]
        if len(set(places)) < len(places):
            raise TargetChangedError("duplicate key value violates unique constraint")
        return prepared


def test_rows_that_the_batch_takes_over_are_out_of_the_way_when_the_target_is_asked(world: World) -> None:
    """After a rewind that keeps the rows, they are replaced in the transaction that publishes the new ones."""
    catch_up(world)
    rewind(world.process(), Rewind(StartPolicy.EARLIEST), BY_ANA)
    batch, _ = block(world)
    accept(replace(world.process(), sink=UniqueSink(world.database, "orders")), batch.batch_id, BY_ANA)
    catch_up(world)
    assert_exactly_once(world)


def test_no_sentence_of_a_refusal_ends_twice(world: World) -> None:
    assert ".." not in block(world)[1].replace("0..10", "").replace("0..5", "")


@pytest.mark.parametrize("alter", [rehearse, lambda platform: platform], ids=["rehearsed", "decided"])
def test_batch_that_its_target_refuses_is_not_accepted_and_nothing_is_recorded(
    world: World, alter: Callable[[Platform], Platform]
) -> None:
    batch, _ = block(world)
    for _ in range(2):
        with pytest.raises(DecisionRefusedError, match=r"(?s)cannot be accepted: no decision.*table orders") as refused:
            accept(alter(refusing(world)), batch.batch_id, BY_ANA)
        assert refused.value.batch_id == batch.batch_id
        assert f"batchledger skip {PIPELINE}" in str(refused.value)
    assert world.process().ledger.load_batch(batch.batch_id) == batch
    assert world.process().decisions.load_decisions(batch.batch_id) == []
    assert world.times_published() == {}


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_it_is_accepted_once_the_target_takes_it_also_when_kafka_has_removed_its_records(
    world: World, delivery: DeliveryMode
) -> None:
    world.delivery = delivery
    batch, _ = block(world)
    recorded = world.records()
    world.broker.expire(ORDERS_0, 10)
    assert accept(rehearse(world.process()), batch.batch_id, BY_ANA).is_new
    assert world.process().ledger.load_batch(batch.batch_id) == batch
    accept(world.process(), batch.batch_id, BY_ANA)
    assert sorted(world.times_published()) == sorted(recorded)
    assert prove(world.sink, PIPELINE).holds


def test_what_is_skipped_is_given_up_and_the_pipeline_goes_on(world: World) -> None:
    batch, _ = block(world)
    skip(world.process(), batch.ranges, BY_ANA, discard=batch.batch_id)
    world.produce(ORDERS_0, 3)
    catch_up(world)
    assert sorted(world.times_published()) == [(ORDERS_0, 10), (ORDERS_0, 11), (ORDERS_0, 12)]


def test_replay_that_the_target_refuses_is_closed_and_the_rows_that_are_there_stay(world: World) -> None:
    catch_up(world)
    ranges = tuple(each for each in world.process().ledger.load_batch(1).ranges)
    replay = plans.plan_replay(refusing(world), Replay(ranges), "again", BY_ANA, "key")
    assert replay is not None
    with pytest.raises(
        BatchBlockedError, match="Or close it, and keep the rows that are there: batchledger discard"
    ) as told:
        run_batch.take_through(refusing(world), replay.batch_id, "again")
    assert (told.value.batch_id, told.value.failed) == (replay.batch_id, (ACCEPTED_BY_TARGET,))
    assert "batchledger skip" not in str(told.value)
    with pytest.raises(DecisionRefusedError, match=r"(?s)cannot be accepted: no decision.*table orders"):
        accept(refusing(world), replay.batch_id, BY_ANA)
    discard(world.process(), replay.batch_id, BY_ANA)
    assert_exactly_once(world)


def test_accepted_batch_that_the_target_refuses_then_is_not_accepted_once_more(world: World) -> None:
    """The decision about its checks stands; about the target there is nothing to decide."""

    def lose_the_first(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return rows[1:]

    with pytest.raises(BatchBlockedError, match="batchledger accept"):
        run_batch.run_once(world.process(alter=lose_the_first), "first")
    with pytest.raises(BatchBlockedError, match="accepted_by_target"):
        accept(refusing(world), 1, BY_ANA)
    with pytest.raises(DecisionRefusedError, match=r"(?s)cannot be accepted: no decision.*table orders"):
        accept(refusing(world), 1, BY_ANA)
    assert len(world.process().decisions.load_decisions(1)) == 1
    accept(world.process(), 1, BY_ANA)
    assert world.process().ledger.load_batch(1).state is BatchState.PUBLISHED


def test_failed_check_of_the_rows_may_be_accepted(world: World) -> None:
    batch = plans.plan(world.process(), "first")
    assert batch is not None
    failed = CheckResult("looked_at", Outcome.FAILED, "a hole.")
    refused = replace(failed, name=ACCEPTED_BY_TARGET)
    assert "batchledger accept 1 " in ways_out(batch, [failed])
    assert "batchledger accept 1 " not in ways_out(batch, [failed, refused])
    wrong_rows = replace(failed, name=IntegrityCheck.STAGED_AS_REPORTED)
    assert "batchledger accept" not in ways_out(batch, [failed, wrong_rows])
    assert "looked_at: a hole.\nLook at it: batchledger batch" in str(blocked(batch, [failed]))
