"""The contract of the Ledger port: one publication makes everything visible, once, or nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, HeldRange
from batchledger.model.errors import BatchBlockedError, FencedError, PositionConflictError, StagingLostError
from batchledger.model.offsets import OffsetRange
from batchledger.planning.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND, fenced_by_second_attempt
from tests.contract.warehouses import IDENTITY, Warehouse

WAREHOUSES = EVERY_SINK


class PlannedFaultError(Exception):
    """What a test raises inside a publication."""


def test_i4_superseded_attempt_cannot_publish(warehouse: Warehouse) -> None:
    """S71."""
    attempt = life.take_to_audited(warehouse, FIRST)
    message = fenced_by_second_attempt(warehouse, attempt)
    with pytest.raises(FencedError, match=message):
        life.publish(warehouse, attempt)
    assert life.target_coordinates(warehouse) == []
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


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
            lambda: publish_rows(warehouse.sink, publication, publication.load()),
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


@pytest.mark.table
def test_i3_nobody_sees_an_open_publication(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(attempt) as publication:
        publication.advance_positions()
        publish_rows(warehouse.sink, publication, publication.load())
        publication.publish_quarantine()
        publication.mark_published()
        assert life.target_coordinates(warehouse) == []
        assert life.next_offsets(warehouse) == {ORDERS_0: 0}
        assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.AUDITED
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


@pytest.mark.table
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
        publish_rows(warehouse.sink, publication, publication.load())
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_rows_are_remembered_as_written_across_attempts(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(attempt) as publication:
        assert not publication.load().has_rows
        publication.mark_rows()
    again = life.stage(warehouse, attempt.batch, "run-2")
    life.audit(warehouse, again)
    with warehouse.ledger.publication(again) as publication:
        assert publication.load().has_rows


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
    with pytest.raises(FencedError, match="Attempt 1 of run run-1 has it published"):
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
    with pytest.raises(PositionConflictError, match=r"orders\[1\]: expected 10, found 11") as conflict:
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


# The ledger compares what is offered; its statements know nothing of a sink. The two tests above of a moved position
# say for each sink that it shows nothing of what is refused so.
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


@pytest.mark.table
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


@pytest.mark.table
@pytest.mark.parametrize("offered", [offered for offered, is_taken in AFTER_A_BATCH.values() if not is_taken], ids=str)
def test_s78_s88_range_that_was_planned_over_a_forged_position_is_refused_at_publication(
    warehouse: Warehouse, offered: OffsetRange
) -> None:
    """The same ranges once more, with a position that was moved back in between: the last line of defence."""
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
    with (
        pytest.raises(StagingLostError, match="1 record, staging holds 0"),
        warehouse.ledger.publication(attempt) as publication,
    ):
        publication.publish_quarantine()
    assert list(warehouse.read_quarantine()) == []


def test_accepted_rows_are_those_of_the_audit(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST, OTHER)
    with warehouse.ledger.publication(attempt) as publication:
        assert publication.load().accepted == 5
        assert publication.attempt == attempt
        publication.advance_positions()
        publish_rows(warehouse.sink, publication, publication.load())
        publication.mark_published()


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
