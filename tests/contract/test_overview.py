"""What the pages ask of the ledger: over the real PostgreSQL only, because it is about statements."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from batchledger.books.history import list_batches, list_quarantine
from batchledger.books.overview import (
    HOURS_SHOWN,
    Held,
    Volume,
    find_batch_of_run,
    find_quarantined,
    list_given_up,
    list_holders,
    list_published_since,
    list_waiting_replays,
    load_books,
    load_held,
    load_last_batches,
    load_volumes,
)
from batchledger.database.sessions import keep_connections
from batchledger.model.batch import BatchState, DecisionKind, Position, Step, StepFailure
from batchledger.model.checks import CheckResult, IntegrityCheck, Outcome, Severity
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.monitoring.health import Book, CurrentBatch
from batchledger.proof.coverage import Accounted, find_missing
from tests.contract import life
from tests.contract.decided import BY_ANA, give_up, record_of, rewind, take_to_blocked
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND
from tests.contract.warehouses import IDENTITY, PostgresWarehouse, open_postgres

THIRD = OffsetRange(ORDERS_0, 5, 9)
NO_PIPELINE = "there_is_no_such_pipeline"


@pytest.fixture
def warehouse(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """A pipeline of the test's own in the ledger that all tests share."""
    with keep_connections():
        yield from open_postgres(warehouse_dsn)


