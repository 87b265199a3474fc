"""Reads ranges of offsets with an assigned consumer, outside any group, and comes to an end whatever they hold.

A client sees neither aborted records nor transaction markers, so waiting for the record behind a range may take for
ever. The client's position tells that a range has been read through: it moves, in order, past each visible record and
each marker, and the client reports the end of a partition. An aborted record always has a marker behind it, and below
the last stable offset no marker is missing.

Records are handled as many at a time as have arrived. One call of Python's for each would cost more than the client.
"""

import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from typing_extensions import override

from batchledger.bounds.alarm import STEPS
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.source.kafka.clients import OUTSIDE_OF_GROUPS, client_options
from batchledger.source.kafka.requests import Isolation, to_kafka

# A new position costs a round trip, as much as reading so many unwanted records.
LONGEST_DETOUR_OFFSETS = 10_000
PARTITIONS_AT_ONCE = 500
"""A fetch asks for all that are assigned. A broker that has to find them on disk first took 12 ms for each."""
RECORDS_PER_POLL = 10_000
RECORDS_PER_CALL = 500
BYTES_PER_POLL = 16 * 1024 * 1024
SILENCE_SECONDS = 30.0
_LOOKS_IN_SILENCE = 6
POLL_SECONDS = 0.02
OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Each collection of garbage visits the messages that wait. By Python's default that was three quarters of a read."""

_HOPELESS = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET)

_TUNING: Mapping[str, Any] = {
    # The client reports the end of a partition after this wait; the default is half a second.
    "fetch.wait.max.ms": 20,
    # Whenever it has fetched enough ahead it pauses for so long, by default for a second.
    "fetch.queue.backoff.ms": 10,
    # What is fetched ahead behind the end of a range is thrown away, and it is held in memory for each task.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 32_768,
}
"""What the options may say otherwise."""

_FIXED: Mapping[str, Any] = {
    **OUTSIDE_OF_GROUPS,
    # Otherwise offsets that retention removed would silently be replaced by others.
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}


class Seen(NamedTuple):
    """A visible record: where it lies, and its timestamp, None when it carries none."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int | None


class RangeReader:
    """Iterates over the visible records of ``ranges``, in order in each partition.

    It yields all of them, and no other. Every range has to lie between the log start and the end that ``isolation``
    gives. Raises TimeoutError when ``deadline`` (of the monotonic clock) passes first, and KafkaException. Use it in a
    ``with`` block, once.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        isolation: Isolation,
        ranges: Sequence[OffsetRange],
        deadline: float,
        **more: Any,
    ) -> None:
        groups = groupby(merge_ranges(ranges), key=lambda each: each.partition)
        self._asked = {partition: list(group) for partition, group in groups}
        self._ahead = {partition: deque(group) for partition, group in self._asked.items()}
        self._waiting, self._assigned = deque(self._ahead), set[TopicPartition]()
        self._has_topics = len({partition.topic for partition in self._asked}) > 1
        self._deadline = deadline
        self._trouble: KafkaError | None = None
        self._log_end_by_partition: dict[TopicPartition, int] = {}
        settings = {**_TUNING, **client_options(options), **_FIXED, "isolation.level": isolation, **more}
        self._consumer = Consumer(settings)

    def __enter__(self) -> Self:
        self._collections = gc.get_threshold()
        if 0 < self._collections[0] < OBJECTS_BETWEEN_COLLECTIONS:
            gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *self._collections[1:])
        self._assign_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.set_threshold(*self._collections)
        self._consumer.close()

    def __iter__(self) -> Iterator[Seen]:
        return map(_describe, self.messages())

    def messages(self) -> Iterator[Any]:
        """Iterate over the same records as the client's own messages, with their bytes."""
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[Any]]:
        """Iterate over the same messages, as many at a time as have arrived."""
        for runs in self.rounds():
            yield [message for _, run in runs for message in run]

    def rounds(self) -> Iterator[list[tuple[TopicPartition, list[Any]]]]:
        """Iterate over the same messages in runs of one partition, as many runs at a time as have arrived."""
        while self._ahead:
            reached: dict[TopicPartition, int] = {}
            polled = self._poll()
            wanted: list[tuple[TopicPartition, list[Any]]] = []
            for partition, run in self._runs(self._take_errors(polled, reached)):
                reached[partition] = max(reached.get(partition, 0), run[-1].offset() + 1)
                # Unwanted records lie between ranges that are close to each other.
                selected = self._select_asked(partition, run)
                if selected:
                    wanted.append((partition, selected))
            if wanted:
                yield wanted
            self._advance(reached or self._positions())
            self._require_time()

    def _take_errors(self, polled: list[Any], reached: dict[TopicPartition, int]) -> list[Any]:
        """Return the messages that are records; take note of the others."""
        errors = list(map(Message.error, polled))
        if not any(errors):
            return polled
        for message, error in zip(polled, errors, strict=True):
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                partition = TopicPartition(message.topic(), message.partition())
                reached[partition] = self._log_end_by_partition[partition] = message.offset()
            elif error.code() in _HOPELESS:
                raise KafkaException(error)
            else:
                # The client tries again by itself.
                self._trouble = error
        return [message for message, error in zip(polled, errors, strict=True) if error is None]

    def _runs(self, messages: list[Any]) -> Iterator[tuple[TopicPartition, list[Any]]]:
        """Yield the messages in runs of one partition; within a run the offsets increase."""
        if not messages:
            return
        # Imported here because what only looks at a log reads no record, or one.
        import numpy as np

        numbers = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
        is_other = numbers[1:] != numbers[:-1]
        if self._has_topics:
            topics = np.array(list(map(Message.topic, messages)), object)
            is_other |= topics[1:] != topics[:-1]
        for start, until in pairwise([0, *(np.flatnonzero(is_other) + 1), len(messages)]):
            first = messages[start]
            yield TopicPartition(first.topic(), first.partition()), messages[start:until]

    def _select_asked(self, partition: TopicPartition, run: list[Any]) -> list[Any]:
        """Return the messages of a run that lie in a range."""
        asked = self._asked[partition]
        holder = _find_holder(asked, run[0].offset())
        if holder and run[-1].offset() in holder:
            return run
        return [message for message in run if _find_holder(asked, message.offset())]

    def leave(self, *partitions: TopicPartition) -> None:
        """Read no more of these partitions."""
        for each in partitions:
            self._ahead.pop(each, None)
        left = self._assigned.intersection(partitions)
        if left:
            self._assigned -= left
            self._consumer.incremental_unassign([to_kafka(each) for each in left])
        if len(self._assigned) <= PARTITIONS_AT_ONCE // 2:
            self._assign_more()

    def _assign_more(self) -> None:
        more: list[TopicPartition] = []
        while self._waiting and len(self._assigned) + len(more) < PARTITIONS_AT_ONCE:
            partition = self._waiting.popleft()
            if partition in self._ahead:
                more.append(partition)
        if more:
            self._assigned.update(more)
            self._consumer.incremental_assign([to_kafka(each, self._ahead[each][0].start) for each in more])

    def _poll(self) -> list[Any]:
        """Return the messages and reports of errors that have arrived; nothing after a short wait."""
        first = self._consumer.poll(POLL_SECONDS)
        if first is None:
            return []
        polled, size_bytes = [first], len(first)
        while len(polled) < RECORDS_PER_POLL and size_bytes < BYTES_PER_POLL:
            more = self._consumer.consume(min(RECORDS_PER_CALL, RECORDS_PER_POLL - len(polled)), 0)
            if not more:
                break
            polled += more
            size_bytes += sum(map(len, more))
        return polled

    def _positions(self) -> dict[TopicPartition, int]:
        """Return how far the client is, markers included; a negative number before the first record."""
        found = self._consumer.position([to_kafka(each) for each in self._assigned])
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def _advance(self, reached: Mapping[TopicPartition, int]) -> None:
        """Take note that everything before these offsets has been read; jump when the next range is far ahead."""
        done = []
        for partition, offset in reached.items():
            ranges = self._ahead.get(partition)
            if ranges is None or offset < ranges[0].until:
                continue
            while ranges and ranges[0].until <= offset:
                ranges.popleft()
            if not ranges:
                done.append(partition)
            elif ranges[0].start - offset > LONGEST_DETOUR_OFFSETS:
                self._consumer.seek(to_kafka(partition, ranges[0].start))
        self.leave(*done)

    def _require_time(self) -> None:
        if self._ahead and monotonic() > self._deadline:
            partition, ranges = next(iter(self._ahead.items()))
            cause = f": {self._trouble.str()}" if self._trouble else ""
            end = self._log_end_by_partition.get(partition)
            shown = "" if end is None else f"; the broker shows {partition} up to offset {end}"
            raise TimeoutError(f"{ranges[0]} was not read through in time{cause}{shown}")


