"""What can be read of an output topic as its readers do: from its log start to its last stable offset.

What lies behind that, up to the high watermark, can be read too, although it may still be aborted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS, client_options
from batchledger.source.kafka.requests import LATEST, Isolation, list_bounds, list_offsets, open_admin, wait

_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says of a topic: its id, and how many partitions it has."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OutputLog:
    """The readable offsets of each partition at one moment, and those behind them that open transactions hold back."""

    ranges: tuple[OffsetRange, ...]
    hidden: tuple[OffsetRange, ...] = ()

    @property
    def held_back(self) -> int:
        """How many offsets the open transactions of all producers hold back."""
        return count_offsets(self.hidden)

    @property
    def shortened(self) -> list[TopicPartition]:
        """The partitions whose beginning was removed."""
        return [each.partition for each in self.ranges if each.start > 0]


def describe_topics(options: Mapping[str, str], topics: Sequence[str]) -> dict[str, TopicFacts]:
    """Return what the cluster knows of the topics. A topic that does not exist is absent, and is not created."""
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
        return OutputLog(())
    partitions = [TopicPartition(topic, number) for number in range(facts.partitions)]
    starts, ends, watermarks = list_bounds(options, partitions)
    ranges = tuple(OffsetRange(each, starts[each], max(starts[each], ends[each])) for each in partitions)
    hidden = [OffsetRange(each.partition, each.until, max(each.until, watermarks[each.partition])) for each in ranges]
    return OutputLog(ranges, tuple(hidden))


def list_ends(options: Mapping[str, str], topic: str) -> tuple[int, ...]:
    """Return the high watermark of each partition, in order: what is written from now on lies behind."""
    facts = describe_topics(options, [topic]).get(topic)
    partitions = [TopicPartition(topic, number) for number in range(facts.partitions if facts else 0)]
    ends = list_offsets(options, partitions, LATEST, Isolation.UNCOMMITTED)
    return tuple(ends[each] for each in partitions)


def begin_at_ends(log: OutputLog, ends: Sequence[int]) -> OutputLog:
    """Return the log without what lies below ``ends``: one for each partition, from the first on.

    A partition that is shorter than its end has been cut since: all of it stays. Example: with ends ``(5, 9)``,
    ``out[0] 0..8``, ``out[1] 0..7`` and ``out[2] 0..3`` become ``out[0] 5..8``, ``out[1] 0..7`` and ``out[2] 0..3``.
    """
    end_by_partition = dict(enumerate(ends))
    whole = {each.partition: each.until for each in log.hidden}

    def cut(part: OffsetRange) -> OffsetRange:
        end = end_by_partition.get(part.partition.partition, 0)
        start = max(part.start, end if end <= whole[part.partition] else 0)
        return OffsetRange(part.partition, min(start, part.until), part.until)

    return OutputLog(tuple(map(cut, log.ranges)), tuple(map(cut, log.hidden)))
