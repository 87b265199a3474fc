"""The contract of the Ledger port."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

import pytest

from batchledger.accounting import Balance
from batchledger.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    DeliveryMode,
    HeldRange,
    Lane,
    Position,
    Staged,
)
from batchledger.checking import CheckResult, Outcome
from batchledger.errors import (
    BatchBlockedError,
    FencedError,
    PositionConflictError,
    PredecessorPendingError,
    StagingLostError,
    UnknownBatchError,
)
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.pacing import Pace
from batchledger.planning import Plan
from batchledger.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.warehouses import IDENTITY, Warehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST = OffsetRange(ORDERS_0, 0, 3)
SECOND = OffsetRange(ORDERS_0, 3, 5)
OTHER = OffsetRange(ORDERS_1, 10, 12)
NO_BATCH = 9_000_000_000


class PlannedFaultError(Exception):
    """What a test raises inside a publication."""


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
    with pytest.raises(PositionConflictError, match=r"orders\[0\] expected 0, found 3"):
        life.store(warehouse, FIRST, run="run-2")
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None


def test_s51_plan_over_a_partition_without_a_position_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(PositionConflictError, match=r"orders\[0\] expected 0, found None"):
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
    neighbour = f"{warehouse.pipeline}_neighbour"
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


def fenced_by_second_attempt(warehouse: Warehouse, attempt: Attempt) -> str:
    second = warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    return f"attempt {attempt.number} of run run-1 is fenced by attempt {second.number} of run run-2"


def test_i4_superseded_attempt_cannot_mark_staged(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        warehouse.ledger.mark_staged(attempt, Staged(3))
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PLANNED


def test_i4_superseded_attempt_cannot_read_what_it_reported(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    assert warehouse.ledger.load_reported_rows(attempt) == 3
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        warehouse.ledger.load_reported_rows(attempt)


def test_i4_superseded_attempt_cannot_record_an_audit(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        life.audit(warehouse, attempt)
    assert list(warehouse.ledger.load_checks(attempt.batch.batch_id)) == []


def test_i4_superseded_attempt_cannot_publish(warehouse: Warehouse) -> None:
    """S71."""
    attempt = life.take_to_audited(warehouse, FIRST)
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


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


def test_audit_results_are_stored_and_loaded(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    checks = [
        CheckResult("a_check", Outcome.PASSED, "nothing found", {}),
        CheckResult(
            "b_check",
            Outcome.PASSED,
            "all \N{LATIN SMALL LETTER U WITH DIAERESIS}ber",
            {"rows": 3, "coordinates": ["orders[0]@1"]},
        ),
    ]
    batch = warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), checks)
    assert batch.state is BatchState.AUDITED
    assert list(warehouse.ledger.load_checks(batch.batch_id)) == checks


def test_audited_attempt_may_be_audited_again_and_keeps_the_new_numbers(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    ledger, (balance,) = warehouse.ledger, life.balance(warehouse, attempt)
    ledger.record_audit(attempt, [replace(balance, accepted=2, filtered=1)], [life.PASSED])
    again = replace(life.PASSED, detail="looked at again")
    batch = ledger.record_audit(attempt, [balance], [again], BatchState.AUDITED)
    assert (batch.state, batch.attempt) == (BatchState.AUDITED, attempt.number)
    assert list(ledger.load_checks(batch.batch_id)) == [again]
    assert life.publish(warehouse, attempt) == 3


def test_audit_again_may_block_the_batch(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    balances = life.balance(warehouse, attempt)
    batch = warehouse.ledger.record_audit(attempt, balances, [life.FAILED], BatchState.AUDITED)
    assert batch.state is BatchState.BLOCKED
    assert list(warehouse.ledger.load_checks(batch.batch_id)) == [life.FAILED]


@pytest.mark.parametrize("state", ["staged", "blocked", "published", "taken over"])
def test_i4_only_the_attempt_that_is_audited_may_be_audited_again(warehouse: Warehouse, state: str) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    balances = life.balance(warehouse, attempt)
    if state != "staged":
        life.audit(warehouse, attempt, life.FAILED if state == "blocked" else life.PASSED)
    if state == "published":
        life.publish(warehouse, attempt)
    if state == "taken over":
        life.audit(warehouse, life.stage(warehouse, attempt.batch, "run-2"))
    before = warehouse.ledger.load_batch(attempt.batch.batch_id)
    with pytest.raises(FencedError):
        warehouse.ledger.record_audit(attempt, balances, [life.FAILED], BatchState.AUDITED)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id) == before
    assert life.FAILED not in warehouse.ledger.load_checks(attempt.batch.batch_id) or state == "blocked"


def test_one_failed_check_blocks_the_batch(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    results = [CheckResult("a_check", Outcome.PASSED, "fine"), life.FAILED]
    batch = warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), results)
    assert batch.state is BatchState.BLOCKED
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) == batch
    assert [check.passed for check in warehouse.ledger.load_checks(batch.batch_id)] == [True, False]


def test_audit_without_any_result_blocks_the_batch(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    batch = warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), [])
    assert batch.state is BatchState.BLOCKED


def test_checks_of_the_newest_audit_are_loaded(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    life.audit(warehouse, life.stage(warehouse, batch), life.FAILED)
    life.audit(warehouse, life.stage(warehouse, batch, "run-2"))
    assert list(warehouse.ledger.load_checks(batch.batch_id)) == [life.PASSED]


def test_blocked_batch_cannot_be_published(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    life.audit(warehouse, attempt, life.FAILED)
    with pytest.raises(BatchBlockedError, match="is blocked"):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


def test_blocked_batch_can_be_taken_again_and_published(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    life.audit(warehouse, life.stage(warehouse, batch), life.FAILED)
    again = life.stage(warehouse, batch, "run-2")
    life.audit(warehouse, again)
    assert life.publish(warehouse, again) == 3
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_audited_batch_that_its_target_refuses_waits_for_a_person(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    batch = warehouse.ledger.block(attempt, replace(life.FAILED, name="found later"))
    assert batch.state is BatchState.BLOCKED
    assert sorted(check.passed for check in warehouse.ledger.load_checks(batch.batch_id)) == [False, True]
    with pytest.raises(BatchBlockedError, match="is blocked"):
        life.publish(warehouse, attempt)
    again = life.stage(warehouse, batch, "run-2")
    with pytest.raises(FencedError, match="attempt 2 of run run-2"):
        warehouse.ledger.block(attempt, life.FAILED)
    with pytest.raises(FencedError):
        warehouse.ledger.block(again, life.FAILED)
    life.audit(warehouse, again)
    assert life.publish(warehouse, again) == 3


def test_i3_publication_makes_rows_quarantine_position_and_state_visible_together(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST, OTHER)
    attempt = life.stage(warehouse, batch, poison=[(ORDERS_0, 1)])
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == 4
    assert life.target_coordinates(warehouse) == [(ORDERS_0, 0), (ORDERS_0, 2), (ORDERS_1, 10), (ORDERS_1, 11)]
    assert {row["_batch_id"] for row in warehouse.read_target()} == {batch.batch_id}
    assert list(warehouse.read_quarantine()) == [(ORDERS_0, 1, b"\x00{poison")]
    assert life.next_offsets(warehouse) == {ORDERS_0: 3, ORDERS_1: 12}
    assert warehouse.ledger.load_batch(batch.batch_id).state is BatchState.PUBLISHED
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None
    waited = warehouse.ledger.seconds_since_published(warehouse.pipeline)
    assert waited is not None
    assert 0 <= waited < 60


def publish_and_fail(warehouse: Warehouse, attempt: Attempt, steps: int) -> None:
    """Open a publication, take that many of its four steps, and fail."""
    with warehouse.ledger.publication(attempt) as publication:
        taken = [
            publication.advance_positions,
            lambda: warehouse.sink.publish(publication),
            publication.publish_quarantine,
            publication.mark_published,
        ]
        for step in taken[:steps]:
            step()
        raise PlannedFaultError


@pytest.mark.parametrize("steps", range(5))
def test_i3_error_after_any_step_of_a_publication_leaves_nothing_visible(warehouse: Warehouse, steps: int) -> None:
    """S54."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), poison=[(ORDERS_0, 1)])
    audited = life.audit(warehouse, attempt)
    with pytest.raises(PlannedFaultError):
        publish_and_fail(warehouse, attempt, steps)
    assert life.target_coordinates(warehouse) == []
    assert list(warehouse.read_quarantine()) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}
    assert warehouse.ledger.load_batch(audited.batch_id) == audited
    assert life.publish(warehouse, attempt) == 2


