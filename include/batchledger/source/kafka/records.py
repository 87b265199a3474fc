"""Reads whole records at exactly their offsets: for a batch, for a person to look at, or to be set aside."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from operator import itemgetter, length_hint
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from batchledger.formats.records import QUARANTINE_SCHEMA, RECORD_SCHEMA, UNREADABLE_NAME, write_headers
from batchledger.model.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.model.records.lookup import Record
from batchledger.source.kafka.range_reader import SILENCE_SECONDS, RangeReader, read_chunks
from batchledger.source.kafka.requests import EARLIEST, Isolation, kafka_call, list_offsets
from batchledger.source.kafka.second_read import READING_SECONDS, cut_off, reading_seconds

BYTES_IN_BATCH = 16 * 1024 * 1024
UNREADABLE = ((UNREADABLE_NAME, None),)


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
    messages: list[Any] = []
    with kafka_call(f"read {describe_ranges(wanted, limit=3)} again", options):
        partitions = sorted({each.partition for each in wanted})
        kept = cut_off(wanted, list_offsets(options, partitions, EARLIEST))
        if kept:
            with RangeReader(options, Isolation.COMMITTED, kept, deadline) as reader:
                messages = list(_take(reader, limit_bytes))
    found = to_batch(messages)
    columns = [*found.columns[:-1], pc.fill_null(found["headers"], "[]"), pa.nulls(len(messages), pa.string())]
    return pa.table(columns, schema=QUARANTINE_SCHEMA)


def read_share(
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    isolation: Isolation = Isolation.COMMITTED,
    silence_seconds: float = SILENCE_SECONDS,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges in batches of bounded size, with the columns of ``RECORD_SCHEMA``.

    Raises ServiceUnavailableError when no record comes for ``silence_seconds`` although the ranges have not come to
    their end, and when they are not readable.
    """
    with kafka_call(f"read {describe_ranges(ranges, limit=3)}", options):
        for chunk in read_chunks(options, ranges, isolation, silence_seconds):
            yield from _cut(to_batch(chunk))


def to_batch(messages: Sequence[Any]) -> pa.RecordBatch:
    """Return the client's messages as one batch with the columns of ``RECORD_SCHEMA``.

    Methods are mapped over all messages at once, which takes a tenth of what a loop over them takes.
    """
    headers = list_headers(messages)
    columns = {
        "topic": list(map(Message.topic, messages)),
        "partition": np.fromiter(map(Message.partition, messages), np.int32, len(messages)),
        "offset": np.fromiter(map(Message.offset, messages), np.int64, len(messages)),
        # A record without a timestamp has -1.
        "timestamp_ms": np.fromiter(map(itemgetter(1), map(Message.timestamp, messages)), np.int64, len(messages)),
        "key": list(map(Message.key, messages)),
        "value": list(map(Message.value, messages)),
        "headers": list(map(write_headers, headers)) if any(headers) else pa.nulls(len(messages), pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)


def list_headers(messages: Sequence[Any]) -> list[Any]:
    """Return the headers of each message, None without any; ``UNREADABLE`` if the client fails at a name.

    The client (2.16) then returns half a list and an error at once. CPython notices that in what ``map`` calls; a call
    of the method itself may return, and the error appears later, anywhere. Half a list ends the process if it is read.
    """
    found: list[Any] = []
    left = list(messages)
    while left:
        ahead = iter(left)
        try:
            return found + list(map(Message.headers, ahead))
        except SystemError:
            failed = len(left) - length_hint(ahead) - 1
            left[failed].set_headers(list(UNREADABLE))
            found += map(Message.headers, left[: failed + 1])
            left = left[failed + 1 :]
    return found


def _cut(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the records in parts of at most about ``BYTES_IN_BATCH``."""
    parts = max(1, records.nbytes // BYTES_IN_BATCH)
    step = -(-records.num_rows // parts)
    for start in range(0, records.num_rows, step):
        yield records.slice(start, step)


def _take(reader: RangeReader, limit_bytes: int) -> Iterator[Any]:
    size_bytes = 0
    for message in reader.messages():
        size_bytes += len(message.key() or b"") + len(message.value() or b"")
        if size_bytes > limit_bytes:
            return
        yield message


def _to_record(message: Any) -> Record:
    kind, milliseconds = message.timestamp()
    return Record(
        partition=TopicPartition(message.topic(), message.partition()),
        offset=message.offset(),
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else _as_text(milliseconds),
        key=message.key(),
        value=message.value(),
        headers=tuple(list_headers([message])[0] or ()),
    )


def _as_text(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        # A producer may set one beyond the years that Python knows.
        return f"{milliseconds} ms"
