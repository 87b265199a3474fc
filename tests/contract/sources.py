"""The brokers that the SourceLog contract runs over."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import uuid4

from confluent_kafka import Consumer, IsolationLevel, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from batchledger.local.samples.admin import KEEP_FOREVER, ensure_topic
from batchledger.model.offsets import TopicPartition
from batchledger.ports import SourceLog
from batchledger.source.kafka.log import KafkaLog
from tests.fakes.source import DEFAULT_TIMESTAMP, MemoryBroker, MemorySourceLog
from tests.support import delete_topic, wait_until

DEADLINE_SECONDS = 30.0


class Source(Protocol):
    """A broker and what a test may do to it."""

    topic: str

    @property
    def log(self) -> SourceLog: ...

    @property
    def unreachable_log(self) -> SourceLog:
        """The log of a broker that does not answer."""

    def create_topic(self, partitions: int, config: Mapping[str, str] = KEEP_FOREVER) -> Sequence[TopicPartition]:
        """Create the topic of this test, again if it was deleted."""

    def add_partition(self) -> TopicPartition:
        """Grow the topic by one partition."""

    def delete_topic(self) -> None:
        """Delete the topic of this test."""

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        """Write records that end at the given time."""

    def commit(self, partition: TopicPartition, count: int) -> None:
        """Write records and a marker, in one committed transaction."""

    def abort(self, partition: TopicPartition, count: int) -> None:
        """Write records and a marker, in one aborted transaction."""

    def open_transaction(
        self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP
    ) -> AbstractContextManager[None]:
        """Write records in a transaction that is undecided within the block, and aborted at its end."""

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

    def create_topic(self, partitions: int, config: Mapping[str, str] = KEEP_FOREVER) -> Sequence[TopicPartition]:
        return self.broker.create_topic(self.topic, partitions, config)

    def add_partition(self) -> TopicPartition:
        return self.broker.add_partition(self.topic)

    def delete_topic(self) -> None:
        self.broker.delete_topic(self.topic)

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        self.broker.append(partition, *[b"{}"] * count, timestamp=at)

    def commit(self, partition: TopicPartition, count: int) -> None:
        self.broker.append_undecided(partition, *[b"{}"] * count)
        self.broker.commit(partition)

    def abort(self, partition: TopicPartition, count: int) -> None:
        with self.open_transaction(partition, count):
            pass

    @contextmanager
    def open_transaction(
        self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP
    ) -> Iterator[None]:
        self.broker.append_undecided(partition, *[b"{}"] * count, timestamp=at)
        yield
        self.broker.abort(partition)

    def expire(self, partition: TopicPartition, before: int) -> None:
        self.broker.expire(partition, before)

    def committed(self, group: str, partition: TopicPartition) -> int:
        return self.broker.next_offset_by_group[group, partition]


@dataclass
class KafkaSource:
    """See the protocol."""

    options: Mapping[str, str] = field(repr=False)
    topic: str = field(default_factory=_unique_topic)

    @property
    def log(self) -> KafkaLog:
        return KafkaLog(self.options)

    @property
    def unreachable_log(self) -> KafkaLog:
        return KafkaLog({"bootstrap.servers": "127.0.0.1:1"})

    def create_topic(self, partitions: int, config: Mapping[str, str] = KEEP_FOREVER) -> Sequence[TopicPartition]:
        ensure_topic(self.options, self.topic, partitions, config)
        return [TopicPartition(self.topic, number) for number in range(partitions)]

    def add_partition(self) -> TopicPartition:
        admin = AdminClient(dict(self.options))
        count = len(admin.list_topics(self.topic, timeout=DEADLINE_SECONDS).topics[self.topic].partitions)
        admin.create_partitions([NewPartitions(self.topic, count + 1)])[self.topic].result(DEADLINE_SECONDS)
        ensure_topic(self.options, self.topic, count + 1, KEEP_FOREVER)
        return TopicPartition(self.topic, count)

    def delete_topic(self) -> None:
        delete_topic(self.options, self.topic)

    def append(self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP) -> None:
        self._write(Producer({**self.options, "enable.idempotence": True}), partition, count, at)

    def commit(self, partition: TopicPartition, count: int) -> None:
        producer = self._begin_transaction()
        self._write(producer, partition, count, DEFAULT_TIMESTAMP)
        producer.commit_transaction(DEADLINE_SECONDS)
        self._wait_until_decided(partition)

    def abort(self, partition: TopicPartition, count: int) -> None:
        with self.open_transaction(partition, count):
            pass

    @contextmanager
    def open_transaction(
        self, partition: TopicPartition, count: int, at: datetime = DEFAULT_TIMESTAMP
    ) -> Iterator[None]:
        producer = self._begin_transaction()
        self._write(producer, partition, count, at)
        yield
        producer.abort_transaction(DEADLINE_SECONDS)
        self._wait_until_decided(partition)

    def _begin_transaction(self) -> Producer:
        producer = Producer({**self.options, "transactional.id": uuid4().hex, "log_level": 0})
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        return producer

    def _write(self, producer: Producer, partition: TopicPartition, count: int, at: datetime) -> None:
        milliseconds = int(at.timestamp() * 1000)
        refused: list[object] = []

        def note(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        for number in range(count):
            key = str(number)
            producer.produce(
                self.topic, b"{}", key, partition=partition.partition, timestamp=milliseconds, on_delivery=note
            )
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert refused == []

    def _wait_until_decided(self, partition: TopicPartition) -> None:
        """The broker answers before it has written the marker."""
        admin = AdminClient(dict(self.options))
        place = KafkaTopicPartition(partition.topic, partition.partition)

        def end(isolation: IsolationLevel) -> int:
            answer = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)
            return int(answer[place].result(DEADLINE_SECONDS).offset)

        wait_until(lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED))

    def expire(self, partition: TopicPartition, before: int) -> None:
        admin = AdminClient(dict(self.options))
        lowest_kept = KafkaTopicPartition(partition.topic, partition.partition, before)
        admin.delete_records([lowest_kept])[lowest_kept].result(DEADLINE_SECONDS)

    def committed(self, group: str, partition: TopicPartition) -> int:
        consumer = Consumer({**self.options, "group.id": group})
        try:
            found = consumer.committed([KafkaTopicPartition(partition.topic, partition.partition)], DEADLINE_SECONDS)
            return int(found[0].offset)
        finally:
            consumer.close()
