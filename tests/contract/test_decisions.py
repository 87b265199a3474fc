"""The contract of the Decisions port: exact, recorded, harmless to repeat, and never raced by a run."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.accounting import Balance
from batchledger.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
    Lane,
    Position,
    Staged,
)
from batchledger.errors import (
    BatchledgerError,
    DecisionRefusedError,
    FencedError,
    PipelinePausedError,
    PositionConflictError,
    TargetChangedError,
    UnknownBatchError,
)
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.planning import Plan
from batchledger.record_rules import Deduplication
from batchledger.rewind import ResolvedRewind
from tests.contract import life
from tests.contract.updates import BY_OFFSET, P0, Record, Story
from tests.contract.warehouses import IDENTITY, Warehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST = OffsetRange(ORDERS_0, 0, 3)
SECOND = OffsetRange(ORDERS_0, 3, 5)
OTHER = OffsetRange(ORDERS_1, 10, 12)
NO_BATCH = 9_000_000_000
BY_ANA = Decision("ana@host", "retention was too short")
BY_BEN = Decision("ben@host", "the rows were wrong")


def record_of(decided: Decided) -> DecisionRecord:
    assert decided.record is not None
    return decided.record


def give_up(
    warehouse: Warehouse,
    *ranges: OffsetRange,
    discard: int | None = None,
    kind: DecisionKind = DecisionKind.ACCEPT_LOSS,
) -> Batch:
    decided = warehouse.decisions.give_up(warehouse.pipeline, ranges, kind, BY_ANA, discard=discard)
    batch_id = record_of(decided).batch_id
    assert batch_id is not None
    return warehouse.ledger.load_batch(batch_id)


def rewind(
    warehouse: Warehouse,
    to: Mapping[TopicPartition, int],
    truncate: bool = False,
    epoch: int | None = None,
    given_up: tuple[OffsetRange, ...] = (),
) -> Decided:
    present = warehouse.decisions.load_epoch(warehouse.pipeline) if epoch is None else epoch
    empty = warehouse.sink.truncate if truncate else None
    return warehouse.decisions.rewind(warehouse.pipeline, ResolvedRewind(present, to, given_up), BY_ANA, empty)


def assert_proved(warehouse: Warehouse) -> None:
    verification = warehouse.prove()
    assert verification.holds, verification.findings


# Giving up offsets: accept-loss and skip.


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
        with pytest.raises(DecisionRefusedError, match="attempt 1 of run run-1 has it staged"):
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


# Accepting a blocked batch.


def take_to_blocked(warehouse: Warehouse, *ranges: OffsetRange, missing: int = 0, run: str = "run-1") -> Attempt:
    """Stage all but ``missing`` rows, without evidence of them either."""
    rows = life.batch_of_rows(life.rows_of(ranges)[missing:])
    attempt = life.stage(warehouse, life.store(warehouse, *ranges, run=run), run, rows=rows)
    staged = [each.rows for each in life.summarise(warehouse, attempt)]
    balances = [Balance(each, accepted=count) for each, count in zip(attempt.batch.ranges, staged, strict=True)]
    warehouse.ledger.record_audit(attempt, balances, [life.FAILED])
    return attempt


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
    with pytest.raises(FencedError, match="attempt 2 of run run-2"):
        warehouse.decisions.accept(attempt, BY_ANA)


def test_i4_newer_attempt_fences_one_that_was_accepted(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    warehouse.decisions.accept(attempt, BY_ANA)
    warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    with pytest.raises(FencedError, match="attempt 2 of run run-2"):
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


# Discarding.


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
    with pytest.raises(DecisionRefusedError, match=r"is published, .* batchledger replay"):
        warehouse.decisions.discard(attempt.batch.batch_id, BY_ANA)


def test_discarded_replay_takes_nothing_over(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    replay = life.take_replay_to_audited(warehouse, FIRST)
    warehouse.decisions.discard(replay.batch.batch_id, BY_ANA)
    with pytest.raises(FencedError):
        life.publish(warehouse, replay)
    assert_proved(warehouse)


def commit_rows_only(warehouse: Warehouse, attempt: Attempt) -> None:
    """The first commit of at_least_once."""
    with warehouse.ledger.publication(attempt) as publication:
        warehouse.sink.publish(publication)
        publication.mark_rows()


def test_batch_whose_rows_are_visible_is_neither_discarded_nor_rewound_over(warehouse: Warehouse) -> None:
    """Nobody would account for its rows; emptying the target takes them along."""
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
    with pytest.raises(DecisionRefusedError, match=f"rows are visible already.* batchledger accept {batch_id}"):
        give_up(warehouse, FIRST, kind=kind)
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


# Triggering.


def test_whoever_triggers_a_run_for_an_open_batch_is_recorded_once(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    first = warehouse.decisions.trigger(batch.batch_id, BY_ANA)
    assert warehouse.decisions.trigger(batch.batch_id, BY_ANA) == Decided(first.record, is_new=False)
    assert warehouse.decisions.trigger(batch.batch_id, BY_BEN).is_new
    recorded = warehouse.decisions.load_decisions(batch.batch_id)
    assert [(each.kind, each.decided_by) for each in recorded] == [
        ("trigger", BY_ANA.decided_by),
        ("trigger", BY_BEN.decided_by),
    ]


def test_nobody_triggers_a_batch_that_is_closed(warehouse: Warehouse) -> None:
    batch_id = life.take_to_published(warehouse, FIRST).batch.batch_id
    assert warehouse.decisions.trigger(batch_id, BY_ANA) == Decided(None, is_new=False)
    assert list(warehouse.decisions.load_decisions(batch_id)) == []


# Taking a batch again.


def test_retake_is_recorded_once_a_run(warehouse: Warehouse) -> None:
    attempt = take_to_blocked(warehouse, FIRST)
    batch_id = attempt.batch.batch_id
    first = warehouse.decisions.retake(batch_id, "by-hand", BY_ANA)
    assert warehouse.decisions.retake(batch_id, "by-hand", BY_ANA) == Decided(first.record, is_new=False)
    assert warehouse.decisions.retake(batch_id, "by-hand-2", BY_ANA).is_new
    assert record_of(first).before == {"attempt": 1, "run": "run-1", "state": "blocked"}
    assert record_of(first).after == {"attempt": 2, "run": "by-hand", "state": "planned"}
    assert warehouse.ledger.load_batch(batch_id).state is BatchState.BLOCKED


def test_closed_batch_cannot_be_retaken(warehouse: Warehouse) -> None:
    published = life.take_to_published(warehouse, FIRST).batch.batch_id
    discarded = life.store(warehouse, SECOND).batch_id
    warehouse.decisions.discard(discarded, BY_ANA)
    for batch_id in (published, discarded):
        with pytest.raises(FencedError):
            warehouse.decisions.retake(batch_id, "by-hand", BY_ANA)
    with pytest.raises(UnknownBatchError):
        warehouse.decisions.retake(NO_BATCH, "by-hand", BY_ANA)


# Rewinding.


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
    with pytest.raises(PositionConflictError, match="expected epoch 0, found 1"):
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
    assert list(store.decisions.load_held(store.pipeline)) == []
    assert_proved(store)
    life.take_to_published(store, OffsetRange(ORDERS_0, 0, 2), run="run-2")
    assert life.target_coordinates(store) == life.rows_of([OffsetRange(ORDERS_0, 0, 2)])
    assert_proved(store)


def test_truncating_rewind_forgets_which_keys_were_deleted(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(upsert=BY_OFFSET)
    story = Story(store)
    story.publish(Record("AA", 1), Record("AA", None))
    assert store.count_deleted_keys() == 1
    rewind(store, {P0: 0}, truncate=True)
    assert store.count_deleted_keys() == 0
    assert_proved(store)


def test_truncating_rewind_forgets_message_keys(warehouse: Warehouse) -> None:
    """What the target does not hold any more makes nothing a duplicate."""
    store = warehouse.with_rules(deduplication=Deduplication(("message_id",), timedelta(days=1)))
    life.take_to_published(store, FIRST)
    store.remember_key("orders[0]@3", (ORDERS_1, 99), datetime(2099, 1, 1, tzinfo=UTC))
    rewind(store, {ORDERS_0: 0}, truncate=True)
    life.take_to_published(store, OffsetRange(ORDERS_0, 0, 4), run="run-2")
    assert life.target_coordinates(store) == life.rows_of([OffsetRange(ORDERS_0, 0, 4)])
    assert list(store.read_duplicates()) == []


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
    with pytest.raises(PositionConflictError, match=r"orders\[0\] 1\.\.3 came into its table"):
        rewind(warehouse, to, truncate=True)
    with pytest.raises(PositionConflictError, match=r"orders\[0\] 2\.\.3 came into its table"):
        rewind(warehouse, to, truncate=True, given_up=(OffsetRange(ORDERS_0, 0, 2),))
    with pytest.raises(PositionConflictError, match=r"orders\[1\] 10\.\.12 came into its table"):
        rewind(warehouse, {ORDERS_0: 1}, truncate=True)
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
    """A table of that name is somebody else's."""
    life.take_to_published(warehouse, FIRST)
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other")  # type: ignore[type-var]
    life.store(other, OTHER)
    rewind(other, {ORDERS_1: 0}, truncate=True)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


