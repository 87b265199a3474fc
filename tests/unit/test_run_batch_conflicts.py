"""The order of the steps when something contradicts the plan: a changed file, a moved position, a ledger that fails."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

import pytest

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Attempt, Batch, BatchState, CheckResult, Decision, DeliveryMode, Staged
from batchledger.model.checks import ACCEPTED_BY_TARGET
from batchledger.model.claims import PreparedRows
from batchledger.model.errors import (
    BatchBlockedError,
    BatchledgerError,
    FencedError,
    KeyConflictError,
    LossError,
    OutcomeUnknownError,
    PositionConflictError,
    ServiceUnavailableError,
    StagingLostError,
    TopicChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import NO_PATIENCE
from batchledger.planning.live import Limits, Plan, StartPolicy
from batchledger.ports import RowsToPublish, Stager
from tests.fakes.crash import BEFORE_PUBLISHING, CrashOnce, SimulatedCrashError
from tests.fakes.ledger import CommitFault, MemoryLedger
from tests.fakes.publication import MemoryPublication
from tests.fakes.sink import MemorySink
from tests.fakes.world import PIPELINE, World, assert_exactly_once, catch_up, stage_and_audit

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def crash_at(world: World, point: str) -> None:
    """Let a run die at the point."""
    with pytest.raises(SimulatedCrashError):
        run_batch.run_once(world.process(crash=CrashOnce(point)), "crashed")


def next_offsets(world: World) -> list[int]:
    return [each.next_offset for each in world.process().ledger.load_positions(PIPELINE)]


def test_s25_planned_offsets_that_expire_before_they_are_read_stop_the_batch_and_name_them(world: World) -> None:
    planned = plans.plan(world.process(), "run-1")
    assert planned is not None
    world.broker.expire(ORDERS_0, before=4)
    with pytest.raises(LossError, match=r"4 offsets .* orders\[0\] 0\.\.4"):
        run_batch.run_once(world.process(), "run-1")
    assert world.times_published() == Counter()
    assert world.process().ledger.find_open_batch(PIPELINE) == planned


def test_s25_partition_that_vanishes_between_two_batches_of_a_backlog_stops_the_pipeline(world: World) -> None:
    world.limits = Limits(max_records=6)
    run_batch.run_once(world.process(), "run-1")
    before = world.times_published()
    del world.broker.partitions[ORDERS_1]
    with pytest.raises(TopicChangedError, match=r"orders\[1\] no longer exists"):
        run_batch.run_once(world.process(), "run-1")
    assert world.times_published() == before


def test_s27_too_few_records_wait_until_there_are_enough(world: World) -> None:
    world.limits = Limits(max_records=100, min_records=8, max_delay_seconds=3600)
    catch_up(world)
    world.produce(ORDERS_0, 7)
    assert run_batch.run_once(world.process(), "too few") is None
    assert next_offsets(world) == [10, 5]
    world.produce(ORDERS_1, 1)
    assert run_batch.run_once(world.process(), "enough") is not None
    assert_exactly_once(world)


def test_s28_s90_stored_position_goes_before_a_start_that_was_changed_in_the_file(world: World) -> None:
    world.limits = Limits(max_records=4)
    run_batch.run_once(world.process(), "run-1")
    world.start = StartPolicy.LATEST
    catch_up(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("point", BEFORE_PUBLISHING)
def test_s88_retry_keeps_the_stored_boundaries_although_the_limit_was_changed(world: World, point: str) -> None:
    crash_at(world, point)
    world.limits = Limits(max_records=3)
    again = run_batch.run_once(world.process(), "retry")
    assert again is not None
    assert again.ranges == (OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 0, 5))
    assert_exactly_once(world)


@pytest.mark.parametrize("point", BEFORE_PUBLISHING)
def test_s93_staging_that_a_dead_attempt_left_is_removed_by_the_next_publication(world: World, point: str) -> None:
    crash_at(world, point)
    run_batch.run_once(world.process(), "next")
    assert world.database.committed.staging == {}
    assert world.database.committed.evidence == {}
    assert_exactly_once(world)


def test_s100_weaker_delivery_from_some_batch_on_leaves_the_batches_before_it_exact(world: World) -> None:
    catch_up(world)
    world.delivery = DeliveryMode.AT_LEAST_ONCE
    world.produce(ORDERS_0, 2)
    crash_at(world, "between_commits")
    catch_up(world)
    world.delivery = DeliveryMode.EXACTLY_ONCE
    world.produce(ORDERS_1, 2)
    catch_up(world)
    twice = {place for place, copies in world.times_published().items() if copies == 2}
    assert twice == {(ORDERS_0, 10), (ORDERS_0, 11)}
    assert set(world.times_published()) == set(world.records())


@pytest.mark.parametrize("stricter", [DeliveryMode.EXACTLY_ONCE, DeliveryMode.AT_MOST_ONCE])
def test_s100_batch_keeps_the_delivery_mode_that_it_was_planned_with(world: World, stricter: DeliveryMode) -> None:
    """Its rows may be there already; only what is planned from now on can be delivered more strictly."""
    world.delivery = DeliveryMode.AT_LEAST_ONCE
    crash_at(world, "between_commits")
    world.delivery = stricter
    world.produce(ORDERS_0, 2)
    run_batch.run_once(world.process(), "next")
    finished = world.process().ledger.load_batch(1)
    assert (finished.state, finished.delivery) == (BatchState.PUBLISHED, DeliveryMode.AT_LEAST_ONCE)
    catch_up(world)
    assert world.process().ledger.load_batch(2).delivery is stricter
    assert {world.times_published()[ORDERS_0, offset] for offset in (10, 11)} == {1}


def test_s93_each_attempt_removes_what_the_killed_ones_before_it_left(world: World) -> None:
    """No run publishes, so no other cleans up: a copy of the rows for each run would fill the disk."""
    for number in range(1, 4):
        with pytest.raises(SimulatedCrashError):
            run_batch.run_once(world.process(crash=CrashOnce("staged")), f"run-{number}")
        assert list(world.database.committed.staging) == [(1, number)]
        assert list(world.database.committed.evidence) == [(1, number)]


def test_i4_run_that_is_overtaken_while_it_audits_is_told_by_whom(world: World) -> None:
    """The winner has removed its tables in the middle."""
    world.patience = NO_PATIENCE
    platform = world.process()
    planned = plans.plan(platform, "run-1")
    assert planned is not None
    run_batch.stage(platform, planned.batch_id, "run-1")

    @dataclass(frozen=True)
    class OvertakenSink(MemorySink):
        def read_staged(self, attempt: Attempt) -> NoReturn:
            run_batch.run_once(world.process(), "run-2")
            raise StagingLostError(f"the tables of {attempt.batch.label} are gone")

    with pytest.raises(FencedError) as fenced:
        run_batch.audit(replace(platform, sink=OvertakenSink(world.database, "orders")), planned.batch_id, "run-1")
    assert fenced.value.run == "run-2"
    assert (fenced.value.batch_id, fenced.value.attempt) == (planned.batch_id, 2)
    assert_exactly_once(world)


def test_s55_twins_whose_rows_are_refused_are_both_told_that_the_batch_is_blocked(world: World) -> None:
    platform = world.process()
    audited = stage_and_audit(platform, "run-1")

    @dataclass(frozen=True)
    class RefusingSink(MemorySink):
        def publish(self, rows: RowsToPublish) -> PreparedRows:
            raise KeyConflictError(f"{rows.attempt.batch.label} cannot be ordered.")

    @dataclass
    class LateLedger(MemoryLedger):
        def block(self, attempt: Attempt, refusal: CheckResult, quoted: str = "") -> Batch:
            super().block(attempt, refusal, quoted)
            return super().block(attempt, refusal, quoted)

    late = replace(platform, sink=RefusingSink(world.database, "orders"), ledger=LateLedger(world.database))
    with pytest.raises(BatchBlockedError, match=r"batch 1 .* cannot be ordered") as blocked:
        run_batch.publish(late, audited.batch_id, "run-1")
    assert blocked.value.failed == (ACCEPTED_BY_TARGET,)


@dataclass
class OvertakenLedger(MemoryLedger):
    """A ledger in which others are always faster: ``conflicts`` plans in a row come too late."""

    conflicts: int = 1
    asked: list[Plan] = field(default_factory=list)

    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        """Refuse the first ones."""
        self.asked.append(plan)
        if len(self.asked) <= self.conflicts:
            raise PositionConflictError("somebody else has moved the position")
        return super().store_plan(pipeline, plan, run, decision)


@pytest.mark.parametrize(("conflicts", "is_planned"), [(1, True), (2, False)])
def test_s64_plan_that_was_overtaken_is_made_anew_once_and_no_more(
    world: World, conflicts: int, is_planned: bool
) -> None:
    ledger = OvertakenLedger(world.database, conflicts=conflicts)
    platform = replace(world.process(), ledger=ledger)
    if is_planned:
        assert plans.plan(platform, "run-1") is not None
    else:
        with pytest.raises(PositionConflictError):
            plans.plan(platform, "run-1")
    assert len(ledger.asked) == 2


def test_s64_any_other_error_of_planning_is_not_repeated(world: World) -> None:
    @dataclass
    class FailingLedger(OvertakenLedger):
        def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
            self.asked.append(plan)
            raise ServiceUnavailableError("the database is gone")

    ledger = FailingLedger(world.database)
    with pytest.raises(ServiceUnavailableError):
        plans.plan(replace(world.process(), ledger=ledger), "run-1")
    assert len(ledger.asked) == 1


@dataclass
class UnreachableLedger(MemoryLedger):
    """The connection is lost while committing, and the ledger cannot be asked afterwards."""

    is_reachable: bool = True

    def load_batch(self, batch_id: int, pipeline: str | None = None) -> Batch:
        """Answer until the connection is lost."""
        if not self.is_reachable:
            raise ServiceUnavailableError("the database is gone")
        return super().load_batch(batch_id, pipeline)

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[MemoryPublication]:
        """Lose the connection for good."""
        try:
            with super().publication(attempt, expected) as opened:
                yield opened
        except OutcomeUnknownError:
            self.is_reachable = False
            raise


@pytest.mark.parametrize("fault", CommitFault)
def test_s66_outcome_that_cannot_be_looked_up_stays_unknown_and_keeps_the_staging(
    world: World, fault: CommitFault
) -> None:
    ledger = UnreachableLedger(world.database, commit_fault=fault)
    with pytest.raises(OutcomeUnknownError) as unknown:
        run_batch.run_once(replace(world.process(), ledger=ledger), "run-1")
    assert unknown.value.retryable
    assert world.database.committed.staging != {}
    run_batch.publish(world.process(), 1, "run-1")
    assert_exactly_once(world)
    assert world.database.committed.staging == {}


@dataclass
class ForgetfulLedger(MemoryLedger):
    """A ledger that stops to answer when a control row is to be written."""

    failing: str = "open_attempt"

    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        """Fail, or not."""
        self._answer("open_attempt")
        return super().open_attempt(batch_id, run)

    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        """Fail, or not."""
        self._answer("mark_staged")
        super().mark_staged(attempt, staged)

    def _answer(self, call: str) -> None:
        if call == self.failing:
            raise ServiceUnavailableError("the database is gone")


@pytest.mark.parametrize(("failing", "has_read"), [("open_attempt", False), ("mark_staged", True)])
def test_s115_work_whose_control_row_cannot_be_written_is_not_begun_or_leaves_nothing(
    world: World, failing: str, has_read: bool
) -> None:
    good = world.process()
    opened: list[Stager] = []

    def make_stager() -> Stager:
        opened.append(good.make_stager())
        return opened[-1]

    faulty = replace(good, ledger=ForgetfulLedger(world.database, failing=failing), make_stager=make_stager)
    with pytest.raises(BatchledgerError) as failure:
        run_batch.run_once(faulty, "run-1")
    assert failure.value.retryable
    assert bool(opened) == has_read
    assert world.database.committed.staging == {}
    assert world.times_published() == Counter()
    catch_up(world)
    assert_exactly_once(world)
