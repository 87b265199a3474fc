"""How a pipeline stands: every state, and what threatens the unread records."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger import plans, run_batch
from batchledger.accounting import HolePolicy
from batchledger.batch import Attempt, Decision, PartitionHealth, Position, Staged, TopicIdentity
from batchledger.decisions import pause, resume
from batchledger.errors import BatchBlockedError, StagingError
from batchledger.health import STUCK_AFTER, PipelineState, describe_duration, describe_threats, find_threats, survey
from batchledger.offsets import TopicPartition
from tests.fakes.ledger import MemoryLedger
from tests.fakes.world import World, catch_up

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def world() -> World:
    """Two partitions with three records each, nothing published."""
    world = World(holes=HolePolicy.TRANSACTIONAL)
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 3)
    world.produce(ORDERS_1, 3)
    return world


def state_of(world: World, now: datetime = NOW) -> PipelineState:
    return survey(world.process(), now).state


def test_pipeline_lags_until_it_has_caught_up(world: World) -> None:
    found = survey(world.process(), NOW)
    assert (found.state, found.threats and found.threats.unread_records) == (PipelineState.LAGGING, 6)
    catch_up(world)
    assert state_of(world) is PipelineState.CAUGHT_UP


def test_lost_offsets_and_another_topic_are_told_with_their_error(world: World) -> None:
    catch_up(world)
    world.produce(ORDERS_0, 3)
    world.broker.expire(ORDERS_0, before=5)
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.LOSS
    assert "orders[0] 3..5" in found.detail
    world.broker.delete_topic("orders")
    assert state_of(world) is PipelineState.SOURCE_CHANGED


def test_blocked_batch_is_named(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "run")
    found = survey(world.process(), NOW)
    assert (found.state, found.detail) == (PipelineState.BLOCKED, "batch 1 of orders_copy: batchledger batch 1")


def test_paused_pipeline_says_who_paused_it_unless_something_worse_is_to_be_said(world: World) -> None:
    pause(world.process(), Decision("ana@host", "the warehouse is being moved"))
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.PAUSED
    assert "by ana@host since" in found.detail
    assert "the warehouse is being moved" in found.detail
    resume(world.process(), Decision("ana@host", "it has been moved"))
    catch_up(world)
    world.produce(ORDERS_0, 3)
    pause(world.process(), Decision("ana@host", "once more"))
    world.broker.expire(ORDERS_0, before=5)
    assert state_of(world) is PipelineState.LOSS


class RefusingStager:
    """Stages nothing."""

    def __init__(self, error: str) -> None:
        self._error = error

    def stage(self, attempt: Attempt) -> Staged:
        """Refuse."""
        raise StagingError(self._error, batch_id=attempt.batch.batch_id)


def fail_at_staging(world: World, error: str) -> None:
    platform = replace(world.process(), make_stager=lambda: RefusingStager(error))
    with pytest.raises(StagingError):
        run_batch.run_once(platform, "failing")


def test_pipeline_whose_newest_attempt_failed_is_failing_with_the_error_until_a_batch_goes_well(world: World) -> None:
    fail_at_staging(world, "no memory. Nothing is visible.")
    fail_at_staging(world, "the disk is full. Nothing is visible.")
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.FAILING
    assert found.detail == "batch 1 of orders_copy: the disk is full. Nothing is visible."
    assert found.threats is not None
    assert found.threats.unread_records == 6
    catch_up(world)
    assert state_of(world) is PipelineState.CAUGHT_UP


def test_long_error_of_a_failing_pipeline_is_told_by_its_first_sentence(world: World) -> None:
    fail_at_staging(world, "the disk /data is full. " + "It has 3.5 TB. " * 20)
    assert survey(world.process(), NOW).detail == (
        "batch 1 of orders_copy: the disk /data is full. The whole error: batchledger batch 1"
    )


def test_attempt_that_is_at_work_after_a_failed_one_is_not_failing(world: World) -> None:
    fail_at_staging(world, "the disk is full.")
    platform = world.process()
    platform.ledger.open_attempt(1, "next")
    assert state_of(world) is PipelineState.LAGGING


def test_source_that_does_not_answer_is_unknown_with_the_error(world: World) -> None:
    world.broker.is_down = True
    found = survey(world.process(), NOW)
    assert found.state is PipelineState.UNKNOWN
    assert "no broker answered" in found.detail


def plan_at(world: World, now: datetime) -> None:
    """A scheduled run that plans at that moment."""
    platform = world.process()
    assert isinstance(platform.ledger, MemoryLedger)
    plans.plan(replace(platform, ledger=replace(platform.ledger, clock=lambda: now)), "scheduled")


def test_transaction_is_stuck_when_the_last_stable_offset_stands_still_while_records_arrive(world: World) -> None:
    """Whatever the timestamps of its records are: they are the producer's own."""
    catch_up(world)
    world.broker.append_undecided(ORDERS_0, b"{}", timestamp=NOW - timedelta(days=5000))
    world.produce(ORDERS_0, 4)
    assert state_of(world, NOW) is PipelineState.CAUGHT_UP
    plan_at(world, NOW)
    world.produce(ORDERS_0, 4)
    plan_at(world, NOW + STUCK_AFTER)
    assert state_of(world, NOW + STUCK_AFTER) is PipelineState.CAUGHT_UP
    assert state_of(world, NOW + STUCK_AFTER + timedelta(seconds=1)) is PipelineState.STUCK


