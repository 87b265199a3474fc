"""The contract of the Decisions port: one decision is first, the other one is refused or comes after it.

Each order is played. On PostgreSQL the second one comes while the first one is still at it, and has to wait.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from batchledger.model.batch import Attempt, Batch, BatchState, Decided
from batchledger.model.errors import (
    BatchledgerError,
    DecisionRefusedError,
    FencedError,
    PipelinePausedError,
    PositionConflictError,
)
from batchledger.model.offsets import OffsetRange
from tests.contract import life
from tests.contract.decided import BY_ANA, assert_proved, rewind, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.warehouses import PostgresWarehouse, Warehouse
from tests.support import wait_until

Action = Callable[[], object]


def do_in_order(warehouse: Warehouse, actions: Mapping[str, Action], batch: Batch | None = None) -> dict[str, object]:
    """Do one after the other; return each result, or the error that it ended with.

    On PostgreSQL all of them meet at the row of the pipeline, or of ``batch``: each has asked for it before the next
    one comes, and the first one gets it when all have.
    """
    if not isinstance(warehouse, PostgresWarehouse):
        return {name: end_of(action) for name, action in actions.items()}
    table, key, value = ("batch", "batch_id", batch.batch_id) if batch else ("pipeline", "name", warehouse.pipeline)
    with psycopg.connect(warehouse.dsn, autocommit=True) as connection:
        connection.execute(
            "insert into batchledger.pipeline (name) values (%s) on conflict do nothing", [warehouse.pipeline]
        )
    ends = {}
    with ThreadPoolExecutor(len(actions)) as pool, psycopg.connect(warehouse.dsn) as gate:
        gate.execute(f"select from batchledger.{table} where {key} = %s for update", [value])  # type: ignore[arg-type]
        for name, action in actions.items():
            ends[name] = pool.submit(end_of, action)
            wait_until(lambda: count_waiting(warehouse.dsn) >= len(ends))
    return {name: end.result() for name, end in ends.items()}


def count_waiting(dsn: str) -> int:
    """How many sessions wait for another one."""
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(dsn) as connection:
        return int(connection.execute(query).fetchall()[0][0])


def end_of(action: Action) -> object:
    try:
        return action()
    except BatchledgerError as error:
        return error


def first(name: str, actions: Mapping[str, Action]) -> Mapping[str, Action]:
    """The same actions, beginning with that one."""
    return {name: actions[name], **actions}


@pytest.mark.parametrize("first_one", ["publication", "rewind"])
def test_rewind_beside_a_publication_comes_before_or_after_it(warehouse: Warehouse, first_one: str) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    actions: dict[str, Action] = {
        "publication": lambda: life.publish(warehouse, attempt),
        "rewind": lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0),
    }
    ends = do_in_order(warehouse, first(first_one, actions))
    assert isinstance(ends["rewind"], Decided)
    is_published = warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert is_published == (first_one == "publication")
    assert ends["publication"] == 2 if is_published else isinstance(ends["publication"], FencedError)
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}
    assert_proved(warehouse)
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 1, 5), run="run-3")
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
    assert_proved(warehouse)


@pytest.mark.parametrize("first_one", ["publication", "truncation"])
def test_truncation_beside_a_publication_leaves_no_row_that_nobody_accounts_for(
    warehouse: Warehouse, first_one: str
) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    actions: dict[str, Action] = {
        "publication": lambda: life.publish(warehouse, attempt),
        "truncation": lambda: rewind(warehouse, {ORDERS_0: 0}, truncate=True, epoch=0),
    }
    ends = do_in_order(warehouse, first(first_one, actions))
    assert isinstance(ends["truncation"], Decided)
    is_published = first_one == "publication"
    assert ends["publication"] == 2 if is_published else isinstance(ends["publication"], FencedError)
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}
    assert life.target_coordinates(warehouse) == []
    assert_proved(warehouse)


@pytest.mark.parametrize(
    "order",
    [
        ("acceptance", "publication", "new attempt"),
        ("acceptance", "new attempt", "publication"),
        ("new attempt", "acceptance", "publication"),
    ],
    ids=", ".join,
)
def test_acceptance_beside_a_new_attempt_never_publishes_for_the_fenced_one(
    warehouse: Warehouse, order: tuple[str, ...]
) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    batch = attempt.batch
    actions: dict[str, Action] = {
        "acceptance": lambda: warehouse.decisions.accept(attempt, BY_ANA),
        "publication": lambda: life.publish(warehouse, attempt),
        "new attempt": lambda: warehouse.ledger.open_attempt(batch.batch_id, "run-2"),
    }
    *together, last = order
    ends = do_in_order(warehouse, {each: actions[each] for each in together}, batch) | {last: end_of(actions[last])}
    assert isinstance(ends["acceptance"], FencedError if order[0] == "new attempt" else Decided)
    is_published = last == "new attempt"
    assert isinstance(ends["new attempt"], FencedError if is_published else Attempt)
    assert ends["publication"] == 3 if is_published else isinstance(ends["publication"], FencedError)
    assert life.target_coordinates(warehouse) == (life.rows_of([FIRST]) if is_published else [])
    assert_proved(warehouse)


@pytest.mark.parametrize("first_one", ["publication", "discarding"])
def test_discarding_beside_a_publication_does_the_one_or_the_other(warehouse: Warehouse, first_one: str) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    actions: dict[str, Action] = {
        "publication": lambda: life.publish(warehouse, attempt),
        "discarding": lambda: warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA),
    }
    ends = do_in_order(warehouse, first(first_one, actions))
    if first_one == "publication":
        assert ends["publication"] == 3
        assert isinstance(ends["discarding"], DecisionRefusedError)
    else:
        assert isinstance(ends["publication"], FencedError)
        assert isinstance(ends["discarding"], Decided)
    assert life.target_coordinates(warehouse) == (life.rows_of([FIRST]) if first_one == "publication" else [])
    assert_proved(warehouse)


def test_of_two_rewinds_at_once_one_is_carried_out(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    actions: dict[str, Action] = {
        "first": lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0),
        "second": lambda: rewind(warehouse, {ORDERS_0: 2}, epoch=0),
    }
    ends = do_in_order(warehouse, actions)
    assert isinstance(ends["first"], Decided)
    assert isinstance(ends["second"], PositionConflictError)
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}
    assert_proved(warehouse)


def test_the_same_rewind_twice_at_once_opens_one_epoch(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    actions = {each: lambda: rewind(warehouse, {ORDERS_0: 1}, epoch=0) for each in ("first", "second", "third")}
    ends = do_in_order(warehouse, actions)
    assert [isinstance(each, Decided) and each.is_new for each in ends.values()] == [True, False, False]
    assert all(isinstance(each, Decided) for each in ends.values())
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1


@pytest.mark.parametrize("first_one", ["plan", "pause"])
def test_plan_beside_a_pause_is_stored_before_it_or_not_at_all(warehouse: Warehouse, first_one: str) -> None:
    actions: dict[str, Action] = {
        "plan": lambda: life.store(warehouse, FIRST),
        "pause": lambda: warehouse.decisions.pause(warehouse.pipeline, BY_ANA),
    }
    ends = do_in_order(warehouse, first(first_one, actions))
    assert isinstance(ends["pause"], Decided)
    assert isinstance(ends["plan"], Batch if first_one == "plan" else PipelinePausedError)
    assert (warehouse.ledger.find_open_batch(warehouse.pipeline) is not None) == (first_one == "plan")
