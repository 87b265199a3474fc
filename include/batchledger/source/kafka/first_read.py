"""Finds the offsets that have a committed record, by the client of the stage step. Keeps no record, judges nothing."""

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np
from confluent_kafka import Message

from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.source.kafka.range_reader import RangeReader
from batchledger.source.kafka.requests import Isolation, kafka_call, list_bounds
from batchledger.source.kafka.second_read import cut_off, reading_seconds


def find_records(options: Mapping[str, str], ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """See ``SourceLog.find_records``."""
    asked = merge_ranges(ranges)
    if not asked:
        return []
    deadline = monotonic() + reading_seconds(asked)
    with kafka_call(f"read {describe_ranges(asked, limit=3)}", options):
        starts, *_ = list_bounds(options, sorted({each.partition for each in asked}))
        with RangeReader(options, Isolation.COMMITTED, cut_off(asked, starts), deadline) as reader:
            found = [each for runs in reader.rounds() for partition, run in runs for each in _join(partition, run)]
    return merge_ranges(found)


def _join(partition: TopicPartition, run: Sequence[Any]) -> Iterator[OffsetRange]:
    """Yield the offsets of messages of one partition, in order, as the fewest ranges."""
    offsets = np.fromiter(map(Message.offset, run), np.int64, len(run))
    ends = np.append(np.flatnonzero(np.diff(offsets) != 1), len(offsets) - 1)
    start = 0
    for end in ends.tolist():
        yield OffsetRange(partition, int(offsets[start]), int(offsets[end]) + 1)
        start = end + 1
