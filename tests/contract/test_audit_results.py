"""The contract of the Ledger port: what an audit has found is stored with the state that follows from it."""

from dataclasses import replace

import pytest

from batchledger.model.batch import BatchState
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.errors import BatchBlockedError, FencedError
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.warehouses import Warehouse


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
    with pytest.raises(FencedError, match="Attempt 2 of run run-2"):
        warehouse.ledger.block(attempt, life.FAILED)
    life.audit(warehouse, again)
    assert life.publish(warehouse, again) == 3
    with pytest.raises(FencedError):
        warehouse.ledger.block(again, life.FAILED)