@pytest.fixture
def other(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    """Another pipeline beside it."""
    yield from open_postgres(warehouse_dsn)


def hold(warehouse: PostgresWarehouse, *ranges: OffsetRange) -> int:
    """Publish a batch that has no rows, in one step: a skip; partitions that are new begin where their range does."""
    first = [Position(each.partition, each.start, each.start, IDENTITY) for each in ranges]
    decided = warehouse.decisions.give_up(warehouse.pipeline, ranges, DecisionKind.SKIP, BY_ANA, first_positions=first)
    batch_id = record_of(decided).batch_id
    assert batch_id is not None
    return batch_id


def book_of(warehouse: PostgresWarehouse) -> Book:
    return load_books(warehouse.dsn, [warehouse.pipeline])[warehouse.pipeline]


def test_books_hold_positions_and_open_batches_and_pauses_of_each_pipeline(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    batch = life.store(warehouse, SECOND, run="run-2")
    pause = record_of(other.decisions.pause(other.pipeline, BY_ANA))
    books = load_books(warehouse.dsn, [other.pipeline, warehouse.pipeline, NO_PIPELINE])
    assert books == {
        warehouse.pipeline: Book(
            tuple(warehouse.ledger.load_positions(warehouse.pipeline)),
            CurrentBatch(batch.batch_id, batch.label, BatchState.PLANNED),
        ),
        other.pipeline: Book(pause=pause),
        NO_PIPELINE: Book(),
    }
    assert books[other.pipeline].pause == other.decisions.find_pause(other.pipeline)
    other.decisions.resume(other.pipeline, BY_ANA)
    assert book_of(other) == Book()


def test_book_tells_of_held_back_records_and_rewinds_as_positions_do(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    rewind(warehouse, {ORDERS_0: 1})
    warehouse.ledger.note_held_back(warehouse.pipeline, {ORDERS_1: 12})
    positions = warehouse.ledger.load_positions(warehouse.pipeline)
    found = book_of(warehouse).positions
    assert [each.rewound_to for each in found] == [1, 12]
    assert found[1].held_back_at == 12
    assert [(each.held_back_at, each.held_back_since) for each in found] == [
        (each.held_back_at, each.held_back_since) for each in positions
    ]


def test_open_batch_of_a_book_says_how_its_newest_attempt_stands(warehouse: PostgresWarehouse) -> None:
    batch = life.store(warehouse, FIRST)
    attempt = life.stage(warehouse, batch, "run-1")
    known = CurrentBatch(batch.batch_id, batch.label, BatchState.STAGED, run="run-1", is_at_work=True)
    assert book_of(warehouse).open_batch == known
    warehouse.ledger.mark_failed(attempt, StepFailure(Step.STAGE, "the disk is full"))
    failed = replace(known, failure=StepFailure(Step.STAGE, "the disk is full"), is_at_work=False)
    assert book_of(warehouse).open_batch == failed
    again = life.stage(warehouse, batch, "run-2")
    assert book_of(warehouse).open_batch == replace(known, run="run-2")
    life.audit(warehouse, again, life.FAILED)
    blocked = CurrentBatch(batch.batch_id, batch.label, BatchState.BLOCKED, run="run-2")
    assert book_of(warehouse).open_batch == blocked
    last = life.stage(warehouse, batch, "run-3")
    life.audit(warehouse, last)
    assert book_of(warehouse).open_batch == replace(known, state=BatchState.AUDITED, run="run-3")
    life.publish(warehouse, last)
    assert book_of(warehouse).open_batch is None


def test_replay_is_not_the_open_batch_of_a_book_and_waits_only_when_it_is_blocked(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    names = [warehouse.pipeline, other.pipeline]
    life.take_to_published(warehouse, FIRST, OTHER)
    replays = [life.stage(warehouse, life.store_replay(warehouse, each, run=str(each)), "r") for each in (FIRST, OTHER)]
    assert list_waiting_replays(warehouse.dsn, names) == {}
    for each in replays:
        life.audit(warehouse, each, life.FAILED)
    waiting = [each.batch.batch_id for each in replays]
    assert list_waiting_replays(warehouse.dsn, names) == {warehouse.pipeline: waiting}
    assert list_waiting_replays(warehouse.dsn, [other.pipeline]) == {}
    assert book_of(warehouse).open_batch is None
    warehouse.decisions.discard(waiting[0], BY_ANA)
    assert list_waiting_replays(warehouse.dsn, names) == {warehouse.pipeline: waiting[1:]}
    again = life.stage(warehouse, replays[1].batch, "again")
    life.audit(warehouse, again)
    life.publish(warehouse, again)
    assert list_waiting_replays(warehouse.dsn, names) == {}


def test_blocked_live_batch_is_no_waiting_replay(warehouse: PostgresWarehouse) -> None:
    take_to_blocked(warehouse, FIRST, missing=1)
    assert list_waiting_replays(warehouse.dsn, [warehouse.pipeline]) == {}


def test_last_batch_of_each_pipeline_is_its_newest_of_either_lane(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    names = [warehouse.pipeline, other.pipeline, NO_PIPELINE]
    assert load_last_batches(warehouse.dsn, names) == {}
    live = life.take_to_published(warehouse, FIRST).batch
    beside = life.store(other, OTHER)
    last = load_last_batches(warehouse.dsn, names)
    assert set(last) == {warehouse.pipeline, other.pipeline}
    assert (last[warehouse.pipeline].batch_id, last[warehouse.pipeline].state) == (live.batch_id, "published")
    assert last[warehouse.pipeline].published_at is not None
    assert (last[other.pipeline].batch_id, last[other.pipeline].published_at) == (beside.batch_id, None)
    replay = life.store_replay(warehouse, FIRST)
    assert load_last_batches(warehouse.dsn, names)[warehouse.pipeline].batch_id == replay.batch_id


def test_last_batch_names_the_fields_that_its_audit_complains_about(warehouse: PostgresWarehouse) -> None:
    def find_unknown() -> list[str]:
        return list(load_last_batches(warehouse.dsn, [warehouse.pipeline])[warehouse.pipeline].unknown_fields)

    found = {"shipping": {"records": 1}, "discount": {"records": 7}}
    complaint = CheckResult(IntegrityCheck.NO_UNKNOWN_FIELDS, Outcome.FAILED, "7 of 9", {"fields": found})
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    life.audit(warehouse, attempt, replace(complaint, severity=Severity.WARNING))
    assert find_unknown() == ["discount", "shipping"]
    # The next batch has none any more.
    life.publish(warehouse, attempt)
    life.store(warehouse, SECOND)
    assert find_unknown() == []


def publish_at(warehouse: PostgresWarehouse, batch_id: int, moment: datetime, rows: int = 0) -> None:
    """Let a published batch have been published then, with so many rows."""
    with psycopg.connect(warehouse.dsn) as connection:
        connection.execute(
            "update batchledger.batch set published_at = %s, published_rows = %s where batch_id = %s",
            [moment, rows, batch_id],
        )


@pytest.mark.parametrize("hour", [0, 12, 23])
def test_rows_are_counted_in_the_hour_and_the_day_in_which_they_became_visible(
    warehouse: PostgresWarehouse, other: PostgresWarehouse, hour: int
) -> None:
    now = datetime(2026, 1, 2, hour, 59, 59, tzinfo=UTC)
    this_hour, midnight = now.replace(minute=0, second=0), datetime(2026, 1, 2, tzinfo=UTC)
    first_shown, moment_before = this_hour - timedelta(hours=HOURS_SHOWN - 1), timedelta(microseconds=1)
    begins = (this_hour, midnight, first_shown)
    moments = [*begins, *(each - moment_before for each in begins)]
    expected, today = [0] * HOURS_SHOWN, 0
    for number, moment in enumerate(moments):
        rows = 10**number
        publish_at(warehouse, hold(warehouse, OffsetRange(ORDERS_0, number, number + 1)), moment, rows)
        today += rows if moment >= midnight else 0
        if moment >= first_shown:
            expected[(moment - first_shown) // timedelta(hours=1)] += rows
    volumes = load_volumes(warehouse.dsn, [warehouse.pipeline, other.pipeline], now)
    assert volumes[warehouse.pipeline] == Volume(today, tuple(expected))
    assert today > 0
    assert volumes[other.pipeline] == Volume(0, (0,) * HOURS_SHOWN)


def test_rows_of_a_replay_count_again_and_what_is_not_published_does_not(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, FIRST))
    life.take_to_audited(warehouse, SECOND, run="run-2")
    volume = load_volumes(warehouse.dsn, [warehouse.pipeline], datetime.now(UTC))[warehouse.pipeline]
    # Both are in the last two hours, however late in the hour or the day this test runs.
    assert sum(volume.rows_by_hour[-2:]) == 6


def held_of(warehouse: PostgresWarehouse, before: Held | None = None) -> Held:
    """What is held, and that whatever was read before makes no difference."""
    found = load_held(warehouse.dsn, warehouse.pipeline, before)
    assert found == load_held(warehouse.dsn, warehouse.pipeline, None)
    return found


def ranges_of(held: Held) -> list[OffsetRange]:
    return sorted(each for ranges in held.ranges_by_partition.values() for each in ranges)


def test_nothing_is_held_of_a_pipeline_that_has_published_nothing(warehouse: PostgresWarehouse) -> None:
    assert held_of(warehouse) == Held(0, None, {}, {})
    life.take_to_audited(warehouse, FIRST)
    assert held_of(warehouse, held_of(warehouse)).ranges_by_partition == {}


def test_held_ranges_grow_by_what_is_published_since(warehouse: PostgresWarehouse, other: PostgresWarehouse) -> None:
    hold(other, OffsetRange(ORDERS_0, 0, 50))
    before = held_of(warehouse)
    life.take_to_published(warehouse, FIRST, OTHER)
    first = held_of(warehouse, before)
    assert first.ranges_by_partition == {ORDERS_0: [FIRST], ORDERS_1: [OTHER]}
    life.take_to_published(warehouse, SECOND, run="run-2")
    second = held_of(warehouse, first)
    assert second.ranges_by_partition == {ORDERS_0: [OffsetRange(ORDERS_0, 0, 5)], ORDERS_1: [OTHER]}
    assert first.newest is not None
    assert second.newest is not None
    assert second.newest > first.newest
    assert first.ranges_by_partition[ORDERS_0] == [FIRST]


def test_held_ranges_are_read_again_only_as_far_back_as_a_publication_may_have_begun(
    warehouse: PostgresWarehouse,
) -> None:
    """What lies further back was read before: a history of any length costs what is new of it."""
    publish_at(warehouse, hold(warehouse, FIRST), datetime.now(UTC) - timedelta(hours=1))
    hold(warehouse, SECOND)
    known = held_of(warehouse)
    hold(warehouse, THIRD)
    assert ranges_of(held_of(warehouse, known)) == [OffsetRange(ORDERS_0, 0, 9)]
    forgotten = replace(known, ranges_by_partition={})
    assert ranges_of(load_held(warehouse.dsn, warehouse.pipeline, forgotten)) == [OffsetRange(ORDERS_0, 3, 9)]


def test_i1_what_is_published_after_the_look_is_no_gap_before_the_positions_of_that_look(
    warehouse: PostgresWarehouse,
) -> None:
    hold(warehouse, FIRST)
    held = held_of(warehouse)
    accounted = Accounted(held.ranges_by_partition[ORDERS_0])
    hold(warehouse, SECOND)
    (position,) = (each for each in book_of(warehouse).positions if each.partition == ORDERS_0)
    then = replace(position, next_offset=held.next_offset_by_partition[ORDERS_0])
    assert (then.next_offset, find_missing(then, accounted)) == (3, [])
    # The negative control: with the positions of now it would be one.
    assert find_missing(position, accounted) == [SECOND]


def test_replay_changes_nothing_of_what_is_held(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    before = held_of(warehouse)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 3)))
    assert held_of(warehouse, before).ranges_by_partition == before.ranges_by_partition


def test_replay_ahead_of_the_position_is_held_and_the_live_batch_takes_it_over(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    before = held_of(warehouse)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 4, 5)))
    ahead = held_of(warehouse, before)
    assert ranges_of(ahead) == [FIRST, OffsetRange(ORDERS_0, 4, 5)]
    life.take_to_published(warehouse, SECOND, run="run-2")
    assert ranges_of(held_of(warehouse, ahead)) == [OffsetRange(ORDERS_0, 0, 5)]


def test_i1_what_was_given_up_is_held_so_that_it_is_no_gap(warehouse: PostgresWarehouse) -> None:
    hold(warehouse, FIRST)
    before = held_of(warehouse)
    give_up(warehouse, SECOND)
    assert ranges_of(held_of(warehouse, before)) == [OffsetRange(ORDERS_0, 0, 5)]


def test_held_ranges_start_anew_when_a_rewind_has_emptied_the_table(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    before = held_of(warehouse)
    rewind(warehouse, {ORDERS_0: 0, ORDERS_1: 10}, truncate=True)
    emptied = held_of(warehouse, before)
    assert (emptied.epoch, emptied.ranges_by_partition) == (1, {})
    life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 2), run="run-2")
    assert ranges_of(held_of(warehouse, emptied)) == [OffsetRange(ORDERS_0, 0, 2)]


