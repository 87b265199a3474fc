"""The contract of the Decisions port: a pipeline goes back, and the new epoch replaces what the old one published."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.batch import Decided
from batchledger.model.errors import FencedError, PositionConflictError, TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.quarantine import NOTHING
from batchledger.model.records.rules import Deduplication
from tests.contract import life
from tests.contract.decided import assert_proved, record_of, rewind
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND
from tests.contract.updates import BY_OFFSET, P0, Record, Story
from tests.contract.warehouses import Warehouse


def test_rewind_takes_named_partitions_back_and_opens_the_next_epoch_where_the_others_stand(
    warehouse: Warehouse,
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    record = record_of(rewind(warehouse, {ORDERS_0: 1}))
    assert record.before == {"epoch": 0, "next_offset": {"orders[0]": 3}}
    assert record.after == {"epoch": 1, "next_offset": {"orders[0]": 1}}
    assert (record.kind, record.batch_id) == ("rewind", None)
    positions = warehouse.ledger.load_positions(warehouse.pipeline)
    assert [(each.origin_offset, each.epoch_start, each.next_offset) for each in positions] == [(0, 1, 1), (10, 12, 12)]
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, OTHER])
    assert_proved(warehouse)


def test_i8_what_the_new_epoch_publishes_replaces_the_old_rows_and_nothing_else(warehouse: Warehouse) -> None:
    """S130: only a person goes back below the position, in an epoch of its own."""
    old = life.take_to_published(warehouse, FIRST, OTHER).batch.batch_id
    rewind(warehouse, {ORDERS_0: 1})
    new = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 1, 4), run="run-2").batch.batch_id
    assert life.target_coordinates(warehouse) == life.rows_of([OffsetRange(ORDERS_0, 0, 4), OTHER])
    batches = {(row["_partition"], row["_offset"]): row["_batch_id"] for row in warehouse.read_target()}
    assert [batches[0, offset] for offset in range(4)] == [old, new, new, new]
    assert_proved(warehouse)
    again = rewind(warehouse, {ORDERS_0: 0})
    assert record_of(again).after == {"epoch": 2, "next_offset": {"orders[0]": 0}}
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 2), run="run-3")
    assert life.target_coordinates(warehouse) == life.rows_of([OffsetRange(ORDERS_0, 0, 4), OTHER])
    assert_proved(warehouse)


def test_rewind_before_the_origin_moves_the_origin(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, OTHER)
    rewind(warehouse, {ORDERS_1: 4})
    (position,) = warehouse.ledger.load_positions(warehouse.pipeline)
    assert (position.origin_offset, position.epoch_start, position.next_offset) == (4, 4, 4)
    life.take_to_published(warehouse, OffsetRange(ORDERS_1, 4, 11), run="run-2")
    assert life.target_coordinates(warehouse) == life.rows_of([OffsetRange(ORDERS_1, 4, 12)])
    assert_proved(warehouse)


def test_rewind_discards_the_open_batch(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    record = record_of(rewind(warehouse, {ORDERS_0: 0}))
    assert record.after is not None
    assert record.after["batch"] == {str(attempt.batch.batch_id): "discarded"}
    with pytest.raises(FencedError, match="discarded"):
        life.publish(warehouse, attempt)
    assert [each.kind for each in warehouse.decisions.load_decisions(attempt.batch.batch_id)] == ["discard"]


def test_rewind_to_where_the_pipeline_stands_opens_no_epoch(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    assert rewind(warehouse, {ORDERS_0: 1}).is_new
    assert rewind(warehouse, {ORDERS_0: 1}) == Decided(None, is_new=False)
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 1


def test_rewind_that_was_resolved_in_another_epoch_is_refused_unless_it_is_done(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    rewind(warehouse, {ORDERS_0: 1})
    with pytest.raises(PositionConflictError, match="Expected epoch 0, found 1"):
        rewind(warehouse, {ORDERS_0: 0}, epoch=0)
    assert rewind(warehouse, {ORDERS_0: 1}, epoch=0) == Decided(None, is_new=False)
    assert life.next_offsets(warehouse) == {ORDERS_0: 1}


@pytest.mark.parametrize("to", [{ORDERS_0: 4}, {ORDERS_1: 0}], ids=["forwards", "unknown partition"])
def test_rewind_goes_only_backwards_and_only_where_the_pipeline_has_been(
    warehouse: Warehouse, to: dict[TopicPartition, int]
) -> None:
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(PositionConflictError, match="cannot be rewound forwards"):
        rewind(warehouse, to)
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 0


@pytest.mark.rules
def test_truncating_rewind_leaves_nothing_that_a_batch_holds(warehouse: Warehouse) -> None:
    rules = Deduplication(("message_id",), timedelta(days=1))
    store = warehouse.with_rules(deduplication=rules)
    batch = life.store(store, FIRST)
    attempt = life.stage(store, batch, poison=[(ORDERS_0, 1)])
    life.audit(store, attempt)
    life.publish(store, attempt)
    record = record_of(rewind(store, {ORDERS_0: 0}, truncate=True))
    assert record.before == {"epoch": 0, "next_offset": {"orders[0]": 3}, "rows": 2}
    assert record.after == {"epoch": 1, "next_offset": {"orders[0]": 0}, "rows": 0}
    assert life.target_coordinates(store) == []
    assert list(store.read_quarantine()) == []
    assert store.ledger.summarise_quarantine(store.pipeline) == NOTHING
    assert list(store.decisions.load_held(store.pipeline)) == []
    assert_proved(store)
    life.take_to_published(store, OffsetRange(ORDERS_0, 0, 2), run="run-2")
    assert life.target_coordinates(store) == life.rows_of([OffsetRange(ORDERS_0, 0, 2)])
    assert_proved(store)


@pytest.mark.rules
def test_truncating_rewind_forgets_which_keys_were_deleted(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(upsert=BY_OFFSET)
    story = Story(store)
    story.publish(Record("AA", 1), Record("AA", None))
    assert store.count_deleted_keys() == 1
    rewind(store, {P0: 0}, truncate=True)
    assert store.count_deleted_keys() == 0
    assert_proved(store)


@pytest.mark.rules
def test_truncating_rewind_forgets_message_keys(warehouse: Warehouse) -> None:
    """What the target does not hold any more makes nothing a duplicate."""
    store = warehouse.with_rules(deduplication=Deduplication(("message_id",), timedelta(days=1)))
    life.take_to_published(store, FIRST)
    store.remember_key("orders[0]@3", (ORDERS_1, 99), datetime(2099, 1, 1, tzinfo=UTC))
    rewind(store, {ORDERS_0: 0}, truncate=True)
    life.take_to_published(store, OffsetRange(ORDERS_0, 0, 4), run="run-2")
    assert life.target_coordinates(store) == life.rows_of([OffsetRange(ORDERS_0, 0, 4)])
    assert list(store.read_duplicates()) == []


@pytest.mark.rules
def test_rewind_without_truncating_keeps_the_keys_and_a_record_is_no_duplicate_of_itself(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(deduplication=Deduplication(("message_id",), timedelta(days=1)))
    life.take_to_published(store, FIRST)
    rewind(store, {ORDERS_0: 0})
    attempt = life.take_to_audited(store, FIRST, run="run-2")
    assert life.publish(store, attempt) == 3
    assert list(store.read_duplicates()) == []
    assert_proved(store)


def test_truncating_rewind_can_be_repeated(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    assert rewind(warehouse, {ORDERS_0: 0}).is_new
    assert rewind(warehouse, {ORDERS_0: 0}, truncate=True).is_new
    assert rewind(warehouse, {ORDERS_0: 0}, truncate=True) == Decided(None, is_new=False)
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 2


def test_truncation_that_would_take_rows_unseen_is_refused_and_nothing_is_rewound(warehouse: Warehouse) -> None:
    """Something came in between; what was given up by name may go, and what is read again."""
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 3, 6), OTHER)
    replay = life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 4), run="history")
    life.publish(warehouse, replay)
    to = {ORDERS_0: 3, ORDERS_1: 10}
    with pytest.raises(PositionConflictError, match="came into the table") as all_of_it:
        rewind(warehouse, to, truncate=True)
    with pytest.raises(PositionConflictError, match="came into the table") as rest:
        rewind(warehouse, to, truncate=True, given_up=(OffsetRange(ORDERS_0, 0, 2),))
    with pytest.raises(PositionConflictError, match="came into the table") as other:
        rewind(warehouse, {ORDERS_0: 1}, truncate=True)
    unseen = [each.value.ranges for each in (all_of_it, rest, other)]
    assert unseen == [(OffsetRange(ORDERS_0, 1, 3),), (OffsetRange(ORDERS_0, 2, 3),), (OTHER,)]
    assert life.next_offsets(warehouse) == {ORDERS_0: 6, ORDERS_1: 12}
    assert life.target_coordinates(warehouse) == life.rows_of([OffsetRange(ORDERS_0, 1, 6), OTHER])
    assert rewind(warehouse, to, truncate=True, given_up=(OffsetRange(ORDERS_0, 0, 3),)).is_new
    assert life.target_coordinates(warehouse) == []
    assert_proved(warehouse)


def test_truncation_of_a_table_that_is_not_the_pipelines_own_is_refused_and_nothing_is_rewound(
    warehouse: Warehouse,
) -> None:
    life.take_to_published(warehouse, FIRST)
    warehouse.replace_target()
    with pytest.raises(TargetChangedError):
        rewind(warehouse, {ORDERS_0: 0}, truncate=True)
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}
    assert warehouse.decisions.load_epoch(warehouse.pipeline) == 0


def test_truncation_leaves_the_table_of_a_pipeline_that_has_published_nothing_to_it(warehouse: Warehouse) -> None:
    """A table of that name belongs to others."""
    life.take_to_published(warehouse, FIRST)
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other")  # type: ignore[type-var]
    life.store(other, OTHER)
    rewind(other, {ORDERS_1: 0}, truncate=True)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
