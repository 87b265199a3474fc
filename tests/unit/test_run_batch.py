"""The order of the steps: whatever repeats or races, every record is in the target exactly once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import BatchState, DeliveryMode, LogState
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    ConfigurationError,
    FencedError,
    ServiceUnavailableError,
    TargetChangedError,
    UnknownBatchError,
)
from batchledger.model.offsets import OffsetRange
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.live import Limits, StartPolicy
from tests.fakes.crash import Interrupt
from tests.fakes.sink import MemorySink
from tests.fakes.source import MemoryBroker, MemorySourceLog, Record
from tests.fakes.work import MemoryStager
from tests.fakes.world import ORDERS_0, ORDERS_1, PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit


def test_one_batch_publishes_every_record_once_and_moves_the_position(world: World) -> None:
    batch = run_batch.run_once(world.process(), "run-1")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert batch.ranges == (OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5))
    assert_exactly_once(world)
    assert [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)] == [10, 5]


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_every_delivery_mode_is_exact_when_nothing_goes_wrong(world: World, delivery: DeliveryMode) -> None:
    world.delivery = delivery
    catch_up(world)
    assert_exactly_once(world)


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


@pytest.mark.parametrize("error", [ServiceUnavailableError, ConfigurationError, TargetChangedError])
def test_staging_that_cannot_be_removed_does_not_hide_that_the_batch_is_published(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[BatchledgerError]
) -> None:
    """The login to the catalog may be refused, or the target be renamed, right after the commit."""

    def refuse(*_: object) -> None:
        raise error("not now")

    def lose_rights() -> None:
        monkeypatch.setattr(MemorySink, "drop_staging", refuse)

    batch = run_batch.run_once(world.process(crash=Interrupt("committed", lose_rights)), "run-1")
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


def test_audit_repeated_by_its_run_does_nothing(world: World) -> None:
    audited = stage_and_audit(world.process(), "run-1")
    before = world.database.committed
    assert run_batch.audit(world.process(), audited.batch_id, "run-1") == audited
    assert world.database.committed is before


@pytest.mark.parametrize("step", [run_batch.audit, run_batch.publish])
def test_i4_stale_run_changes_nothing_and_is_told_who_fenced_it(world: World, step: object) -> None:
    """S62."""
    world.patience = NO_PATIENCE
    stage_and_audit(world.process(), "run-1")
    stage_and_audit(world.process(), "run-2")
    before = world.database.committed
    with pytest.raises(FencedError) as fenced:
        step(world.process(), 1, "run-1")  # type: ignore[operator]
    assert fenced.value.run == "run-2"
    assert (fenced.value.batch_id, fenced.value.attempt) == (1, 2)
    after = world.database.committed
    assert (after.batches, after.positions, after.targets) == (before.batches, before.positions, before.targets)
    assert (list(after.staging), list(after.evidence)) == ([(1, 2)], [(1, 2)]), "its own staging is left behind"
    run_batch.publish(world.process(), 1, "run-2")
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["attempt_opened", "staging_sealed"])
def test_i4_run_that_is_overtaken_while_staging_cannot_mark_it_staged(world: World, point: str) -> None:
    world.patience = NO_PATIENCE

    def overtake() -> None:
        run_batch.run_once(world.process(), "run-2")

    with pytest.raises(FencedError) as fenced:
        run_batch.run_once(world.process(crash=Interrupt(point, overtake)), "run-1")
    assert (fenced.value.batch_id, fenced.value.attempt) == (1, 2)
    assert_exactly_once(world)


@pytest.mark.parametrize("point", ["staged", "audited"])
def test_i4_run_that_is_overtaken_between_its_steps_stops_at_the_next(world: World, point: str) -> None:
    world.patience = NO_PATIENCE

    def overtake() -> None:
        run_batch.run_once(world.process(), "run-2")

    with pytest.raises(FencedError, match="Attempt 2 of run run-2"):
        run_batch.run_once(world.process(crash=Interrupt(point, overtake)), "run-1")
    assert_exactly_once(world)


def test_s55_two_runs_that_plan_at_once_share_one_batch_and_one_publishes(world: World) -> None:
    one, other = plans.plan(world.process(), "run-1"), plans.plan(world.process(), "run-2")
    assert one == other
    run_batch.run_once(world.process(), "run-1", batch_id=1)
    with pytest.raises(FencedError, match="Attempt 1 of run run-1 has it published"):
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
    with pytest.raises(FencedError) as fenced:
        run_batch.stage(first, batch.batch_id, "run-1")
    assert (fenced.value.batch_id, fenced.value.attempt) == (batch.batch_id, 2)
    run_batch.audit(world.process(), batch.batch_id, "run-1")
    run_batch.publish(world.process(), batch.batch_id, "run-1")
    assert_exactly_once(world)


def test_step_out_of_order_is_refused(world: World) -> None:
    platform = world.process()
    batch = plans.plan(platform, "run-1")
    assert batch is not None
    run_batch.stage(platform, batch.batch_id, "run-1")
    with pytest.raises(FencedError, match="is staged, and this step needs it audited"):
        run_batch.publish(platform, batch.batch_id, "run-1")
    assert world.times_published() == Counter()


@pytest.mark.parametrize("step", [run_batch.stage, run_batch.audit, run_batch.publish])
def test_unknown_batch_is_refused(world: World, step: object) -> None:
    with pytest.raises(UnknownBatchError):
        step(world.process(), 404, "run-1")  # type: ignore[operator]


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
