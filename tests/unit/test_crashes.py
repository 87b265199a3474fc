"""A crash at every named point, in every mode: the next try finds out what happened, and does what is left."""

from collections import Counter
from dataclasses import replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import BatchState, Decision, DeliveryMode
from batchledger.model.errors import OutcomeUnknownError, RowsLostError, StagingLostError, TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Replay
from tests.fakes.crash import (
    BEFORE_PUBLISHING,
    CrashOnce,
    Interrupt,
    PassedPoints,
    SimulatedCrashError,
    copies_after_crash,
    crash_points,
    sinks_and_crashes,
)
from tests.fakes.ledger import CommitFault, MemoryLedger
from tests.fakes.world import ORDERS_0, ORDERS_1, PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

EXACTLY_ONCE = [(sink, point) for sink, delivery, point in sinks_and_crashes() if delivery is DeliveryMode.EXACTLY_ONCE]
# Who goes on matters to who may begin, which no mode changes.
CRASHES_AND_RUNS = [
    (*crash, run)
    for crash in sinks_and_crashes()
    for run in ("the same run", "another run")
    if run == "another run" or DeliveryMode.EXACTLY_ONCE in crash
]


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_every_crash_point_is_passed_once_and_in_order(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    passed = PassedPoints()
    run_batch.run_once(world.process(crash=passed), "run-1")
    assert passed.points == crash_points(delivery, is_foreign=world.foreign is not None)


@pytest.mark.parametrize("delivery", [DeliveryMode.AT_LEAST_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_up_to_its_publication_a_batch_is_the_same_in_every_mode_and_for_either_sink(
    world: World, delivery: DeliveryMode
) -> None:
    """Therefore a crash before it is not played for each of them: see ``sinks_and_crashes``."""
    usual = World(broker=world.broker)
    world.delivery = delivery
    points = PassedPoints(), PassedPoints()
    for each, passed in zip((usual, world), points, strict=True):
        stage_and_audit(each.process(crash=passed), "run-1")
    assert points[0].points == points[1].points == list(BEFORE_PUBLISHING)
    assert look_at_audited(world) == look_at_audited(usual)


def look_at_audited(world: World) -> tuple[object, ...]:
    """What is stored of the first batch, apart from its mode and the time of day."""
    tables = world.database.committed
    stored = tables.batches[1]
    assert stored.batch.state is BatchState.AUDITED
    batch = replace(stored.batch, delivery=DeliveryMode.EXACTLY_ONCE, planned_at=None)
    rest = (tables.positions, tables.checks, tables.evidence, tables.staging, tables.targets)
    return replace(stored, batch=batch, opened_at=None), *rest


@pytest.mark.parametrize(("world", "delivery", "point", "run"), CRASHES_AND_RUNS, indirect=["world"])
def test_crash_leaves_what_the_delivery_mode_allows_and_nothing_else(
    world: World, delivery: DeliveryMode, point: str, run: str
) -> None:
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "the same run")
    catch_up(world, run)
    copies = copies_after_crash(delivery, point, is_foreign=world.foreign is not None)
    assert world.times_published() == Counter(dict.fromkeys(world.records(), copies) if copies else {})
    world.produce(ORDERS_0, 3)
    catch_up(world, run)
    assert {world.times_published()[ORDERS_0, offset] for offset in (10, 11, 12)} == {1}


def test_at_most_once_says_when_rows_are_lost(world: World) -> None:
    """The target refuses the rows when the position has moved already."""
    world.delivery = DeliveryMode.AT_MOST_ONCE

    def replace_target() -> None:
        with world.database.transaction() as tables:
            tables.staging = {}

    with pytest.raises(RowsLostError, match="rows may be lost, as at_most_once") as lost:
        run_batch.run_once(world.process(crash=Interrupt("between_commits", replace_target)), "run-1")
    assert lost.value.batch_id == 1
    assert world.times_published() == Counter()
    assert run_batch.run_once(world.process(), "run-2") is None


def test_s104_at_most_once_never_writes_rows_after_a_first_commit_of_unknown_outcome(world: World) -> None:
    world.delivery = DeliveryMode.AT_MOST_ONCE
    platform = world.process()
    ledger = MemoryLedger(world.database, commit_fault=CommitFault.AFTER)
    with pytest.raises(RowsLostError):
        run_batch.run_once(replace(platform, ledger=ledger), "run-1")
    catch_up(world)
    assert world.times_published() == Counter()


def test_published_batch_leaves_no_staging_and_no_evidence(world: World) -> None:
    run_batch.run_once(world.process(), "run-1")
    assert world.database.committed.staging == {}
    assert world.database.committed.evidence == {}


@pytest.mark.parametrize(("world", "point"), EXACTLY_ONCE, indirect=["world"])
def test_i5_s17_retry_after_a_crash_reads_the_same_ranges_although_the_log_grew(world: World, point: str) -> None:
    """S8."""
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    world.produce(ORDERS_0, 7)
    world.broker.add_partition("orders")
    world.produce(TopicPartition("orders", 2), 3)
    catch_up(world, "run-1")
    first, *later = (stored.batch.ranges for stored in world.database.committed.batches.values())
    assert first == (OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5))
    assert later == [(OffsetRange(ORDERS_0, 10, 17), OffsetRange(TopicPartition("orders", 2), 0, 3))]
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["positions_moved", "rows_moved", "before_commit"])
def test_i3_crash_inside_the_publication_leaves_neither_rows_nor_position(world: World, point: str) -> None:
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    assert world.times_published() == Counter()
    assert {each.next_offset for each in world.process().ledger.load_positions(PIPELINE)} == {0}
    state = BatchState.AUDITED if world.foreign is None else BatchState.COMMITTING
    assert world.process().ledger.load_batch(1).state is state


