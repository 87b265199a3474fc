"""The contract of the ledger's ports for a batch that its sink commits by itself: first of all the sink is asked."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from batchledger.model.batch import Attempt, BatchState, DecisionKind
from batchledger.model.errors import FencedError, OutcomePendingError
from batchledger.model.offsets import OffsetRange
from batchledger.ports import committing
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.decided import BY_ANA, assert_proved, give_up, record_of, rewind
from tests.contract.life import FIRST, ORDERS_0
from tests.contract.warehouses import Warehouse

WAREHOUSES = EVERY_SINK


def announce(warehouse: Warehouse, attempt: Attempt) -> None:
    with warehouse.ledger.publication(attempt) as publication:
        publication.announce()


def commit(warehouse: Warehouse, attempt: Attempt) -> None:
    announced = replace(attempt, batch=replace(attempt.batch, state=BatchState.COMMITTING))
    with warehouse.ledger.publication(announced, BatchState.COMMITTING) as publication:
        rows = life.apply(warehouse, publication)
        if not warehouse.sink.capabilities.shares_transaction:
            committing(warehouse.sink).commit(rows)


def revoke(warehouse: Warehouse, attempt: Attempt) -> None:
    with warehouse.ledger.publication(attempt, BatchState.COMMITTING) as publication:
        publication.revoke()


@pytest.fixture
def attempt(warehouse: Warehouse) -> Attempt:
    """The attempt of a live batch that is committing."""
    attempt = life.take_to_audited(warehouse, FIRST)
    announce(warehouse, attempt)
    return attempt


def state_of(warehouse: Warehouse, attempt: Attempt) -> BatchState:
    return warehouse.ledger.load_batch(attempt.batch.batch_id).state


def test_announced_batch_is_open_and_committing_and_nothing_of_it_is_visible(
    warehouse: Warehouse, attempt: Attempt
) -> None:
    found = warehouse.ledger.find_open_batch(warehouse.pipeline)
    assert found is not None
    assert (found.state, found.attempt, found.attempt_run) == (BatchState.COMMITTING, 1, "run-1")
    assert life.target_coordinates(warehouse) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


def test_publication_of_a_committing_batch_makes_everything_visible(warehouse: Warehouse, attempt: Attempt) -> None:
    commit(warehouse, attempt)
    assert state_of(warehouse, attempt) is BatchState.PUBLISHED
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}
    assert_proved(warehouse)


def test_i4_no_attempt_is_opened_before_the_sink_was_asked(warehouse: Warehouse, attempt: Attempt) -> None:
    refused = rf"(?s)batch {attempt.batch.batch_id} .* being committed.*Attempt 1 .* batchledger run .* --batch"
    with pytest.raises(OutcomePendingError, match=refused):
        warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    with pytest.raises(FencedError, match="and has it committing"):
        life.publish(warehouse, attempt)
    assert state_of(warehouse, attempt) is BatchState.COMMITTING


REFUSED: dict[str, Callable[[Warehouse, Attempt], object]] = {
    "discard": lambda warehouse, attempt: warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA),
    "skip": lambda warehouse, attempt: give_up(
        warehouse, FIRST, discard=attempt.batch.batch_id, kind=DecisionKind.SKIP
    ),
    "rewind": lambda warehouse, _: rewind(warehouse, {ORDERS_0: 0}, truncate=True),
    "drop quarantine": lambda warehouse, _: warehouse.decisions.drop_quarantined(warehouse.pipeline, [FIRST], BY_ANA),
}


@pytest.mark.parametrize("decision", REFUSED)
def test_no_decision_takes_away_what_the_sink_may_be_showing(
    warehouse: Warehouse, attempt: Attempt, decision: str
) -> None:
    if decision == "rewind":
        # Otherwise there would be nothing to go back to.
        warehouse.move_position(ORDERS_0, 2)
    with pytest.raises(OutcomePendingError):
        REFUSED[decision](warehouse, attempt)
    assert state_of(warehouse, attempt) is BatchState.COMMITTING


def test_only_what_is_blocked_is_accepted(warehouse: Warehouse, attempt: Attempt) -> None:
    with pytest.raises(FencedError):
        warehouse.decisions.accept(attempt, BY_ANA)
    assert state_of(warehouse, attempt) is BatchState.COMMITTING


def test_no_other_batch_of_the_pipeline_is_published_before_the_outcome_is_known(warehouse: Warehouse) -> None:
    """It could change which rows are duplicates, and so what the sink has committed."""
    life.take_to_published(warehouse, FIRST)
    replays = [life.take_replay_to_audited(warehouse, FIRST, run=run) for run in ("again", "and again")]
    announce(warehouse, replays[0])
    for publish in (life.publish, announce):
        with pytest.raises(OutcomePendingError, match=f"batch {replays[0].batch.batch_id} "):
            publish(warehouse, replays[1])
    commit(warehouse, replays[0])
    life.publish(warehouse, replays[1])
    assert_proved(warehouse)


def test_run_that_resumes_the_commit_fences_the_one_that_announced_it(warehouse: Warehouse, attempt: Attempt) -> None:
    resumed = warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    assert (resumed.number, resumed.run, resumed.batch.state) == (1, "run-2", BatchState.COMMITTING)
    assert resumed.batch.attempt_run == "run-2"
    with pytest.raises(FencedError, match="Attempt 1 of run run-2"):
        revoke(warehouse, attempt)
    revoke(warehouse, resumed)
    assert state_of(warehouse, attempt) is BatchState.AUDITED


def test_batch_that_was_not_committed_is_audited_again_and_may_be_published(
    warehouse: Warehouse, attempt: Attempt
) -> None:
    revoke(warehouse, attempt)
    life.publish(warehouse, attempt)
    assert_proved(warehouse)
    with pytest.raises(FencedError, match="and has it published"):
        revoke(warehouse, attempt)


def test_only_a_committing_batch_can_be_resumed(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with pytest.raises(FencedError, match="and has it audited"):
        warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")
    life.publish(warehouse, attempt)
    with pytest.raises(FencedError, match="and has it published"):
        warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")


def test_whoever_takes_it_again_finds_its_outcome_and_opens_no_attempt(warehouse: Warehouse, attempt: Attempt) -> None:
    record = record_of(warehouse.decisions.retake(attempt.batch.batch_id, "by-hand", BY_ANA))
    assert record.before == {"attempt": 1, "run": "run-1", "state": "committing"}
    assert record.after == {"attempt": 1, "run": "by-hand", "state": "committing"}


def test_rows_that_the_sink_shows_already_are_no_finding_of_the_proof(warehouse: Warehouse) -> None:
    """The ledger has not confirmed them; the next proof looks again."""
    attempt = life.take_to_audited(warehouse, FIRST)
    announce(warehouse, attempt)
    assert attempt.batch.batch_id in warehouse.load_published_history().visible_early
    revoke(warehouse, attempt)
    assert attempt.batch.batch_id not in warehouse.load_published_history().visible_early


def test_other_partitions_may_be_planned_and_others_paused_meanwhile(warehouse: Warehouse, attempt: Attempt) -> None:
    assert warehouse.decisions.pause(warehouse.pipeline, BY_ANA).is_new
    assert warehouse.decisions.resume(warehouse.pipeline, BY_ANA).is_new
    assert life.store(warehouse, OffsetRange(ORDERS_0, 3, 4)).batch_id == attempt.batch.batch_id
