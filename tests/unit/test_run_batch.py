"""The order of the steps: whatever dies, repeats or races, every record is in the target exactly once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pytest

from batchledger import plans, run_batch
from batchledger.accounting import HoleEvidence, HolePolicy, IntegrityCheck
from batchledger.batch import BatchState, DeliveryMode, LogState
from batchledger.errors import (
    BatchBlockedError,
    FencedError,
    LossError,
    OutcomeUnknownError,
    PositionConflictError,
    RowsLostError,
    ServiceUnavailableError,
    StagingLostError,
    TopicChangedError,
    UnknownBatchError,
)
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.planning import Limits, StartPolicy
from tests.fakes.crash import (
    CrashOnce,
    Interrupt,
    PassedPoints,
    SimulatedCrashError,
    copies_after_crash,
    crash_points,
)
from tests.fakes.ledger import ALL_PROTECTIONS, CommitFault, MemoryLedger, Protection
from tests.fakes.source import MemoryBroker, MemorySourceLog, Record
from tests.fakes.work import MemoryStager
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit, staged_twice

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
CRASH_POINTS = crash_points(DeliveryMode.EXACTLY_ONCE)
CRASHES = [(delivery, point) for delivery in DeliveryMode for point in crash_points(delivery)]


@pytest.fixture
def world() -> World:
    """Two partitions with ten and five records."""
    world = World()
    world.broker.create_topic("orders", 2)
    world.produce(ORDERS_0, 10)
    world.produce(ORDERS_1, 5)
    return world


def test_one_batch_publishes_every_record_once_and_moves_the_position(world: World) -> None:
    batch = run_batch.run_once(world.process(), "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert batch.ranges == (OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5))
    assert_exactly_once(world)
    assert [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)] == [10, 5]


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_every_crash_point_is_passed_once_and_in_order(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    passed = PassedPoints()
    run_batch.run_once(world.process(crash=passed), "run-1")
    assert passed.points == crash_points(delivery)


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_every_delivery_mode_is_exact_when_nothing_goes_wrong(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize(("delivery", "point"), CRASHES)
@pytest.mark.parametrize("run", ["the same run", "another run"])
def test_crash_leaves_what_the_delivery_mode_allows_and_nothing_else(
    world: World, delivery: DeliveryMode, point: str, run: str
) -> None:
    world.delivery = delivery
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "the same run")
    catch_up(world, run)
    copies = copies_after_crash(delivery, point)
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

    with pytest.raises(RowsLostError, match=r"has moved the position and its rows may be lost, as at_most_once allows"):
        run_batch.run_once(world.process(crash=Interrupt("between_commits", replace_target)), "run-1")
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


def test_nothing_to_do_is_not_a_batch(world: World) -> None:
    run_batch.run_once(world.process(), "run-1")
    assert run_batch.run_once(world.process(), "run-2") is None
    assert len(world.database.committed.batches) == 1


def test_preview_changes_nothing_and_is_what_the_plan_takes(world: World) -> None:
    before = world.database.committed
    preview = plans.preview(world.process())
    assert world.database.committed is before
    planned = plans.plan(world.process(), "run-1")
    assert planned is not None
    assert planned.ranges == preview.ranges


def test_nothing_is_visible_before_publish(world: World) -> None:
    platform = world.process()
    batch = stage_and_audit(platform, "run-1")
    assert batch.state is BatchState.AUDITED
    assert world.times_published() == Counter()
    assert {each.next_offset for each in platform.ledger.load_positions(PIPELINE)} == {0}


def test_published_batch_leaves_no_staging_and_no_evidence(world: World) -> None:
    run_batch.run_once(world.process(), "run-1")
    assert world.database.committed.staging == {}
    assert world.database.committed.evidence == {}


def test_courtesy_offsets_follow_the_position(world: World) -> None:
    run_batch.run_once(world.process(), "run-1")
    assert world.broker.next_offset_by_group == {
        (f"batchledger.{PIPELINE}", ORDERS_0): 10,
        (f"batchledger.{PIPELINE}", ORDERS_1): 5,
    }


def test_broker_that_dies_after_the_commit_does_not_undo_the_batch(world: World) -> None:
    def go_down() -> None:
        world.broker.is_down = True

    batch = run_batch.run_once(world.process(crash=Interrupt("committed", go_down)), "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert_exactly_once(world)


def test_s131_backlog_is_taken_in_bounded_batches(world: World) -> None:
    world.limits = Limits(max_records=4)
    catch_up(world)
    assert_exactly_once(world)
    sizes = [sum(map(len, stored.batch.ranges)) for stored in world.database.committed.batches.values()]
    assert sizes == [4, 4, 4, 3]


def test_undecodable_record_is_quarantined_and_the_batch_is_published(world: World) -> None:
    """S120."""
    world.broker.append(ORDERS_1, b"{poison")
    batch = run_batch.run_once(world.process(), "run-1")
    assert batch is not None
    quarantine = world.database.committed.quarantine
    assert [(key[1], key[2], row["value"]) for key, row in quarantine.items()] == [(ORDERS_1, 5, b"{poison")]
    assert world.times_published() == Counter(set(world.records()) - {(ORDERS_1, 5)})
    assert world.database.committed.positions[PIPELINE, ORDERS_1].next_offset == 6


def test_s31_declared_holes_are_accounted_for_and_the_position_passes_them(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    world.broker.append_holes(ORDERS_0, 3)
    world.produce(ORDERS_0, 1)
    run_batch.run_once(world.process(), "run-1")
    assert_exactly_once(world)
    assert world.database.committed.positions[PIPELINE, ORDERS_0].next_offset == 14


def test_s31_aborted_records_and_markers_are_told_apart(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    world.broker.append_aborted(ORDERS_0, b"{}", b"{}")
    run_batch.run_once(world.process(), "run-1")
    assert_exactly_once(world)
    balance = world.database.committed.batches[1].balances[0]
    assert (balance.aborted, balance.markers, balance.compacted) == (2, 1, 0)


def test_compaction_is_not_explained_by_declaring_transactions(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    world.broker.config_by_topic["orders"] = {"cleanup.policy": "compact"}
    world.broker.append_holes(ORDERS_0, 2)
    with pytest.raises(BatchBlockedError, match=r"no_unexplained_holes: 2 offsets"):
        run_batch.run_once(world.process(), "run-1")
    world.holes = HolePolicy.COMPACTED
    run_batch.run_once(world.process(), "run-2", batch_id=1)
    assert_exactly_once(world)


@pytest.mark.parametrize("holes", HolePolicy)
def test_record_that_the_stage_step_did_not_return_is_no_hole_whatever_is_declared(
    world: World, holes: HolePolicy
) -> None:
    """A reader that loses committed records: the second read finds them."""
    world.holes = holes

    class LossyBroker(MemoryBroker):
        """Returns every second record only, once."""

        def read(self, range_: OffsetRange) -> Iterator[tuple[int, Record]]:
            return (each for each in super().read(range_) if each[0] % 2)

    platform = world.process()
    lossy = LossyBroker(**{each.name: getattr(world.broker, each.name) for each in fields(world.broker)})
    stager = MemoryStager(lossy, platform.evidence, platform.sink)
    with pytest.raises(BatchBlockedError, match="no_unexplained_holes: 8 offsets"):
        run_batch.run_once(replace(platform, make_stager=lambda: stager), "run-1")
    assert world.times_published() == Counter()


def test_s63_batch_of_holes_only_publishes_no_row_and_records_progress(world: World) -> None:
    world.holes = HolePolicy.TRANSACTIONAL
    catch_up(world)
    world.broker.append_holes(ORDERS_0, 3)
    batch = run_batch.run_once(world.process(), "run-2")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert_exactly_once(world)
    assert world.database.committed.positions[PIPELINE, ORDERS_0].next_offset == 13


def test_transform_may_drop_records(world: World) -> None:
    run_batch.run_once(world.process(alter=lambda rows: rows[1:], has_transform=True), "run-1")
    assert world.times_published() == Counter(set(world.records()) - {(ORDERS_0, 0), (ORDERS_1, 0)})


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_crash_at_every_point_then_retry_publishes_every_record_once(world: World, point: str) -> None:
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    run_batch.run_once(world.process(), "run-1")
    assert_exactly_once(world)
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_crash_at_every_point_then_another_run_publishes_every_record_once(world: World, point: str) -> None:
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "run-1")
    catch_up(world, "run-2")
    assert_exactly_once(world)


@pytest.mark.parametrize("point", CRASH_POINTS)
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
    assert world.process().ledger.load_batch(1).state is BatchState.AUDITED


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


def test_audit_repeated_by_its_run_does_nothing(world: World) -> None:
    audited = stage_and_audit(world.process(), "run-1")
    before = world.database.committed
    assert run_batch.audit(world.process(), audited.batch_id, "run-1") == audited
    assert world.database.committed is before


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


@pytest.mark.parametrize("step", [run_batch.audit, run_batch.publish])
def test_i4_stale_run_changes_nothing_and_is_told_who_fenced_it(world: World, step: object) -> None:
    """S62."""
    stage_and_audit(world.process(), "run-1")
    stage_and_audit(world.process(), "run-2")
    before = world.database.committed
    with pytest.raises(FencedError, match=r"batch 1 of orders_copy is fenced by attempt 2 of run run-2.*run run-1"):
        step(world.process(), 1, "run-1")  # type: ignore[operator]
    after = world.database.committed
    assert (after.batches, after.positions, after.targets) == (before.batches, before.positions, before.targets)
    assert (list(after.staging), list(after.evidence)) == ([(1, 2)], [(1, 2)]), "its own staging is left behind"
    run_batch.publish(world.process(), 1, "run-2")
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["attempt_opened", "staging_sealed"])
def test_i4_run_that_is_overtaken_while_staging_cannot_mark_it_staged(world: World, point: str) -> None:
    def overtake() -> None:
        run_batch.run_once(world.process(), "run-2")

    with pytest.raises(FencedError, match="fenced by attempt 2 of run run-2, which has the batch published"):
        run_batch.run_once(world.process(crash=Interrupt(point, overtake)), "run-1")
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["staged", "audited"])
def test_i4_run_that_is_overtaken_between_its_steps_stops_at_the_next(world: World, point: str) -> None:
    def overtake() -> None:
        run_batch.run_once(world.process(), "run-2")

    with pytest.raises(FencedError, match="fenced by attempt 2 of run run-2"):
        run_batch.run_once(world.process(crash=Interrupt(point, overtake)), "run-1")
    assert_exactly_once(world)


def test_s55_two_runs_that_plan_at_once_share_one_batch_and_one_publishes(world: World) -> None:
    one, other = plans.plan(world.process(), "run-1"), plans.plan(world.process(), "run-2")
    assert one == other
    run_batch.run_once(world.process(), "run-1", batch_id=1)
    with pytest.raises(FencedError, match="attempt 1 of run run-1 has it published"):
        run_batch.stage(world.process(), 1, "run-2")
    assert_exactly_once(world)


def test_same_step_of_the_same_run_twice_at_once_publishes_once(world: World) -> None:
    """An Airflow task whose heartbeat was missed goes on beside its own retry (S101)."""

    def retry() -> None:
        batch = plans.plan(world.process(), "run-1")
        assert batch is not None
        run_batch.stage(world.process(), batch.batch_id, "run-1")

    first = world.process(crash=Interrupt("attempt_opened", retry))
    batch = plans.plan(first, "run-1")
    assert batch is not None
    with pytest.raises(FencedError, match="attempt 1 of run run-1 is fenced by attempt 2 of run run-1"):
        run_batch.stage(first, batch.batch_id, "run-1")
    run_batch.audit(world.process(), batch.batch_id, "run-1")
    run_batch.publish(world.process(), batch.batch_id, "run-1")
    assert_exactly_once(world)


def test_step_out_of_order_is_refused(world: World) -> None:
    platform = world.process()
    batch = plans.plan(platform, "run-1")
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, "run-1")
    with pytest.raises(FencedError, match="should be audited but is staged"):
        run_batch.publish(platform, batch.batch_id, "run-1")
    assert world.times_published() == Counter()


@pytest.mark.parametrize("step", [run_batch.stage, run_batch.audit, run_batch.publish])
def test_unknown_batch_is_refused(world: World, step: object) -> None:
    with pytest.raises(UnknownBatchError):
        step(world.process(), 404, "run-1")  # type: ignore[operator]


def test_duplicate_planted_in_staging_blocks_the_batch_and_names_check_and_coordinates(world: World) -> None:
    """S116, S120."""
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    message = str(blocked.value)
    assert "batch 1 of orders_copy is blocked: the position stays before its 15 offsets" in message
    assert "no_duplicate_offsets: 2 rows repeat an offset, for example orders[0]@0, orders[1]@0" in message
    assert world.times_published() == Counter()
    assert {each.next_offset for each in world.process().ledger.load_positions(PIPELINE)} == {0}


def test_undeclared_hole_blocks_the_batch_and_names_the_offsets(world: World) -> None:
    world.broker.append_holes(ORDERS_0, 2)
    with pytest.raises(BatchBlockedError, match=r"no_unexplained_holes: 2 offsets .*orders\[0\] 10\.\.12"):
        run_batch.run_once(world.process(), "run-1")
    assert world.times_published() == Counter()


def test_row_lost_on_the_way_to_staging_blocks_the_batch(world: World) -> None:
    with pytest.raises(BatchBlockedError, match=r"balance_closes: unexplained: \[1, 1\]"):
        run_batch.run_once(world.process(alter=lambda rows: rows[1:]), "run-1")
    assert world.times_published() == Counter()


def test_blocked_batch_stops_the_pipeline_until_it_is_taken_again(world: World) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(world.process(alter=staged_twice), "run-1")
    with pytest.raises(BatchBlockedError, match=r"Failed: .*no_duplicate_offsets"):
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
    with pytest.raises(TopicChangedError, match=r"expected id topic-1 .* found id topic-2"):
        run_batch.run_once(world.process(), "run-2")
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


def test_i5_open_batch_is_taken_up_again_without_asking_the_broker(world: World) -> None:
    planned = plans.plan(world.process(), "run-1")
    world.broker.is_down = True
    assert plans.plan(world.process(), "run-1") == planned


def test_s2_pipeline_that_starts_at_latest_reads_what_arrives_after_its_first_plan(world: World) -> None:
    world.start = StartPolicy.LATEST
    assert run_batch.run_once(world.process(), "run-1") is None
    world.produce(ORDERS_0, 3)
    run_batch.run_once(world.process(), "run-2")
    assert world.times_published() == Counter((ORDERS_0, offset) for offset in (10, 11, 12))


def test_preview_that_is_overtaken_by_a_publication_does_not_report_a_truncated_topic(world: World) -> None:
    """Positions are read before the log: a position only ever lies behind the end that is read after it."""

    @dataclass(frozen=True)
    class OvertakenSourceLog(MemorySourceLog):
        def read_log(self, topics: Sequence[str]) -> LogState:
            log = super().read_log(topics)
            world.produce(ORDERS_0, 5)
            catch_up(world)
            return log

    catch_up(world)
    platform = replace(world.process(), source=OvertakenSourceLog(world.broker))
    assert plans.preview(platform).is_empty
    assert_exactly_once(world)


def publish_a_stale_plan(world: World, protections: frozenset[Protection]) -> None:
    """Two runs preview the same ranges; the second stores its plan when the first has published."""
    platform = world.process(protections=protections)
    stale = plans.preview(platform)
    run_batch.run_once(platform, "run-1")
    batch = platform.ledger.store_plan(PIPELINE, stale, "run-2")
    run_batch.run_once(platform, "run-2", batch.batch_id)


def test_s56_stale_plan_is_refused_by_the_comparison_of_positions(world: World) -> None:
    with pytest.raises(PositionConflictError, match=r"orders\[0\] expected 0, found 10"):
        publish_a_stale_plan(world, ALL_PROTECTIONS)
    assert_exactly_once(world)


def test_stale_plan_is_blocked_by_the_audit_when_positions_are_not_compared(world: World) -> None:
    with pytest.raises(BatchBlockedError, match=r"ranges_meet_position: moved: orders\[0\] 0\.\.10"):
        publish_a_stale_plan(world, ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED})
    assert_exactly_once(world)


def test_i2_stale_plan_is_refused_as_an_overlap_when_nothing_else_stops_it(world: World) -> None:
    world.ignored_checks = frozenset({IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS})
    with pytest.raises(PositionConflictError, match=r"orders\[0\] 0\.\.10 overlaps orders\[0\] 0\.\.10 of batch 1"):
        publish_a_stale_plan(world, ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED})
    assert_exactly_once(world)


def test_s57_negative_control_without_the_protections_duplicates_do_appear(world: World) -> None:
    world.ignored_checks = frozenset({IntegrityCheck.RANGES_MEET_POSITION, IntegrityCheck.NO_PUBLISHED_OFFSETS})
    unprotected = ALL_PROTECTIONS - {Protection.POSITIONS_COMPARED, Protection.OVERLAPS_REFUSED}
    publish_a_stale_plan(world, unprotected)
    assert set(world.times_published().values()) == {2}
    with pytest.raises(AssertionError):
        assert_exactly_once(world)


def test_negative_control_without_fencing_a_stale_attempt_does_publish_again(world: World) -> None:
    unprotected = frozenset({Protection.BALANCE_REQUIRED})
    batch = stage_and_audit(world.process(protections=unprotected), "run-1")
    platform = world.process(protections=unprotected)
    attempt = run_batch.Attempt(batch, batch.attempt, "run-1")
    for _ in range(2):
        with platform.ledger.publication(attempt) as publication:
            publication.advance_positions()
            platform.sink.publish(publication)
            publication.mark_published()
    assert set(world.times_published().values()) == {2}


def test_at_most_once_tells_the_retry_of_a_killed_publication_that_rows_may_be_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.delivery = DeliveryMode.AT_MOST_ONCE
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce("between_commits")), "run-1")
    run_batch.publish(world.process(), 1, "run-1")
    assert "the rows are lost, as at_most_once allows" in caplog.text


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
    with pytest.raises(TopicChangedError, match="is not the one this pipeline was reading"):
        run_batch.run_once(platform, "run-1")
    assert world.times_published() == Counter()


def test_s111_at_most_once_moves_no_position_for_a_target_that_is_another_one(world: World) -> None:
    """What can be known beforehand is not paid for with rows, batch after batch."""
    world.delivery = DeliveryMode.AT_MOST_ONCE
    catch_up(world)
    world.produce(ORDERS_0, 5)
    with world.database.transaction() as tables:
        tables.targets["orders"] = replace(tables.targets["orders"], identity="another table")
    for run in ("run-1", "run-2"):
        with pytest.raises(BatchBlockedError, match="another table"):
            run_batch.run_once(world.process(), run)
    assert world.database.committed.positions[PIPELINE, ORDERS_0].next_offset == 10


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
