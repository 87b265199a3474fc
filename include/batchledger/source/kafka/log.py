"""The SourceLog port on a Kafka cluster: reads identity and ends of partitions; modules beside it do the rest.

Needs DESCRIBE on the topics and no group rights (S133, S134), except for the courtesy commit. It asks for the ends of
all partitions in lists, so that 10,000 of them take a second.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicCollection
from typing_extensions import override

from batchledger.model.balance import HoleEvidence
from batchledger.model.batch import LogState, PartitionHealth, PartitionLog, TopicIdentity
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import Searched, TimeSpan, to_milliseconds
from batchledger.ports import SourceLog
from batchledger.source.kafka import health, second_read, time_search
from batchledger.source.kafka.clients import REQUEST_TIMEOUT_SECONDS, client_options
from batchledger.source.kafka.requests import (
    kafka_call,
    list_bounds,
    list_offsets,
    open_admin,
    split,
    to_kafka,
    wait,
    wait_if_present,
)

if TYPE_CHECKING:
    import pyarrow as pa

OFFSETS_IN_COMMIT = 500


def describe_cluster(options: Mapping[str, str]) -> str:
    """Return in words which cluster answers, and with how many brokers. Needs no right."""
    with kafka_call("ask for the cluster", options):
        admin = open_admin(client_options(options))
        found = wait(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS))
    count = len(found.nodes)
    return f"Kafka cluster {found.cluster_id}, {count} broker{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class KafkaLog(SourceLog):
    """``options`` are checked librdkafka options (``clients.client_options``)."""

    options: Mapping[str, str] = field(repr=False)

    @override
    def read_log(self, topics: Sequence[str]) -> LogState:
        """Ends are last stable offsets (read_committed, S21)."""
        with kafka_call(f"read the state of topic {', '.join(topics)}", self.options):
            admin = open_admin(client_options(self.options))
            cluster = admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS)
            described = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS)
            cluster_id = wait(cluster).cluster_id
            found = {topic: answer for topic, future in described.items() if (answer := wait_if_present(future))}
            partitions = [
                TopicPartition(topic, partition.id)
                for topic, answer in found.items()
                for partition in answer.partitions
            ]
            starts, ends, watermarks = list_bounds(self.options, partitions)
        return LogState(
            {topic: TopicIdentity(cluster_id, str(answer.topic_id)) for topic, answer in found.items()},
            {each: PartitionLog(starts[each], ends[each], watermarks[each] - ends[each]) for each in partitions},
        )

    @override
    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        with kafka_call(f"find the offsets at {at.isoformat()}", self.options):
            # Kafka knows no moment before 0, and negative ones have meanings of their own.
            found = list_offsets(self.options, partitions, max(0, to_milliseconds(at)))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    @override
    def search(self, ranges: Sequence[OffsetRange], span: TimeSpan) -> Sequence[Searched]:
        return time_search.search(self.options, ranges, span)

    @override
    def find_records(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        # Imported here because what only looks at a log reads no records.
        from batchledger.source.kafka.first_read import find_records

        return find_records(self.options, ranges)

    @override
    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        with kafka_call(f"commit the offsets of group {group}", self.options):
            moved = [to_kafka(each, offset) for each, offset in next_offset_by_partition.items()]
            # A commit waits for its coordinator as long as a session lasts, by default 45 s.
            session = {"session.timeout.ms": int(REQUEST_TIMEOUT_SECONDS * 1000), "enable.auto.commit": False}
            with closing(Consumer({**client_options(self.options), **session, "group.id": group})) as consumer:
                for part in split(moved, OFFSETS_IN_COMMIT):
                    consumer.commit(offsets=part, asynchronous=False)

    @override
    def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
        return second_read.look_into(self.options, holes)

    @override
    def read_records(self, records: Sequence[OffsetRange], limit_bytes: int) -> "pa.Table":
        # Imported here because what only looks at a log needs no records.
        from batchledger.source.kafka.records import read_bytes

        return read_bytes(self.options, records, limit_bytes)

    @override
    def read_health(self, next_offset_by_partition: Mapping[TopicPartition, int]) -> Sequence[PartitionHealth]:
        return health.read_health(self.options, next_offset_by_partition)