def test_i3_nobody_sees_an_open_publication(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(attempt) as publication:
        publication.advance_positions()
        warehouse.sink.publish(publication)
        publication.publish_quarantine()
        publication.mark_published()
        assert life.target_coordinates(warehouse) == []
        assert life.next_offsets(warehouse) == {ORDERS_0: 0}
        assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.AUDITED
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_publication_can_be_asked_for_a_batch_whose_position_has_moved_already(warehouse: Warehouse) -> None:
    """The second transaction of at-most-once delivery; only the attempt that made the first one may have it."""
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(FencedError), warehouse.ledger.publication(attempt, BatchState.PUBLISHED):
        pass
    with warehouse.ledger.publication(attempt) as publication:
        publication.advance_positions()
        publication.mark_published()
    assert life.target_coordinates(warehouse) == []
    stranger = replace(attempt, number=attempt.number + 1)
    with pytest.raises(FencedError), warehouse.ledger.publication(stranger, BatchState.PUBLISHED):
        pass
    with warehouse.ledger.publication(attempt, BatchState.PUBLISHED) as publication:
        warehouse.sink.publish(publication)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_rows_are_remembered_as_written_across_attempts(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(attempt) as publication:
        assert not publication.has_rows
        publication.mark_rows()
    again = life.stage(warehouse, attempt.batch, "run-2")
    life.audit(warehouse, again)
    with warehouse.ledger.publication(again) as publication:
        assert publication.has_rows


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
    with pytest.raises(PredecessorPendingError, match=r"expected 3, found 0. An earlier batch has to be") as early:
        life.publish(warehouse, attempt)
    assert early.value.retryable
    warehouse.move_position(ORDERS_0, 3)
    assert life.publish(warehouse, attempt) == 2


def test_failed_attempt_leaves_the_batch_as_it_is(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    staged = warehouse.ledger.load_batch(attempt.batch.batch_id)
    warehouse.ledger.mark_failed(attempt, "the disk is full")
    assert warehouse.ledger.load_batch(attempt.batch.batch_id) == staged
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == 3


def test_failure_of_the_newest_attempt_is_found_until_another_one_is_opened(warehouse: Warehouse) -> None:
    batch, ledger = life.store(warehouse, FIRST), warehouse.ledger
    assert ledger.find_failure(batch) is None
    for number, run in enumerate(("run-1", "run-2"), 1):
        attempt = ledger.open_attempt(batch.batch_id, run)
        assert ledger.find_failure(attempt.batch) is None
        ledger.mark_failed(attempt, f"failure {number}")
        ledger.mark_failed(attempt, "something later")
        assert ledger.find_failure(ledger.load_batch(batch.batch_id)) == f"failure {number}"


def test_published_batch_has_no_failure_whatever_was_marked_before(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.ledger.mark_failed(attempt, "the disk is full")
    life.publish(warehouse, attempt)
    assert warehouse.ledger.find_failure(warehouse.ledger.load_batch(attempt.batch.batch_id)) is None


def test_pace_of_a_batch_is_counted_from_the_opening_of_the_attempt_that_published_it(warehouse: Warehouse) -> None:
    """Neither the attempt that failed nor the wait for the next one is part of it."""
    batch, ledger = life.store(warehouse, FIRST, OTHER), warehouse.ledger
    failed = ledger.open_attempt(batch.batch_id, "run-1")
    warehouse.evidence.open(failed)
    ledger.mark_failed(failed, "the broker was away for an hour")
    attempt = life.stage(warehouse, batch, "run-2")
    life.audit(warehouse, attempt)
    assert list(ledger.load_paces(warehouse.pipeline, 5)) == []
    life.publish(warehouse, attempt)
    (pace,) = ledger.load_paces(warehouse.pipeline, 5)
    assert pace.offsets == len(FIRST) + len(OTHER)
    assert pace.seconds > 0
    warehouse.stretch(batch.batch_id, 4.5)
    assert list(ledger.load_paces(warehouse.pipeline, 5)) == [Pace(5, 4.5)]


def test_paces_are_those_of_the_newest_batches_of_the_pipeline_the_newest_first(warehouse: Warehouse) -> None:
    pipeline, ledger = warehouse.pipeline, warehouse.ledger
    for number in range(4):
        attempt = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 10 * number, 10 * number + 1 + number))
        warehouse.move_position(ORDERS_0, 10 * number + 10)
        warehouse.stretch(attempt.batch.batch_id, 2.0 + number)
    life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 40, 50))
    newest = [Pace(4, 5.0), Pace(3, 4.0), Pace(2, 3.0)]
    assert list(ledger.load_paces(pipeline, 3)) == newest
    assert list(ledger.load_paces(pipeline, 50)) == [*newest, Pace(1, 2.0)]
    assert list(ledger.load_paces(f"{pipeline}_neighbour", 3)) == []


