"""A broker in memory and the SourceLog port over it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from typing_extensions import override

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.model.balance import HoleEvidence
from batchledger.model.batch import LogState, PartitionHealth, PartitionLog, TopicIdentity
from batchledger.model.errors import ServiceUnavailableError, TopicChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.model.records.times import EPOCH, MILLISECOND, Searched, TimeSearch, TimeSpan, to_milliseconds
from batchledger.ports import SourceLog

DEFAULT_TIMESTAMP = datetime(2026, 1, 1, tzinfo=UTC)


def stamp(record: "Record") -> int | None:
    """A record's timestamp as Kafka has it."""
    return None if record.timestamp is None else to_milliseconds(record.timestamp)


def to_moment(milliseconds: int | None) -> datetime | None:
    """The moment that Kafka's number means."""
    return None if milliseconds is None else EPOCH + milliseconds * MILLISECOND


@dataclass(frozen=True, slots=True)
class Record:
    """One visible record; without a value it is a tombstone, and some carry no timestamp."""

    value: bytes | None
    timestamp: datetime | None = DEFAULT_TIMESTAMP
    key: bytes | None = None


@dataclass
class MemoryPartition:
    """The log of one partition; None is an offset without a visible record. Offsets below ``log_start`` are gone.

    ``undecided`` and ``aborted`` are the records that only read_uncommitted shows, by offset.
    """

    log: list[Record | None] = field(default_factory=list)
    log_start: int = 0
    undecided: dict[int, Record] = field(default_factory=dict)
    aborted: dict[int, Record] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The last stable offset: everything before it is decided."""
        return min(self.undecided, default=self.high_watermark)

    @property
    def high_watermark(self) -> int:
        """The next offset to be written."""
        return len(self.log)

    def find_committed(self, offset: int) -> Record | None:
        """What read_committed shows at an offset."""
        return self.log[offset] if self.log_start <= offset < self.end else None

    def find_any(self, offset: int) -> Record | None:
        """What read_uncommitted shows at an offset."""
        if not self.log_start <= offset < self.high_watermark:
            return None
        return self.log[offset] or self.aborted.get(offset) or self.undecided.get(offset)


@dataclass
class MemoryBroker:
    """Topics by name. ``is_down`` makes every call fail as a dead broker does."""

    cluster_id: str = "cluster-a"
    partitions: dict[TopicPartition, MemoryPartition] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    config_by_topic: dict[str, Mapping[str, str]] = field(default_factory=dict)
    next_offset_by_group: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    is_down: bool = False
    _topics_created: int = 0

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        """Create a topic, also one that existed before: it then gets another id."""
        self.config_by_topic[topic] = {"cleanup.policy": "delete", "retention.ms": "604800000", **(config or {})}
        self._topics_created += 1
        self.topic_ids[topic] = f"topic-{self._topics_created}"
        return [self.add_partition(topic) for _ in range(partitions)]

    def add_partition(self, topic: str) -> TopicPartition:
        partition = TopicPartition(topic, sum(each.topic == topic for each in self.partitions))
        self.partitions[partition] = MemoryPartition()
        return partition

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with everything in it."""
        del self.topic_ids[topic]
        self.partitions = {key: held for key, held in self.partitions.items() if key.topic != topic}

    def append(self, partition: TopicPartition, *values: bytes, timestamp: datetime | None = DEFAULT_TIMESTAMP) -> None:
        """Write one record a value."""
        self.partitions[partition].log.extend(Record(value, timestamp) for value in values)

    def append_keyed(self, partition: TopicPartition, *records: tuple[bytes | None, bytes | None]) -> None:
        """Write one record for each key and value."""
        self.partitions[partition].log.extend(Record(value, key=key) for key, value in records)

    def append_holes(self, partition: TopicPartition, count: int = 1) -> None:
        """Write offsets that show no record: markers, aborted records."""
        self.partitions[partition].log.extend([None] * count)

    def append_undecided(
        self, partition: TopicPartition, *values: bytes, timestamp: datetime = DEFAULT_TIMESTAMP
    ) -> None:
        """Write records of a transaction that stays open until it is decided; one a partition."""
        held = self.partitions[partition]
        for value in values:
            held.undecided[held.high_watermark] = Record(value, timestamp)
            held.log.append(None)

    def commit(self, partition: TopicPartition) -> None:
        """Decide the open transaction; the marker takes an offset."""
        held = self.partitions[partition]
        for offset, record in held.undecided.items():
            held.log[offset] = record
        held.undecided.clear()
        held.log.append(None)

    def abort(self, partition: TopicPartition) -> None:
        """Decide the open transaction; the marker takes an offset."""
        held = self.partitions[partition]
        held.aborted.update(held.undecided)
        held.undecided.clear()
        held.log.append(None)

    def append_aborted(self, partition: TopicPartition, *values: bytes) -> None:
        """Write the records of a transaction that is aborted, and its marker."""
        self.append_undecided(partition, *values)
        self.abort(partition)

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
            if record is not None:
                yield offset, record

    def require_up(self) -> None:
        """Raise ServiceUnavailableError when the broker is down."""
        if self.is_down:
            raise ServiceUnavailableError("no broker answered; run the step again when Kafka is back.")


