"""Which offsets a replay publishes again: windows tile the log, named ranges are checked, what is gone is named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.batch import Batch, BatchState, DeliveryMode, Lane, LogState, PartitionLog, TopicIdentity
from batchledger.model.errors import ExpiredError, ReplayRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition, find_gaps, find_overlaps, intersect
from batchledger.planning.replay import (
    Replay,
    ResolvedReplay,
    Window,
    check_readable,
    plan_ranges,
    raise_log_starts,
    resolve_ranges,
    resolve_window,
)

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = Window(NOON, NOON + timedelta(hours=1))

Timestamps = Sequence[int | None]
"""What the records of one partition have, in the order of offsets; None if a record has none."""


def log_of(**held: tuple[int, int]) -> LogState:
    """Partitions ``first`` and ``second`` of the topic with their log start and end."""
    by_name = {"first": FIRST, "second": SECOND}
    return LogState(
        {"orders": TopicIdentity("cluster", "topic")},
        {by_name[name]: PartitionLog(start, end) for name, (start, end) in held.items()},
    )


@dataclass(frozen=True)
class Records:
    """All records that a partition ever had; those below ``log_start`` have expired."""

    timestamps: Timestamps
    log_start: int

    @property
    def held(self) -> list[tuple[int, int]]:
        """Offset and timestamp of those that Kafka can still give, as far as they have one."""
        return [(at, stamp) for at, stamp in enumerate(self.timestamps) if stamp is not None and at >= self.log_start]


def expire_some(timestamps: st.SearchStrategy[list[int | None]]) -> st.SearchStrategy[Records]:
    """Records of which none, some or all have expired."""
    return timestamps.flatmap(lambda each: st.builds(Records, st.just(each), st.integers(0, len(each))))


def state_of(records: Mapping[TopicPartition, Records]) -> LogState:
    first, second = ((each.log_start, len(each.timestamps)) for each in (records[FIRST], records[SECOND]))
    return log_of(first=first, second=second)


def offsets_at(records: Mapping[TopicPartition, Records], moment: int) -> dict[TopicPartition, int]:
    """What the broker answers: the first offset whose timestamp is at or after the moment, if there is one."""
    found = {
        partition: next((at for at, stamp in each.held if stamp >= moment), None) for partition, each in records.items()
    }
    return {partition: offset for partition, offset in found.items() if offset is not None}


moments = st.integers(-50, 50)
any_order = st.lists(st.none() | moments, max_size=20)
in_order: st.SearchStrategy[list[int | None]] = st.lists(moments, max_size=20).map(sorted)  # type: ignore[arg-type]
logs = st.fixed_dictionaries(dict.fromkeys((FIRST, SECOND), expire_some(any_order)))
ordered_logs = st.fixed_dictionaries(dict.fromkeys((FIRST, SECOND), expire_some(in_order)))
boundaries_in_order = st.lists(moments, min_size=2, max_size=8, unique=True).map(sorted)


@given(records=logs, boundaries=boundaries_in_order)
def test_consecutive_windows_tile_the_log_whatever_the_order_of_timestamps(
    records: Mapping[TopicPartition, Records], boundaries: list[int]
) -> None:
    """S127: out of order, equal, in the future, missing or expired."""
    log = state_of(records)
    at = [offsets_at(records, moment) for moment in boundaries]
    windows = [resolve_window(log, since, until).ranges for since, until in pairwise(at)]
    everything = resolve_window(log, at[0], at[-1]).ranges
    together = [each for window in windows for each in window]
    assert not find_overlaps(together)
    assert not find_gaps(together, within=everything)
    assert not find_gaps(everything, within=together)


@given(records=logs, boundary=moments)
def test_two_windows_around_any_moment_hold_every_record_that_is_there_and_has_a_timestamp(
    records: Mapping[TopicPartition, Records], boundary: int
) -> None:
    log = state_of(records)
    before = resolve_window(log, offsets_at(records, -51), offsets_at(records, boundary)).ranges
    after = resolve_window(log, offsets_at(records, boundary), {}).ranges
    dated = [OffsetRange(partition, at, at + 1) for partition, each in records.items() for at, _ in each.held]
    assert not find_gaps([*before, *after], within=dated)


@given(records=ordered_logs, window=boundaries_in_order)
def test_window_that_has_lost_a_record_says_so_where_timestamps_are_in_order(
    records: Mapping[TopicPartition, Records], window: list[int]
) -> None:
    since, until = window[0], window[-1]
    expired = resolve_window(state_of(records), offsets_at(records, since), offsets_at(records, until)).expired
    lost = [
        OffsetRange(partition, at, at + 1)
        for partition, each in records.items()
        for at, stamp in enumerate(each.timestamps[: each.log_start])
        if stamp is not None and since <= stamp < until
    ]
    assert not find_gaps(expired, within=lost)


def test_window_beyond_the_log_start_does_not_miss_a_record_that_came_out_of_order_and_expired() -> None:
    """The limit that ``resolve_window`` names: nothing that Kafka still holds tells of the record of 13:00."""
    records = {FIRST: Records([1300, 1100, 1130, 1230], log_start=1)}
    resolved = resolve_window(log_of(first=(1, 4)), offsets_at(records, 1200), offsets_at(records, 1500))
    assert resolved == ResolvedReplay((OffsetRange(FIRST, 3, 4),))


@given(records=logs, window=boundaries_in_order, expired=st.integers(0, 25))
def test_window_never_takes_what_expired_while_it_was_looked_up(
    records: Mapping[TopicPartition, Records], window: list[int], expired: int
) -> None:
    log = state_of(records)
    later = log_of(first=(max(log.log_by_partition[FIRST].log_start, expired), 25), second=(0, 25))
    resolved = resolve_window(
        raise_log_starts(log, later), offsets_at(records, window[0]), offsets_at(records, window[-1])
    )
    gone = OffsetRange(FIRST, 0, later.log_by_partition[FIRST].log_start)
    readable = [OffsetRange(each, 0, held.end) for each, held in log.log_by_partition.items()]
    assert not intersect(resolved.ranges, [gone])
    assert not find_gaps(readable, within=resolved.ranges)


def test_worked_example_of_the_module() -> None:
    records = {FIRST: Records([1005, 1001, 1100, 1059], log_start=0)}
    log = log_of(first=(0, 4))
    at_10, at_11, at_12 = (offsets_at(records, moment) for moment in (1000, 1100, 1200))
    assert resolve_window(log, at_10, at_11).ranges == (OffsetRange(FIRST, 0, 2),)
    assert resolve_window(log, at_11, at_12).ranges == (OffsetRange(FIRST, 2, 4),)


def test_record_that_arrived_after_the_log_was_read_is_left_to_a_later_replay() -> None:
    """S16: the end of a window becomes a number, once."""
    assert resolve_window(log_of(first=(0, 4)), {FIRST: 2}, {FIRST: 9}).ranges == (OffsetRange(FIRST, 2, 4),)


def test_window_that_begins_where_the_log_does_may_have_lost_its_beginning() -> None:
    resolved = resolve_window(log_of(first=(5, 9), second=(0, 4)), {FIRST: 5, SECOND: 0}, {FIRST: 7})
    assert resolved.ranges == (OffsetRange(FIRST, 5, 7), OffsetRange(SECOND, 0, 4))
    assert resolved.expired == (OffsetRange(FIRST, 0, 5),)


def test_window_after_a_record_that_is_still_there_has_lost_nothing() -> None:
    assert resolve_window(log_of(first=(5, 9)), {FIRST: 6}, {}).expired == ()


def test_window_of_a_time_that_is_gone_altogether_is_expired_and_not_empty() -> None:
    resolved = resolve_window(log_of(first=(5, 9)), {FIRST: 5}, {FIRST: 5})
    assert resolved == ResolvedReplay((), (OffsetRange(FIRST, 0, 5),))


def test_partition_whose_records_have_all_expired_is_named_as_empty() -> None:
    """No log tells of any window, today's included, whether a record that expired belonged to it."""
    resolved = resolve_window(log_of(first=(0, 9), second=(50, 50)), {FIRST: 6}, {})
    assert resolved == ResolvedReplay((OffsetRange(FIRST, 6, 9),), (OffsetRange(SECOND, 0, 50),), (SECOND,))
    with pytest.raises(ExpiredError, match=r"\[1\] is empty, everything below 50") as refused:
        plan_ranges("orders_copy", Replay(HOUR), resolved)
    assert refused.value.ranges == (OffsetRange(SECOND, 0, 50),)
    assert "--allow-expired" in str(refused.value)
    assert plan_ranges("orders_copy", Replay(HOUR, allow_expired=True), resolved).ranges == resolved.ranges
    assert resolve_window(log_of(first=(0, 0)), {}, {}) == ResolvedReplay(())


