"""Reads the bytes of single records again, at exactly their offsets."""

import base64
import json
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka.admin import AdminClient, OffsetSpec

from batchledger.kafka.range_reader import Isolation, RangeReader
from batchledger.kafka.requests import client_options, kafka_call, list_offsets
from batchledger.kafka.second_read import cut_off, reading_seconds
from batchledger.offsets import OffsetRange, TopicPartition, describe_ranges, merge_ranges
from batchledger.quarantine import QUARANTINE_SCHEMA


def read_records(options: Mapping[str, str], records: Sequence[OffsetRange], limit_bytes: int) -> pa.Table:
    """See the port."""
    wanted = merge_ranges(records)
    deadline = monotonic() + reading_seconds(wanted)
    with kafka_call(f"read {describe_ranges(wanted, limit=3)} again", options):
        partitions = sorted({each.partition for each in wanted})
        starts = list_offsets(AdminClient(client_options(options)), partitions, OffsetSpec.earliest())
        kept = cut_off(wanted, starts)
        rows = _read(options, kept, limit_bytes, deadline) if kept else []
    return pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)


def _read(
    options: Mapping[str, str], ranges: Sequence[OffsetRange], limit_bytes: int, deadline: float
) -> list[dict[str, Any]]:
    offsets = {(each.partition, offset) for each in ranges for offset in range(each.start, each.until)}
    rows, size_bytes = [], 0
    with RangeReader(options, Isolation.COMMITTED, ranges, deadline) as reader:
        for message in reader.messages():
            if (TopicPartition(message.topic(), message.partition()), message.offset()) not in offsets:
                continue
            size_bytes += len(message.key() or b"") + len(message.value() or b"")
            if size_bytes > limit_bytes:
                break
            rows.append(_describe(message))
    return rows


def _describe(message: Any) -> dict[str, Any]:
    kind, timestamp_ms = message.timestamp()
    headers = [
        {"key": key} if value is None else {"key": key, "value": base64.b64encode(value).decode()}
        for key, value in message.headers() or ()
    ]
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms * 1000,
        "key": message.key(),
        "value": message.value(),
        "headers": json.dumps(headers),
        "error": None,
    }
