"""A broker in memory and the SourceLog port over it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from batchledger.accounting import HoleEvidence
from batchledger.batch import LogState, PartitionLog, TopicIdentity
from batchledger.errors import ServiceUnavailableError
from batchledger.offsets import OffsetRange, TopicPartition

DEFAULT_TIMESTAMP = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """One record; an aborted one is visible to read_uncommitted only."""

    value: bytes
    timestamp: datetime = DEFAULT_TIMESTAMP
    is_aborted: bool = False


@dataclass
class MemoryPartition:
    """The log of one partition; None is an offset without any record. Offsets below ``log_start`` are gone."""

    log: list[Record | None] = field(default_factory=list)
    log_start: int = 0

    @property
    def end(self) -> int:
        """The next offset to be written; there are no open transactions here."""
        return len(self.log)


@dataclass
class MemoryBroker:
    """Topics by name. ``is_down`` makes every call fail as a dead broker does."""

    cluster_id: str = "cluster-a"
    partitions: dict[TopicPartition, MemoryPartition] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    compacted_topics: set[str] = field(default_factory=set)
    next_offset_by_group: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    is_down: bool = False
    _topics_created: int = 0

    def create_topic(self, topic: str, partitions: int) -> list[TopicPartition]:
        """Create a topic, also one that existed before: it then gets another id."""
        self._topics_created += 1
        self.topic_ids[topic] = f"topic-{self._topics_created}"
        return [self.add_partition(topic) for _ in range(partitions)]

    def add_partition(self, topic: str) -> TopicPartition:
        """Grow a topic by one partition."""
        partition = TopicPartition(topic, sum(each.topic == topic for each in self.partitions))
        self.partitions[partition] = MemoryPartition()
        return partition

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it."""
        del self.topic_ids[topic]
        self.partitions = {key: held for key, held in self.partitions.items() if key.topic != topic}

    def append(self, partition: TopicPartition, *values: bytes, timestamp: datetime = DEFAULT_TIMESTAMP) -> None:
        """Write one record a value."""
        self.partitions[partition].log.extend(Record(value, timestamp) for value in values)

    def append_holes(self, partition: TopicPartition, count: int = 1) -> None:
        """Write offsets that show no record, as markers are."""
        self.partitions[partition].log.extend([None] * count)

    def append_aborted(self, partition: TopicPartition, *values: bytes) -> None:
        """Write the records of a transaction that is aborted, and its marker."""
        self.partitions[partition].log.extend(Record(value, is_aborted=True) for value in values)
        self.append_holes(partition)

    def expire(self, partition: TopicPartition, before: int) -> None:
        """Remove what lies below ``before``, as retention does."""
        self.partitions[partition].log_start = before

    def read(self, range_: OffsetRange) -> Iterator[tuple[int, Record]]:
        """Yield the visible records of a range. Raises ServiceUnavailableError or LookupError when some are gone."""
        self.require_up()
        held = self.partitions[range_.partition]
        if range_.start < held.log_start or range_.until > held.end:
            raise LookupError(f"{range_} is not within {held.log_start}..{held.end}")
        for offset in range(range_.start, range_.until):
            record = held.log[offset]
            if record is not None and not record.is_aborted:
                yield offset, record

    def require_up(self) -> None:
        """Raise ServiceUnavailableError when the broker is down."""
        if self.is_down:
            raise ServiceUnavailableError("no broker answered; run the step again when Kafka is back.")


@dataclass(frozen=True)
class MemorySourceLog:
    """See the port."""

    broker: MemoryBroker

    def read_log(self, topics: Sequence[str]) -> LogState:
        """See the port."""
        self.broker.require_up()
        found = [topic for topic in topics if topic in self.broker.topic_ids]
        return LogState(
            {topic: TopicIdentity(self.broker.cluster_id, self.broker.topic_ids[topic]) for topic in found},
            {
                partition: PartitionLog(held.log_start, held.end)
                for partition, held in self.broker.partitions.items()
                if partition.topic in found
            },
        )

    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        """See the port."""
        self.broker.require_up()
        found = {}
        for partition in partitions:
            held = self.broker.partitions[partition]
            for offset in range(held.log_start, held.end):
                record = held.log[offset]
                if record is not None and not record.is_aborted and record.timestamp >= at:
                    found[partition] = offset
                    break
        return found

    def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
        """See the port."""
        self.broker.require_up()
        found: dict[bool, list[OffsetRange]] = {True: [], False: []}
        for hole in holes:
            held = self.broker.partitions[hole.partition]
            for offset in range(max(hole.start, held.log_start), hole.until):
                record = held.log[offset]
                if record is not None:
                    found[record.is_aborted].append(OffsetRange(hole.partition, offset, offset + 1))
        return HoleEvidence(
            committed=tuple(found[False]),
            uncommitted=tuple(sorted(found[False] + found[True])),
            log_start_by_partition={each.partition: self.broker.partitions[each.partition].log_start for each in holes},
            compacted_topics=frozenset(self.broker.compacted_topics),
        )

    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        self.broker.require_up()
        for partition, next_offset in next_offset_by_partition.items():
            self.broker.next_offset_by_group[group, partition] = next_offset
