"""Turns a row into a record of an output topic: chooses its partition, and writes headers that say where it is from.

The headers are UTF-8 text: ``_topic``, ``_partition``, ``_offset`` and ``_timestamp`` (milliseconds, absent when the
source record has none) of the source record, and ``_batch_id``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, TopicPartition
from batchledger.ports.output import EVERY_BATCH, OutputRecord

Headers = list[tuple[str, bytes]]

CHOSEN_BY_KEY = -1
"""Stands for the partition of a record with a key: the client chooses it by murmur2, as Java's clients do."""


class Origin(NamedTuple):
    """Where a record is from, as its headers say: the parts are still unchecked text."""

    batch_id: bytes
    topic: bytes
    partition: bytes
    offset: bytes


class HeaderWriter:
    """Makes the headers of one batch's records; parts that records share are made once."""

    def __init__(self, batch_id: int) -> None:
        self._batch_id = ("_batch_id", _text(batch_id))
        self._places: dict[tuple[str, int], tuple[tuple[str, bytes], tuple[str, bytes]]] = {}

    def write(self, record: OutputRecord) -> Headers:
        """Return the headers of a record."""
        _, _, topic, partition, offset, timestamp_ms = record
        place = self._places.get((topic, partition))
        if place is None:
            place = ("_topic", topic.encode()), ("_partition", _text(partition))
            self._places[topic, partition] = place
        if timestamp_ms is None:
            return [*place, ("_offset", b"%d" % offset), self._batch_id]
        return [*place, ("_offset", b"%d" % offset), ("_timestamp", b"%d" % timestamp_ms), self._batch_id]


def choose_partition(record: OutputRecord, partitions: int) -> int:
    """Return the output partition of a record. Without a key it follows the source's, which keeps its order."""
    return CHOSEN_BY_KEY if record.key is not None else record.partition % partitions


def read_origin(headers: Sequence[tuple[str, bytes | None]] | None) -> Origin | None:
    """Return what the headers of a record say, None when it is not a pipeline's."""
    found = dict(headers or ())
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


def _text(number: int) -> bytes:
    return str(number).encode()
