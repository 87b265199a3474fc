"""Records in quarantine are tried again from the bytes kept there: exactly those, and the balance stays closed (I7)."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.decisions import drop_quarantined
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Batch, Decided, Decision, Lane, QuarantinedRecord, RecordOrigin
from batchledger.model.errors import ReplayRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, intersect, merge_ranges
from batchledger.planning.replay import (
    BYTES_AT_ONCE,
    RANGES_AT_ONCE,
    Quarantined,
    Replay,
    check_portions,
    plan_quarantined,
    split_quarantined,
)
from tests.contract.decided import count_dropped
from tests.fakes.crash import SINKS, CrashOnce, SimulatedCrashError, sinks_and_replay_crashes
from tests.fakes.database import Coordinate, coordinate_of
from tests.fakes.foreign_sink import store_of
from tests.fakes.history import prove
from tests.fakes.source import Record, to_moment
from tests.fakes.world import PIPELINE, World, catch_up

ORDERS_0 = TopicPartition("orders", 0)
ANA = Decision("ana@example", "the schema was wrong")
POISON = (2, 3, 7)


@pytest.fixture(params=SINKS)
def world(request: pytest.FixtureRequest) -> World:
    """Ten records, three of which did not decode when they were read; one of these never will."""
    world = World(foreign=store_of(request.param))
    world.broker.create_topic("orders", 1)
    for offset in range(10):
        world.broker.append(ORDERS_0, b"{" if offset in POISON else b'{"message_id": "%d"}' % offset)
    catch_up(world)
    return world


def mend(world: World) -> None:
    """Let the records decode that did not; quarantine has kept what a better schema understands."""
    with world.database.transaction() as tables:
        for key, row in tables.quarantine.items():
            if key[2] != 7:
                tables.quarantine[key] = {**row, "value": b'{"message_id": "mended"}'}


def replay_all(platform: Platform, run: str = "again") -> Batch:
    records = platform.ledger.find_quarantined(PIPELINE, None)
    (portion,) = split_quarantined(records)
    batch = plans.plan_replay(platform, Replay(portion), run, ANA, run)
    assert batch is not None
    return run_batch.take_through(platform, batch.batch_id, run)


def rows(world: World) -> list[Coordinate]:
    return sorted(coordinate_of(row) for row in world.sink.read_target())


def quarantined(world: World) -> list[int]:
    return [each.offset for each in world.process().ledger.find_quarantined(PIPELINE, None)]


def assert_proved(world: World) -> None:
    assert prove(world.sink, PIPELINE).findings == ()


def test_records_that_decode_now_move_to_the_target_and_the_others_stay(world: World) -> None:
    mend(world)
    batch = replay_all(world.process())
    assert [str(each) for each in batch.ranges] == ["orders[0] 2..4", "orders[0] 7..8"]
    assert batch.origin is RecordOrigin.QUARANTINE
    assert rows(world) == [(ORDERS_0, offset) for offset in range(10) if offset != 7]
    assert quarantined(world) == [7]
    assert world.database.committed.quarantine[PIPELINE, ORDERS_0, 7]["batch_id"] == batch.batch_id
    assert_proved(world)


def test_records_that_kafka_has_removed_can_be_tried_again(world: World) -> None:
    mend(world)
    world.broker.partitions[ORDERS_0].log_start = 10
    replay_all(world.process())
    assert quarantined(world) == [7]
    assert_proved(world)


@pytest.mark.parametrize(("world", "point"), sinks_and_replay_crashes(), indirect=["world"])
def test_crash_at_any_point_leaves_each_record_in_one_place(world: World, point: str) -> None:
    mend(world)
    with pytest.raises(SimulatedCrashError):
        replay_all(world.process(CrashOnce(point)))
    if point == "sink_committed":
        # Until the ledger has confirmed what the sink shows already.
        replay_all(world.process())
    assert sorted([*(offset for _, offset in rows(world)), *quarantined(world)]) == list(range(10))
    assert_proved(world)


def test_record_that_left_quarantine_after_the_plan_is_not_read_as_something_else(world: World) -> None:
    platform = world.process()
    asked = Replay(Quarantined((OffsetRange(ORDERS_0, 2, 4),)))
    batch = plans.plan_replay(platform, asked, "again", ANA, "again")
    assert batch is not None
    platform.decisions.drop_quarantined(PIPELINE, [OffsetRange(ORDERS_0, 3, 4)], ANA)
    with pytest.raises(ReplayRefusedError, match=r"orders\[0\] 3..4 left quarantine"):
        run_batch.take_through(platform, batch.batch_id, "again")
    assert quarantined(world) == [2, 7]


def test_record_that_is_dropped_after_it_was_staged_does_not_come_back(world: World) -> None:
    mend(world)
    platform = world.process()
    asked = Replay(Quarantined((OffsetRange(ORDERS_0, 2, 4),)))
    batch = plans.plan_replay(platform, asked, "again", ANA, "again")
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, "again")
    run_batch.audit(platform, batch.batch_id, "again")
    platform.decisions.drop_quarantined(PIPELINE, [OffsetRange(ORDERS_0, 3, 4)], ANA)
    before = rows(world)
    with pytest.raises(ReplayRefusedError, match="left quarantine") as refused:
        run_batch.publish(platform, batch.batch_id, "again")
    assert refused.value.ranges == (OffsetRange(ORDERS_0, 3, 4),)
    assert rows(world) == before
    assert quarantined(world) == [2, 7]
    assert_proved(world)
    replay_all(world.process(), "once more")
    assert (ORDERS_0, 3) not in rows(world)
    assert_proved(world)


def test_only_what_is_in_quarantine_is_replayed_of_the_ranges(world: World) -> None:
    asked = Replay(Quarantined((OffsetRange(ORDERS_0, 0, 4),)))
    assert [str(each) for each in plans.preview_replay(world.process(), asked).ranges] == ["orders[0] 2..4"]
    nothing = Replay(Quarantined((OffsetRange(ORDERS_0, 4, 7),)))
    assert plans.plan_replay(world.process(), nothing, "again", ANA, "again") is None


def test_dry_run_of_quarantine_says_how_many_would_become_rows(world: World) -> None:
    mend(world)
    (portion,) = split_quarantined(world.process().ledger.find_quarantined(PIPELINE, None))
    found = dry_run_replay(world.process(), Replay(portion), "look", ANA)
    assert found is not None
    assert found.comparison is not None
    assert (found.comparison.added, found.comparison.removed) == (2, 0)
    assert quarantined(world) == list(POISON)


def test_dropped_records_are_gone_and_the_proof_knows_that_it_was_on_purpose(world: World) -> None:
    dropped = drop_quarantined(world.process(), [OffsetRange(ORDERS_0, 0, 4)], ANA)
    assert count_dropped(dropped) == 2
    assert drop_quarantined(world.process(), [OffsetRange(ORDERS_0, 0, 4)], ANA) == Decided(None, is_new=False)
    assert quarantined(world) == [7]
    assert prove(world.sink, PIPELINE).quarantine_dropped == 2
    assert_proved(world)
    everything = Replay((OffsetRange(ORDERS_0, 0, 10),))
    batch = plans.plan_replay(world.process(), everything, "again", ANA, "again")
    assert batch is not None
    run_batch.take_through(world.process(), batch.batch_id, "again")
    assert quarantined(world) == list(POISON)
    assert prove(world.sink, PIPELINE).quarantine_dropped == 0
    assert_proved(world)


def test_tombstones_and_keys_come_back_as_they_were_read() -> None:
    world = World()
    world.broker.create_topic("orders", 1)
    world.broker.partitions[ORDERS_0].log.append(Record(None, datetime(2026, 1, 2, tzinfo=UTC), b"k"))
    catch_up(world)
    batch = replay_all(world.process())
    (kept,) = world.process().evidence.read_quarantine(batch).to_pylist()
    assert (kept["key"], kept["value"], to_moment(kept["timestamp_ms"])) == (
        b"k",
        None,
        datetime(2026, 1, 2, tzinfo=UTC),
    )


def test_replay_of_quarantine_leaves_no_lag() -> None:
    plan = plan_quarantined([QuarantinedRecord(ORDERS_0, 2, 10)])
    assert (plan.ranges, plan.lag_left_records, plan.lane) == ((OffsetRange(ORDERS_0, 2, 3),), 0, Lane.REPLAY)


def test_portions_hold_all_records_once_within_their_bounds() -> None:
    scattered = [QuarantinedRecord(ORDERS_0, 2 * number, 10) for number in range(RANGES_AT_ONCE + 1)]
    assert [len(each.ranges) for each in split_quarantined(scattered)] == [RANGES_AT_ONCE, 1]
    burst = [QuarantinedRecord(ORDERS_0, number, 10) for number in range(RANGES_AT_ONCE * 3)]
    assert [each.ranges for each in split_quarantined(burst)] == [(OffsetRange(ORDERS_0, 0, RANGES_AT_ONCE * 3),)]
    large = [QuarantinedRecord(ORDERS_0, number, BYTES_AT_ONCE // 2) for number in range(5)]
    assert [count_offsets(each.ranges) for each in split_quarantined(large)] == [2, 2, 1]
    one = [QuarantinedRecord(ORDERS_0, 0, BYTES_AT_ONCE * 2), QuarantinedRecord(TopicPartition("orders", 1), 1, 1)]
    assert [count_offsets(each.ranges) for each in split_quarantined(one)] == [1, 1]
    assert split_quarantined([]) == []


def test_more_than_one_batch_can_hold_is_refused_by_a_run_and_a_dry_run_with_the_ranges_to_begin_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchledger.planning.replay.RANGES_AT_ONCE", 1)
    batches = dict(world.database.committed.batches)
    asked = Replay(Quarantined((OffsetRange(ORDERS_0, 0, 10),)))
    for ask in (
        lambda: plans.plan_replay(world.process(), asked, "again", ANA, "again"),
        lambda: dry_run_replay(world.process(), asked, "look", ANA),
    ):
        with pytest.raises(ReplayRefusedError, match="3 records would be 2 batches") as refused:
            ask()
        assert refused.value.ranges == (OffsetRange(ORDERS_0, 2, 4),)
        assert "orders[0] 2..4\n" in str(refused.value)
    assert world.database.committed.batches == batches
    first = Replay(Quarantined(refused.value.ranges))
    batch = plans.plan_replay(world.process(), first, "again", ANA, "again")
    assert batch is not None
    assert [str(each) for each in batch.ranges] == ["orders[0] 2..4"]


@given(
    st.sets(st.tuples(st.integers(0, 1), st.integers(0, 30)), max_size=30),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_ranges_to_begin_with_hold_exactly_the_first_portion_and_nothing_that_was_not_asked_for(
    places: set[tuple[int, int]], frames: list[tuple[int, int, int]], at_once: int
) -> None:
    kept = [QuarantinedRecord(TopicPartition("orders", number), offset, 1) for number, offset in sorted(places)]
    partitions = [(TopicPartition("orders", number), start, length) for number, start, length in frames]
    asked = Quarantined(tuple(merge_ranges(OffsetRange(each, start, start + size) for each, start, size in partitions)))

    def find(ranges: Sequence[OffsetRange]) -> list[QuarantinedRecord]:
        return [each for each in kept if intersect(ranges, [each.range])]

    with pytest.MonkeyPatch.context() as smaller:
        smaller.setattr("batchledger.planning.replay.RANGES_AT_ONCE", at_once)
        portions = split_quarantined(find(asked.ranges))
        if len(portions) <= 1:
            check_portions("orders", asked, find(asked.ranges))
            return
        with pytest.raises(ReplayRefusedError) as refused:
            check_portions("orders", asked, find(asked.ranges))
        told = refused.value.ranges
        assert find_gaps(asked.ranges, within=told) == []
        assert split_quarantined(find(told)) == portions[:1]
        check_portions("orders", Quarantined(told), find(told))
    assert all(str(each) in str(refused.value) for each in told)
