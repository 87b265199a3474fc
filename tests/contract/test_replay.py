"""What ledger and sink promise to a replay: it takes over exactly its ranges, from any batch that holds them."""

from datetime import timedelta

import pytest

from batchledger.books.history import load_batch_history
from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, HeldRange, Lane
from batchledger.model.errors import FencedError, PositionConflictError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Deduplication
from batchledger.planning.live import Plan
from tests.contract.conftest import EVERY_TABLE
from tests.contract.life import (
    apply,
    audit,
    balance,
    next_offsets,
    publish,
    rows_of,
    stage,
    store,
    store_replay,
    take_replay_to_audited,
    take_to_audited,
    take_to_published,
)
from tests.contract.warehouses import Warehouse, open_postgres
from tests.fakes.database import Coordinate

WAREHOUSES = EVERY_TABLE

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, OTHER = OffsetRange(ORDERS_0, 0, 6), OffsetRange(ORDERS_1, 0, 3)
SECOND = OffsetRange(ORDERS_0, 6, 9)
MIDDLE = OffsetRange(ORDERS_0, 4, 8)


def owners(warehouse: Warehouse) -> dict[Coordinate, int]:
    """Which batch wrote the row of each coordinate; fails when one has two rows."""
    rows = warehouse.read_target()
    found = {(TopicPartition(row["_topic"], row["_partition"]), row["_offset"]): row["_batch_id"] for row in rows}
    assert len(found) == len(rows)
    return found


def published_history(warehouse: Warehouse) -> tuple[Attempt, Attempt]:
    """Two live batches: ``orders[0] 0..6`` with ``orders[1] 0..3``, then ``orders[0] 6..9``."""
    return take_to_published(warehouse, FIRST, OTHER), take_to_published(warehouse, SECOND, run="run-2")


def test_replay_finds_what_each_batch_holds_of_its_ranges(warehouse: Warehouse) -> None:
    first, second = published_history(warehouse)
    replay = take_replay_to_audited(warehouse, MIDDLE)
    with warehouse.ledger.publication(replay) as publication:
        assert list(publication.load().replaced) == [
            HeldRange(first.batch.batch_id, OffsetRange(ORDERS_0, 4, 6)),
            HeldRange(second.batch.batch_id, OffsetRange(ORDERS_0, 6, 8)),
        ]
        assert not publication.load().holds_all_ranges
        apply(warehouse, publication)
        assert publication.load().holds_all_ranges


def test_replay_takes_over_exactly_its_ranges_and_moves_no_position(warehouse: Warehouse) -> None:
    """S129."""
    first, second = published_history(warehouse)
    positions = next_offsets(warehouse)
    replay = take_replay_to_audited(warehouse, MIDDLE)
    assert publish(warehouse, replay) == 4
    by_owner = {
        first.batch.batch_id: rows_of([OffsetRange(ORDERS_0, 0, 4), OTHER]),
        replay.batch.batch_id: rows_of([MIDDLE]),
        second.batch.batch_id: rows_of([OffsetRange(ORDERS_0, 8, 9)]),
    }
    assert owners(warehouse) == {at: owner for owner, held in by_owner.items() for at in held}
    assert next_offsets(warehouse) == positions
    assert warehouse.prove().findings == ()


def test_replay_of_a_replay_replaces_it(warehouse: Warehouse) -> None:
    published_history(warehouse)
    publish(warehouse, take_replay_to_audited(warehouse, MIDDLE))
    last = take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 0, 9), OTHER, run="once more")
    publish(warehouse, last)
    assert set(owners(warehouse).values()) == {last.batch.batch_id}
    assert warehouse.prove().findings == ()


def test_several_ranges_of_one_partition_are_replaced_and_what_lies_between_stays(warehouse: Warehouse) -> None:
    first, _ = published_history(warehouse)
    pieces = OffsetRange(ORDERS_0, 0, 1), OffsetRange(ORDERS_0, 2, 4), OffsetRange(ORDERS_0, 5, 7)
    replay = take_replay_to_audited(warehouse, *pieces)
    publish(warehouse, replay)
    assert {at for at, owner in owners(warehouse).items() if owner == replay.batch.batch_id} == set(rows_of(pieces))
    assert owners(warehouse)[ORDERS_0, 1] == first.batch.batch_id
    assert warehouse.prove().findings == ()


def test_quarantined_record_that_decodes_now_moves_to_the_target(warehouse: Warehouse) -> None:
    attempt = stage(warehouse, store(warehouse, FIRST), poison=[(ORDERS_0, 1), (ORDERS_0, 5)])
    audit(warehouse, attempt)
    publish(warehouse, attempt)
    publish(warehouse, take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 2)))
    assert [offset for _, offset, _ in warehouse.read_quarantine()] == [5]
    assert sorted(offset for _, offset in owners(warehouse)) == [0, 1, 2, 3, 4]
    assert warehouse.prove().findings == ()


