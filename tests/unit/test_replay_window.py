"""A window of time means the records of that time, in any order of the log; backfills part the log instead."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.lifecycle.platform import Platform
from batchledger.model.balance import HolePolicy
from batchledger.model.batch import Decision, LogState, PartitionLog
from batchledger.model.errors import DecisionRefusedError, ExpiredError, ReplayRefusedError, ServiceUnavailableError
from batchledger.model.offsets import OffsetRange, TopicPartition, find_gaps, find_overlaps, intersect
from batchledger.model.records.times import EPOCH, RecordTimes, Searched, TimedRange, TimeSpan
from batchledger.planning.live import Limits, Plan
from batchledger.planning.replay import Interval, Quarantined, Replay, Window, resolve_window
from batchledger.planning.windows import find_candidates
from tests.fakes.source import MemorySourceLog, Record
from tests.fakes.work import Rows
from tests.fakes.world import ORDERS_0, World, assert_exactly_once

ANA = Decision("ana", "the amounts of these days were wrong")
START = datetime(2026, 11, 21, tzinfo=UTC)
MINUTES = 30
# Each run draws other logs, and each log is a life of batches.
FEW = settings(max_examples=40)

HOLE, ROW, FILTERED, UNDECODABLE = "hole", "row", "filtered", "undecodable"
VALUES = {ROW: b'{"message_id": "keep"}', FILTERED: b'{"message_id": "drop"}', UNDECODABLE: b"{poison"}


@dataclass(frozen=True)
class Written:
    """What one offset holds, and the minute at which it was written; None: without a timestamp."""

    kind: str
    minute: int | None = None

    @property
    def record(self) -> Record | None:
        """The record, if the offset shows one."""
        if self.kind == HOLE:
            return None
        return Record(VALUES[self.kind], None if self.minute is None else at(self.minute))


@dataclass(frozen=True)
class FailingSource(MemorySourceLog):
    """A broker that goes away after so many searches."""

    searches: int = 0
    searched: list[OffsetRange] = field(default_factory=list)

    @override
    def search(self, ranges: Sequence[OffsetRange], span: TimeSpan) -> Sequence[Searched]:
        if len(self.searched) == self.searches:
            raise ServiceUnavailableError("the broker has gone")
        self.searched.extend(ranges)
        return super().search(ranges, span)


@dataclass(frozen=True)
class Log:
    """The log of one partition, of which the first ``published`` offsets were published in batches of ``size``.

    The times of the batches ``forgotten`` are unknown, as those from before the migration are. What lies below
    ``log_start`` has expired.
    """

    written: tuple[Written, ...]
    published: int
    size: int = 3
    forgotten: frozenset[int] = frozenset()
    log_start: int = 0

    def build(self) -> World:
        """A world that has come to this."""
        world = World(limits=Limits(max_records=self.size), holes=HolePolicy.TRANSACTIONAL)
        world.broker.create_topic("orders", 1)
        log = world.broker.partitions[ORDERS_0].log
        log.extend(each.record for each in self.written[: self.published])
        while run_batch.run_once(process(world), "live") is not None:
            pass
        log.extend(each.record for each in self.written[self.published :])
        with world.database.transaction() as tables:
            for batch_id in self.forgotten & tables.batches.keys():
                stored = tables.batches[batch_id]
                unknown = tuple(replace(each, times=None) for each in stored.balances)
                tables.batches[batch_id] = replace(stored, balances=unknown)
        world.broker.expire(ORDERS_0, self.log_start)
        return world

    def find(self, window: Window, *kinds: str) -> list[OffsetRange]:
        """The offsets of records of these kinds that were written in the window and published."""
        return [
            OffsetRange(ORDERS_0, offset, offset + 1)
            for offset, each in enumerate(self.written[: self.published])
            if each.kind in kinds and each.minute is not None and window.since <= at(each.minute) < window.until
        ]

    @property
    def visible(self) -> list[OffsetRange]:
        """The offsets that show a record."""
        return [OffsetRange(ORDERS_0, at, at + 1) for at, each in enumerate(self.written) if each.kind != HOLE]

    @property
    def expired(self) -> list[OffsetRange]:
        """What Kafka no longer has."""
        return [OffsetRange(ORDERS_0, 0, self.log_start)]


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def process(world: World) -> Platform:
    def drop_some(rows: Rows) -> Rows:
        return [row for row in rows if row["message_id"] != "drop"]

    return world.process(alter=drop_some, has_transform=True)


def look(world: World, window: Window, *, allow_expired: bool = True) -> Plan:
    return plans.preview_replay(process(world), Replay(window, allow_expired))


def look_or_be_refused(world: World, interval: Interval) -> Plan | None:
    try:
        return look(world, interval)
    except ReplayRefusedError:
        return None


def rows_at(*minutes: int | None) -> tuple[Written, ...]:
    return tuple(Written(ROW, minute) for minute in minutes)


def cut(start: int, until: int) -> OffsetRange:
    return OffsetRange(ORDERS_0, start, until)


minutes = st.integers(0, MINUTES)
kinds = st.sampled_from([ROW, ROW, ROW, FILTERED, UNDECODABLE, HOLE])
windows = st.lists(minutes, min_size=2, max_size=2, unique=True).map(sorted).map(lambda each: Window(*map(at, each)))


@st.composite
def logs(draw: st.DrawFn, *, is_ordered: bool = False, can_expire: bool = False) -> Log:
    size = draw(st.integers(0, 14))
    stamps = draw(st.lists(minutes if is_ordered else st.none() | minutes, min_size=size, max_size=size))
    written = tuple(map(Written, draw(st.lists(kinds, min_size=size, max_size=size)), sorted_if(stamps, is_ordered)))
    return Log(
        written,
        published=draw(st.integers(0, size)),
        size=draw(st.integers(1, 6)),
        forgotten=draw(st.frozensets(st.integers(1, 6))),
        log_start=draw(st.integers(0, size)) if can_expire else 0,
    )


def sorted_if(stamps: list[int | None], is_ordered: bool) -> list[int | None]:
    return sorted(stamps) if is_ordered else stamps  # type: ignore[type-var]


@FEW
@given(log=logs(can_expire=True), window=windows)
def test_every_published_record_of_a_window_that_kafka_still_has_is_published_again(log: Log, window: Window) -> None:
    """In any order, without a timestamp, beside records that were dropped, and in batches of unknown times."""
    planned = look(log.build(), window)
    wanted = find_gaps(log.expired, within=log.find(window, ROW, UNDECODABLE))
    assert not find_gaps(planned.ranges, within=wanted)
    assert not intersect(planned.ranges, log.expired)


@FEW
@given(log=logs(), window=windows)
def test_what_comes_along_lies_between_records_of_the_window_in_its_own_range(log: Log, window: Window) -> None:
    world = log.build()
    planned = look(world, window)
    wanted = log.find(window, ROW, UNDECODABLE, FILTERED)
    published = [each for stored in world.database.committed.batches.values() for each in stored.held]
    for each in intersect(intersect(planned.ranges, published), log.visible):
        for offset in range(each.start, each.until):
            (own,) = (one for one in published if offset in one)
            before = any(one.start <= offset for one in wanted if one.start in own)
            after = any(one.start >= offset for one in wanted if one.start in own)
            assert before
            assert after


@FEW
@given(log=logs(is_ordered=True), window=windows)
def test_window_on_timestamps_in_order_is_its_part_of_the_log_as_ever(log: Log, window: Window) -> None:
    """No record more, none less; also those that a transform has dropped, and those that were never published."""
    world = log.build()
    source = world.process().source
    state = source.read_log(("orders",))
    since, until = (source.find_offsets([ORDERS_0], moment) for moment in (window.since, window.until))
    part = resolve_window(state, since, until).ranges
    planned = look(world, window)
    assert intersect(planned.ranges, log.visible) == intersect(part, log.visible)
    assert not find_gaps(part, within=planned.ranges)
    assert not any("come along" in each for each in planned.notes)


@FEW
@given(log=logs(can_expire=True), boundaries=st.lists(minutes, min_size=2, max_size=6, unique=True).map(sorted))
def test_intervals_of_a_backfill_part_the_log_and_none_ends_empty_where_published_records_lie_in_it(
    log: Log, boundaries: list[int]
) -> None:
    world = log.build()
    taken: list[OffsetRange] = []
    for since, until in pairwise(map(at, boundaries)):
        interval = Interval(since, until)
        wanted = find_gaps(log.expired, within=log.find(interval, ROW, UNDECODABLE))
        planned = look_or_be_refused(world, interval)
        assert log.find(interval, ROW, UNDECODABLE, FILTERED) if planned is None else planned.ranges or not wanted
        taken += planned.ranges if planned else ()
    assert not find_overlaps(taken)


@FEW
@given(log=logs(), window=windows)
def test_times_that_were_unknown_are_known_after_a_window_was_looked_for(log: Log, window: Window) -> None:
    world = log.build()
    first = look(world, window)
    again = look(world, window)
    assert again.ranges == first.ranges
    stored = [each for one in world.database.committed.batches.values() for each in one.balances]
    reached = world.process().source.find_offsets([ORDERS_0], window.since).get(ORDERS_0)
    if reached is not None:
        assert all(each.times is not None for each in stored if each.range.start >= reached and each.accepted)


def test_search_that_breaks_off_keeps_the_portions_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "OFFSETS_SEARCHED_AT_ONCE", 3)
    platform = process(Log(rows_at(*range(9)), published=9, forgotten=frozenset({1, 2, 3})).build())
    for searches, ranges in ((2, [cut(0, 3), cut(3, 6)]), (1, [cut(6, 9)])):
        source = FailingSource(platform.source.broker, searches)  # type: ignore[attr-defined]
        with suppress(ServiceUnavailableError):
            planned = plans.preview_replay(replace(platform, source=source), Replay(Window(at(0), at(9))))
        assert source.searched == ranges
    assert planned.ranges == (cut(0, 9),)


def test_page_reads_no_record_to_see_whether_a_window_is_possible() -> None:
    """Looking through a history takes as long as reading it, which is for a run to do."""
    platform = process(Log(rows_at(1, 50, 2, 51, 3, 52), published=6, log_start=3).build())
    platform = replace(platform, source=FailingSource(platform.source.broker))  # type: ignore[attr-defined]
    plans.require_possible(platform, Replay(Window(at(2), at(4)), allow_expired=True))
    with pytest.raises(ExpiredError, match=r"orders\[0\] 0\.\.3"):
        plans.require_possible(platform, Replay(Window(at(2), at(4))))
    for nothing in (Window(at(60), at(70)), Quarantined((cut(0, 9),))):
        with pytest.raises(DecisionRefusedError, match="nothing to publish again"):
            plans.require_possible(platform, Replay(nothing))


def test_worked_example_of_the_module(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(rows_at(65, 130, 140, 70, 180, 80), published=6)
    world = log.build()
    hour = Window(at(60), at(120))
    planned = look(world, hour)
    assert planned.ranges == (cut(0, 1), cut(3, 6))
    (told,) = planned.notes
    assert told == (
        "1 record from outside of the window comes along, written from 2026-11-21T03:00:00.000+00:00 to "
        "2026-11-21T03:00:00.000+00:00: it lies between records of the window"
    )
    with caplog.at_level(logging.WARNING):
        batch = plans.plan_replay(process(world), Replay(hour), "again", ANA, "again")
    assert told in caplog.text
    assert batch is not None
    run_batch.take_through(process(world), batch.batch_id, "again")
    assert_exactly_once(world)


def test_records_that_come_along_are_counted_and_their_times_are_told() -> None:
    planned = look(Log(rows_at(65, None, 30, 200, 80), published=5, size=5).build(), Window(at(60), at(120)))
    assert planned.ranges == (cut(0, 5),)
    assert planned.notes[0] == (
        "3 records from outside of the window come along, written from 2026-11-21T00:30:00.000+00:00 to "
        "2026-11-21T03:20:00.000+00:00 and 1 without a timestamp: they lie between records of the window"
    )


def test_late_month_at_the_end_of_the_log_is_found_and_only_that() -> None:
    """As in the demo: January, then October to December, then February on."""
    january, autumn, spring = [*range(10)], [*range(100, 120)], [*range(20, 40)]
    log = Log(rows_at(*january, *autumn, *spring), published=50, size=7)
    planned = look(log.build(), Window(at(25), at(30)))
    assert (planned.ranges, planned.notes) == ((cut(35, 40),), ())


def test_interval_that_would_end_empty_is_refused_with_the_command_that_finds_its_records() -> None:
    world = Log(rows_at(1, 2, 50, 51, 11, 12), published=6).build()
    with pytest.raises(ReplayRefusedError, match="its part of the log is empty") as refused:
        look(world, Interval(at(10), at(20)))
    assert refused.value.ranges == (cut(4, 6),)
    assert "--from 2026-11-21T00:10" in str(refused.value)
    planned = look(world, Interval(at(0), at(10)))
    assert (planned.ranges, planned.notes) == ((cut(0, 2),), ())
    planned = look(world, Interval(at(50), at(60)))
    assert planned.ranges == (cut(2, 6),)


def test_interval_that_has_records_elsewhere_too_takes_its_part_and_says_so() -> None:
    planned = look(Log(rows_at(1, 2, 50, 51, 3, 4), published=6).build(), Interval(at(0), at(10)))
    assert planned.ranges == (cut(0, 2),)
    (told,) = planned.notes
    assert "outside the interval's part of the log, in orders[0] 4..6" in told


def test_records_without_a_timestamp_belong_to_no_window_and_are_counted() -> None:
    world = Log(rows_at(1, None, 2, None, None, None), published=6).build()
    window = Window(at(0), at(10))
    planned = look(world, window)
    assert planned.ranges == (cut(0, 3),)
    assert any("comes along, 1 without a timestamp" in each for each in planned.notes)
    assert "up to 4 published records have no timestamp, and belong to no window" in planned.notes
    forgotten = Log(rows_at(1, None, 2, None, None, None), published=6, forgotten=frozenset({1})).build()
    assert "up to 4 published records have no timestamp, and belong to no window" in look(forgotten, window).notes
    nothing = look(world, Window(at(20), at(30)))
    assert (nothing.ranges, len(nothing.notes)) == ((), 1)


def test_what_no_batch_holds_is_taken_as_kafka_has_it_and_told() -> None:
    planned = look(Log(rows_at(1, 50, 2, 3, 4), published=3).build(), Window(at(0), at(10)))
    assert planned.ranges == (cut(0, 3),)
    planned = look(Log(rows_at(1, 2, 3, 4, 5), published=3).build(), Window(at(0), at(10)))
    assert planned.ranges == (cut(0, 5),)
    assert planned.notes[0].startswith("2 of the offsets are held by no batch, orders[0] 3..5")


def test_window_of_which_a_whole_range_has_expired_is_refused_although_it_begins_later() -> None:
    """Kafka has nothing that tells of it; the ledger does."""
    log = Log(rows_at(40, 41, 42, 5, 6, 45), published=6, log_start=3)
    world = log.build()
    with pytest.raises(ExpiredError, match=r"orders\[0\] 0\.\.3"):
        look(world, Window(at(40), at(50)), allow_expired=False)
    planned = look(world, Window(at(40), at(50)))
    assert (planned.ranges, planned.expired) == ((cut(5, 6),), (cut(0, 3),))


def test_range_whose_rows_lie_in_the_window_is_looked_through_where_other_records_were_dropped() -> None:
    """The dropped record of another time is no part of it, as it never was."""
    log = Log((*rows_at(5), Written(FILTERED, 9), *rows_at(10)), published=2)
    planned = look(log.build(), Window(at(4), at(7)))
    assert (planned.ranges, planned.notes) == ((cut(0, 1),), ())


def test_what_expires_while_a_window_is_looked_up_is_not_looked_through() -> None:
    """The first record of the window's time was found before retention removed it."""
    piece = TimedRange(cut(0, 6), cut(0, 6), RecordTimes(0, 100), 6)
    window = Window(EPOCH, EPOCH + timedelta(milliseconds=50))
    state = LogState({}, {ORDERS_0: PartitionLog(2, 5)})
    found = find_candidates(window, [piece], resolve_window(state, {ORDERS_0: 0}, {}), {ORDERS_0: 0}, state)
    assert found.doubtful == (cut(2, 5),)


