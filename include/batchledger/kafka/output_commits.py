"""What says of a batch that it was committed: the group's offsets, whose metadata names it; else its records.

The offsets are part of the batch's transaction. They are the ends of its ranges, in a group of the pipeline and lane,
so that lag tools show a pipeline as they show any consumer. A cluster takes offsets of its own topics only; where none
of the source topics is there, the first partition of the output topic stands for them.

Known limit: when nobody has committed for longer than ``offsets.retention.minutes``, the records are asked. Then a
batch whose records retention has removed since, or that had none, counts as not committed.
"""

import re
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.batch import Attempt, Batch, Lane
from batchledger.errors import ServiceUnavailableError, TargetRefusedError
from batchledger.kafka.output_log import describe_topics, look_at, read_committed
from batchledger.kafka.output_records import read_batch, read_origin
from batchledger.kafka.requests import OUTSIDE_OF_GROUPS, Isolation, client_options
from batchledger.offsets import TopicPartition

ANSWER_SECONDS = 10.0

_METADATA = re.compile(
    r"batchledger/1 batch=(?P<batch>\d+) attempt=(?P<attempt>\d+) planned=(?P<planned>\d+)", re.ASCII
)


class Mark(NamedTuple):
    """What the metadata of an offset says: whose batch. ``planned`` tells it from one of another ledger."""

    batch_id: int
    planned: int

    @classmethod
    def of(cls, batch: Batch) -> "Mark":
        """The mark of a batch: its id, and its time of planning in microseconds."""
        return cls(batch.batch_id, round(batch.planned_at.timestamp() * 1_000_000))


def group_of(batch: Batch) -> str:
    """Return the consumer group of the batch's pipeline and lane."""
    match batch.lane:
        case Lane.LIVE:
            return f"batchledger.{batch.pipeline}.sink"
        case Lane.REPLAY:
            return f"batchledger.{batch.pipeline}.replay"


def open_group(options: Mapping[str, str], batch: Batch, isolation: Isolation = Isolation.COMMITTED) -> Consumer:
    """Return a consumer that belongs to the group and never subscribes."""
    settings = {"group.id": group_of(batch), "isolation.level": isolation}
    return Consumer({**client_options(options), **OUTSIDE_OF_GROUPS, **settings})


def write_offsets(options: Mapping[str, str], topic: str, attempt: Attempt) -> list[KafkaTopicPartition]:
    """Return what the transaction of an attempt commits. Raises KafkaException."""
    until: dict[TopicPartition, int] = {}
    for each in attempt.batch.ranges:
        until[each.partition] = max(each.until, until.get(each.partition, 0))
    known = describe_topics(options, sorted({each.topic for each in until}))
    here = {
        each: offset
        for each, offset in until.items()
        if each.topic in known and each.partition < known[each.topic].partitions
    }
    mark = Mark.of(attempt.batch)
    text = f"batchledger/1 batch={mark.batch_id} attempt={attempt.number} planned={mark.planned}"
    return [
        KafkaTopicPartition(each.topic, each.partition, offset, metadata=text)
        for each, offset in (here or {_stand_in(topic): 0}).items()
    ]


def read_metadata(
    options: Mapping[str, str], topic: str, batch: Batch, isolation: Isolation = Isolation.COMMITTED
) -> dict[TopicPartition, str]:
    """Return the metadata of what is committed, by partition.

    COMMITTED waits until no transaction of the group is pending, and raises KafkaException when one stays pending;
    UNCOMMITTED leaves out what is pending.
    """
    partitions = sorted({each.partition for each in batch.ranges} | {_stand_in(topic)})
    with closing(open_group(options, batch, isolation)) as consumer:
        found = consumer.committed(
            [KafkaTopicPartition(each.topic, each.partition) for each in partitions], ANSWER_SECONDS
        )
    return {TopicPartition(each.topic, each.partition): each.metadata or "" for each in found if each.offset >= 0}


def find_foreign(metadata_by_partition: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Return what somebody else has committed."""
    return {each: text for each, text in metadata_by_partition.items() if read_mark(text) is None}


def read_mark(metadata: str) -> Mark | None:
    """Return what the metadata says, None when it is not a pipeline's."""
    match = _METADATA.fullmatch(metadata)
    return None if match is None else Mark(int(match["batch"]), int(match["planned"]))


def judge(metadata_by_partition: Mapping[TopicPartition, str], batch: Batch) -> bool | None:
    """Return whether the batch was committed, None when nothing is committed at all.

    A transaction is all or nothing: what is committed names this batch everywhere, or nowhere. Raises
    TargetRefusedError otherwise, and when somebody else has committed.
    """
    if not metadata_by_partition:
        return None
    wanted = Mark.of(batch)
    is_named = {each: read_mark(text) == wanted for each, text in metadata_by_partition.items()}
    # An older batch may have stood for a source topic that is here by now, so the stand-in need not agree.
    source = {each.partition for each in batch.ranges}
    told = {each: named for each, named in is_named.items() if each in source} or is_named
    if find_foreign(metadata_by_partition) or len(set(told.values())) > 1:
        found = ", ".join(f"{each}: {text or 'nothing'!r}" for each, text in sorted(metadata_by_partition.items()))
        raise TargetRefusedError(
            f"whether {batch.label} was committed cannot be told: the offsets of group {group_of(batch)} were "
            f"committed by somebody else, too. Their metadata: {found}. End whoever else uses the group, look in the "
            f"topic for header _batch_id = {batch.batch_id}, then delete the group: the records decide then.",
            group=group_of(batch),
        )
    return any(told.values())


def search_topic(options: Mapping[str, str], topic: str, batch: Batch) -> bool:
    """Return whether the topic shows a record of the batch. Reads it from its log start; raises KafkaException.

    Raises ServiceUnavailableError when an open transaction, whoever's, may hide some.
    """
    log, batch_id = look_at(options, topic), str(batch.batch_id).encode()
    if any(_belongs(message, batch, batch_id) for message in read_committed(options, log)):
        return True
    if log.held_back:
        raise ServiceUnavailableError(
            f"whether {batch.label} was committed cannot be told yet: group {group_of(batch)} has no offsets, and "
            f"{log.held_back:,} offsets of topic {topic} lie behind an open transaction of somebody else. Ask again "
            "when it has ended; Kafka ends it after its transaction.timeout.ms.",
            topic=topic,
        )
    return False


def _belongs(message: Any, batch: Batch, batch_id: bytes) -> bool:
    origin = read_origin(message.headers())
    if origin is None or origin.batch_id != batch_id:
        return False
    found = read_batch(origin)
    return found is not None and any(each.partition == found[1] for each in batch.ranges)


def _stand_in(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)
