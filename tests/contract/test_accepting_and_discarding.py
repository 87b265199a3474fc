"""The contract of the Decisions port: a person publishes a blocked batch as it is staged, or closes it."""

from dataclasses import replace

import pytest

from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, BatchState, DecisionKind
from batchledger.model.errors import DecisionRefusedError, FencedError
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, assert_proved, give_up, record_of, rewind, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, OTHER
from tests.contract.warehouses import Warehouse


def test_accepted_batch_is_published_by_its_attempt_and_what_is_missing_is_an_accepted_loss(
    warehouse: Warehouse,
) -> None:
    attempt = take_to_blocked(warehouse, FIRST, OTHER, missing=2)
    record = record_of(warehouse.decisions.accept(attempt, BY_ANA))
    assert record.before == {
        "attempt": 1,
        "state": "blocked",
        "unexplained": {"orders[0] 0..3": 2},
        "accepted_loss": {"orders[0] 0..3": 0},
    }
    assert record.after == {
        "attempt": 1,
        "state": "audited",
        "unexplained": {"orders[0] 0..3": 0},
        "accepted_loss": {"orders[0] 0..3": 2},
    }
    assert life.publish(warehouse, attempt) == 3
    assert list(warehouse.decisions.load_balances(attempt.batch.batch_id)) == [
        Balance(FIRST, accepted=1, accepted_loss=2),
        Balance(OTHER, accepted=2),
    ]
    assert_proved(warehouse)


