"""The contract of the Ledger port: how long batches took, of which the size of the next one is chosen."""

from batchledger.model.batch import Decision, DecisionKind, Step, StepFailure
from batchledger.model.offsets import OffsetRange
from batchledger.planning.batch_size import Pace
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, OTHER, SECOND
from tests.contract.warehouses import Warehouse


def test_pace_of_a_batch_is_counted_from_the_opening_of_the_attempt_that_published_it(warehouse: Warehouse) -> None:
    """Neither the attempt that failed nor the wait for the next one is part of it."""
    batch, ledger = life.store(warehouse, FIRST, OTHER), warehouse.ledger
    failed = ledger.open_attempt(batch.batch_id, "run-1")
    warehouse.evidence.open(failed)
    ledger.mark_failed(failed, StepFailure(Step.STAGE, "the broker was away for an hour"))
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
    assert list(ledger.load_paces(f"{pipeline}_other", 3)) == []


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