def test_rewind_that_keeps_the_rows_keeps_what_is_held(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    before = held_of(warehouse)
    rewind(warehouse, {ORDERS_0: 1})
    found = held_of(warehouse, before)
    assert (found.epoch, found.ranges_by_partition) == (1, before.ranges_by_partition)


def test_without_reading_anew_in_a_new_epoch_what_is_gone_would_be_held(warehouse: PostgresWarehouse) -> None:
    """The negative control of the rewind above."""
    life.take_to_published(warehouse, FIRST)
    before = held_of(warehouse)
    rewind(warehouse, {ORDERS_0: 0}, truncate=True)
    pretended = load_held(warehouse.dsn, warehouse.pipeline, replace(before, epoch=1))
    assert ranges_of(pretended) == [FIRST]


@pytest.mark.parametrize("kind", [DecisionKind.ACCEPT_LOSS, DecisionKind.SKIP])
def test_offsets_that_a_person_gave_up_are_listed_until_a_replay_has_published_them(
    warehouse: PostgresWarehouse, other: PostgresWarehouse, kind: DecisionKind
) -> None:
    life.take_to_published(warehouse, FIRST)
    assert list_given_up(warehouse.dsn, warehouse.pipeline) == []
    give_up(warehouse, SECOND, kind=kind)
    assert list_given_up(warehouse.dsn, warehouse.pipeline) == [SECOND]
    assert list_given_up(warehouse.dsn, other.pipeline) == []
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 3, 4)))
    assert list_given_up(warehouse.dsn, warehouse.pipeline) == [OffsetRange(ORDERS_0, 4, 5)]


