"""A replay replaces exactly the rows of its ranges, whatever dies, repeats or races, and never moves the position."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, BatchState, Decision, DeliveryMode, Lane
from batchledger.model.claims import Withdrawn
from batchledger.model.errors import ExpiredError, FencedError, PositionConflictError, RowsLostError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Limits, StartPolicy
from batchledger.planning.replay import Interval, Replay, Window
from batchledger.ports import RowsToPublish
from tests.fakes.crash import (
    SHARED,
    SINKS,
    CrashOnce,
    Interrupt,
    PassedPoints,
    SimulatedCrashError,
    replay_crash_points,
    sinks_and_replay_crashes,
)
from tests.fakes.database import Coordinate
from tests.fakes.foreign_sink import store_of
from tests.fakes.history import prove
from tests.fakes.ledger import CommitFault, MemoryLedger
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemorySourceLog
from tests.fakes.work import Rows
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ANA = Decision("ana@example", "the transform was wrong")
MIDDLE = Replay((OffsetRange(ORDERS_0, 3, 7),))
EVERYTHING = Replay((OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5)))


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    """Two partitions with ten and five records, all of them published by several batches."""
    world = World(foreign=store_of(request.param), limits=Limits(max_records=6))
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    catch_up(world)
    return world


class ForgetfulSink(MemorySink):
    """Leaves the rows that it should withdraw."""

    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """Claim that they are gone."""
        return Withdrawn([len(each.range) for each in rows.replaced])


def plan(platform: Platform, what: Replay, run: str = "again", key: str | None = None) -> Batch:
    batch = plans.plan_replay(platform, what, run, ANA, key or run)
    assert batch is not None
    return batch


def publish(platform: Platform, what: Replay, run: str = "again") -> Batch:
    """Take a replay through its whole life."""
    batch = plan(platform, what, run)
    run_batch.stage(platform, batch.batch_id, run)
    run_batch.audit(platform, batch.batch_id, run)
    return run_batch.publish(platform, batch.batch_id, run)


def owners(world: World) -> dict[Coordinate, int]:
    """Which batch wrote the row of each coordinate."""
    rows = sink_of(world).read_target()
    return {(TopicPartition(row["_topic"], row["_partition"]), row["_offset"]): row["_batch_id"] for row in rows}


def sink_of(world: World) -> MemorySink:
    return world.sink


def assert_proved(world: World) -> None:
    assert prove(sink_of(world), PIPELINE).findings == ()


def test_replay_replaces_exactly_the_rows_of_its_ranges_and_leaves_the_position(world: World) -> None:
    """S125, S129: the first offset named is the first one replaced; the live position stays."""
    before, positions = owners(world), world.process().ledger.load_positions(PIPELINE)
    batch = publish(world.process(), MIDDLE)
    after = owners(world)
    replaced = {(ORDERS_0, offset) for offset in range(3, 7)}
    assert (batch.state, batch.lane) == (BatchState.PUBLISHED, Lane.REPLAY)
    assert {at: owner for at, owner in after.items() if at not in replaced} == {
        at: owner for at, owner in before.items() if at not in replaced
    }
    assert {after[at] for at in replaced} == {batch.batch_id}
    assert world.process().ledger.load_positions(PIPELINE) == positions
    assert_exactly_once(world)
    assert_proved(world)


def test_log_of_a_replay_says_what_would_differ_before_it_is_published(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def drop_odd(rows: Rows) -> Rows:
        return [row for row in rows if row["_offset"] % 2 == 0]

    platform = world.process(alter=drop_odd, has_transform=True)
    batch = plan(platform, MIDDLE)
    with caplog.at_level("INFO"):
        run_batch.stage(platform, batch.batch_id, "again")
        run_batch.audit(platform, batch.batch_id, "again")
    assert "compared with the target: the rows would differ: 0 added, 2 removed, 0 changed, 2 unchanged" in caplog.text
    assert_exactly_once(world)


def test_i8_running_a_replay_twice_changes_nothing_but_who_wrote_it(world: World) -> None:
    publish(world.process(), MIDDLE)
    once = [{**row, "_batch_id": None} for row in sink_of(world).read_target()]
    publish(world.process(), MIDDLE, "once more")
    twice = [{**row, "_batch_id": None} for row in sink_of(world).read_target()]
    assert sorted(once, key=str) == sorted(twice, key=str)
    assert_proved(world)


def test_new_transform_replaces_what_the_old_one_made(world: World) -> None:
    def drop_odd(rows: Rows) -> Rows:
        return [row for row in rows if row["_offset"] % 2 == 0]

    batch = publish(world.process(alter=drop_odd, has_transform=True), EVERYTHING)
    assert {offset % 2 for _, offset in owners(world)} == {0}
    assert set(owners(world).values()) == {batch.batch_id}
    assert_proved(world)


@pytest.mark.parametrize(("sink", "point"), sinks_and_replay_crashes())
def test_crash_at_any_point_of_a_replay_leaves_old_rows_or_new_ones(sink: str, point: str) -> None:
    world = World(limits=Limits(max_records=6), foreign=store_of(sink))
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    catch_up(world)
    before = owners(world)
    with pytest.raises(SimulatedCrashError):
        publish(world.process(CrashOnce(point)), EVERYTHING)
    assert owners(world) == before or set(owners(world).values()) == {max(world.database.committed.batches)}
    assert_exactly_once(world)
    batch = publish(world.process(), EVERYTHING)
    assert set(owners(world).values()) == {batch.batch_id}
    assert len(world.database.committed.batches) == batch.batch_id, "the retry found the replay that was stored"
    assert_exactly_once(world)
    assert_proved(world)


def test_replay_passes_every_crash_point_in_order(world: World) -> None:
    passed = PassedPoints()
    publish(world.process(passed), MIDDLE)
    assert passed.points == replay_crash_points(is_foreign=world.foreign is not None)


def test_run_that_is_asked_anew_leaves_no_staging_of_what_it_was_asked_before(world: World) -> None:
    before = plan(world.process(), MIDDLE, key="first")
    run_batch.stage(world.process(), before.batch_id, "again")
    assert world.database.committed.staging != {}
    after = plan(world.process(), EVERYTHING, key="second")
    assert (world.database.committed.staging, world.database.committed.evidence) == ({}, {})
    run_batch.take_through(world.process(), after.batch_id, "again")
    assert_exactly_once(world)
    assert_proved(world)


@pytest.mark.parametrize("delivery", list(DeliveryMode))
def test_replay_is_one_transaction_in_every_delivery_mode(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        publish(world.process(CrashOnce("rows_moved")), MIDDLE)
    assert_exactly_once(world)
    publish(world.process(), MIDDLE)
    assert_exactly_once(world)


def test_history_before_the_start_of_the_pipeline_can_be_published() -> None:
    world = World(start=StartPolicy.LATEST)
    world.broker.create_topic("orders", 1)
    world.produce(ORDERS_0, 10)
    assert run_batch.run_once(world.process(), "first") is None
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 0, 10),)))
    world.produce(ORDERS_0, 5)
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)


def test_replay_may_read_ahead_and_the_live_lane_takes_its_offsets_over_later(world: World) -> None:
    world.produce(ORDERS_0, 8)
    ahead = publish(world.process(), Replay((OffsetRange(ORDERS_0, 8, 18),)))
    assert_exactly_once(world)
    assert_proved(world)
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)
    assert {offset for (_, offset), owner in owners(world).items() if owner == ahead.batch_id} == {8, 9}


@pytest.mark.parametrize("delivery", [DeliveryMode.AT_LEAST_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_live_batch_that_takes_over_from_a_replay_does_so_in_one_commit(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    world.produce(ORDERS_0, 4)
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 10, 14),)))
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("before_commit")), "live")
    assert_exactly_once(world)
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)


def test_rows_of_at_most_once_are_not_written_over_a_replay_that_came_between_its_commits(world: World) -> None:
    world.delivery = DeliveryMode.AT_MOST_ONCE
    world.produce(ORDERS_0, 4)
    between = Interrupt("between_commits", lambda: publish(world.process(), Replay((OffsetRange(ORDERS_0, 10, 14),))))
    with pytest.raises(RowsLostError, match="a replay has published") as lost:
        run_batch.run_once(world.process(between), "live")
    assert lost.value.message.startswith("batch 4 of orders_copy has moved the position")
    assert isinstance(lost.value.__cause__, FencedError)
    assert (lost.value.batch_id, lost.value.__cause__.batch_id) == (4, 4)
    assert_exactly_once(world)
    assert_proved(world)


def test_replay_brings_rows_back_that_at_most_once_has_lost(world: World) -> None:
    world.delivery = DeliveryMode.AT_MOST_ONCE
    world.produce(ORDERS_0, 4)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "live")
    assert [each.invariant for each in prove(sink_of(world), PIPELINE).findings] == ["I3"]
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 10, 14),)))
    assert_exactly_once(world)
    assert_proved(world)


def test_replay_repairs_rows_that_at_least_once_has_repeated(world: World) -> None:
    world.delivery = DeliveryMode.AT_LEAST_ONCE
    world.produce(ORDERS_0, 4)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "live")
    catch_up(world)
    assert max(world.times_published().values()) == 2
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 10, 14),)))
    assert_exactly_once(world)
    assert_proved(world)


@pytest.mark.parametrize("until", [14, 12], ids=["all of it", "some of it"])
def test_replay_between_the_two_commits_of_at_least_once_costs_no_row(world: World, until: int) -> None:
    """The rows of the first commit are gone when the second one takes the offsets over."""
    world.delivery = DeliveryMode.AT_LEAST_ONCE
    world.produce(ORDERS_0, 4)
    replay = Replay((OffsetRange(ORDERS_0, 9, until),))
    run_batch.run_once(world.process(Interrupt("between_commits", lambda: publish(world.process(), replay))), "live")
    assert_exactly_once(world)
    assert_proved(world)


@pytest.mark.parametrize("until", [14, 12], ids=["all of it", "some of it"])
def test_retry_of_at_least_once_that_takes_over_from_a_replay_writes_each_row_once(world: World, until: int) -> None:
    world.delivery = DeliveryMode.AT_LEAST_ONCE
    world.produce(ORDERS_0, 4)
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(CrashOnce("between_commits")), "live")
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 9, until),)))
    catch_up(world)
    assert_exactly_once(world)
    assert_proved(world)


def test_two_replays_of_the_same_offsets_race_and_one_of_them_wins_whole(world: World) -> None:
    first, second = plan(world.process(), EVERYTHING, "first"), plan(world.process(), EVERYTHING, "second")
    for batch, run in ((first, "first"), (second, "second")):
        run_batch.stage(world.process(), batch.batch_id, run)
        run_batch.audit(world.process(), batch.batch_id, run)
    run_batch.publish(world.process(), second.batch_id, "second")
    run_batch.publish(world.process(), first.batch_id, "first")
    assert set(owners(world).values()) == {first.batch_id}
    assert_exactly_once(world)
    assert_proved(world)


def test_live_batch_published_while_a_replay_of_its_offsets_is_staged_is_replaced_whole(world: World) -> None:
    world.produce(ORDERS_0, 4)
    replay = plan(world.process(), Replay((OffsetRange(ORDERS_0, 9, 14),)))
    run_batch.stage(world.process(), replay.batch_id, "again")
    run_batch.audit(world.process(), replay.batch_id, "again")
    catch_up(world)
    run_batch.publish(world.process(), replay.batch_id, "again")
    assert_exactly_once(world)
    assert_proved(world)


def test_i2_live_batches_still_cannot_overlap(world: World) -> None:
    world.produce(ORDERS_0, 4)
    live = stage_and_audit(world.process(), "live")
    stored = world.database.committed.batches[1]
    overlapping = replace(stored, held=(*stored.held, OffsetRange(ORDERS_0, 10, 11)))
    world.database.committed.batches[1] = replace(
        overlapping, batch=replace(stored.batch, ranges=(*stored.batch.ranges, OffsetRange(ORDERS_0, 10, 11)))
    )
    with pytest.raises(PositionConflictError, match="overlaps"):
        run_batch.publish(world.process(), live.batch_id, "live")


@pytest.mark.parametrize("world", [SHARED], indirect=True)
def test_negative_control_a_replay_that_does_not_withdraw_repeats_rows_and_the_proof_says_so(world: World) -> None:
    platform = world.process()
    sink = ForgetfulSink(world.database, "orders")
    publish(replace(platform, sink=sink), MIDDLE)
    assert max(world.times_published().values()) == 2
    found = prove(sink_of(world), PIPELINE).findings
    assert {each.invariant for each in found} == {"target"}


def test_retried_plan_step_finds_its_replay_and_a_run_that_is_asked_anew_gives_the_old_one_up(world: World) -> None:
    first = plan(world.process(), MIDDLE, key="again+0")
    assert plan(world.process(), EVERYTHING, key="again+0") == first
    run_batch.stage(world.process(), first.batch_id, "again")
    second = plan(world.process(), EVERYTHING, key="again+1")
    assert second.batch_id != first.batch_id
    with pytest.raises(FencedError, match="discarded"):
        run_batch.audit(world.process(), first.batch_id, "again")


def test_replay_that_asks_for_nothing_is_no_batch(world: World) -> None:
    long_ago = datetime(1999, 1, 1, tzinfo=UTC)
    window = Window(long_ago, long_ago + timedelta(days=1))
    assert plans.plan_replay(world.process(), Replay(window), "again", ANA, "again") is None


def test_intervals_of_a_backfill_publish_each_record_once_in_any_order() -> None:
    world = World(start=StartPolicy.LATEST)
    world.broker.create_topic("orders", 1)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    for hours in (1, 30, 5, 26, 50, 49, 3, 71):
        world.broker.append(ORDERS_0, b'{"message_id": "x"}', timestamp=start + timedelta(hours=hours))
    run_batch.run_once(world.process(), "first")
    days = [start + timedelta(days=number) for number in range(4)]
    for number, (since, until) in enumerate(reversed(list(pairwise(days)))):
        publish(world.process(), Replay(Interval(since, until)), f"backfill-{number}")
    assert_exactly_once(world)
    assert_proved(world)


def test_lost_and_unread_offsets_elsewhere_are_no_obstacle_to_a_replay(world: World) -> None:
    world.produce(ORDERS_1, 5)
    world.broker.expire(ORDERS_1, 8)
    publish(world.process(), MIDDLE)


def test_expired_offsets_stop_a_replay_that_was_planned_before(world: World) -> None:
    batch = plan(world.process(), MIDDLE)
    world.broker.expire(ORDERS_0, 5)
    with pytest.raises(ExpiredError, match=r"removed orders\[0\] 3\.\.5"):
        run_batch.stage(world.process(), batch.batch_id, "again")
    assert_proved(world)


@dataclass(frozen=True)
class ExpiringSource(MemorySourceLog):
    """Retention removes everything below 5 while a moment is looked up."""

    is_found_before: bool = False

    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """Look, before it is gone or after."""
        before = super().find_offsets(partitions, at)
        self.broker.expire(ORDERS_0, 5)
        return before if self.is_found_before else super().find_offsets(partitions, at)


@pytest.mark.parametrize("is_found_before", [False, True])
def test_expiry_while_a_window_is_looked_up_is_refused_and_on_request_only_the_rest_is_taken(
    is_found_before: bool,
) -> None:
    """Four hours from the third record on: two of its records go in the middle of it."""
    world = World()
    world.broker.create_topic("orders", 1)
    start = datetime(2026, 11, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=number) for number in range(10)]
    for moment in hours:
        world.broker.append(ORDERS_0, b'{"message_id": "x"}', timestamp=moment)
    source = ExpiringSource(world.broker, is_found_before)
    platform = replace(world.process(), source=source)
    window = Window(hours[3], hours[7])
    with pytest.raises(ExpiredError, match="may belong to the window") as refused:
        plans.preview_replay(platform, Replay(window))
    assert refused.value.ranges == (OffsetRange(ORDERS_0, 0, 5),)
    world.broker.expire(ORDERS_0, 0)
    planned = plans.preview_replay(platform, Replay(window, allow_expired=True))
    assert planned.ranges == (OffsetRange(ORDERS_0, 5, 7),)
    assert planned.expired == (OffsetRange(ORDERS_0, 0, 5),)


def test_allowed_expiry_keeps_the_rows_that_cannot_be_read_again(world: World) -> None:
    published = owners(world)
    world.broker.expire(ORDERS_0, 5)
    with pytest.raises(ExpiredError):
        plans.plan_replay(world.process(), MIDDLE, "again", ANA, "again")
    publish(world.process(), replace(MIDDLE, allow_expired=True))
    after = owners(world)
    assert {at for at in published if after[at] != published[at]} == {(ORDERS_0, 5), (ORDERS_0, 6)}
    assert set(after) == set(published)
    assert_proved(world)


def test_replay_of_what_has_expired_altogether_is_no_batch_and_the_ledger_keeps_who_asked(world: World) -> None:
    world.broker.expire(ORDERS_0, 7)
    batches = dict(world.database.committed.batches)
    for _ in range(2):
        allowed = replace(MIDDLE, allow_expired=True)
        assert plans.plan_replay(world.process(), allowed, "again", ANA, "request-1") is None
    assert world.database.committed.batches == batches
    (noted,) = world.database.committed.decisions.values()
    assert (noted.kind, noted.batch_id, noted.decided_by, noted.reason) == ("replay", None, ANA.decided_by, ANA.reason)
    assert noted.after == {"expired": ["orders[0] 3..7"], "request": "request-1"}


def test_lost_reply_of_at_most_once_is_no_loss_when_rows_and_position_went_together(world: World) -> None:
    """A batch that takes offsets over is one commit in every mode."""
    world.delivery = DeliveryMode.AT_MOST_ONCE
    world.produce(ORDERS_0, 4)
    publish(world.process(), Replay((OffsetRange(ORDERS_0, 10, 14),)))
    ledger = MemoryLedger(world.database, commit_fault=CommitFault.AFTER)
    batch = run_batch.run_once(replace(world.process(), ledger=ledger), "live")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert not world.database.committed.staging
    assert_exactly_once(world)
    assert_proved(world)


def test_replay_of_a_topic_that_was_created_anew_is_refused(world: World) -> None:
    world.broker.delete_topic("orders")
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    with pytest.raises(TopicChangedError):
        plans.plan_replay(world.process(), MIDDLE, "again", ANA, "again")