def test_record_that_decodes_no_more_moves_to_quarantine(warehouse: Warehouse) -> None:
    published_history(warehouse)
    attempt = stage(warehouse, store_replay(warehouse, MIDDLE), "again", poison=[(ORDERS_0, 5)])
    audit(warehouse, attempt)
    publish(warehouse, attempt)
    assert [offset for _, offset, _ in warehouse.read_quarantine()] == [5]
    assert (ORDERS_0, 5) not in owners(warehouse)
    assert warehouse.prove().findings == ()


def test_replay_that_has_nothing_to_read_is_noted_once_for_each_request(warehouse: Warehouse) -> None:
    for key in ("request-1", "request-1", "request-2"):
        warehouse.ledger.note_expired(warehouse.pipeline, [OffsetRange(ORDERS_0, 0, 4)], Decision("ana", "late"), key)
    noted = warehouse.read_pipeline_decisions()
    assert [(each.kind, each.decided_by, each.batch_id) for each in noted] == [("replay", "ana", None)] * 2
    assert [each.after for each in noted] == [
        {"expired": ["orders[0] 0..4"], "request": key} for key in ("request-1", "request-2")
    ]


def test_aborted_publication_of_a_replay_leaves_everything_as_it_was(warehouse: Warehouse) -> None:
    published_history(warehouse)
    before = owners(warehouse)
    replay = take_replay_to_audited(warehouse, MIDDLE)

    class PowerCutError(Exception): ...

    def die_before_commit() -> None:
        with warehouse.ledger.publication(replay) as publication:
            apply(warehouse, publication)
            raise PowerCutError

    with pytest.raises(PowerCutError):
        die_before_commit()
    assert owners(warehouse) == before
    assert warehouse.prove().findings == ()
    publish(warehouse, replay)
    assert warehouse.prove().findings == ()


def test_live_batch_takes_over_from_a_replay_that_read_ahead(warehouse: Warehouse) -> None:
    take_to_published(warehouse, FIRST, OTHER)
    ahead = take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 4, 12))
    publish(warehouse, ahead)
    live = take_to_published(warehouse, SECOND, run="run-2")
    held = {owner: {offset for (_, offset), by in owners(warehouse).items() if by == owner} for owner in (
        ahead.batch.batch_id, live.batch.batch_id
    )}  # fmt: skip
    assert held == {ahead.batch.batch_id: {4, 5, 9, 10, 11}, live.batch.batch_id: {6, 7, 8}}
    assert warehouse.prove().findings == ()


@pytest.mark.rules
@pytest.mark.parametrize(
    "deduplication", [None, Deduplication(("message_id",), timedelta(days=1))], ids=["no keys", "keys"]
)
def test_batch_that_takes_over_withdraws_what_its_own_first_commit_has_written(
    warehouse: Warehouse, deduplication: Deduplication | None
) -> None:
    """As at_least_once it has committed rows; a replay has replaced some of them; then it publishes everything."""
    warehouse = warehouse.with_rules(deduplication)
    live = take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(live) as publication:
        publish_rows(warehouse.sink, publication, publication.load())
        publication.mark_rows()
    publish(warehouse, take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 4, 6)))
    publish(warehouse, live)
    assert owners(warehouse) == dict.fromkeys(rows_of([FIRST]), live.batch.batch_id)
    assert warehouse.prove().findings == ()


def test_i2_live_batch_takes_nothing_over_from_a_live_batch_of_its_epoch(warehouse: Warehouse) -> None:
    take_to_published(warehouse, FIRST)
    warehouse.move_position(ORDERS_0, 4)
    overlapping = take_to_audited(warehouse, OffsetRange(ORDERS_0, 4, 8), run="run-2")
    with pytest.raises(PositionConflictError, match="overlaps"):
        publish(warehouse, overlapping)
    assert len(owners(warehouse)) == 6


def test_i2_replay_that_took_a_range_over_does_not_let_live_batches_overlap(warehouse: Warehouse) -> None:
    take_to_published(warehouse, FIRST)
    publish(warehouse, take_replay_to_audited(warehouse, FIRST))
    warehouse.move_position(ORDERS_0, 4)
    overlapping = take_to_audited(warehouse, OffsetRange(ORDERS_0, 4, 8), run="run-2")
    with pytest.raises(PositionConflictError, match="overlaps"):
        publish(warehouse, overlapping)
    assert len(owners(warehouse)) == 6