def test_transactions_that_follow_each_other_are_not_stuck(world: World) -> None:
    catch_up(world)
    for hour in range(3):
        world.broker.append_undecided(ORDERS_0, b"{}")
        plan_at(world, NOW + timedelta(hours=hour))
        assert state_of(world, NOW + timedelta(hours=hour, minutes=1)) is PipelineState.CAUGHT_UP
        world.broker.abort(ORDERS_0)
        run_batch.run_once(world.process(), "between")
    assert {each.held_back_at for each in world.process().ledger.load_positions("orders_copy")} == {None}


def health(partition: TopicPartition, **facts: object) -> PartitionHealth:
    given = {
        "next_offset": 5, "end": 10, "high_watermark": 10, "oldest_unread_at": None, "expires_at": None, **facts,
    }  # fmt: skip
    return PartitionHealth(partition, **given)  # type: ignore[arg-type]


def test_the_first_partition_to_expire_and_the_oldest_unread_record_are_found() -> None:
    soon, later = NOW + timedelta(hours=3, minutes=12), NOW + timedelta(days=2)
    threats = find_threats(
        [
            health(ORDERS_0, oldest_unread_at=NOW - timedelta(days=5), expires_at=later),
            health(ORDERS_1, oldest_unread_at=NOW - timedelta(days=1), expires_at=soon),
        ],
        (),
        NOW,
    )
    assert threats.unread_records == 10
    assert threats.oldest_unread is not None
    assert threats.oldest_unread.partition == ORDERS_0
    assert describe_threats(threats, NOW) == ["orders[1]: the oldest unread record may expire in 3 h 12 min"]
    assert describe_threats(threats, later) == ["orders[1]: the oldest unread record may expire at any moment"]


def test_stuck_transaction_is_described_with_the_command_that_ends_it() -> None:
    since = NOW - timedelta(hours=2)
    position = Position(ORDERS_1, 0, 5, TopicIdentity("cluster", "topic"), held_back_at=10, held_back_since=since)
    threats = find_threats([health(ORDERS_1, high_watermark=1210)], [position], NOW)
    (line,) = describe_threats(threats, NOW)
    assert line.startswith("orders[1]: an open transaction holds back 1,200 offsets, for 2 h at least. It is stuck: ")
    assert "abort --topic orders --partition 1 --start-offset 10" in line


def test_nothing_threatens_a_pipeline_that_has_caught_up() -> None:
    threats = find_threats([health(ORDERS_0, next_offset=10)], (), NOW)
    assert describe_threats(threats, NOW) == []
    assert (threats.unread_records, threats.transactions) == (0, ())


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (725, "12 min 5 s"), (273_600, "3 d 4 h"), (86_400, "1 d")]
)
def test_durations_are_told_in_their_two_largest_units(seconds: int, text: str) -> None:
    assert describe_duration(timedelta(seconds=seconds)) == text