def test_replay_can_be_accepted_too(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    replay = life.stage(warehouse, life.store_replay(warehouse, FIRST), "again")
    life.audit(warehouse, replay, life.FAILED)
    warehouse.decisions.accept(replay, BY_ANA)
    assert life.publish(warehouse, replay) == 3
    assert_proved(warehouse)


def test_batch_whose_rows_are_too_many_is_never_accepted(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    warehouse.ledger.record_audit(attempt, [Balance(FIRST, accepted=3, filtered=1)], [life.FAILED])
    with pytest.raises(DecisionRefusedError, match=r"orders\[0\] 0\.\.3 by 1"):
        warehouse.decisions.accept(attempt, BY_ANA)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.BLOCKED
    assert list(warehouse.decisions.load_decisions(attempt.batch.batch_id)) == []


def test_i4_superseded_attempt_cannot_be_accepted(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    with pytest.raises(FencedError, match="Attempt 2 of run run-2"):
        warehouse.decisions.accept(attempt, BY_ANA)


def test_i4_newer_attempt_fences_one_that_was_accepted(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    warehouse.decisions.accept(attempt, BY_ANA)
    warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    with pytest.raises(FencedError, match="Attempt 2 of run run-2"):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []


def test_only_a_blocked_batch_is_accepted(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(FencedError, match="audited"):
        warehouse.decisions.accept(attempt, BY_ANA)


def test_accepted_batch_that_its_target_refuses_is_blocked_and_can_be_accepted_once_more(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST, missing=1)
    for _ in range(2):
        warehouse.decisions.accept(attempt, BY_ANA)
        warehouse.ledger.block(attempt, replace(life.FAILED, name="accepted_by_target"))
    assert [each.name for each in warehouse.ledger.load_checks(attempt.batch.batch_id)] == [
        "accepted_by_target",
        "looked_at",
    ]
    warehouse.decisions.accept(attempt, BY_ANA)
    assert life.publish(warehouse, attempt) == 2
    assert_proved(warehouse)


def commit_rows_only(warehouse: Warehouse, attempt: Attempt) -> None:
    """The first commit of at_least_once."""
    with warehouse.ledger.publication(attempt) as publication:
        publish_rows(warehouse.sink, publication, publication.load())
        publication.mark_rows()


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED, BatchState.BLOCKED])
def test_discarded_batch_is_closed_for_its_attempts_and_its_offsets_are_planned_again(
    warehouse: Warehouse, state: BatchState
) -> None:
    batch = life.store(warehouse, FIRST)
    attempt = warehouse.ledger.open_attempt(batch.batch_id, "run-0")
    if state is not BatchState.PLANNED:
        attempt = life.stage(warehouse, batch)
    if state in (BatchState.AUDITED, BatchState.BLOCKED):
        life.audit(warehouse, attempt, life.PASSED if state is BatchState.AUDITED else life.FAILED)
    record = record_of(warehouse.decisions.discard(batch.batch_id, BY_ANA))
    assert (record.before, record.after) == ({"state": state}, {"state": "discarded"})
    with pytest.raises(FencedError, match="discarded by a person's decision"):
        warehouse.ledger.open_attempt(batch.batch_id, "run-2")
    with pytest.raises(FencedError, match="discarded by a person's decision"):
        life.publish(warehouse, attempt)
    life.take_to_published(warehouse, FIRST, run="run-2")
    assert_proved(warehouse)


def test_discarding_twice_changes_nothing(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    first = warehouse.decisions.discard(batch.batch_id, BY_ANA)
    again = warehouse.decisions.discard(batch.batch_id, BY_BEN)
    assert (first.is_new, again.is_new, again.record) == (True, False, first.record)
    assert len(warehouse.decisions.load_decisions(batch.batch_id)) == 1


def test_published_batch_cannot_be_discarded(warehouse: Warehouse) -> None:
    attempt = life.take_to_published(warehouse, FIRST)
    with pytest.raises(DecisionRefusedError, match=r"(?s)is published.* batchledger replay"):
        warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA)


def test_discarded_replay_takes_nothing_over(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    replay = life.take_replay_to_audited(warehouse, FIRST)
    warehouse.decisions.discard(replay.batch.batch_id, BY_ANA)
    with pytest.raises(FencedError):
        life.publish(warehouse, replay)
    assert_proved(warehouse)


def test_batch_whose_rows_are_visible_is_neither_discarded_nor_rewound_over(warehouse: Warehouse) -> None:
    """No batch would account for its rows; emptying the target takes them along."""
    attempt = life.take_to_audited(warehouse, FIRST)
    commit_rows_only(warehouse, attempt)
    with pytest.raises(DecisionRefusedError, match="rows are visible already"):
        warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA)
    warehouse.move_position(ORDERS_0, 1)
    with pytest.raises(DecisionRefusedError, match="rows are visible already"):
        rewind(warehouse, {ORDERS_0: 0})
    rewind(warehouse, {ORDERS_0: 0}, truncate=True)
    assert life.target_coordinates(warehouse) == []
    assert_proved(warehouse)


@pytest.mark.parametrize("kind", [DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP])
@pytest.mark.parametrize("is_attempted_again", [False, True], ids=["audited", "planned again"])
def test_batch_whose_rows_are_visible_is_given_up_by_its_name_only(
    warehouse: Warehouse, is_attempted_again: bool, kind: DecisionKind
) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    batch_id = attempt.batch.batch_id
    commit_rows_only(warehouse, attempt)
    if is_attempted_again:
        warehouse.ledger.open_attempt(batch_id, "run-2")
    with pytest.raises(DecisionRefusedError, match="rows are visible already") as refused:
        give_up(warehouse, FIRST, kind=kind)
    assert refused.value.batch_id == batch_id
    assert f"batchledger accept {batch_id} --reason WHY" in str(refused.value)
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}
    assert not warehouse.ledger.load_batch(batch_id).state.is_final
    assert warehouse.ledger.has_rows(batch_id)
    give_up(warehouse, FIRST, discard=batch_id, kind=kind)
    assert warehouse.ledger.load_batch(batch_id).state is BatchState.DISCARDED
    (finding,) = warehouse.prove().findings
    assert "rows that no published batch accounts for" in finding.detail


def test_batch_between_its_two_commits_is_accepted_as_it_is_staged(warehouse: Warehouse) -> None:
    """Its records may have expired, so that no attempt could read them again."""
    attempt = life.take_to_audited(warehouse, FIRST)
    commit_rows_only(warehouse, attempt)
    record = record_of(warehouse.decisions.accept(attempt, BY_ANA))
    assert (record.kind, record.batch_id) == ("accept", attempt.batch.batch_id)
    with warehouse.ledger.publication(attempt) as publication:
        publication.advance_positions()
        publication.publish_quarantine()
        publication.mark_published()
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
    assert_proved(warehouse)


def test_rows_of_a_batch_that_cannot_be_published_any_more_go_when_the_table_is_emptied(warehouse: Warehouse) -> None:
    """Nothing else is in the table, and the position is where it goes."""
    attempt = life.take_to_audited(warehouse, FIRST)
    commit_rows_only(warehouse, attempt)
    warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    assert rewind(warehouse, {ORDERS_0: 0}, truncate=True).is_new
    assert life.target_coordinates(warehouse) == []
    give_up(warehouse, FIRST)
    assert_proved(warehouse)