def test_i8_overlapping_holders_are_refused_when_nothing_was_taken_over(warehouse: Warehouse) -> None:
    published_history(warehouse)
    replay = take_replay_to_audited(warehouse, MIDDLE)
    with pytest.raises(PositionConflictError, match="overlaps"), warehouse.ledger.publication(replay) as publication:
        publication.mark_published()
    assert warehouse.prove().findings == ()


def test_i7_replay_whose_balance_is_open_is_refused(warehouse: Warehouse) -> None:
    published_history(warehouse)
    attempt = stage(warehouse, store_replay(warehouse, MIDDLE), "again", extra=[(ORDERS_0, 4)])
    assert any(not each.is_closed for each in balance(warehouse, attempt))
    audit(warehouse, attempt)
    with pytest.raises(Exception, match="balance"):
        publish(warehouse, attempt)
    assert warehouse.prove().findings == ()


def test_request_is_stored_once_and_found_by_its_key(warehouse: Warehouse) -> None:
    published_history(warehouse)
    first = store_replay(warehouse, MIDDLE, key="again+0")
    assert (first.lane, first.state) == (Lane.REPLAY, BatchState.PLANNED)
    assert store_replay(warehouse, FIRST, key="again+0") == first
    assert warehouse.ledger.find_replay(warehouse.pipeline, "again+0") == first
    assert warehouse.ledger.find_replay(warehouse.pipeline, "again+1") is None


def test_replays_stay_open_beside_each_other_and_beside_the_live_batch(warehouse: Warehouse) -> None:
    published_history(warehouse)
    live = store(warehouse, OffsetRange(ORDERS_0, 9, 12), run="run-3")
    replays = [store_replay(warehouse, MIDDLE, run=f"again-{number}") for number in range(3)]
    assert len({each.batch_id for each in replays}) == 3
    found: Batch | None = warehouse.ledger.find_open_batch(warehouse.pipeline)
    assert found == live
    assert all(warehouse.ledger.load_batch(each.batch_id).state is BatchState.PLANNED for each in replays)


def test_run_that_is_asked_anew_gives_its_open_replay_up(warehouse: Warehouse) -> None:
    published_history(warehouse)
    first = store_replay(warehouse, MIDDLE, key="again+0")
    stage(warehouse, first, "again")
    assert [each.batch_id for each in warehouse.ledger.find_open_replays(warehouse.pipeline, "again")] == [
        first.batch_id
    ]
    second = store_replay(warehouse, MIDDLE, key="again+1")
    assert warehouse.ledger.find_open_replays(warehouse.pipeline, "again") == [second]
    *_, record = warehouse.decisions.load_decisions(first.batch_id)
    assert (record.kind, record.decided_by, record.reason) == ("discard", "ana", f"asked anew: batch {second.batch_id}")
    assert (record.before, record.after) == ({"state": "staged"}, {"state": "discarded"})
    assert warehouse.ledger.load_batch(first.batch_id).state is BatchState.DISCARDED
    assert warehouse.ledger.load_batch(second.batch_id).state is BatchState.PLANNED
    with pytest.raises(FencedError, match="The target stays as it is") as told:
        warehouse.ledger.open_attempt(first.batch_id, "again")
    assert "planned again" not in str(told.value)


def test_dry_run_leaves_the_open_replay_of_its_run_alone_and_gives_up_the_dry_run_before(warehouse: Warehouse) -> None:
    published_history(warehouse)
    replay = store_replay(warehouse, MIDDLE, key="again+0")
    rehearsal = Plan((MIDDLE,), 0, lane=Lane.REPLAY, is_dry_run=True)
    first, second = (
        warehouse.ledger.store_replay(warehouse.pipeline, rehearsal, "again", Decision("ana", "a look"), None)
        for _ in range(2)
    )
    assert warehouse.ledger.find_open_replays(warehouse.pipeline, "again") == [replay, second]
    assert warehouse.ledger.load_batch(first.batch_id).state is BatchState.DISCARDED
    real = store_replay(warehouse, MIDDLE, key="again+1")
    assert warehouse.ledger.find_open_replays(warehouse.pipeline, "again") == [real]


def test_attempt_of_a_replay_that_was_asked_anew_ends_fenced(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        published_history(warehouse)
        first = store_replay(warehouse, MIDDLE, key="again+0")
        stage(warehouse, first, "again")
        store_replay(warehouse, MIDDLE, key="again+1")
        (attempt,) = load_batch_history(warehouse_dsn, first.batch_id).attempts
        assert (attempt.outcome, attempt.ended_at is None) == ("fenced", False)