FIRST_HALF = (EPOCH, EPOCH + timedelta(milliseconds=50))
WHOLE = PartitionLog(0, 100)


def timed(piece: OffsetRange, times: RecordTimes | None, unseen: int = 0) -> TimedRange:
    return TimedRange(piece, piece, times, len(piece), unseen)


def test_partition_that_kafka_no_longer_has_hides_no_other() -> None:
    """The topic was shortened, or one of the topics is gone; ranges of other partitions follow."""
    gone = OffsetRange(TopicPartition("gone", 0), 0, 6)
    published = [timed(gone, RecordTimes(0, 100)), timed(cut(0, 6), RecordTimes(0, 100))]
    state = LogState({}, {ORDERS_0: WHOLE})
    found = find_candidates(Window(*FIRST_HALF), published, resolve_window(state, {ORDERS_0: 0}, {}), {}, state)
    assert found.doubtful == ()
    found = find_candidates(
        Window(*FIRST_HALF), published, resolve_window(state, {ORDERS_0: 0}, {}), {ORDERS_0: 0}, state
    )
    assert found.doubtful == (cut(0, 6),)


def test_range_of_which_nothing_is_left_is_not_looked_through() -> None:
    state = LogState({}, {ORDERS_0: PartitionLog(6, 100)})
    published = [timed(cut(0, 6), RecordTimes(0, 100)), timed(cut(6, 9), RecordTimes(0, 100))]
    found = find_candidates(Window(*FIRST_HALF), published, resolve_window(state, {}, {}), {ORDERS_0: 0}, state)
    assert found.doubtful == (cut(6, 9),)