def test_what_nobody_executed_and_what_took_no_time_has_no_pace(warehouse: Warehouse) -> None:
    """An accepted loss has no attempt; a clock that was set back shows an end before the beginning."""
    attempt = life.take_to_published(warehouse, FIRST)
    by_ana = Decision("ana@host", "retention was too short")
    warehouse.decisions.give_up(warehouse.pipeline, [SECOND], DecisionKind.ACCEPT_LOSS, by_ana)
    assert [each.offsets for each in warehouse.ledger.load_paces(warehouse.pipeline, 5)] == [3]
    warehouse.stretch(attempt.batch.batch_id, -1.0)
    assert list(warehouse.ledger.load_paces(warehouse.pipeline, 5)) == []


def test_batch_that_waited_for_a_person_to_accept_it_has_no_pace(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    life.audit(warehouse, attempt, life.FAILED)
    warehouse.decisions.accept(attempt, Decision("ana@host", "the rows are good"))
    life.publish(warehouse, attempt)
    assert list(warehouse.ledger.load_paces(warehouse.pipeline, 5)) == []
    life.take_to_published(warehouse, SECOND)
    assert [each.offsets for each in warehouse.ledger.load_paces(warehouse.pipeline, 5)] == [len(SECOND)]


def test_batch_has_rows_once_they_are_committed(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    assert not warehouse.ledger.has_rows(attempt.batch.batch_id)
    life.publish(warehouse, attempt)
    assert warehouse.ledger.has_rows(attempt.batch.batch_id)


def test_published_batch_cannot_be_published_again(warehouse: Warehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST)
    with pytest.raises(FencedError, match="published"):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_published_batch_cannot_be_attempted_again(warehouse: Warehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST)
    with pytest.raises(FencedError, match="attempt 1 of run run-1 has it published"):
        warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")


def test_s55_same_attempt_published_twice_at_once_publishes_once(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    start = threading.Barrier(2)

    def publish(_: int) -> str:
        start.wait()
        try:
            return f"published {life.publish(warehouse, attempt)}"
        except FencedError:
            return "fenced"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(publish, range(2))) == ["fenced", "published 3"]
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_s53_s60_position_that_somebody_moved_refuses_the_publication_with_both_sides(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST, OTHER)
    warehouse.move_position(ORDERS_1, 11)
    with pytest.raises(PositionConflictError, match=r"orders\[1\] expected 10, found 11") as conflict:
        life.publish(warehouse, attempt)
    assert "orders[0]" not in str(conflict.value)
    assert life.target_coordinates(warehouse) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0, ORDERS_1: 11}


def test_s59_positions_of_partitions_outside_of_the_batch_are_untouched(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.next_offsets(warehouse) == {ORDERS_0: 5, ORDERS_1: 12}


def test_origin_stays_where_the_pipeline_started(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    positions = warehouse.ledger.load_positions(warehouse.pipeline)
    assert [(each.partition, each.origin_offset, each.identity) for each in positions] == [
        (ORDERS_0, 0, IDENTITY),
        (ORDERS_1, 10, IDENTITY),
    ]


def test_i2_overlap_is_refused_even_when_the_position_was_moved_back(warehouse: Warehouse) -> None:
    """S130."""
    life.take_to_published(warehouse, FIRST)
    warehouse.move_position(ORDERS_0, 2)
    attempt = life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 2, 6), run="run-2")
    with pytest.raises(PositionConflictError, match=r"overlaps"):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
    assert life.next_offsets(warehouse) == {ORDERS_0: 2}


def test_s48_after_offset_zero_comes_offset_one(warehouse: Warehouse) -> None:
    """S125: zero is a real offset, never "unset"; a position says what is next, never what was last seen."""
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 1))
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 1, 2), run="run-2")
    assert life.target_coordinates(warehouse) == [(ORDERS_0, 0), (ORDERS_0, 1)]


