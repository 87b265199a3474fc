"""The contract of the Decisions port: whoever is first, the other one is refused or comes after it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from batchledger.model.batch import Batch, BatchState, Decided
from batchledger.model.errors import BatchledgerError, DecisionRefusedError, FencedError, PipelinePausedError
from batchledger.model.offsets import OffsetRange
from tests.contract import life
from tests.contract.decided import BY_ANA, assert_proved, rewind, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.warehouses import Warehouse


def race(*actions: Callable[[], object]) -> list[object]:
    """Do everything at once; return each result, or the error that it ended with."""
    start = threading.Barrier(len(actions))

    def act(action: Callable[[], object]) -> object:
        start.wait()
        try:
            return action()
        except BatchledgerError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(act, actions))


ROUNDS = range(4)


@pytest.mark.parametrize("_", ROUNDS)
def test_rewind_beside_a_publication_comes_before_or_after_it(warehouse: Warehouse, _: int) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    published, rewound = race(
        lambda: life.publish(warehouse, attempt),
        lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0),
    )
    assert isinstance(rewound, Decided)
    is_published = warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert is_published == (published == 2)
    assert is_published or isinstance(published, FencedError)
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}
    assert_proved(warehouse)
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 1, 5), run="run-3")
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
    assert_proved(warehouse)


@pytest.mark.parametrize("_", ROUNDS)
def test_truncation_beside_a_publication_leaves_no_row_that_nobody_accounts_for(warehouse: Warehouse, _: int) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    race(
        lambda: life.publish(warehouse, attempt),
        lambda: rewind(warehouse, {ORDERS_0: 0}, truncate=True, epoch=0),
    )
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}
    assert life.target_coordinates(warehouse) == []
    assert_proved(warehouse)


@pytest.mark.parametrize("_", ROUNDS)
def test_acceptance_beside_a_new_attempt_never_publishes_for_the_fenced_one(warehouse: Warehouse, _: int) -> None:
    attempt = take_to_blocked(warehouse, FIRST)

    def accept_and_publish() -> int:
        warehouse.decisions.accept(attempt, BY_ANA)
        return life.publish(warehouse, attempt)

    published, opened = race(accept_and_publish, lambda: warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2"))
    assert isinstance(published, FencedError) != isinstance(opened, FencedError)
    assert life.target_coordinates(warehouse) == (life.rows_of([FIRST]) if published == 3 else [])
    assert_proved(warehouse)


@pytest.mark.parametrize("_", ROUNDS)
def test_discarding_beside_a_publication_does_the_one_or_the_other(warehouse: Warehouse, _: int) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    published, discarded = race(
        lambda: life.publish(warehouse, attempt),
        lambda: warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA),
    )
    if published == 3:
        assert isinstance(discarded, DecisionRefusedError)
    else:
        assert isinstance(published, FencedError)
        assert isinstance(discarded, Decided)
    assert life.target_coordinates(warehouse) == (life.rows_of([FIRST]) if published == 3 else [])
    assert_proved(warehouse)


@pytest.mark.parametrize("_", ROUNDS)
def test_of_two_rewinds_at_once_one_is_carried_out(warehouse: Warehouse, _: int) -> None:
    life.take_to_published(warehouse, FIRST)
    outcomes = race(
        lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0),
        lambda: rewind(warehouse, {ORDERS_0: 2}, epoch=0),
    )
    assert sorted(type(each).__name__ for each in outcomes) == ["Decided", "PositionConflictError"]
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1
    assert_proved(warehouse)


@pytest.mark.parametrize("_", ROUNDS)
def test_the_same_rewind_twice_at_once_opens_one_epoch(warehouse: Warehouse, _: int) -> None:
    life.take_to_published(warehouse, FIRST)
    outcomes = race(*[lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0)] * 3)
    assert [each.is_new for each in outcomes if isinstance(each, Decided)].count(True) == 1
    assert all(isinstance(each, Decided) for each in outcomes)
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1


@pytest.mark.parametrize("_", ROUNDS)
def test_plan_beside_a_pause_is_stored_before_it_or_not_at_all(warehouse: Warehouse, _: int) -> None:
    stored, paused = race(
        lambda: life.store(warehouse, FIRST), lambda: warehouse.decisions.pause(warehouse.pipeline, BY_ANA)
    )
    assert isinstance(paused, Decided)
    assert isinstance(stored, Batch | PipelinePausedError)
    is_open = warehouse.ledger.find_open_batch(warehouse.pipeline) is not None
    assert is_open == isinstance(stored, Batch)
