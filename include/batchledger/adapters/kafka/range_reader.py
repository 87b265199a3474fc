"""Reads ranges of offsets with an assigned consumer, outside any group, and comes to an end whatever they hold.

A client sees neither aborted records nor transaction markers, so waiting for the record behind a range may take for
ever. The client's position tells that a range has been read through: it moves, in order, past each visible record and
each marker, and the client reports the end of a partition. An aborted record always has a marker behind it, and below
the last stable offset no marker is missing.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException
from typing_extensions import override

from batchledger.adapters.kafka.requests import OUTSIDE_OF_GROUPS, Isolation, client_options, to_kafka
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges

# A new position costs a round trip, as much as reading so many unwanted records.
LONGEST_DETOUR_OFFSETS = 10_000
RECORDS_PER_POLL = 10_000
# A client passes by so many offsets of aborted records in less time than a broker may be silent.
OFFSETS_IN_SLICE = 500_000
SILENCE_SECONDS = 30.0
POLL_SECONDS = 0.02

_HOPELESS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET)

_CONSUMER_OPTIONS: Mapping[str, Any] = {
    **OUTSIDE_OF_GROUPS,
    # Otherwise offsets that retention removed would silently be replaced by others.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    # The client reports the end of a partition after this wait; the default is half a second.
    "fetch.wait.max.ms": 20,
    "fetch.queue.backoff.ms": 10,
}


class Seen(NamedTuple):
    """A visible record: where it lies, and its timestamp, None when it carries none."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None


class RangeReader:
    """Iterates over the visible records of ``ranges``, in order in each partition.

    It yields all of them, and no other. Every range has to lie between the log start and the end that ``isolation``
    gives. Raises TimeoutError when ``deadline`` (of the monotonic clock) passes
    first, and KafkaException. Use it in a ``with`` block, once.
    """

    def __init__(
        self, options: Mapping[str, str], isolation: Isolation, ranges: Sequence[OffsetRange], deadline: float
    ) -> None:
        groups = groupby(merge_ranges(ranges), key=lambda each: each.partition)
        self._asked = {partition: list(group) for partition, group in groups}
        self._starts = {partition: [each.start for each in group] for partition, group in self._asked.items()}
        self._ahead = {partition: deque(group) for partition, group in self._asked.items()}
        self._deadline = deadline
        self._trouble: KafkaError | None = None
        self._consumer = Consumer({**client_options(options), **_CONSUMER_OPTIONS, "isolation.level": isolation})

    def __enter__(self) -> Self:
        self._consumer.assign([to_kafka(key, ranges[0].start) for key, ranges in self._ahead.items()])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def __iter__(self) -> Iterator[Seen]:
        return map(_describe, self.messages())

    def messages(self) -> Iterator[Any]:
        """Iterate over the same records as the client's own messages, with their bytes."""
        while self._ahead:
            reached: dict[TopicPartition, int] = {}
            for message in self._poll():
                error, partition = message.error(), TopicPartition(message.topic(), message.partition())
                if error is None:
                    # Unwanted records lie between ranges that are close to each other.
                    if self._is_asked(partition, message.offset()):
                        yield message
                    reached[partition] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[partition] = message.offset()
                elif error.code() in _HOPELESS:
                    raise KafkaException(error)
                else:
                    # The client tries again by itself.
                    self._trouble = error
            for partition, offset in (reached or self._positions()).items():
                self._advance(partition, offset)
            self._require_time()

    def _is_asked(self, partition: TopicPartition, offset: int) -> bool:
        nearest = bisect_right(self._starts[partition], offset) - 1
        return nearest >= 0 and offset < self._asked[partition][nearest].until

    def leave(self, partition: TopicPartition) -> None:
        """Read no more of a partition."""
        if self._ahead.pop(partition, None):
            self._consumer.incremental_unassign([to_kafka(partition)])

    def _poll(self) -> list[Any]:
        """Return the messages and reports of errors that have arrived; nothing after a short wait."""
        first = self._consumer.poll(POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(RECORDS_PER_POLL, 0)]

    def _positions(self) -> dict[TopicPartition, int]:
        """Return how far the client is, markers included; a negative number before the first record."""
        found = self._consumer.position([to_kafka(each) for each in self._ahead])
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def _advance(self, partition: TopicPartition, offset: int) -> None:
        """Take note that everything before ``offset`` has been read; jump when the next range is far ahead."""
        ranges = self._ahead.get(partition)
        if ranges is None or offset < ranges[0].until:
            return
        while ranges and ranges[0].until <= offset:
            ranges.popleft()
        if not ranges:
            self.leave(partition)
        elif ranges[0].start - offset > LONGEST_DETOUR_OFFSETS:
            self._consumer.seek(to_kafka(partition, ranges[0].start))

    def _require_time(self) -> None:
        if self._ahead and monotonic() > self._deadline:
            ranges = next(iter(self._ahead.values()))
            cause = f": {self._trouble.str()}" if self._trouble else ""
            raise TimeoutError(f"{ranges[0]} was not read through in time{cause}")


class _PatientReader(RangeReader):
    """Has as much time as it takes while records come; what the caller does with one does not count."""

    @override
    def messages(self) -> Iterator[Any]:
        for message in super().messages():
            yield message
            self._deadline = monotonic() + SILENCE_SECONDS


def read_messages(options: Mapping[str, str], ranges: Sequence[OffsetRange], isolation: Isolation) -> Iterator[Any]:
    """Iterate over the client's own messages, in order in each partition. Memory does not grow with the topic.

    Raises TimeoutError when no record and no end of a slice comes for ``SILENCE_SECONDS``.
    """
    for part in slice_ranges([each for each in ranges if each], OFFSETS_IN_SLICE):
        with _PatientReader(options, isolation, part, monotonic() + SILENCE_SECONDS) as reader:
            yield from reader.messages()


def slice_ranges(ranges: Sequence[OffsetRange], offsets: int) -> Iterator[list[OffsetRange]]:
    """Divide the ranges, all side by side, into slices of about so many offsets.

    Example: ``out[0] 0..5`` and ``out[1] 0..2`` in slices of 4 are ``out[0] 0..2, out[1] 0..2``, ``out[0] 2..4``
    and ``out[0] 4..5``.
    """
    step = max(1, offsets // max(1, len(ranges)))
    left = list(ranges)
    while left:
        yield [OffsetRange(each.partition, each.start, min(each.until, each.start + step)) for each in left]
        left = [OffsetRange(each.partition, each.start + step, each.until) for each in left if len(each) > step]


def _describe(message: Any) -> Seen:
    kind, timestamp_ms = message.timestamp()
    partition = TopicPartition(message.topic(), message.partition())
    return Seen(partition, message.offset(), None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)