AFTER_A_BATCH = {
    "the same": (OffsetRange(ORDERS_0, 4, 8), False),
    "inside": (OffsetRange(ORDERS_0, 5, 7), False),
    "around": (OffsetRange(ORDERS_0, 3, 9), False),
    "overlapping its end": (OffsetRange(ORDERS_0, 6, 10), False),
    "overlapping its start": (OffsetRange(ORDERS_0, 2, 6), False),
    "before it": (OffsetRange(ORDERS_0, 0, 4), False),
    "leaving a gap": (OffsetRange(ORDERS_0, 9, 12), False),
    "next": (OffsetRange(ORDERS_0, 8, 12), True),
}


@pytest.mark.parametrize(("offered", "is_taken"), AFTER_A_BATCH.values(), ids=AFTER_A_BATCH)
def test_s78_of_all_ranges_only_the_one_that_meets_the_position_is_taken(
    warehouse: Warehouse, offered: OffsetRange, is_taken: bool
) -> None:
    """S130: older ranges are refused; nothing but a decision of a person moves a position back."""
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 4, 8))
    if is_taken:
        life.take_to_published(warehouse, offered, run="run-2")
    else:
        with pytest.raises(PositionConflictError, match=f"expected {offered.start}, found 8"):
            life.store(warehouse, offered, run="run-2")
    assert life.next_offsets(warehouse) == {ORDERS_0: 12 if is_taken else 8}
    assert len(life.target_coordinates(warehouse)) == (8 if is_taken else 4)