@pytest.mark.parametrize("point", ["positions_moved", "rows_moved", "before_commit"])
def test_i3_reader_inside_the_publication_sees_neither_rows_nor_position(world: World, point: str) -> None:
    seen = []

    def look() -> None:
        positions = world.process().ledger.load_positions(PIPELINE)
        seen.append((world.times_published(), {each.next_offset for each in positions}))

    run_batch.run_once(world.process(crash=Interrupt(point, look)), "run-1")
    assert seen == [(Counter(), {0})]
    assert_exactly_once(world)


def test_crash_after_commit_leaves_the_cleaning_up_to_the_retry(world: World) -> None:
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce("committed")), "run-1")
    assert world.database.committed.staging != {}
    run_batch.publish(world.process(), 1, "run-1")
    assert world.database.committed.staging == {}
    assert_exactly_once(world)


@pytest.mark.parametrize("step", [run_batch.stage, run_batch.audit, run_batch.publish])
def test_s69_every_step_of_a_published_batch_can_be_repeated_by_its_run(world: World, step: object) -> None:
    run_batch.run_once(world.process(), "run-1")
    before = world.times_published()
    batch = step(world.process(), 1, "run-1")  # type: ignore[operator]
    assert batch.state is BatchState.PUBLISHED
    assert world.times_published() == before


def test_i9_connection_lost_after_the_commit_is_found_out_and_ends_well(world: World) -> None:
    """S65, S104."""
    platform = world.process()
    platform = replace(platform, ledger=MemoryLedger(world.database, commit_fault=CommitFault.AFTER))
    batch = run_batch.run_once(platform, "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_i9_s68_connection_lost_before_the_commit_stays_unknown_and_the_retry_publishes_once(world: World) -> None:
    platform = replace(world.process(), ledger=MemoryLedger(world.database, commit_fault=CommitFault.BEFORE))
    with pytest.raises(OutcomeUnknownError) as unknown:
        run_batch.run_once(platform, "run-1")
    assert unknown.value.retryable
    assert world.times_published() == Counter()
    run_batch.publish(world.process(), 1, "run-1")
    assert_exactly_once(world)


def test_at_most_once_tells_the_retry_of_a_killed_publication_that_rows_may_be_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.delivery = DeliveryMode.AT_MOST_ONCE
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce("between_commits")), "run-1")
    run_batch.publish(world.process(), 1, "run-1")
    assert "the rows are lost, as at_most_once allows" in caplog.text


def test_s111_at_most_once_moves_no_position_for_a_target_that_is_another_one(world: World) -> None:
    """What can be known beforehand is not paid for with rows, batch after batch."""
    world.delivery = DeliveryMode.AT_MOST_ONCE
    catch_up(world)
    world.produce(ORDERS_0, 5)
    world.replace_target("another table")
    for run in ("run-1", "run-2"):
        with pytest.raises(TargetChangedError, match="is another one"):
            run_batch.run_once(world.process(), run)
    assert world.database.committed.positions[PIPELINE, ORDERS_0].next_offset == 10


def test_sleeper_of_at_most_once_does_not_write_what_a_replay_has_published_in_between(world: World) -> None:
    """It has moved the position and lost its breath; the rows that a person has published since are all there are."""
    world.delivery = DeliveryMode.AT_MOST_ONCE

    def replay() -> None:
        platform = world.process()
        ranges = platform.ledger.load_batch(1).ranges
        batch = plans.plan_replay(platform, Replay(ranges), "again", Decision("ana@host", "rows are missing"), "key")
        assert batch is not None
        run_batch.take_through(platform, batch.batch_id, "again")

    sleeper = world.process(crash=Interrupt("between_commits", replay))
    with pytest.raises(RowsLostError, match="a replay has published some of its offsets") as lost:
        run_batch.run_once(sleeper, "run-1")
    assert lost.value.batch_id == 1
    assert world.times_published() == Counter(world.records())


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_s113_staging_that_vanished_after_the_audit_moves_no_position_in_any_mode(
    world: World, delivery: DeliveryMode
) -> None:
    world.delivery = delivery
    platform = world.process()
    batch = stage_and_audit(platform, "run-1")
    with world.database.transaction() as tables:
        tables.staging = {key: replace(each, rows_by_task={}) for key, each in tables.staging.items()}
    with pytest.raises(StagingLostError):
        run_batch.publish(platform, batch.batch_id, "run-1")
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize(("delivery", "copies"), [(DeliveryMode.AT_LEAST_ONCE, 2), (DeliveryMode.AT_MOST_ONCE, 1)])
def test_s55_twin_between_the_two_commits_of_a_weaker_mode_costs_no_rows(
    world: World, delivery: DeliveryMode, copies: int
) -> None:
    """A twin of the same step must not take away the staging that the first one is about to read."""
    world.delivery = delivery

    def twin() -> None:
        run_batch.publish(world.process(), 1, "run-1")

    stage_and_audit(world.process(), "run-1")
    run_batch.publish(world.process(crash=Interrupt("between_commits", twin)), 1, "run-1")
    assert world.times_published() == Counter(dict.fromkeys(world.records(), copies))
