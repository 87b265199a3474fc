"""The contract of the Ledger port: plans, attempts, and steps in their order."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, BatchState, DeliveryMode, Lane, Position, Staged, Step, StepFailure
from batchledger.model.errors import FencedError, PositionConflictError, PredecessorPendingError, UnknownBatchError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import Plan
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND, fenced_by_second_attempt
from tests.contract.warehouses import IDENTITY, Warehouse

NO_BATCH = 9_000_000_000
DISK_FULL = StepFailure(Step.STAGE, "the disk is full")
DISK_FULL_AGAIN = StepFailure(Step.PUBLISH, "the disk is full")


def test_empty_ledger_knows_nothing_of_a_pipeline(warehouse: Warehouse) -> None:
    assert list(warehouse.ledger.load_positions(warehouse.pipeline)) == []
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None
    assert warehouse.ledger.seconds_since_published(warehouse.pipeline) is None


def test_stored_plan_is_loaded_as_it_was_stored(warehouse: Warehouse) -> None:
    plan = Plan(
        (FIRST, OTHER), 7, tuple(Position(each.partition, each.start, each.start, IDENTITY) for each in (FIRST, OTHER))
    )
    batch = warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-1")
    assert (batch.pipeline, batch.lane, batch.state) == (warehouse.pipeline, Lane.LIVE, BatchState.PLANNED)
    assert (batch.attempt, batch.attempt_run) == (0, None)
    assert (batch.ranges, batch.lag_left_records) == ((FIRST, OTHER), 7)
    assert warehouse.ledger.load_batch(batch.batch_id) == batch
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) == batch
    assert tuple(warehouse.ledger.load_positions(warehouse.pipeline)) == plan.first_positions


def test_batch_keeps_the_delivery_mode_that_it_was_planned_with(warehouse: Warehouse) -> None:
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),), delivery=DeliveryMode.AT_LEAST_ONCE)
    batch = warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-1")
    assert batch.delivery is DeliveryMode.AT_LEAST_ONCE
    assert warehouse.ledger.open_attempt(batch.batch_id, "run-2").batch.delivery is DeliveryMode.AT_LEAST_ONCE


def test_s6_the_largest_offsets_are_stored_exactly(warehouse: Warehouse) -> None:
    huge = OffsetRange(ORDERS_0, 2**63 - 3, 2**63 - 1)
    assert life.store(warehouse, huge).ranges == (huge,)
    assert life.next_offsets(warehouse) == {ORDERS_0: 2**63 - 3}


def test_i5_second_plan_returns_the_open_batch_and_stores_nothing(warehouse: Warehouse) -> None:
    """S77, S79."""
    first = life.store(warehouse, FIRST)
    second = warehouse.ledger.store_plan(
        warehouse.pipeline, Plan((OTHER,), 0, (Position(ORDERS_1, 10, 10, IDENTITY),)), "run-2"
    )
    assert second == first
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


def test_s55_plans_stored_at_once_end_in_one_batch(warehouse: Warehouse) -> None:
    start = threading.Barrier(4)

    def store(number: int) -> int:
        start.wait()
        return life.store(warehouse, FIRST, run=f"run-{number}").batch_id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(store, range(4)))) == 1


def test_plan_that_does_not_start_at_the_position_is_refused_with_both_sides(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(PositionConflictError, match=r"orders\[0\]: expected 0, found 3"):
        life.store(warehouse, FIRST, run="run-2")
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None


def test_s51_plan_over_a_partition_without_a_position_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(PositionConflictError, match=r"orders\[0\]: expected 0, found None"):
        warehouse.ledger.store_plan(warehouse.pipeline, Plan((FIRST,), 0), "run-1")
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None


def test_first_position_never_replaces_a_stored_one(warehouse: Warehouse) -> None:
    """S52."""
    life.take_to_published(warehouse, FIRST)
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))
    with pytest.raises(PositionConflictError):
        warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-2")
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}


def test_pipelines_do_not_see_each_other(warehouse: Warehouse) -> None:
    life.store(warehouse, FIRST)
    neighbour = f"{warehouse.pipeline}_other"
    assert warehouse.ledger.find_open_batch(neighbour) is None
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))
    assert warehouse.ledger.store_plan(neighbour, plan, "run-1").pipeline == neighbour


def test_attempts_count_up_and_take_the_batch_back_to_planned(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    life.stage(warehouse, batch, "run-1")
    second = warehouse.ledger.open_attempt(batch.batch_id, "run-2")
    assert (second.number, second.run, second.batch.ranges) == (2, "run-2", batch.ranges)
    loaded = warehouse.ledger.load_batch(batch.batch_id)
    assert (loaded.state, loaded.attempt, loaded.attempt_run) == (BatchState.PLANNED, 2, "run-2")
    assert second.batch == loaded


def test_s55_attempts_opened_at_once_get_different_numbers(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    with ThreadPoolExecutor(4) as pool:
        numbers = pool.map(lambda run: warehouse.ledger.open_attempt(batch.batch_id, run).number, "abcd")
        assert sorted(numbers) == [1, 2, 3, 4]


def test_i4_superseded_attempt_cannot_mark_staged(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        warehouse.ledger.mark_staged(attempt, Staged(3))
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PLANNED


def test_i4_superseded_attempt_cannot_read_what_it_reported(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    assert warehouse.ledger.load_staged(attempt) == Staged(3)
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        warehouse.ledger.load_staged(attempt)


def test_i4_superseded_attempt_cannot_record_an_audit(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        life.audit(warehouse, attempt)
    assert list(warehouse.ledger.load_checks(attempt.batch.batch_id)) == []
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.STAGED


def test_steps_out_of_order_are_refused(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    with pytest.raises(FencedError):
        warehouse.ledger.record_audit(attempt, [Balance(FIRST, accepted=3)], [life.PASSED])
    with pytest.raises(FencedError), warehouse.ledger.publication(attempt):
        pytest.fail("the publication was opened")
    warehouse.ledger.mark_staged(attempt, Staged(3))
    with pytest.raises(FencedError):
        warehouse.ledger.mark_staged(attempt, Staged(3))
    with pytest.raises(FencedError), warehouse.ledger.publication(attempt):
        pytest.fail("the publication was opened")


def test_open_transaction_is_remembered_since_it_was_first_seen_at_its_offset(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    pipeline, ledger = warehouse.pipeline, warehouse.ledger

    def remembered() -> dict[TopicPartition, tuple[int | None, datetime | None]]:
        return {each.partition: (each.held_back_at, each.held_back_since) for each in ledger.load_positions(pipeline)}

    ledger.note_held_back(pipeline, {ORDERS_0: 7})
    first = remembered()
    assert (first[ORDERS_0][0], first[ORDERS_1]) == (7, (None, None))
    ledger.note_held_back(pipeline, {ORDERS_0: 7, ORDERS_1: 12})
    assert remembered()[ORDERS_0] == first[ORDERS_0]
    ledger.note_held_back(pipeline, {ORDERS_0: 8})
    second = remembered()
    assert second[ORDERS_0][0] == 8
    assert second[ORDERS_0][1] is not None
    assert first[ORDERS_0][1] is not None
    assert second[ORDERS_0][1] > first[ORDERS_0][1]
    assert second[ORDERS_1] == (None, None)


def test_s58_batch_that_is_early_is_refused_with_an_error_that_is_worth_a_retry(warehouse: Warehouse) -> None:
    """The position stands before the batch: its predecessor is not published yet."""
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND)
    warehouse.move_position(ORDERS_0, 0)
    with pytest.raises(PredecessorPendingError) as early:
        life.publish(warehouse, attempt)
    assert early.value.retryable
    assert (early.value.ranges, early.value.found) == ((SECOND,), {ORDERS_0: 0})
    warehouse.move_position(ORDERS_0, 3)
    assert life.publish(warehouse, attempt) == 2


def test_failed_attempt_leaves_the_batch_as_it_is(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    staged = warehouse.ledger.load_batch(attempt.batch.batch_id)
    warehouse.ledger.mark_failed(attempt, DISK_FULL)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id) == staged
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == 3


def test_failure_of_the_newest_attempt_is_found_until_another_one_is_opened(warehouse: Warehouse) -> None:
    batch, ledger = life.store(warehouse, FIRST), warehouse.ledger
    assert ledger.find_failure(batch) is None
    for number, run in enumerate(("run-1", "run-2"), 1):
        attempt = ledger.open_attempt(batch.batch_id, run)
        assert ledger.find_failure(attempt.batch) is None
        failure = StepFailure(Step.STAGE, f"failure {number}")
        ledger.mark_failed(attempt, failure)
        ledger.mark_failed(attempt, StepFailure(Step.AUDIT, "something later"))
        assert ledger.find_failure(ledger.load_batch(batch.batch_id)) == failure


@pytest.mark.parametrize("step", [Step.AUDIT, Step.PUBLISH])
def test_step_that_failed_leaves_its_newest_error_and_may_be_repeated_by_its_attempt(
    warehouse: Warehouse, step: Step
) -> None:
    ledger, attempt = warehouse.ledger, life.stage(warehouse, life.store(warehouse, FIRST))
    for reason in ("the disk is full", "a lock was not given"):
        ledger.mark_failed(attempt, StepFailure(step, reason))
    assert ledger.find_failure(ledger.load_batch(attempt.batch.batch_id)) == StepFailure(step, "a lock was not given")
    life.audit(warehouse, attempt)
    assert ledger.find_failure(ledger.load_batch(attempt.batch.batch_id)) is None
    ledger.mark_failed(attempt, DISK_FULL_AGAIN)
    assert ledger.find_failure(ledger.load_batch(attempt.batch.batch_id)) == DISK_FULL_AGAIN
    assert life.publish(warehouse, attempt) == 3
    assert ledger.find_failure(ledger.load_batch(attempt.batch.batch_id)) is None


def test_superseded_attempt_leaves_no_error_on_the_one_that_has_fenced_it(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    fenced_by_second_attempt(warehouse, attempt)
    warehouse.ledger.mark_failed(attempt, DISK_FULL_AGAIN)
    assert warehouse.ledger.find_failure(warehouse.ledger.load_batch(attempt.batch.batch_id)) is None


def test_attempt_that_is_blocked_says_why_by_its_checks_and_not_by_an_error(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.ledger.mark_failed(attempt, DISK_FULL_AGAIN)
    warehouse.ledger.block(attempt, life.FAILED)
    warehouse.ledger.mark_failed(attempt, DISK_FULL_AGAIN)
    assert warehouse.ledger.find_failure(warehouse.ledger.load_batch(attempt.batch.batch_id)) is None


@pytest.mark.parametrize("state", ["planned", "staged", "audited"])
def test_batch_whose_rows_are_refused_is_blocked_from_every_state_before_its_publication(
    warehouse: Warehouse, state: str
) -> None:
    batch = life.store(warehouse, FIRST)
    attempt = (
        warehouse.ledger.open_attempt(batch.batch_id, "run-1") if state == "planned" else life.stage(warehouse, batch)
    )
    if state == "audited":
        life.audit(warehouse, attempt)
    assert warehouse.ledger.block(attempt, life.FAILED).state is BatchState.BLOCKED
    with pytest.raises(FencedError):
        warehouse.ledger.block(attempt, life.FAILED)


def test_i4_superseded_attempt_cannot_block_the_batch(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    life.stage(warehouse, attempt.batch, "run-2")
    with pytest.raises(FencedError, match="Attempt 2 of run run-2"):
        warehouse.ledger.block(attempt, life.FAILED)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.STAGED


def test_published_batch_has_no_failure_whatever_was_marked_before(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.ledger.mark_failed(attempt, DISK_FULL)
    life.publish(warehouse, attempt)
    assert warehouse.ledger.find_failure(warehouse.ledger.load_batch(attempt.batch.batch_id)) is None


def test_unknown_batch_is_refused_by_every_method(warehouse: Warehouse) -> None:
    known = life.stage(warehouse, life.store(warehouse, FIRST))
    unknown = Attempt(known.batch.__class__(**{**_fields(known), "batch_id": NO_BATCH}), 1, "run-1")
    ledger = warehouse.ledger
    with pytest.raises(UnknownBatchError, match=str(NO_BATCH)):
        ledger.load_batch(NO_BATCH)
    with pytest.raises(UnknownBatchError):
        ledger.open_attempt(NO_BATCH, "run-1")
    with pytest.raises(UnknownBatchError):
        ledger.mark_staged(unknown, Staged(0))
    with pytest.raises(UnknownBatchError):
        ledger.load_staged(unknown)
    with pytest.raises(UnknownBatchError):
        ledger.record_audit(unknown, [], [life.PASSED])
    with pytest.raises(UnknownBatchError):
        ledger.block(unknown, life.FAILED)
    with pytest.raises(UnknownBatchError), ledger.publication(unknown):
        pytest.fail("the publication was opened")


def _fields(attempt: Attempt) -> dict[str, object]:
    batch = attempt.batch
    return {name: getattr(batch, name) for name in batch.__slots__}