# Pausing.


def test_paused_pipeline_takes_no_new_plan_and_says_who_paused_it(warehouse: Warehouse) -> None:
    record = record_of(warehouse.decisions.pause(warehouse.pipeline, BY_ANA))
    assert warehouse.decisions.find_pause(warehouse.pipeline) == record
    with pytest.raises(PipelinePausedError, match=r"paused by ana@host since .* retention was too short"):
        life.store(warehouse, FIRST)
    with pytest.raises(PipelinePausedError):
        life.store_replay(warehouse, FIRST)
    assert warehouse.ledger.find_open_batch(warehouse.pipeline) is None
    dry = Plan((FIRST,), 0, lane=Lane.REPLAY, is_dry_run=True)
    assert warehouse.ledger.store_replay(warehouse.pipeline, dry, "look", BY_ANA, None).is_dry_run
    warehouse.decisions.resume(warehouse.pipeline, BY_BEN)
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
    life.take_to_published(warehouse, FIRST)


def test_attempt_of_a_paused_pipeline_may_be_finished(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.decisions.pause(warehouse.pipeline, BY_ANA)
    assert life.publish(warehouse, attempt) == 3


def test_pause_and_resume_are_harmless_to_repeat(warehouse: Warehouse) -> None:
    decisions, pipeline = warehouse.decisions, warehouse.pipeline
    assert decisions.resume(pipeline, BY_ANA) == Decided(None, is_new=False)
    paused = decisions.pause(pipeline, BY_ANA)
    assert decisions.pause(pipeline, BY_BEN) == Decided(paused.record, is_new=False)
    assert decisions.resume(pipeline, BY_BEN).is_new
    assert not decisions.resume(pipeline, BY_BEN).is_new
    assert decisions.pause(pipeline, BY_BEN).is_new


def test_other_pipelines_are_not_paused(warehouse: Warehouse) -> None:
    warehouse.decisions.pause(f"{warehouse.pipeline}_neighbour", BY_ANA)
    assert warehouse.decisions.find_pause(warehouse.pipeline) is None
    life.store(warehouse, FIRST)


# Who triggered a plan.


def test_plan_keeps_who_triggered_it_and_an_open_batch_is_not_triggered_again(warehouse: Warehouse) -> None:
    plan = Plan((FIRST,), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))
    batch = warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-1", BY_ANA)
    assert warehouse.ledger.store_plan(warehouse.pipeline, plan, "run-2", BY_BEN) == batch
    (record,) = warehouse.decisions.load_decisions(batch.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("trigger", BY_ANA.decided_by, BY_ANA.reason)


# Dry runs.


REHEARSED: dict[str, Callable[[Warehouse, Attempt], Decided]] = {
    "accept-loss": lambda w, _: w.decisions.rehearsal.give_up(
        w.pipeline, [OffsetRange(ORDERS_1, 12, 13)], DecisionKind.ACCEPT_LOSS, BY_ANA
    ),
    "accept": lambda w, blocked: w.decisions.rehearsal.accept(blocked, BY_ANA),
    "discard": lambda w, blocked: w.decisions.rehearsal.discard(blocked.batch.batch_id, BY_ANA),
    "retake": lambda w, blocked: w.decisions.rehearsal.retake(blocked.batch.batch_id, "by-hand", BY_ANA),
    "rewind": lambda w, _: w.decisions.rehearsal.rewind(
        w.pipeline, ResolvedRewind(0, {ORDERS_0: 0, ORDERS_1: 10}), BY_ANA, w.sink.truncate
    ),
    "pause": lambda w, _: w.decisions.rehearsal.pause(w.pipeline, BY_ANA),
}


@pytest.mark.parametrize("decide", REHEARSED.values(), ids=REHEARSED)
def test_rehearsal_tells_what_would_change_and_changes_nothing(
    warehouse: Warehouse, decide: Callable[[Warehouse, Attempt], Decided]
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    blocked = take_to_blocked(warehouse, SECOND, run="run-2")

    def look() -> tuple[object, ...]:
        ledger, decisions = warehouse.ledger, warehouse.decisions
        return (
            list(ledger.load_positions(warehouse.pipeline)),
            ledger.find_open_batch(warehouse.pipeline),
            decisions.load_epoch(warehouse.pipeline),
            decisions.find_pause(warehouse.pipeline),
            list(decisions.load_decisions(blocked.batch.batch_id)),
            list(decisions.load_held(warehouse.pipeline)),
            list(decisions.load_balances(blocked.batch.batch_id)),
            life.target_coordinates(warehouse),
        )

    before = look()
    told = decide(warehouse, blocked)
    assert told.is_new
    assert record_of(told).before != record_of(told).after
    assert look() == before
    assert warehouse.decisions.is_kept
    assert not warehouse.decisions.rehearsal.is_kept


# Races: whoever is first, the other one is refused or comes after it.


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