def test_interval_reads_no_whole_range_of_unknown_times_as_long_as_its_own_part_has_offsets() -> None:
    state = LogState({}, {ORDERS_0: WHOLE})
    part = resolve_window(state, {ORDERS_0: 6}, {ORDERS_0: 9})
    published = [timed(cut(6, 20), None)]
    assert find_candidates(Interval(*FIRST_HALF), published, part, {ORDERS_0: 6}, state).doubtful == ()
    assert find_candidates(Window(*FIRST_HALF), published, part, {ORDERS_0: 6}, state).doubtful == (cut(6, 20),)


def test_dropped_records_of_one_range_hide_no_range_before_it() -> None:
    state = LogState({}, {ORDERS_0: WHOLE})
    part = resolve_window(state, {ORDERS_0: 0}, {ORDERS_0: 9})
    published = [timed(cut(0, 3), RecordTimes(40, 60)), timed(cut(3, 9), RecordTimes(70, 80), unseen=1)]
    found = find_candidates(Window(*FIRST_HALF), published, part, {ORDERS_0: 0}, state)
    assert found.doubtful == (cut(0, 3), cut(3, 9))


def test_dry_run_keeps_what_would_come_along() -> None:
    world = Log(rows_at(1, 50, 2), published=3).build()
    found = dry_run_replay(process(world), Replay(Window(at(0), at(10))), "look", ANA)
    assert found is not None
    stored = world.database.committed.batches[found.batch.batch_id].dry_run
    assert stored is not None
    assert "1 record from outside of the window comes along" in stored.notes[0]
