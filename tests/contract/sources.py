"""The brokers that the SourceLog contract runs over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic, sleep
from typing import Protocol
from uuid import uuid4

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from batchledger.kafka.admin import KEEP_FOREVER, ensure_topic
from batchledger.kafka.log import KafkaLog
from batchledger.offsets import TopicPartition
from batchledger.ports import SourceLog
from tests.fakes.source import DEFAULT_TIMESTAMP, MemoryBroker, MemorySourceLog

DEADLINE_SECONDS = 30.0


class Source(Protocol):
    """A broker and what a test may do to it."""

    topic: str

    @property
    def log(self) -> SourceLog: ...

    @property
    def unreachable_log(self) -> SourceLog:
        """The log of a broker that does not answer."""

    def create_topic(self, partitions: int) -> Sequence[TopicPartition]:
        """Create the topic of this test, again if it was deleted."""

    def add_partition(self) -> TopicPartition:
        """Grow the topic by one partition."""

    def delete_topic(self) -> None:
        """Delete the topic of this test."""

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        """Write records that end at the given time."""

    def expire(self, partition: TopicPartition, before: int) -> None:
        """Remove the records below an offset, as retention does."""

    def committed(self, group: str, partition: TopicPartition) -> int:
        """The committed offset of a consumer group."""


def _unique_topic() -> str:
    return f"contract-{uuid4().hex[:12]}"


@dataclass
class MemorySource:
    """See the protocol."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    topic: str = field(default_factory=_unique_topic)

    @property
    def log(self) -> MemorySourceLog:
        return MemorySourceLog(self.broker)

    @property
    def unreachable_log(self) -> MemorySourceLog:
        return MemorySourceLog(MemoryBroker(is_down=True))

    def create_topic(self, partitions: int) -> Sequence[TopicPartition]:
        return self.broker.create_topic(self.topic, partitions)

    def add_partition(self) -> TopicPartition:
        return self.broker.add_partition(self.topic)

    def delete_topic(self) -> None:
        self.broker.delete_topic(self.topic)

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        self.broker.append(partition, *[b"{}"] * count, timestamp=at)

    def expire(self, partition: TopicPartition, before: int) -> None:
        self.broker.expire(partition, before)

    def committed(self, group: str, partition: TopicPartition) -> int:
        return self.broker.next_offset_by_group[group, partition]


@dataclass
class KafkaSource:
    """See the protocol."""

    bootstrap_servers: str
    topic: str = field(default_factory=_unique_topic)

    @property
    def _options(self) -> Mapping[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def log(self) -> KafkaLog:
        return KafkaLog(self._options)

    @property
    def unreachable_log(self) -> KafkaLog:
        return KafkaLog({"bootstrap.servers": "127.0.0.1:1"})

    def create_topic(self, partitions: int) -> Sequence[TopicPartition]:
        ensure_topic(self._options, self.topic, partitions, KEEP_FOREVER)
        return [TopicPartition(self.topic, number) for number in range(partitions)]

    def add_partition(self) -> TopicPartition:
        admin = AdminClient(dict(self._options))
        count = len(admin.list_topics(self.topic, timeout=DEADLINE_SECONDS).topics[self.topic].partitions)
        admin.create_partitions([NewPartitions(self.topic, count + 1)])[self.topic].result(DEADLINE_SECONDS)
        ensure_topic(self._options, self.topic, count + 1, KEEP_FOREVER)
        return TopicPartition(self.topic, count)

    def delete_topic(self) -> None:
        admin = AdminClient(dict(self._options))
        admin.delete_topics([self.topic])[self.topic].result(DEADLINE_SECONDS)
        deadline = monotonic() + DEADLINE_SECONDS
        while self.topic in admin.list_topics(timeout=DEADLINE_SECONDS).topics:
            assert monotonic() < deadline, f"topic {self.topic} is still there"
            sleep(0.05)

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        producer = Producer({**self._options, "enable.idempotence": True})
        for _ in range(count):
            milliseconds = int(at.timestamp() * 1000)
            producer.produce(self.topic, b"{}", partition=partition.partition, timestamp=milliseconds)
        assert producer.flush(DEADLINE_SECONDS) == 0

    def expire(self, partition: TopicPartition, before: int) -> None:
        admin = AdminClient(dict(self._options))
        lowest_kept = KafkaTopicPartition(partition.topic, partition.partition, before)
        admin.delete_records([lowest_kept])[lowest_kept].result(DEADLINE_SECONDS)

    def committed(self, group: str, partition: TopicPartition) -> int:
        consumer = Consumer({**self._options, "group.id": group})
        try:
            found = consumer.committed([KafkaTopicPartition(partition.topic, partition.partition)], DEADLINE_SECONDS)
            return int(found[0].offset)
        finally:
            consumer.close()
