"""Tells whether a batch was committed, by the offsets of its group: their metadata names the batch.

The offsets are part of the batch's transaction. They are the ends of its ranges, in a group of the pipeline and lane,
so that lag tools show a pipeline as they show any consumer. A cluster takes offsets of its own topics only. If it has
none of the source topics, the first partition of the output topic stands for them.

A group without offsets of a batch's partitions is no answer: they may have expired. So before a commit is announced,
the group has some, if only to say that nothing was committed (``NOTHING``). If Kafka has forgotten them since, the
topic is searched (``search``), and the result is noted here.

Known limit: if the source topics came to the cluster and were deleted again, the mark of the output topic names an old
batch. It then answers for a newer one that was committed between.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from batchledger.model.batch import Attempt, Batch, Lane
from batchledger.model.errors import TargetRefusedError
from batchledger.model.offsets import TopicPartition
from batchledger.sinks.topic.log import describe_topics
from batchledger.source.kafka.clients import OUTSIDE_OF_GROUPS, client_options
from batchledger.source.kafka.requests import Isolation

ANSWER_SECONDS = 10.0

KnowsBatch = Callable[[int, datetime], bool]
"""Whether the pipeline's ledger has a batch of that id that was planned at that moment."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_METADATA = re.compile(
    r"batchledger/1 batch=(?P<batch>\d+) attempt=(?P<attempt>\d+) planned=(?P<planned>\d+)", re.ASCII
)


class Mark(NamedTuple):
    """The batch that the metadata of an offset names. ``planned`` tells it from a batch of another ledger."""

    batch_id: int
    planned: int

    @classmethod
    def of(cls, batch: Batch) -> "Mark":
        """The mark of a batch: its id, and its time of planning in microseconds."""
        return cls(batch.batch_id, round(batch.planned_at.timestamp() * 1_000_000))

    def is_known(self, knows: KnowsBatch) -> bool:
        """Whether the ledger has the batch."""
        try:
            return knows(self.batch_id, _EPOCH + timedelta(microseconds=self.planned))
        except OverflowError:
            # No batch was planned then.
            return False


NOTHING = Mark(0, 0)
"""What the group says before anything of its partitions was committed. No batch has this number."""


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
    """Return what the transaction of an attempt commits: the ends of its ranges. Raises KafkaException."""
    until: dict[TopicPartition, int] = {}
    for each in attempt.batch.ranges:
        until[each.partition] = max(each.until, until.get(each.partition, 0))
    return _write(options, topic, until, Mark.of(attempt.batch), attempt.number)


def write_nothing(options: Mapping[str, str], topic: str, batch: Batch) -> list[KafkaTopicPartition]:
    """Return the offsets that say "nothing was committed": the starts of the batch's ranges.

    Raises KafkaException.
    """
    start: dict[TopicPartition, int] = {}
    for each in batch.ranges:
        start[each.partition] = min(each.start, start.get(each.partition, each.start))
    return _write(options, topic, start, NOTHING, 0)


def _write(
    options: Mapping[str, str], topic: str, offset_by_partition: Mapping[TopicPartition, int], mark: Mark, attempt: int
) -> list[KafkaTopicPartition]:
    known = describe_topics(options, sorted({each.topic for each in offset_by_partition}))
    here = {
        each: offset
        for each, offset in offset_by_partition.items()
        if each.topic in known and each.partition < known[each.topic].partitions
    }
    text = f"batchledger/1 batch={mark.batch_id} attempt={attempt} planned={mark.planned}"
    return [
        KafkaTopicPartition(each.topic, each.partition, offset, metadata=text)
        for each, offset in (here or {_stand_in(topic): 0}).items()
    ]