class _PatientReader(RangeReader):
    """Has as much time as it takes while data comes; what the caller does with records does not count.

    Within an aborted transaction no record is shown, and the client's position stands still until its marker. Only the
    client's statistics then tell that it goes on.
    """

    def __init__(
        self, options: Mapping[str, str], isolation: Isolation, ranges: Sequence[OffsetRange], silence_seconds: float
    ) -> None:
        often = {"statistics.interval.ms": int(silence_seconds * 1000 / _LOOKS_IN_SILENCE), "stats_cb": self._look}
        super().__init__(options, isolation, ranges, monotonic() + silence_seconds, **often)
        self._silence_seconds = silence_seconds
        self._fetched: dict[TopicPartition, int] = {}

    @override
    def chunks(self) -> Iterator[list[Any]]:
        for chunk in super().chunks():
            yield chunk
            self._renew()

    def _renew(self) -> None:
        self._deadline = monotonic() + self._silence_seconds
        STEPS.made()

    def _look(self, statistics: str) -> None:
        """Renew the deadline if the client has fetched anything since the last look."""
        found = {
            TopicPartition(topic, int(number)): partition["next_offset"]
            for topic, known in msgspec.json.decode(statistics)["topics"].items()
            for number, partition in known["partitions"].items()
        }
        if any(offset > self._fetched.get(partition, offset) for partition, offset in found.items()):
            self._renew()
        self._fetched = found


def read_chunks(
    options: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    isolation: Isolation,
    silence_seconds: float = SILENCE_SECONDS,
) -> Iterator[list[Any]]:
    """Iterate over the client's own messages, as many at a time as have arrived, in order in each partition.

    Memory does not grow with the ranges. Raises TimeoutError when the broker sends nothing for ``silence_seconds``.
    """
    if not any(ranges):
        return
    with _PatientReader(options, isolation, ranges, silence_seconds) as reader:
        yield from reader.chunks()


def _find_holder(ranges: Sequence[OffsetRange], offset: int) -> OffsetRange | None:
    """Return which of the ranges, in order and none of them empty, holds the offset."""
    nearest = bisect_right(ranges, offset, key=lambda each: each.start) - 1
    return ranges[nearest] if nearest >= 0 and offset in ranges[nearest] else None


def _describe(message: Any) -> Seen:
    kind, timestamp_ms = message.timestamp()
    partition = TopicPartition(message.topic(), message.partition())
    return Seen(partition, message.offset(), None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)