def test_expired_offsets_are_refused_by_name_and_left_out_on_request() -> None:
    asked = (OffsetRange(FIRST, 3, 8),)
    resolved = resolve_ranges("orders_copy", asked, log_of(first=(5, 9)))
    with pytest.raises(ExpiredError, match=r"(?s)2 offsets of these: .*--allow-expired") as refused:
        plan_ranges("orders_copy", Replay(asked), resolved)
    assert refused.value.ranges == (OffsetRange(FIRST, 3, 5),)
    plan = plan_ranges("orders_copy", Replay(asked, allow_expired=True), resolved)
    assert (plan.ranges, plan.expired) == ((OffsetRange(FIRST, 5, 8),), (OffsetRange(FIRST, 3, 5),))


def test_replay_is_delivered_in_one_transaction_and_in_its_own_lane() -> None:
    plan = plan_ranges("orders_copy", Replay(HOUR), ResolvedReplay((OffsetRange(FIRST, 0, 4),)))
    assert (plan.lane, plan.delivery, plan.lag_left_records) == (Lane.REPLAY, DeliveryMode.EXACTLY_ONCE, 0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([OffsetRange(FIRST, 3, 10)], r"orders\[0\] ends at 9"),
        ([OffsetRange(SECOND, 0, 1)], r"orders\[1\] 0\.\.1 cannot be read\.\norders_copy reads orders\[0\]\."),
        ([OffsetRange(FIRST, 3, 6), OffsetRange(FIRST, 5, 8)], "Name each offset once"),
        ([OffsetRange(FIRST, 3, 3)], "at least one, for"),
        ([], "no range at all"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(asked: list[OffsetRange], message: str) -> None:
    with pytest.raises(ReplayRefusedError, match=message):
        resolve_ranges("orders_copy", asked, log_of(first=(0, 9)))


def test_several_ranges_of_one_partition_are_one_replay() -> None:
    asked = [OffsetRange(FIRST, 6, 8), OffsetRange(FIRST, 1, 2), OffsetRange(FIRST, 2, 4)]
    resolved = resolve_ranges("orders_copy", asked, log_of(first=(0, 9)))
    assert resolved.ranges == (OffsetRange(FIRST, 1, 4), OffsetRange(FIRST, 6, 8))


def test_stored_replay_whose_offsets_have_expired_since_is_not_read() -> None:
    batch = Batch(7, "orders_copy", Lane.REPLAY, BatchState.PLANNED, 0, None, (OffsetRange(FIRST, 3, 8),), 0, NOON)
    check_readable(batch, log_of(first=(3, 9)))
    with pytest.raises(ExpiredError, match=r"removed orders\[0\] 3\.\.5") as refused:
        check_readable(batch, log_of(first=(5, 9)))
    assert refused.value.ranges == (OffsetRange(FIRST, 3, 5),)


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [(NOON, NOON, "has to end after"), (NOON.replace(tzinfo=None), NOON, "needs a zone")],
)
def test_window_needs_an_extent_and_zones(since: datetime, until: datetime, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Window(since, until)
