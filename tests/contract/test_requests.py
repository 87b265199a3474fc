"""The contract of the Decisions port: another person carries out what a request has shown, once, or ends it."""

from dataclasses import replace

import pytest

from batchledger.lifecycle.orders import Accept, DropQuarantined
from batchledger.lifecycle.written_orders import write_order
from batchledger.model.batch import Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.effects import Effect
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, single_offset
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, assert_proved, record_of, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, OTHER
from tests.contract.warehouses import Warehouse

POISON = [(ORDERS_0, 1), (ORDERS_0, 2)]
EVERYTHING = (OffsetRange(ORDERS_0, 0, 10),)
ONE = (single_offset("orders", 0, 1),)


def prepare(warehouse: Warehouse) -> None:
    """Publish a batch with two records in quarantine."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER), poison=POISON)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)


def drop(warehouse: Warehouse, by: Decision, ranges: tuple[OffsetRange, ...] = EVERYTHING) -> Decided:
    return warehouse.decisions.drop_quarantined(warehouse.pipeline, ranges, by)


def ask(warehouse: Warehouse, by: Decision = BY_ANA) -> Decided:
    """Ask for what a rehearsal shows."""
    shown = record_of(warehouse.decisions.rehearsal.drop_quarantined(warehouse.pipeline, EVERYTHING, by))
    assert shown.before is not None
    assert shown.after is not None
    effect = Effect(shown.before, shown.after)
    return warehouse.decisions.request(warehouse.pipeline, write_order(DropQuarantined(EVERYTHING)), by, effect)


def by_ben(request: DecisionRecord) -> Decision:
    return replace(BY_BEN, request_id=request.decision_id)


def count_quarantined(warehouse: Warehouse) -> int:
    return len(warehouse.read_quarantine())


def test_request_is_a_decision_that_changes_nothing(warehouse: Warehouse) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    assert (request.kind, request.decided_by, request.batch_id) == ("request", BY_ANA.decided_by, None)
    assert request.requested_order == {"kind": "quarantine-drop", "ranges": ["orders[0] 0..10"]}
    assert (count_quarantined(warehouse), warehouse.decisions.find_end(request.decision_id)) == (2, None)
    assert ask(warehouse, BY_BEN) == Decided(request, is_new=False)
    assert_proved(warehouse)


def test_confirmed_decision_names_both_and_has_the_effect_of_the_request(warehouse: Warehouse) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    done = record_of(drop(warehouse, by_ben(request)))
    assert (done.kind, done.decided_by, done.requested_by) == (
        "quarantine-drop",
        BY_BEN.decided_by,
        BY_ANA.decided_by,
    )
    assert (done.request_id, done.before, done.after) == (request.decision_id, request.before, request.after)
    assert warehouse.decisions.find_end(request.decision_id) == done
    assert count_quarantined(warehouse) == 0
    assert_proved(warehouse)


@pytest.mark.parametrize("is_kept", [True, False])
def test_person_who_asked_cannot_confirm_even_to_see_what_would_change(warehouse: Warehouse, is_kept: bool) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    decisions = warehouse.decisions if is_kept else warehouse.decisions.rehearsal
    again = replace(BY_ANA, request_id=request.decision_id)
    with pytest.raises(DecisionRefusedError, match=f"{BY_ANA.decided_by} has asked for it"):
        decisions.drop_quarantined(warehouse.pipeline, EVERYTHING, again)
    assert count_quarantined(warehouse) == 2


def test_decision_that_would_change_something_else_is_taken_back_whole(warehouse: Warehouse) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    with pytest.raises(DecisionRefusedError, match="would not change any more"):
        drop(warehouse, by_ben(request), ONE)
    drop(warehouse, BY_BEN, ONE)
    with pytest.raises(DecisionRefusedError, match="would not change any more"):
        drop(warehouse, by_ben(request))
    assert count_quarantined(warehouse) == 1
    with pytest.raises(DecisionRefusedError, match="would not change any more"):
        warehouse.decisions.pause(warehouse.pipeline, by_ben(request))
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
    assert_proved(warehouse)


def test_request_is_carried_out_once(warehouse: Warehouse) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    drop(warehouse, by_ben(request))
    with pytest.raises(DecisionRefusedError, match=rf"{BY_BEN.decided_by}.* confirmed it"):
        warehouse.decisions.pause(warehouse.pipeline, by_ben(request))
    with pytest.raises(DecisionRefusedError, match=rf"{BY_BEN.decided_by}.* confirmed it"):
        warehouse.decisions.withdraw(request, BY_ANA)
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None


def test_withdrawn_request_is_over_and_the_order_can_be_asked_for_anew(warehouse: Warehouse) -> None:
    prepare(warehouse)
    request = record_of(ask(warehouse))
    ended = warehouse.decisions.withdraw(request, BY_ANA)
    assert (record_of(ended).kind, record_of(ended).requested_by) == ("withdraw", BY_ANA.decided_by)
    assert warehouse.decisions.withdraw(request, BY_BEN) == Decided(ended.record, is_new=False)
    with pytest.raises(DecisionRefusedError, match=rf"{BY_ANA.decided_by}.* withdrew it"):
        drop(warehouse, by_ben(request))
    assert count_quarantined(warehouse) == 2
    again = ask(warehouse)
    assert (again.is_new, record_of(again).decision_id > request.decision_id) == (True, True)
    drop(warehouse, by_ben(record_of(again)))
    assert_proved(warehouse)


def test_request_about_a_batch_is_among_its_decisions(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST, missing=1)
    batch_id = attempt.batch.batch_id
    shown = record_of(warehouse.decisions.rehearsal.accept(attempt, BY_ANA))
    assert shown.before is not None
    assert shown.after is not None
    effect = Effect(shown.before, shown.after)
    request = record_of(
        warehouse.decisions.request(warehouse.pipeline, write_order(Accept(batch_id)), BY_ANA, effect, batch_id)
    )
    warehouse.decisions.accept(attempt, by_ben(request))
    made = warehouse.decisions.load_decisions(batch_id)
    assert [(each.kind, each.batch_id) for each in made] == [
        (DecisionKind.REQUEST, batch_id),
        (DecisionKind.ACCEPT, batch_id),
    ]
    life.publish(warehouse, attempt)
    assert_proved(warehouse)