def test_loss_within_a_batch_that_was_accepted_is_not_named_because_nobody_knows_its_offsets(
    warehouse: PostgresWarehouse,
) -> None:
    attempt = take_to_blocked(warehouse, FIRST, missing=1)
    warehouse.decisions.accept(attempt, BY_ANA)
    life.publish(warehouse, attempt)
    assert list_given_up(warehouse.dsn, warehouse.pipeline) == []
    assert ranges_of(held_of(warehouse)) == [FIRST]


def test_what_a_rewind_has_emptied_the_table_of_for_good_is_given_up(warehouse: PostgresWarehouse) -> None:
    life.take_to_published(warehouse, FIRST, OTHER)
    gone = (OffsetRange(ORDERS_0, 0, 2), OffsetRange(ORDERS_1, 10, 11))
    rewind(warehouse, {ORDERS_0: 2, ORDERS_1: 11}, truncate=True, given_up=gone)
    assert sorted(list_given_up(warehouse.dsn, warehouse.pipeline)) == sorted(gone)
    assert ranges_of(held_of(warehouse)) == []


def publish_with_poison(warehouse: PostgresWarehouse, *ranges: OffsetRange, offsets: list[int], run: str) -> int:
    """Publish ranges of ``orders[0]`` with some records in quarantine."""
    batch = life.store(warehouse, *ranges, run=run)
    attempt = life.stage(warehouse, batch, run, poison=[(ORDERS_0, each) for each in offsets])
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    return batch.batch_id


