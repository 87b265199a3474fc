"""The headers of an output record, which say where it is from, in either form (``HeaderForm``); and its partition.

Separate headers are UTF-8 text: ``_topic``, ``_partition``, ``_offset`` and ``_timestamp`` (milliseconds, absent when
the source record has none) of the source record, and ``_batch_id``. The packed one, ``_batchledger``, has these texts
in this order, with ``|`` between them, and an empty one for a timestamp that is absent:
``orders|3|41|1372636800000|17``. No name of a topic has a ``|``. A topic may hold both forms: each record is understood
by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, TopicPartition
from batchledger.model.records.rules import HeaderForm

EVERY_BATCH = 2**63 - 1
"""A bound of batch ids that leaves none out."""
Headers = dict[str, str | bytes | None]

CHOSEN_BY_KEY = -1
"""Stands for the partition of a record with a key: the client chooses it by murmur2, as Java's clients do."""
PACKED = "_batchledger"
_PARTS = 5


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """Records that were made of one source partition, in the order of its offsets.

    The columns of ``records``: ``offset`` and ``timestamp_ms`` of the source record, null if it carries none; ``key``,
    null if the record has none; ``value``, null if it is a tombstone, which deletes its key.
    """

    source: TopicPartition
    records: pa.RecordBatch


class UnfitRecordsError(Exception):
    """Records do not stream as they came: damaged, without the key that orders them, or not in the order of offsets."""


class Origin(NamedTuple):
    """Where a record is from, as its headers say: the parts are still unchecked text."""

    batch_id: bytes
    topic: bytes
    partition: bytes
    offset: bytes


@dataclass(frozen=True)
class HeaderWriter:
    """Makes the headers of one batch's records."""

    form: HeaderForm
    batch_id: int

    def write(self, block: OutputBlock) -> Iterator[Headers]:
        """Yield the headers of each record.

        As a dict: the client reads a list of pairs at twice the cost. One by one: the garbage collector would visit
        those that wait.
        """
        topic, partition = block.source.topic, str(block.source.partition)
        offsets, timestamps = (block.records[name].cast(pa.string()) for name in ("offset", "timestamp_ms"))
        match self.form:
            case HeaderForm.PACKED:
                moments = pc.fill_null(timestamps, "")
                packed = pc.binary_join_element_wise(topic, partition, offsets, moments, str(self.batch_id), "|")
                for each in _to_bytes(packed):
                    yield {PACKED: each}
            case HeaderForm.SEPARATE:
                place, number, batch_id = topic.encode(), partition.encode(), str(self.batch_id).encode()
                for offset, timestamp in zip(_to_bytes(offsets), _to_bytes(timestamps), strict=True):
                    found: Headers = {"_topic": place, "_partition": number, "_offset": offset, "_timestamp": timestamp}
                    if timestamp is None:
                        del found["_timestamp"]
                    found["_batch_id"] = batch_id
                    yield found


def _to_bytes(texts: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = texts.cast(pa.binary()).to_pylist()
    return found


def read_origin(headers: Sequence[tuple[str, bytes | None]] | None) -> Origin | None:
    """Return what the headers of a record say, in either form; None when it is not a pipeline's."""
    found = dict(headers or ())
    packed = found.get(PACKED)
    if packed is not None:
        texts = packed.split(b"|", _PARTS)
        return Origin(texts[4], *texts[:3]) if len(texts) >= _PARTS else None
    parts = found.get("_batch_id"), found.get("_topic"), found.get("_partition"), found.get("_offset")
    batch_id, topic, partition, offset = parts
    if batch_id is None or topic is None or partition is None or offset is None:
        return None
    return Origin(batch_id, topic, partition, offset)


def read_batch(origin: Origin) -> tuple[int, TopicPartition] | None:
    """Return the batch and the source partition of a record, None when a header is not what a pipeline writes."""
    batch_id, partition = read_number(origin.batch_id, EVERY_BATCH), read_number(origin.partition, LARGEST_PARTITION)
    if not batch_id or partition is None:
        return None
    try:
        return batch_id, TopicPartition(origin.topic.decode(), partition)
    except UnicodeDecodeError:
        return None


def read_number(text: bytes, largest: int = LARGEST_OFFSET) -> int | None:
    """Return the number that a header holds, None when it holds none, or one above ``largest``."""
    # The length first: a header may be as large as a record, and long numbers take long to read.
    if len(text) > len(str(largest)) or not text.isdigit():
        return None
    number = int(text)
    return number if number <= largest else None
