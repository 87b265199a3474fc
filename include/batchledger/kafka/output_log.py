"""Reads an output topic as its readers do, from its log start to its last stable offset: committed records only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from batchledger.kafka.range_reader import RangeReader
from batchledger.kafka.requests import (
    REQUEST_TIMEOUT_SECONDS,
    Isolation,
    client_options,
    list_bounds,
    list_offsets,
    open_admin,
    wait,
)
from batchledger.offsets import LARGEST_OFFSET, OffsetRange, TopicPartition

# So many offsets of aborted records are passed by in less time than a broker may be silent.
OFFSETS_IN_SLICE = 500_000
SILENCE_SECONDS = 30.0

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says of a topic: its id, and how many partitions it has."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OutputLog:
    """The readable offsets of each partition at one moment, and how many an open transaction holds back."""

    ranges: tuple[OffsetRange, ...]
    held_back: int

    @property
    def shortened(self) -> list[TopicPartition]:
        """The partitions whose beginning was removed."""
        return [each.partition for each in self.ranges if each.start > 0]


class _PatientReader(RangeReader):
    """Has as much time as it takes while records come."""

    def messages(self) -> Iterator[Any]:
        for message in super().messages():
            self._deadline = monotonic() + SILENCE_SECONDS
            yield message


def describe_topics(options: Mapping[str, str], topics: Sequence[str]) -> dict[str, TopicFacts]:
    """Return what the cluster knows of the topics; those that do not exist are absent, and are not created."""
    if not topics:
        return {}
    admin = open_admin(client_options(options))
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS)
    found = {}
    for topic, answer in answers.items():
        try:
            described = wait(answer)
        except KafkaException as error:
            if error.args[0].code() not in _ABSENT:
                raise
        else:
            found[topic] = TopicFacts(str(described.topic_id), len(described.partitions))
    return found


def look_at(options: Mapping[str, str], topic: str) -> OutputLog:
    """Return what can be read of the topic now; nothing when it does not exist."""
    facts = describe_topics(options, [topic]).get(topic)
    if facts is None:
        return OutputLog((), 0)
    partitions = [TopicPartition(topic, number) for number in range(facts.partitions)]
    starts, ends, watermarks = list_bounds(options, partitions)
    ranges = tuple(OffsetRange(each, starts[each], max(starts[each], ends[each])) for each in partitions)
    return OutputLog(ranges, sum(watermarks[each] - ends[each] for each in partitions))


def begin_at(options: Mapping[str, str], log: OutputLog, moment: datetime) -> OutputLog:
    """Return the log without what lies before the first record of that moment or later, as the topic's clock has it.

    That is the broker's, or that of the producers, as ``message.timestamp.type`` says.
    """
    found = list_offsets(options, [each.partition for each in log.ranges], int(moment.timestamp() * 1000))
    # Negative where no record is as young.
    first = {each: LARGEST_OFFSET if offset < 0 else offset for each, offset in found.items()}
    ranges = tuple(
        OffsetRange(each.partition, min(max(each.start, first[each.partition]), each.until), each.until)
        for each in log.ranges
    )
    return OutputLog(ranges, log.held_back)


def read_committed(options: Mapping[str, str], log: OutputLog) -> Iterator[Any]:
    """Iterate over the client's own messages, in order in each partition. Memory does not grow with the topic.

    Raises TimeoutError when no record and no end of a slice comes for ``SILENCE_SECONDS``.
    """
    for part in slice_ranges([each for each in log.ranges if each], OFFSETS_IN_SLICE):
        with _PatientReader(options, Isolation.COMMITTED, part, monotonic() + SILENCE_SECONDS) as reader:
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
