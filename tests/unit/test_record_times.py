"""When records were written: bounds are exact to the millisecond, and a search tells what lies between."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import (
    EPOCH,
    RecordTimes,
    Searched,
    TimeSearch,
    TimeSpan,
    describe_moment,
    to_milliseconds,
)

ORDERS = TopicPartition("orders", 0)
TENS = TimeSpan(10, 20)

timestamps = st.none() | st.integers(-5, 35)


def search(within: OffsetRange, span: TimeSpan, *records: tuple[int, int | None]) -> Searched:
    looking = TimeSearch(within, span)
    for offset, timestamp_ms in records:
        looking.see(offset, timestamp_ms)
    return looking.result()


@given(timestamp_ms=st.integers(-(10**12), 10**13), apart=st.timedeltas(timedelta(seconds=-1), timedelta(seconds=1)))
def test_record_is_at_or_after_a_moment_when_its_timestamp_is_at_or_after_the_millisecond(
    timestamp_ms: int, apart: timedelta
) -> None:
    """S127: also between two milliseconds, and if a float of seconds is one too small."""
    written_at = EPOCH + timedelta(milliseconds=timestamp_ms)
    for moment in (written_at, written_at + apart, written_at + apart % timedelta(milliseconds=2)):
        assert (written_at >= moment) == (timestamp_ms >= to_milliseconds(moment))


def test_moment_of_a_float_that_is_too_small_is_the_millisecond_that_it_names() -> None:
    moment = datetime(2004, 7, 13, 19, 39, 14, 146000, UTC)
    assert int(moment.timestamp() * 1000) == 1089747554145
    assert to_milliseconds(moment) == 1089747554146


@given(some=st.lists(timestamps), others=st.lists(timestamps))
def test_times_of_two_kinds_of_records_are_those_of_all_of_them(
    some: list[int | None], others: list[int | None]
) -> None:
    assert RecordTimes.of(some) | RecordTimes.of(others) == RecordTimes.of([*some, *others])


@given(stamps=st.lists(timestamps))
def test_times_that_do_not_meet_a_span_have_no_record_in_it_and_those_within_it_have_no_other(
    stamps: list[int | None],
) -> None:
    times = RecordTimes.of(stamps)
    if not times.meets(TENS):
        assert not any(each in TENS for each in stamps)
    if times.lies_within(TENS):
        assert stamps
        assert all(each in TENS for each in stamps)


def test_worked_example_of_the_search() -> None:
    within = OffsetRange(ORDERS, 10, 20)
    found = search(within, TENS, (10, 5), (12, 10), (13, 25), (15, 19), (17, 20))
    assert found == Searched(within, OffsetRange(ORDERS, 12, 17), 2, 1, RecordTimes(25, 25), RecordTimes(5, 25))


def test_search_that_finds_nothing_still_knows_the_times() -> None:
    within = OffsetRange(ORDERS, 0, 4)
    assert search(within, TENS) == Searched(within, None, 0, 0, RecordTimes(), RecordTimes())
    found = search(within, TENS, (0, 9), (1, None), (2, 20))
    assert found == Searched(within, None, 0, 0, RecordTimes(), RecordTimes(9, 20, 1))


def test_offsets_without_a_record_at_the_ends_of_a_range_go_with_their_neighbour() -> None:
    within = OffsetRange(ORDERS, 10, 20)
    assert search(within, TENS, (12, 10), (15, 11)).stretch == within


@given(records=st.lists(st.none() | timestamps.map(lambda each: (each,)), max_size=20))
def test_stretch_reaches_from_the_first_record_of_the_span_to_the_last_and_tells_who_comes_along(
    records: list[tuple[int | None] | None],
) -> None:
    """``records`` has the record of each offset, None if an offset shows none."""
    shown = [(offset, each[0]) for offset, each in enumerate(records) if each is not None]
    found = search(OffsetRange(ORDERS, 0, len(records)), TENS, *shown)
    wanted = [offset for offset, stamp in shown if stamp in TENS]
    assert (found.stretch is not None, found.records) == (bool(wanted), len(wanted))
    assert found.times == RecordTimes.of(stamp for _, stamp in shown)
    inside = [] if found.stretch is None else [(offset, stamp) for offset, stamp in shown if offset in found.stretch]
    others = [stamp for _, stamp in inside if stamp not in TENS]
    assert (found.along, found.along_times) == (len(others), RecordTimes.of(others))
    if inside:
        assert (inside[0][0], inside[-1][0]) == (wanted[0], wanted[-1])


def test_timestamp_beyond_the_years_that_python_knows_is_described_as_it_is() -> None:
    assert describe_moment(1362096000001) == "2013-03-01T00:00:00.001+00:00"
    assert describe_moment(10**18) == f"{10**18} ms"
