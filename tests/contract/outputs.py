"""An output topic of a test's own, what readers of it see, and how a producer is killed."""

import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from typing_extensions import override

from batchledger.local.samples.admin import ensure_topic
from batchledger.model.batch import Attempt, Batch, BatchState, Lane
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.topic.log import look_at
from batchledger.sinks.topic.records import OutputBlock, read_origin
from batchledger.sinks.topic.topic import KafkaOutputTopic
from batchledger.sinks.topic.transaction import OutputWriter
from batchledger.source.kafka.requests import Isolation
from tests.forked import fork_server
from tests.support import wait_until

PARTITIONS = 3
DEADLINE_SECONDS = 30.0
LONG_AGO_MS = 1_372_636_800_000
PLANNED_AT = datetime(2020, 11, 22, 12, 0, 0, 123456, UTC)


class OutputRecord(NamedTuple):
    """One record, and where its source record lies."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None

    def as_block(self) -> OutputBlock:
        """A block of this record alone, so that a test decides when each is sent."""
        columns = {"offset": pa.int64(), "timestamp_ms": pa.int64(), "key": pa.binary(), "value": pa.binary()}
        content = {name: [getattr(self, name)] for name in columns}
        records = pa.RecordBatch.from_pydict(content, schema=pa.schema(columns))
        return OutputBlock(TopicPartition(self.topic, self.partition), records)


@dataclass(frozen=True)
class Output:
    """A source topic, an output topic and a pipeline between them, all of one new name."""

    options: Mapping[str, str]
    pipeline: str = field(default_factory=lambda: f"output-{uuid4().hex[:12]}")

    @property
    def source(self) -> str:
        return f"{self.pipeline}-in"

    @property
    def name(self) -> str:
        return f"{self.pipeline}-out"

    def create(self, config: Mapping[str, str] | None = None, partitions: int = PARTITIONS) -> "Output":
        """Create both topics; ``config`` is for the output topic."""
        ensure_topic(self.options, self.source, PARTITIONS, {})
        ensure_topic(self.options, self.name, partitions, dict(config or {}))
        return self

    def topic(self, **changes: Any) -> "TopicOfRecords":
        """The adapter; its commits are waited for until readers see them."""
        return SettledTopic(**self._settings | changes, output=self)

    def unsettled_topic(self, **changes: Any) -> "TopicOfRecords":
        """The adapter as it is, for commits behind a transaction that stays open."""
        return TopicOfRecords(**self._settings | changes)

    @property
    def _settings(self) -> dict[str, Any]:
        known = {"knows": lambda *_: True}
        return {"options": self.options, "name": self.name, "pipeline": self.pipeline, **known}

    def topic_of(self, *attempts: Attempt) -> "TopicOfRecords":
        """The adapter for a ledger that has the batches of these attempts alone."""
        known = {(each.batch.batch_id, each.batch.planned_at) for each in attempts}
        return self.topic(knows=lambda *batch: batch in known)

    def attempt(self, batch_id: int = 1, until: int = 100, number: int = 1, lane: Lane = Lane.LIVE) -> Attempt:
        """An attempt of a batch that has the offsets from 0 of every source partition."""
        ranges = tuple(OffsetRange(TopicPartition(self.source, each), 0, until) for each in range(PARTITIONS))
        batch = Batch(batch_id, self.pipeline, lane, BatchState.AUDITED, number, "run", ranges, 0, PLANNED_AT)
        return Attempt(batch, number, "run")

    def records(self, count: int, value: bytes = b"value", start: int = 0) -> Iterator[OutputRecord]:
        """Records with ten keys, made from the source partitions in turn."""
        for number in range(start, start + count):
            offset, partition = divmod(number, PARTITIONS)
            key = b"key-%d" % (number % 10)
            yield OutputRecord(key, b"%s-%d" % (value, number), self.source, partition, offset, LONG_AGO_MS + number)

    def read(self, isolation: Isolation = Isolation.COMMITTED, partitions: int = PARTITIONS) -> list[Any]:
        """The messages that a reader is shown, up to the end that it is shown, partition by partition."""
        settings = {"isolation.level": isolation, "enable.partition.eof": True, "enable.auto.commit": False}
        found: list[Any] = []
        ended: set[int] = set()
        deadline = monotonic() + DEADLINE_SECONDS
        with closing(Consumer({**self.options, **settings, "group.id": "unused"})) as consumer:
            consumer.assign([KafkaTopicPartition(self.name, each, 0) for each in range(partitions)])
            while len(ended) < partitions:
                assert monotonic() < deadline, f"read to the end of {ended} only"
                for message in consumer.consume(1_000, timeout=0.2):
                    if message.error() is None:
                        found.append(message)
                    else:
                        assert message.error().code() == KafkaError._PARTITION_EOF
                        ended.add(message.partition())
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def values(self) -> list[bytes | None]:
        """The values that a reader of committed records sees."""
        return [message.value() for message in self.read()]

    def batches(self) -> set[bytes]:
        """The batches whose records a reader of committed records sees."""
        origins = (read_origin(message.headers()) for message in self.read())
        return {each.batch_id for each in origins if each is not None}

    def written(self) -> int:
        """How many offsets the topic has, visible or not."""
        return sum(each.until for each in look_at(self.options, self.name).ranges)

    def held_back(self) -> int:
        """How many offsets an open transaction hides from readers of committed records."""
        return look_at(self.options, self.name).held_back

    def wait_for_open_transaction(self) -> None:
        """Return once records of an undecided transaction are in the topic."""
        wait_until(self.held_back)

    def committed(self, kind: str) -> dict[int, tuple[int, str | None]]:
        """Offset and metadata of each source partition in the group ``sink`` or ``replay``."""
        return {
            each.partition: (each.offset, each.metadata)
            for each in self._ask_group(kind, [KafkaTopicPartition(self.source, each) for each in range(PARTITIONS)])
            if each.offset >= 0
        }

    def _ask_group(self, kind: str, partitions: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
        with closing(Consumer({**self.options, "group.id": self.group(kind), "enable.auto.commit": False})) as consumer:
            return list(consumer.committed(partitions, DEADLINE_SECONDS))

    def commit_as_somebody_else(self, kind: str = "sink", metadata: str | None = None) -> None:
        """Commit an offset of the first source partition in a group of the pipeline."""
        more = {} if metadata is None else {"metadata": metadata}
        place = KafkaTopicPartition(self.source, 0, 5, **more)
        with closing(Consumer({**self.options, "group.id": self.group(kind), "enable.auto.commit": False})) as consumer:
            consumer.commit(offsets=[place], asynchronous=False)

    def group(self, kind: str) -> str:
        return f"batchledger.{self.pipeline}.{kind}"

    def find_out(self, attempt: Attempt) -> bool | None:
        """Let the topic be searched, and return what is known then."""
        self.topic().search_commit(attempt)
        return self.topic().find_commit(attempt)

    def forget_offsets(self, kind: str = "sink") -> None:
        """Delete the group, as Kafka does after a long time without commits in it."""
        admin = AdminClient(dict(self.options))
        admin.delete_consumer_groups([self.group(kind)])[self.group(kind)].result(DEADLINE_SECONDS)

    @contextmanager
    def foreign_transaction(self) -> Iterator[None]:
        """Another producer's transaction that is open within the block, with a record in the first partition."""
        producer = Producer({**self.options, "transactional.id": uuid4().hex})
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        producer.produce(self.name, b"theirs", partition=0)
        producer.flush(DEADLINE_SECONDS)
        yield
        producer.abort_transaction(DEADLINE_SECONDS)

    def produce(self, *values: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
        """Write records of another producer."""
        producer = Producer(dict(self.options))
        for value in values:
            producer.produce(self.name, value, partition=0, headers=headers or [])
        assert producer.flush(DEADLINE_SECONDS) == 0


@dataclass(frozen=True)
class TopicOfRecords(KafkaOutputTopic):
    """Takes records one by one."""

    @override
    def commit(self, attempt: Attempt, records: Iterable[OutputRecord], count: int) -> None:  # type: ignore[override]
        super().commit(attempt, map(OutputRecord.as_block, records), count)

    @override
    def send(self, attempt: Attempt, records: Iterable[OutputRecord]) -> None:  # type: ignore[override]
        super().send(attempt, map(OutputRecord.as_block, records))


@dataclass(frozen=True)
class SettledTopic(TopicOfRecords):
    """Kafka answers a commit before it has written the markers, behind which alone readers see the records."""

    output: Output = field(kw_only=True)

    @override
    def commit(self, attempt: Attempt, records: Iterable[OutputRecord], count: int) -> None:  # type: ignore[override]
        super().commit(attempt, records, count)
        wait_until(lambda: not look_at(self.output.options, self.name).held_back)


def die(output: Output, moment: str, attempt: Attempt, count: int) -> None:
    """Commit in a process of its own, which is killed at ``moment``: sending, before_commit or after_commit."""
    context = fork_server()
    reached = context.Event()
    victim = context.Process(target=_commit_and_hold, args=(output, moment, attempt, count, reached))
    victim.start()
    assert reached.wait(60)
    victim.kill()
    victim.join(30)
    assert victim.exitcode == -signal.SIGKILL


def _commit_and_hold(output: Output, moment: str, attempt: Attempt, count: int, reached: Any) -> None:
    def hold() -> None:
        reached.set()
        signal.pause()

    def decide(writer: OutputWriter, producer: Any, attempt: Attempt) -> None:
        if moment == "after_commit":
            real_decide(writer, producer, attempt)
        hold()

    def records() -> Iterable[OutputRecord]:
        yield from output.records(count)
        output.wait_for_open_transaction()
        if moment == "sending":
            hold()

    real_decide = OutputWriter.decide
    OutputWriter.decide = decide  # type: ignore[method-assign]
    output.topic().commit(attempt, records(), count)
