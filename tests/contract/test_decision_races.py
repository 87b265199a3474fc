"""Decisions that arrive in the middle of a publication, on PostgreSQL: they wait for its end, and then see it.

Each race is shown twice: as it is, and without the locks, where the proof finds what went wrong.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from batchledger.ledger import decisions
from batchledger.ledger.rows import load_batch
from batchledger.model.batch import Attempt, BatchState, Decided, Decision
from batchledger.model.errors import DecisionRefusedError, PositionConflictError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.life import FIRST, ORDERS_0, SECOND
from tests.contract.warehouses import PostgresWarehouse, open_postgres
from tests.support import wait_until

BY_ANA = Decision("ana@host", "the rows were wrong")


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a decision looks, and acts on what it has seen."""
    monkeypatch.setattr(decisions, "lock_pipeline", lambda *_: None)
    monkeypatch.setattr(decisions, "_lock_batch", load_batch)


def decide_within_publication(
    warehouse: PostgresWarehouse, attempt: Attempt, decide: Callable[[], Decided]
) -> Future[Decided]:
    """Publish, and let a person decide after everything is written and before it is committed."""
    with ThreadPoolExecutor(1) as pool, warehouse.ledger.publication(attempt) as publication:
        life.apply(warehouse, publication)
        decided = pool.submit(decide)
        publisher = publication.connection.info.backend_pid
        wait_until(lambda: decided.done() or warehouse.count_kept_waiting(publisher))
        assert not decided.done(), "the decision did not wait"
    return decided


def rewind(warehouse: PostgresWarehouse) -> Decided:
    return warehouse.decisions.rewind(warehouse.pipeline, ResolvedRewind(0, {ORDERS_0: 1}), BY_ANA)


def test_discarding_waits_for_the_publication_and_is_refused_after_it(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    discarded = decide_within_publication(
        warehouse, attempt, lambda: warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA)
    )
    with pytest.raises(DecisionRefusedError, match="is published"):
        discarded.result()
    assert warehouse.prove().holds


@pytest.mark.usefixtures("without_locks")
def test_negative_control_without_locks_a_discarded_batch_has_visible_rows(warehouse: PostgresWarehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    discarded = decide_within_publication(
        warehouse, attempt, lambda: warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA)
    )
    assert discarded.result().is_new
    assert {each.invariant for each in warehouse.prove().findings} >= {"I1", "target"}


def test_rewind_waits_for_the_publication_and_leaves_its_batch_alone(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    assert decide_within_publication(warehouse, attempt, lambda: rewind(warehouse)).result().is_new
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}
    assert warehouse.prove().holds
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 1, 5), run="run-3")
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
    assert warehouse.prove().holds


@pytest.mark.usefixtures("without_locks")
def test_negative_control_without_locks_a_rewind_discards_a_batch_that_is_published(
    warehouse: PostgresWarehouse,
) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    assert decide_within_publication(warehouse, attempt, lambda: rewind(warehouse)).result().is_new
    assert "target" in {each.invariant for each in warehouse.prove().findings}


def empty_from_the_second_range_on(warehouse: PostgresWarehouse) -> Decided:
    """What it was checked against held nothing before."""
    asked = ResolvedRewind(0, {ORDERS_0: SECOND.start})
    return warehouse.decisions.rewind(warehouse.pipeline, asked, BY_ANA, warehouse.sink.truncate)


def test_truncation_that_waited_for_a_replay_of_history_leaves_its_rows(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, SECOND)
    replay = life.take_replay_to_audited(warehouse, FIRST)
    rewound = decide_within_publication(warehouse, replay, lambda: empty_from_the_second_range_on(warehouse))
    with pytest.raises(PositionConflictError, match=r"orders\[0\] 0\.\.3 came into the table"):
        rewound.result()
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND])
    assert warehouse.prove().holds


def test_negative_control_unchecked_a_truncation_removes_a_replay_that_it_waited_for(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.take_to_published(warehouse, SECOND)
    replay = life.take_replay_to_audited(warehouse, FIRST)
    monkeypatch.setattr(decisions, "require_checked", lambda *_: None)
    rewound = decide_within_publication(warehouse, replay, lambda: empty_from_the_second_range_on(warehouse))
    assert rewound.result().is_new
    assert life.target_coordinates(warehouse) == []


def test_negative_control_without_the_epoch_a_rewind_is_overruled_unseen(
    warehouse: PostgresWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ana's rewind to 0 and Ben's to 2 were both made for the first epoch; Ben has not seen Ana's."""
    life.take_to_published(warehouse, FIRST)
    monkeypatch.setattr(decisions, "require_present", lambda *_: None)
    for offset in (0, 2):
        warehouse.decisions.rewind(warehouse.pipeline, ResolvedRewind(0, {ORDERS_0: offset}), BY_ANA)
    assert life.next_offsets(warehouse) == {ORDERS_0: 2}