@pytest.mark.parametrize("offered", [offered for offered, is_taken in AFTER_A_BATCH.values() if not is_taken], ids=str)
def test_s78_s88_range_that_was_planned_over_a_forged_position_is_refused_at_publication(
    warehouse: Warehouse, offered: OffsetRange
) -> None:
    """The same ranges once more, with a position that somebody moved back in between: the last line of defence."""
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 4, 8))
    warehouse.move_position(ORDERS_0, offered.start)
    attempt = life.take_to_audited(warehouse, offered, run="run-2")
    warehouse.move_position(ORDERS_0, 8)
    with pytest.raises(PositionConflictError):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == life.rows_of([OffsetRange(ORDERS_0, 4, 8)])
    assert life.next_offsets(warehouse) == {ORDERS_0: 8}


def test_i7_range_whose_balance_does_not_close_is_refused(warehouse: Warehouse) -> None:
    """Whatever the checks said: publishing requires that nothing is unexplained."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    warehouse.ledger.record_audit(attempt, [Balance(FIRST, accepted=3, filtered=1)], [life.PASSED])
    with pytest.raises(BatchBlockedError, match="balance"):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []


def test_i7_range_without_a_balance_is_refused(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    first_only = [each for each in life.balance(warehouse, attempt) if each.range == FIRST]
    warehouse.ledger.record_audit(attempt, first_only, [life.PASSED])
    with pytest.raises((BatchBlockedError, StagingLostError)):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []


def test_quarantine_that_is_not_what_was_audited_is_refused(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    warehouse.ledger.record_audit(attempt, [Balance(FIRST, accepted=2, quarantined=1)], [life.PASSED])
    with pytest.raises(StagingLostError, match="1 quarantined"), warehouse.ledger.publication(attempt) as publication:
        publication.publish_quarantine()
    assert list(warehouse.read_quarantine()) == []


def test_accepted_rows_are_those_of_the_audit(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST, OTHER)
    with warehouse.ledger.publication(attempt) as publication:
        assert publication.accepted_rows == 5
        assert publication.attempt == attempt
        publication.advance_positions()
        warehouse.sink.publish(publication)
        publication.mark_published()


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
        ledger.load_reported_rows(unknown)
    with pytest.raises(UnknownBatchError):
        ledger.record_audit(unknown, [], [life.PASSED])
    with pytest.raises(UnknownBatchError):
        ledger.block(unknown, life.FAILED)
    with pytest.raises(UnknownBatchError), ledger.publication(unknown):
        pytest.fail("the publication was opened")


def _fields(attempt: Attempt) -> dict[str, object]:
    batch = attempt.batch
    return {name: getattr(batch, name) for name in batch.__slots__}


def test_offsets_that_a_live_batch_of_the_epoch_has_published_are_told_before_the_database_refuses_them(
    warehouse: Warehouse,
) -> None:
    first = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 10)).batch
    warehouse.move_position(ORDERS_0, 4)
    again = life.store(warehouse, OffsetRange(ORDERS_0, 4, 15), run="run-2")
    found = list(warehouse.ledger.find_published(again))
    assert found == [HeldRange(first.batch_id, OffsetRange(ORDERS_0, 4, 10))]
    with pytest.raises(PositionConflictError, match="overlap"):
        life.publish(warehouse, _audited(warehouse, again))


def test_offsets_that_a_replay_or_an_earlier_epoch_holds_are_not_told_as_published(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 10))
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 5, 20)))
    back = ResolvedRewind(0, {ORDERS_0: 0})
    warehouse.decisions.rewind(warehouse.pipeline, back, Decision("ana", "again"))
    again = life.store(warehouse, OffsetRange(ORDERS_0, 0, 20), run="run-2")
    assert list(warehouse.ledger.find_published(again)) == []


def _audited(warehouse: Warehouse, batch: Batch) -> Attempt:
    attempt = life.stage(warehouse, batch, "run-2")
    life.audit(warehouse, attempt)
    return attempt
