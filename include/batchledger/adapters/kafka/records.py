"""Reads whole records at exactly their offsets, committed ones only: for a person to look at, or to be set aside."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from time import monotonic
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from batchledger.adapters.decoding.record_schema import QUARANTINE_SCHEMA, RECORD_SCHEMA
from batchledger.adapters.kafka.range_reader import RangeReader, read_messages
from batchledger.adapters.kafka.requests import EARLIEST, Isolation, kafka_call, list_offsets
from batchledger.adapters.kafka.second_read import READING_SECONDS, cut_off, reading_seconds
from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.model.records.lookup import Record

RECORDS_IN_BATCH = 10_000
BYTES_IN_BATCH = 16 * 1024 * 1024


def read_first(options: Mapping[str, str], ranges: Sequence[OffsetRange], limit: int) -> list[Record]:
    """Return the first ``limit`` records of the ranges in the order of coordinates.

    Every range has to be readable. Raises ServiceUnavailableError when they were not read within 60 s.
    """
    found: list[Record] = []
    deadline = monotonic() + READING_SECONDS
    with kafka_call(f"read {describe_ranges(ranges, limit=3)}", options):
        for _, group in groupby(merge_ranges(ranges), key=lambda each: each.partition):
            if len(found) == limit:
                break
            with RangeReader(options, Isolation.COMMITTED, list(group), deadline) as reader:
                found += map(_to_record, islice(reader.messages(), limit - len(found)))
    return found


def read_bytes(options: Mapping[str, str], records: Sequence[OffsetRange], limit_bytes: int) -> pa.Table:
    """See ``SourceLog.read_records``."""
    wanted = merge_ranges(records)
    deadline = monotonic() + reading_seconds(wanted)
    rows: list[dict[str, Any]] = []
    with kafka_call(f"read {describe_ranges(wanted, limit=3)} again", options):
        partitions = sorted({each.partition for each in wanted})
        kept = cut_off(wanted, list_offsets(options, partitions, EARLIEST))
        if kept:
            with RangeReader(options, Isolation.COMMITTED, kept, deadline) as reader:
                rows = _take_bytes(reader, limit_bytes)
    return pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)


def stream_range(options: Mapping[str, str], range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of a range in batches of bounded size, with the columns of ``RECORD_SCHEMA``.

    Raises what ``read_messages`` raises. The range has to be readable.
    """
    rows: list[dict[str, Any]] = []
    size_bytes = 0
    for message in read_messages(options, [range_], Isolation.COMMITTED):
        rows.append(_to_row(message))
        size_bytes += len(message.key() or b"") + len(message.value() or b"")
        if len(rows) == RECORDS_IN_BATCH or size_bytes >= BYTES_IN_BATCH:
            yield pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
            rows, size_bytes = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def _take_bytes(reader: RangeReader, limit_bytes: int) -> list[dict[str, Any]]:
    rows, size_bytes = [], 0
    for message in reader.messages():
        size_bytes += len(message.key() or b"") + len(message.value() or b"")
        if size_bytes > limit_bytes:
            break
        rows.append(_to_row(message))
    return rows


def _to_record(message: Any) -> Record:
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


def _to_row(message: Any) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    headers = [
        {"key": key} if value is None else {"key": key, "value": base64.b64encode(value).decode()}
        for key, value in message.headers() or ()
    ]
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        "key": message.key(),
        "value": message.value(),
        "headers": json.dumps(headers),
    }