def read_metadata(
    options: Mapping[str, str], topic: str, batch: Batch, isolation: Isolation = Isolation.COMMITTED
) -> dict[TopicPartition, str]:
    """Return the metadata of the committed offsets, by partition.

    COMMITTED waits until no transaction of the group is pending; UNCOMMITTED leaves out what is pending. Raises
    KafkaException, also when a transaction stays pending, or when Kafka does not answer for a partition.
    """
    partitions = sorted({each.partition for each in batch.ranges} | {_stand_in(topic)})
    with closing(open_group(options, batch, isolation)) as consumer:
        found = consumer.committed(
            [KafkaTopicPartition(each.topic, each.partition) for each in partitions], ANSWER_SECONDS
        )
    for each in found:
        # No answer does not mean that nothing is committed.
        if each.error is not None:
            raise KafkaException(each.error)
    return {TopicPartition(each.topic, each.partition): each.metadata or "" for each in found if each.offset >= 0}


def find_foreign(
    metadata_by_partition: Mapping[TopicPartition, str], batch: Batch, knows: KnowsBatch
) -> dict[TopicPartition, str]:
    """Return what other clients have committed: no pipeline, or one of another ledger. No clock decides."""
    own = Mark.of(batch)

    def is_foreign(mark: Mark | None) -> bool:
        if mark is None:
            return True
        return mark not in (NOTHING, own) and (_is_later(mark, own, batch.lane) or not mark.is_known(knows))

    return {each: text for each, text in metadata_by_partition.items() if is_foreign(read_mark(text))}


def advise(foreign: Mapping[TopicPartition, str], batch: Batch) -> str:
    """Say who may have committed that, and what to do before the group is deleted."""
    if any(read_mark(text) is None for text in foreign.values()):
        return "End every other client that uses the group"
    return (
        f"Either another ledger writes with pipeline name {batch.pipeline} to this cluster: give one of the two "
        "another name. Or this ledger was made anew, or restored from a backup that does not have these batches: move "
        "its position behind the offsets of the group (batchledger skip), else their records are produced once more"
    )


def _is_later(mark: Mark, own: Mark, lane: Lane) -> bool:
    """Whether the batch's own ledger makes such a mark only after it has committed the batch.

    Live batches of a pipeline are planned and published one after the other. Replays may overtake one another.
    """
    return lane is Lane.LIVE and mark.batch_id > own.batch_id


def read_mark(metadata: str) -> Mark | None:
    """Return what the metadata says, None when it is not a pipeline's."""
    match = _METADATA.fullmatch(metadata)
    return None if match is None else Mark(int(match["batch"]), int(match["planned"]))


def is_named(metadata_by_partition: Mapping[TopicPartition, str], batch: Batch) -> bool:
    """Whether the batch is among those that were committed last."""
    return any(read_mark(text) == Mark.of(batch) for text in metadata_by_partition.values())


def judge(metadata_by_partition: Mapping[TopicPartition, str], batch: Batch, knows: KnowsBatch) -> bool | None:
    """Return whether the batch was committed, None when nothing is committed at all.

    A transaction is all or nothing: what is committed names this batch everywhere, or nowhere. Raises
    TargetRefusedError otherwise, and when another client has committed.
    """
    if not metadata_by_partition:
        return None
    wanted = Mark.of(batch)
    has_named = {each: read_mark(text) == wanted for each, text in metadata_by_partition.items()}
    # The stand-in may name an older batch, from before a source topic was on this cluster, so it need not agree.
    source = {each.partition for each in batch.ranges}
    told = {each: named for each, named in has_named.items() if each in source} or has_named
    foreign = find_foreign(metadata_by_partition, batch, knows)
    if foreign or len(set(told.values())) > 1:
        found = ", ".join(f"{each}: {text or 'nothing'!r}" for each, text in sorted(metadata_by_partition.items()))
        raise TargetRefusedError(
            f"It is unknown whether {batch.label} was committed.",
            why=f"Another client has committed offsets of group {group_of(batch)}, too. Their metadata: {found}.",
            advice=f"{advise(foreign, batch)}.\nLook in the topic for headers that name batch {batch.batch_id}, then "
            "delete the group: the records decide then.",
            subject=group_of(batch),
        )
    return any(told.values())


def _stand_in(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)
