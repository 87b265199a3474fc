"""Reads whole records of a few ranges, committed ones only, for a person to look at."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from time import monotonic
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from batchledger.kafka.range_reader import Isolation, RangeReader
from batchledger.kafka.requests import kafka_call
from batchledger.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.records import Record

READING_SECONDS = 60.0


def read_records(options: Mapping[str, str], ranges: Sequence[OffsetRange], limit: int) -> list[Record]:
    """Return the first ``limit`` records of the ranges in the order of coordinates.

    Every range has to be readable. Raises ServiceUnavailableError when they were not read within 60 s.
    """
    found: list[Record] = []
    deadline = monotonic() + READING_SECONDS
    with kafka_call(f"read {describe_ranges(ranges, limit=3)}", options):
        for _, group in groupby(merge_ranges(ranges), key=lambda each: each.partition):
            if len(found) < limit:
                found += _read_partition(options, list(group), limit - len(found), deadline)
    return found


def _read_partition(
    options: Mapping[str, str], ranges: Sequence[OffsetRange], limit: int, deadline: float
) -> list[Record]:
    with RangeReader(options, Isolation.COMMITTED, ranges, deadline) as reader:
        # Between ranges that are close to each other the reader passes over records that nobody asked for.
        asked = (each for each in reader.messages() if any(each.offset() in one for one in ranges))
        return [_read(each) for each in islice(asked, limit)]


def _read(message: Any) -> Record:
    kind, milliseconds = message.timestamp()
    return Record(
        partition=TopicPartition(message.topic(), message.partition()),
        offset=message.offset(),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else _as_text(milliseconds),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def _as_text(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        # A producer may set one beyond the years that Python knows.
        return f"{milliseconds} ms"