@dataclass(frozen=True)
class MemorySourceLog(SourceLog):
    broker: MemoryBroker

    @override
    def read_log(self, topics: Sequence[str]) -> LogState:
        self.broker.require_up()
        found = [topic for topic in topics if topic in self.broker.topic_ids]
        return LogState(
            {topic: TopicIdentity(self.broker.cluster_id, self.broker.topic_ids[topic]) for topic in found},
            {
                partition: PartitionLog(held.log_start, held.end, held.high_watermark - held.end)
                for partition, held in self.broker.partitions.items()
                if partition.topic in found
            },
        )

    @override
    def find_offsets(self, partitions: Sequence[TopicPartition], at: datetime) -> Mapping[TopicPartition, int]:
        self.broker.require_up()
        found = {}
        for partition in partitions:
            held = self.broker.partitions[partition]
            for offset in range(held.log_start, held.end):
                record = held.find_committed(offset)
                if record is not None and record.timestamp is not None and record.timestamp >= at:
                    found[partition] = offset
                    break
        return found

    @override
    def search(self, ranges: Sequence[OffsetRange], span: TimeSpan) -> Sequence[Searched]:
        found = []
        for each in ranges:
            search = TimeSearch(each, span)
            for offset, record in self.broker.read(each):
                search.see(offset, stamp(record))
            found.append(search.result())
        return found

    @override
    def find_records(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        return merge_ranges(
            OffsetRange(each.partition, offset, offset + 1) for each in ranges for offset, _ in self.broker.read(each)
        )

    @override
    def commit_courtesy(self, group: str, next_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        self.broker.require_up()
        for partition, next_offset in next_offset_by_partition.items():
            self.broker.next_offset_by_group[group, partition] = next_offset

    @override
    def look_into(self, holes: Sequence[OffsetRange]) -> HoleEvidence:
        self.broker.require_up()
        committed, uncommitted = [], []
        for hole in merge_ranges(holes):
            held = self.broker.partitions[hole.partition]
            if hole.until > held.high_watermark:
                raise TopicChangedError(f"could not look into {hole}: the log ends at {held.high_watermark}.")
            if hole.until > held.end:
                raise ServiceUnavailableError(f"could not look into {hole}: shown is only what lies before {held.end}.")
            for offset in range(hole.start, hole.until):
                if held.find_any(offset):
                    uncommitted.append(OffsetRange(hole.partition, offset, offset + 1))
                if held.find_committed(offset):
                    committed.append(OffsetRange(hole.partition, offset, offset + 1))
        partitions = {each.partition for each in holes}
        return HoleEvidence(
            committed=tuple(merge_ranges(committed)),
            uncommitted=tuple(merge_ranges(uncommitted)),
            log_start_by_partition={each: self.broker.partitions[each].log_start for each in partitions},
            compacted_topics=frozenset(
                each.topic
                for each in partitions
                if "compact" in self.broker.config_by_topic[each.topic]["cleanup.policy"]
            ),
        )

    @override
    def read_records(self, records: Sequence[OffsetRange], limit_bytes: int) -> pa.Table:
        self.broker.require_up()
        rows, size = [], 0
        for each in merge_ranges(records):
            for offset in range(each.start, each.until):
                record = self.broker.partitions[each.partition].find_committed(offset)
                if record is None:
                    continue
                size += len(record.key or b"") + len(record.value or b"")
                if size > limit_bytes:
                    break
                place = {"topic": each.partition.topic, "partition": each.partition.partition, "offset": offset}
                rest = {
                    "timestamp_ms": stamp(record),
                    "key": record.key,
                    "value": record.value,
                    "headers": "[]",
                }
                rows.append({**place, **rest, "error": None})
        return pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)

    @override
    def read_health(self, next_offset_by_partition: Mapping[TopicPartition, int]) -> Sequence[PartitionHealth]:
        self.broker.require_up()
        return [self._read_health(each, next_offset_by_partition[each]) for each in sorted(next_offset_by_partition)]

    def _read_health(self, partition: TopicPartition, next_offset: int) -> PartitionHealth:
        held = self.broker.partitions[partition]
        config = self.broker.config_by_topic[partition.topic]
        unread = filter(None, map(held.find_any, range(max(next_offset, held.log_start), held.end)))
        oldest = next((record.timestamp for record in unread), None)
        retention = timedelta(milliseconds=int(config["retention.ms"]))
        may_expire = oldest is not None and retention >= timedelta(0) and "delete" in config["cleanup.policy"]
        return PartitionHealth(
            partition=partition,
            next_offset=next_offset,
            end=held.end,
            high_watermark=held.high_watermark,
            oldest_unread_at=oldest,
            expires_at=oldest + retention if oldest and may_expire else None,
        )


def ids_of(error: TopicChangedError) -> tuple[str, str]:
    """The topic that was expected, and the one that was found."""
    assert error.expected is not None
    assert error.found is not None
    return error.expected.topic_id, error.found.topic_id