def test_offsets_in_quarantine_are_listed_within_a_frame(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    publish_with_poison(warehouse, OffsetRange(ORDERS_0, 0, 10), OTHER, offsets=[0, 1, 2, 5, 9], run="run-1")
    publish_with_poison(other, OffsetRange(ORDERS_0, 0, 10), offsets=[7], run="run-1")

    def found(
        start: int, until: int, partition: TopicPartition = ORDERS_0, columns: int = 100
    ) -> tuple[int, list[tuple[int, int]]] | None:
        frame = OffsetRange(partition, start, until)
        listed = find_quarantined(warehouse.dsn, warehouse.pipeline, [frame], columns).get(partition)
        return None if listed is None else (listed.count, [(each.start, each.until) for each in listed.ranges])

    assert found(0, 10) == (5, [(0, 3), (5, 6), (9, 10)])
    assert found(1, 9) == (3, [(1, 3), (5, 6)])
    assert found(5, 5) is found(6, 9) is found(0, 20, ORDERS_1) is None
    # More than there are columns: the first of each, and still how many there are.
    assert found(0, 10, columns=4) == (5, [(0, 1), (5, 6), (9, 10)])


def test_quarantine_is_listed_by_batch_and_page(warehouse: PostgresWarehouse) -> None:
    first = publish_with_poison(warehouse, OffsetRange(ORDERS_0, 0, 5), offsets=[0, 2, 4], run="run-1")
    second = publish_with_poison(warehouse, OffsetRange(ORDERS_0, 5, 8), offsets=[5, 6], run="run-2")

    def found(limit: int, batch_id: int | None = None, skip: int = 0) -> tuple[list[int], int]:
        listed = list_quarantine(warehouse.dsn, warehouse.pipeline, limit, batch_id, skip)
        return [each.offset for each in listed.lines], listed.total

    assert found(10) == ([0, 2, 4, 5, 6], 5)
    assert found(10, first) == ([0, 2, 4], 3)
    assert found(10, second) == ([5, 6], 2)
    assert [found(2, first, skip) for skip in (0, 2, 4)] == [([0, 2], 3), ([4], 3), ([], 3)]
    assert found(2, skip=3) == ([5, 6], 5)


def test_holders_of_a_frame_are_listed_in_its_order_and_cut_to_it(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    hold(other, OffsetRange(ORDERS_0, 0, 50))
    first = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 4), OTHER).batch.batch_id
    second = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 4, 9), run="run-2").batch.batch_id
    replay = life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 1, 2))
    life.publish(warehouse, replay)
    life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 9, 12), run="run-3")

    def found(start: int, until: int, limit: int = 10) -> list[tuple[int, int, int]] | None:
        frame = OffsetRange(ORDERS_0, start, until)
        listed = list_holders(warehouse.dsn, warehouse.pipeline, frame, limit)
        return None if listed is None else [(batch_id, each.start, each.until) for batch_id, each in listed]

    again = replay.batch.batch_id
    assert found(0, 20) == [(first, 0, 1), (again, 1, 2), (first, 2, 4), (second, 4, 9)]
    assert found(3, 6) == [(first, 3, 4), (second, 4, 6)]
    assert found(1, 2) == [(again, 1, 2)]
    assert found(9, 20) == found(5, 5) == []


