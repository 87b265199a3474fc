"""The contract of the Decisions port: exact, recorded, harmless to repeat; what triggers a plan, pauses, dry runs."""

from collections.abc import Callable

import pytest

from batchledger.model.batch import Attempt, BatchState, Decided, DecisionKind, Lane, Position
from batchledger.model.errors import FencedError, PipelinePausedError, UnknownBatchError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.live import Plan
from batchledger.planning.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, NO_BATCH, record_of, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND
from tests.contract.warehouses import IDENTITY, Warehouse


def test_whoever_triggers_a_run_for_an_open_batch_is_recorded_once(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    first = warehouse.decisions.trigger(batch.batch_id, BY_ANA)
    assert warehouse.decisions.trigger(batch.batch_id, BY_ANA) == Decided(first.record, is_new=False)
    assert warehouse.decisions.trigger(batch.batch_id, BY_BEN).is_new
    recorded = warehouse.decisions.load_decisions(batch.batch_id)
    assert [(each.kind, each.decided_by) for each in recorded] == [
        ("trigger", BY_ANA.decided_by),
        ("trigger", BY_BEN.decided_by),
    ]


def test_nobody_triggers_a_batch_that_is_closed(warehouse: Warehouse) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    assert warehouse.decisions.trigger(batch_id, BY_ANA) == Decided(None, is_new=False)
    assert list(warehouse.decisions.load_decisions(batch_id)) == []


def test_retake_is_recorded_once_a_run(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    batch_id = attempt.batch.batch_id
    first = warehouse.decisions.retake(batch_id, "by-hand", BY_ANA)
    assert warehouse.decisions.retake(batch_id, "by-hand", BY_ANA) == Decided(first.record, is_new=False)
    assert warehouse.decisions.retake(batch_id, "by-hand-2", BY_ANA).is_new
    assert record_of(first).before == {"attempt": 1, "run": "run-1", "state": "blocked"}
    assert record_of(first).after == {"attempt": 2, "run": "by-hand", "state": "planned"}
    assert warehouse.ledger.load_batch(batch_id).state is BatchState.BLOCKED


def test_closed_batch_cannot_be_retaken(warehouse: Warehouse) -> None:
    published = life.take_to_published(warehouse, FIRST).batch.batch_id
    discarded = life.store(warehouse, SECOND).batch_id
    warehouse.decisions.discard(discarded, BY_ANA)
    for batch_id in (published, discarded):
        with pytest.raises(FencedError):
            warehouse.decisions.retake(batch_id, "by-hand", BY_ANA)
    with pytest.raises(UnknownBatchError):
        warehouse.decisions.retake(NO_BATCH, "by-hand", BY_ANA)


def test_paused_pipeline_takes_no_new_plan_and_says_who_paused_it(warehouse: Warehouse) -> None:
    record = record_of(warehouse.decisions.pause(warehouse.pipeline, BY_ANA))
    assert warehouse.decisions.find_pause(warehouse.pipeline) == record
    with pytest.raises(PipelinePausedError, match=r"(?s)is paused.*ana@host( \(role \w+\))? paused it on") as paused:
        life.store(warehouse, FIRST)
    assert paused.value.pipeline == warehouse.pipeline
    assert record.reason in str(paused.value)
    with pytest.raises(PipelinePausedError):
        life.store_replay(warehouse, FIRST)
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None
    dry = Plan((FIRST,), 0, lane=Lane.REPLAY, is_dry_run=True)
    assert warehouse.ledger.store_replay(warehouse.pipeline, dry, "look", BY_ANA, None).is_dry_run
    warehouse.decisions.resume(warehouse.pipeline, BY_BEN)
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
    life.take_to_published(warehouse, FIRST)


def test_attempt_of_a_paused_pipeline_may_be_finished(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.decisions.pause(warehouse.pipeline, BY_ANA)
    assert life.publish(warehouse, attempt) == 3


def test_pause_and_resume_are_harmless_to_repeat(warehouse: Warehouse) -> None:
    decisions, pipeline = warehouse.decisions, warehouse.pipeline
    assert decisions.resume(pipeline, BY_ANA) == Decided(None, is_new=False)
    paused = decisions.pause(pipeline, BY_ANA)
    assert decisions.pause(pipeline, BY_BEN) == Decided(paused.record, is_new=False)
    assert decisions.resume(pipeline, BY_BEN).is_new
    assert not decisions.resume(pipeline, BY_BEN).is_new
    assert decisions.pause(pipeline, BY_BEN).is_new


def test_other_pipelines_are_not_paused(warehouse: Warehouse) -> None:
    warehouse.decisions.pause(f"{warehouse.pipeline}_other", BY_ANA)
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
    life.store(warehouse, FIRST)


def test_plan_keeps_who_triggered_it_and_an_open_batch_is_not_triggered_again(warehouse: Warehouse) -> None:
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))
    batch = warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-1", BY_ANA)
    assert warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-2", BY_BEN) == batch
    (record,) = warehouse.decisions.load_decisions(batch.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("trigger", BY_ANA.decided_by, BY_ANA.reason)


REHEARSED: dict[str, Callable[[Warehouse, Attempt], Decided]] = {
    "accept-loss": lambda w, _: w.decisions.rehearsal.give_up(
        w.pipeline, [OffsetRange(ORDERS_1, 12, 13)], DecisionKind.ACCEPT_LOSS, BY_ANA
    ),
    "accept": lambda w, blocked: w.decisions.rehearsal.accept(blocked, BY_ANA),
    "discard": lambda w, blocked: w.decisions.rehearsal.discard(blocked.batch.batch_id, BY_ANA),
    "retake": lambda w, blocked: w.decisions.rehearsal.retake(blocked.batch.batch_id, "by-hand", BY_ANA),
    "rewind": lambda w, _: w.decisions.rehearsal.rewind(
        w.pipeline, ResolvedRewind(0, {ORDERS_0: 0, ORDERS_1: 10}), BY_ANA, w.sink.truncate
    ),
    "pause": lambda w, _: w.decisions.rehearsal.pause(w.pipeline, BY_ANA),
}


@pytest.mark.parametrize("decide", REHEARSED.values(), ids=REHEARSED)
def test_rehearsal_tells_what_would_change_and_changes_nothing(
    warehouse: Warehouse, decide: Callable[[Warehouse, Attempt], Decided]
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    blocked = take_to_blocked(warehouse, SECOND, run="run-2")

    def look() -> tuple[object, ...]:
        ledger, decisions = warehouse.ledger, warehouse.decisions
        return (
            list(ledger.load_positions(warehouse.pipeline)),
            ledger.find_open_batch(warehouse.pipeline),
            decisions.load_epoch(warehouse.pipeline),
            decisions.find_pause(warehouse.pipeline),
            list(decisions.load_decisions(blocked.batch.batch_id)),
            list(decisions.load_held(warehouse.pipeline)),
            list(decisions.load_balances(blocked.batch.batch_id)),
            life.target_coordinates(warehouse),
        )

    before = look()
    told = decide(warehouse, blocked)
    assert told.is_new
    assert record_of(told).before != record_of(told).after
    assert look() == before
    assert warehouse.decisions.is_kept
    assert not warehouse.decisions.rehearsal.is_kept
