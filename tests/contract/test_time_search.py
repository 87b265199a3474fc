"""The contract of the SourceLog port: ranges are looked through for records of a span of time, in any order."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchledger.model.offsets import OffsetRange
from batchledger.model.records.times import RecordTimes, Searched, TimeSearch, TimeSpan, to_milliseconds
from tests.contract.sources import Source
from tests.fakes.source import DEFAULT_TIMESTAMP

HOUR = timedelta(hours=1)
START_MS = to_milliseconds(DEFAULT_TIMESTAMP)
HOUR_MS = 3_600_000


def hours(since: int, until: int) -> TimeSpan:
    return TimeSpan(START_MS + since * HOUR_MS, START_MS + until * HOUR_MS)


def times_of(*found: int) -> RecordTimes:
    return RecordTimes.of(START_MS + each * HOUR_MS for each in found)


def test_late_records_are_found_which_the_index_of_moments_does_not_know(source: Source) -> None:
    (first,) = source.create_topic(1)
    for hour in (0, 9, 1, 8, 1, 2):
        source.append(first, 1, DEFAULT_TIMESTAMP + hour * HOUR)
    one, other = OffsetRange(first, 1, 4), OffsetRange(first, 4, 6)
    assert source.log.find_offsets([first], DEFAULT_TIMESTAMP + HOUR) == {first: 1}
    assert source.log.find_offsets([first], DEFAULT_TIMESTAMP + 2 * HOUR) == {first: 1}
    assert list(source.log.search([one, other], hours(1, 2))) == [
        Searched(one, OffsetRange(first, 2, 3), 1, 0, RecordTimes(), times_of(1, 8, 9)),
        Searched(other, OffsetRange(first, 4, 5), 1, 0, RecordTimes(), times_of(1, 2)),
    ]
    assert list(source.log.search([one], hours(8, 10))) == [
        Searched(one, one, 2, 1, times_of(1), times_of(1, 8, 9)),
    ]


def test_answers_come_in_the_order_of_the_ranges_whatever_the_order_of_reading(source: Source) -> None:
    first, second = source.create_topic(2)
    source.append(first, 3)
    source.append(second, 2, DEFAULT_TIMESTAMP + HOUR)
    asked = [OffsetRange(second, 0, 2), OffsetRange(first, 2, 3), OffsetRange(first, 0, 1)]
    found = source.log.search(asked, hours(0, 1))
    assert [each.range for each in found] == asked
    assert [each.stretch for each in found] == [None, asked[1], asked[2]]
    assert list(source.log.search([], hours(0, 1))) == []


def test_s127_records_at_the_end_of_a_span_do_not_lie_in_it(source: Source) -> None:
    (first,) = source.create_topic(1)
    for milliseconds in (0, 1, 2):
        source.append(first, 1, DEFAULT_TIMESTAMP + timedelta(milliseconds=milliseconds))
    (found,) = source.log.search([OffsetRange(first, 0, 3)], TimeSpan(START_MS + 1, START_MS + 2))
    assert found.stretch == OffsetRange(first, 1, 2)
    for milliseconds in (0, 1, 2):
        moment = DEFAULT_TIMESTAMP + timedelta(milliseconds=milliseconds)
        assert source.log.find_offsets([first], moment) == {first: milliseconds}
        earlier = moment - timedelta(microseconds=1)
        assert source.log.find_offsets([first], earlier) == {first: milliseconds}


def test_records_of_aborted_transactions_are_not_seen_and_ranges_of_markers_come_to_an_end(source: Source) -> None:
    (first,) = source.create_topic(1)
    source.commit(first, 2)
    source.abort(first, 3)
    whole = OffsetRange(first, 0, 7)
    (found,) = source.log.search([whole], hours(0, 1))
    assert (found.stretch, found.records, found.times) == (whole, 2, times_of(0))
    (nothing,) = source.log.search([OffsetRange(first, 3, 7)], hours(0, 1))
    assert (nothing.stretch, nothing.times) == (None, RecordTimes())


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    written=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    span=st.lists(st.integers(0, 7), min_size=2, max_size=2, unique=True).map(sorted),
    cut=st.integers(0, 12),
)
def test_search_of_a_real_log_is_the_search_of_its_timestamps(
    source: Source, written: list[int], span: list[int], cut: int
) -> None:
    (first,) = source.create_topic(1)
    for hour in written:
        source.append(first, 1, DEFAULT_TIMESTAMP + hour * HOUR)
    ends = sorted({0, min(cut, len(written)), len(written)})
    ranges = [OffsetRange(first, start, until) for start, until in pairwise(ends)]
    expected = []
    for each in ranges:
        search = TimeSearch(each, hours(*span))
        for offset in range(each.start, each.until):
            search.see(offset, START_MS + written[offset] * HOUR_MS)
        expected.append(search.result())
    assert list(source.log.search(ranges, hours(*span))) == expected
    source.delete_topic()
