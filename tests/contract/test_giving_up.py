"""The contract of the Decisions port: offsets that are given up, by accept-loss and by skip."""

from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.balance import Balance
from batchledger.model.batch import BatchState, DecisionKind, Position, Staged
from batchledger.model.errors import DecisionRefusedError, FencedError, PositionConflictError
from batchledger.model.offsets import OffsetRange
from tests.contract import life
from tests.contract.decided import BY_ANA, BY_BEN, assert_proved, give_up, rewind
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND
from tests.contract.warehouses import IDENTITY, Warehouse


@pytest.mark.parametrize("kind", [DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP])
def test_what_is_given_up_is_a_published_batch_that_moves_only_its_partitions(
    warehouse: Warehouse, kind: DecisionKind
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    loss = give_up(warehouse, SECOND, kind=kind)
    assert (loss.state, loss.ranges) == (BatchState.PUBLISHED, (SECOND,))
    assert list(warehouse.decisions.load_balances(loss.batch_id)) == [Balance(SECOND, accepted_loss=2)]
    assert life.next_offsets(warehouse) == {ORDERS_0: 5, ORDERS_1: 12}
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, OTHER])
    with pytest.raises(FencedError):
        warehouse.ledger.open_attempt(loss.batch_id, "run-2")
    assert_proved(warehouse)


def test_decision_keeps_who_why_when_and_what_it_changed(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    loss = give_up(warehouse, SECOND)
    (record,) = warehouse.decisions.load_decisions(loss.batch_id)
    assert (record.kind, record.pipeline, record.batch_id) == ("accept-loss", warehouse.pipeline, loss.batch_id)
    assert (record.decided_by, record.reason) == (BY_ANA.decided_by, BY_ANA.reason)
    assert (record.before, record.after) == ({"next_offset": {"orders[0]": 3}}, {"next_offset": {"orders[0]": 5}})
    assert abs(datetime.now(UTC) - record.decided_at) < timedelta(minutes=1)


def test_giving_up_the_same_ranges_again_changes_nothing_and_names_the_first_decision(warehouse: Warehouse) -> None:
    """A reply to COMMIT that was lost: the person tries again."""
    life.take_to_published(warehouse, FIRST, OTHER)
    ranges = [SECOND, OffsetRange(ORDERS_1, 12, 13)]
    kind = DecisionKind.ACCEPT_LOSS
    first = warehouse.decisions.give_up(warehouse.pipeline, ranges, kind, BY_ANA)
    again = warehouse.decisions.give_up(warehouse.pipeline, ranges[::-1], kind, BY_BEN)
    assert (first.is_new, again.is_new, again.record) == (True, False, first.record)
    assert warehouse.decisions.find_given_up(warehouse.pipeline, ranges, kind) == first.record
    assert warehouse.decisions.find_given_up(warehouse.pipeline, ranges[:1], kind) is None
    assert warehouse.decisions.find_given_up(warehouse.pipeline, ranges, DecisionKind.SKIP) is None
    assert life.next_offsets(warehouse) == {ORDERS_0: 5, ORDERS_1: 13}


def test_offsets_given_up_in_an_earlier_epoch_can_be_given_up_again(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    first = give_up(warehouse, SECOND, kind=DecisionKind.SKIP)
    rewind(warehouse, {ORDERS_0: 3})
    assert warehouse.decisions.find_given_up(warehouse.pipeline, [SECOND], DecisionKind.SKIP) is None
    assert give_up(warehouse, SECOND, kind=DecisionKind.SKIP).batch_id != first.batch_id
    assert_proved(warehouse)


def test_i2_offsets_that_were_given_up_can_never_be_published(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    give_up(warehouse, SECOND)
    warehouse.move_position(ORDERS_0, 3)
    attempt = life.take_to_audited(warehouse, SECOND)
    with pytest.raises(PositionConflictError, match="overlaps"):
        life.publish(warehouse, attempt)


def test_range_that_does_not_start_at_the_position_is_not_given_up(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    for wrong in (OffsetRange(ORDERS_0, 4, 5), OffsetRange(ORDERS_0, 2, 5), OTHER):
        with pytest.raises(PositionConflictError, match=f"expected {wrong.start}, found"):
            give_up(warehouse, wrong)
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None


def test_partition_that_was_never_planned_gets_its_first_position_with_the_decision(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    first = [Position(ORDERS_1, 10, 10, IDENTITY), Position(ORDERS_0, 1, 1, IDENTITY)]
    warehouse.decisions.give_up(warehouse.pipeline, [OTHER], DecisionKind.SKIP, BY_ANA, first_positions=first)
    assert life.next_offsets(warehouse) == {ORDERS_0: 3, ORDERS_1: 12}


def test_giving_up_discards_the_open_batch_over_its_partition_and_says_so(warehouse: Warehouse) -> None:
    open_batch = life.store(warehouse, FIRST, OTHER)
    attempt = warehouse.ledger.open_attempt(open_batch.batch_id, "run-1")
    given_up = give_up(warehouse, OffsetRange(ORDERS_0, 0, 1))
    assert warehouse.ledger.load_batch(open_batch.batch_id).state is BatchState.DISCARDED
    (record,) = warehouse.decisions.load_decisions(given_up.batch_id)
    assert record.after is not None
    assert record.after["batch"] == {str(open_batch.batch_id): "discarded"}
    (about_the_other,) = warehouse.decisions.load_decisions(open_batch.batch_id)
    assert (about_the_other.kind, about_the_other.reason) == ("discard", BY_ANA.reason)
    with pytest.raises(FencedError, match="discarded"):
        warehouse.ledger.mark_staged(attempt, Staged(0))
    assert life.store(warehouse, OffsetRange(ORDERS_0, 1, 3), OTHER).batch_id != open_batch.batch_id


def test_giving_up_discards_what_has_been_staged_only_by_the_id_of_its_batch(warehouse: Warehouse) -> None:
    open_batch = life.store(warehouse, FIRST, OTHER)
    life.stage(warehouse, open_batch)
    lost = OffsetRange(ORDERS_0, 0, 1)
    for named in (None, open_batch.batch_id + 1):
        with pytest.raises(DecisionRefusedError, match="Attempt 1 of run run-1 has the batch staged"):
            give_up(warehouse, lost, discard=named)
    assert warehouse.ledger.load_batch(open_batch.batch_id).state is BatchState.STAGED
    assert life.next_offsets(warehouse) == {ORDERS_0: 0, ORDERS_1: 10}
    give_up(warehouse, lost, discard=open_batch.batch_id)
    assert warehouse.ledger.load_batch(open_batch.batch_id).state is BatchState.DISCARDED


def test_giving_up_leaves_an_open_batch_over_other_partitions(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, OTHER)
    give_up(warehouse, SECOND)
    assert life.publish(warehouse, attempt) == 2