def test_more_holders_than_can_be_shown_are_not_listed_in_part(warehouse: PostgresWarehouse) -> None:
    """What counts is what would be drawn: a batch may hold several pieces."""
    ranges = [OffsetRange(ORDERS_0, start, start + 4) for start in (0, 4, 8)]
    batches = [hold(warehouse, each) for each in ranges]
    whole = OffsetRange(ORDERS_0, 0, 12)
    assert list_holders(warehouse.dsn, warehouse.pipeline, whole, 3) == list(zip(batches, ranges, strict=True))
    assert list_holders(warehouse.dsn, warehouse.pipeline, whole, 2) is None
    assert list_holders(warehouse.dsn, warehouse.pipeline, ranges[1], 1) == [(batches[1], ranges[1])]
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 5, 6)))
    assert list_holders(warehouse.dsn, warehouse.pipeline, whole, 4) is None
    pieces = list_holders(warehouse.dsn, warehouse.pipeline, whole, 5)
    assert pieces is not None
    assert merge_ranges(each for _, each in pieces) == [whole]


def test_batch_of_a_run_is_the_newest_that_it_has_planned_or_worked_on(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    def found(run: str) -> int | None:
        return find_batch_of_run(warehouse.dsn, warehouse.pipeline, run)

    life.store(other, OTHER, run="elsewhere")
    planned = life.store(warehouse, FIRST, run="planned")
    assert (found("planned"), found("elsewhere"), found("nobody")) == (planned.batch_id, None, None)
    attempt = life.stage(warehouse, planned, "took it up")
    assert found("took it up") == planned.batch_id
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    following = life.store(warehouse, SECOND, run="took it up")
    assert found("took it up") == following.batch_id
    assert found("planned") == planned.batch_id


def test_batches_published_since_a_moment_are_the_newest_that_have_rows(warehouse: PostgresWarehouse) -> None:
    def found(since: datetime, most: int = 9) -> list[int]:
        return [*list_published_since(warehouse.dsn, warehouse.pipeline, since, most)]

    begin = datetime.now(UTC) - timedelta(days=1)
    first, second = (life.take_to_published(warehouse, each).batch.batch_id for each in (FIRST, SECOND))
    given_up = hold(warehouse, OffsetRange(ORDERS_1, 0, 4))
    published = list_published_since(warehouse.dsn, warehouse.pipeline, begin)
    assert [*published] == [first, second]
    assert given_up not in published
    assert found(published[second]) == found(begin, most=1) == [second]
    assert found(published[second] + timedelta(microseconds=1)) == []


def test_batches_before_one_are_the_next_page_of_the_list(
    warehouse: PostgresWarehouse, other: PostgresWarehouse
) -> None:
    batches = [hold(warehouse, OffsetRange(ORDERS_0, each, each + 1)) for each in range(5)]
    hold(other, FIRST)
    newest_first = batches[::-1]

    def listed(limit: int, before: int | None = None) -> list[int]:
        return [each.batch_id for each in list_batches(warehouse.dsn, warehouse.pipeline, limit, before)]

    assert listed(20) == newest_first
    pages: list[list[int]] = []
    for _ in range(3):
        pages.append(listed(2, pages[-1][-1] if pages else None))
    assert pages == [newest_first[:2], newest_first[2:4], newest_first[4:]]
    assert listed(2, newest_first[-1]) == []
