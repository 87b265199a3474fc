"""Looks through ranges for records of a span of time. Kafka's own index knows the first record of a moment only.

This module reads; ``times.TimeSearch`` says what was found in each range.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from time import monotonic

from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.model.records.times import Searched, TimeSearch, TimeSpan
from batchledger.source.kafka.range_reader import RangeReader
from batchledger.source.kafka.requests import Isolation, kafka_call
from batchledger.source.kafka.second_read import reading_seconds


def search(options: Mapping[str, str], ranges: Sequence[OffsetRange], span: TimeSpan) -> list[Searched]:
    """See ``SourceLog.search``."""
    if not ranges:
        return []
    searches = {each: TimeSearch(each, span) for each in ranges}
    by_partition = {
        partition: [(each.start, searches[each]) for each in group]
        for partition, group in groupby(sorted(ranges), key=lambda each: each.partition)
    }
    _read_through(options, merge_ranges(ranges), by_partition)
    return [each.result() for each in searches.values()]


def _read_through(
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    searches: Mapping[TopicPartition, Sequence[tuple[int, TimeSearch]]],
) -> None:
    """Show every record of the ranges to the search of the range that begins last before it."""
    deadline = monotonic() + reading_seconds(ranges)
    with (
        kafka_call(f"look through {describe_ranges(ranges, limit=3)}", options),
        RangeReader(options, Isolation.COMMITTED, ranges, deadline) as reader,
    ):
        for partition, offset, timestamp_ms in reader:
            own = searches[partition]
            own[bisect_right(own, offset, key=lambda each: each[0]) - 1][1].see(offset, timestamp_ms)
