"""A pipeline of a test's own: its topic, its file, its target, and what one needs to prove the outcome."""

import base64
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from batchledger.config.pipeline_file import PipelineConfig, read_pipeline_file
from batchledger.lifecycle.platform import Platform
from batchledger.local.samples.admin import ensure_topic
from batchledger.model.presence import Patience
from batchledger.ports import CrashHook, no_crash
from batchledger.settings.connections import load_connection
from batchledger.sinks.iceberg.catalog import LakeCatalog, open_catalog
from batchledger.source.spark.stager import SparkStager
from batchledger.wiring import build_platform, verify_pipeline
from tests.lakes import list_columns, list_files, read_lake
from tests.runner import let_run
from tests.topics import read_rows

SCHEMA = "message_id string, number int, amount double"
SHORTEST_SECRET = 12


@dataclass(frozen=True)
class Workplace:
    """Where pipelines of tests live: a real broker, a real warehouse, a folder of pipeline files."""

    kafka_options: Mapping[str, str]
    dsn: str
    folder: Path

    def create(
        self, partitions: int = 2, topic_config: Mapping[str, str] | None = None, name: str = "", **changes: Any
    ) -> "TestPipeline":
        """Create a topic and a pipeline file of one new name; ``changes`` replace top-level keys of the file.

        The rows go ``into`` a table, a topic, or an Iceberg table in a lake. A ``sink`` that names its type stays as
        it is.
        """
        name = name or f"t_{uuid.uuid4().hex[:12]}"
        create_topic(self.kafka_options, name, partitions, topic_config)
        target = {
            "table": {"table": f"{name}_target"},
            "topic": {"type": "kafka", "topic": f"{name}_target"},
            "lake": {"type": "iceberg", "table": f"tests.{name}_target"},
        }
        into, sink = changes.pop("into", "table"), changes.get("sink", {})
        changes["sink"] = sink if "type" in sink else {**target[into], **sink}
        content = {
            "name": name,
            "source": {"topics": [name], "schema": SCHEMA, **changes.pop("source", {})},
            **changes,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        if self.dsn:
            let_run(self.dsn, name)
        return TestPipeline(self, name, path)


@dataclass(frozen=True)
class TestPipeline:
    """One pipeline and its topic."""

    __test__ = False

    workplace: Workplace
    name: str
    path: Path
    sent: list[str] = field(default_factory=list)

    @property
    def config(self) -> PipelineConfig:
        """The file, read again."""
        return read_pipeline_file(self.path)

    def platform(self, crash: CrashHook = no_crash, patience: Patience | None = None) -> Platform:
        """Real adapters for everything; ``patience`` with others that are at work, other than the platform's own."""
        platform = build_platform(self.config, crash=crash)
        return platform if patience is None else replace(platform, patience=patience)

    def send(self, count: int, partitions: int = 2) -> None:
        """Write ``count`` good records with message ids of their own, round robin over the partitions."""
        ids = [f"{self.name}-{len(self.sent) + index}" for index in range(count)]
        values = [json.dumps({"message_id": each, "number": n, "amount": n / 4}).encode() for n, each in enumerate(ids)]
        self.send_raw((index % partitions, value) for index, value in enumerate(values))
        self.sent.extend(ids)

    def send_raw(self, records: Iterable[tuple[int, bytes | None]], **more: Any) -> None:
        """Write (partition, value) as they are; ``more`` goes to every record (key, headers)."""
        producer = Producer({**self.workplace.kafka_options, "linger.ms": 5})
        for partition, value in records:
            producer.produce(self.name, value=value, partition=partition, **more)
        assert producer.flush(30) == 0

    def send_keyed(self, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Write (partition, key, value) as they are."""
        for partition, key, value in records:
            self.send_raw([(partition, value)], key=key)

    def send_in_transaction(self, values: Sequence[bytes], partition: int, commit: bool, **options: Any) -> None:
        """Write values in one transaction, then commit or abort it; ``options`` are more options of the producer."""
        producer = Producer({**self.workplace.kafka_options, "transactional.id": uuid.uuid4().hex, **options})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, value=value, partition=partition)
        # What is left would not be in the log: abort_transaction gives it up.
        assert producer.flush(120) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask the warehouse; ``{target}`` is the target table."""
        with psycopg.connect(self.workplace.dsn) as connection:
            text = statement.replace("{target}", f'"{self.name}_target"')
            return connection.execute(text, parameters).fetchall()  # type: ignore[arg-type]

    def count_target_rows(self) -> int:
        """The number of visible rows; 0 when there is no target yet."""
        if self.writes_elsewhere:
            return len(self.read_output())
        if self.query("select to_regclass(%s)", f"{self.name}_target") == [(None,)]:
            return 0
        return int(self.query("select count(*) from {target}")[0][0])

    @property
    def writes_elsewhere(self) -> bool:
        """Whether its rows leave the database."""
        return self.config.sink.type != "postgres"

    def read_output(self) -> list[Mapping[str, Any]]:
        """The rows that a reader sees in the topic or the Iceberg table that it writes to."""
        if self.config.sink.type == "iceberg":
            return read_lake(*self._lake_table)
        return read_rows(self.workplace.kafka_options, f"{self.name}_target")

    def read_columns(self) -> Mapping[str, str]:
        """Type by column of the table that it writes to, in the words of its system."""
        if self.writes_elsewhere:
            return list_columns(*self._lake_table)
        query = "select column_name, data_type from information_schema.columns where table_name = %s"
        return dict(self.query(query, f"{self.name}_target"))

    def list_files(self) -> list[str]:
        """The files of the Iceberg table that it writes to."""
        return list_files(*self._lake_table)

    @property
    def _lake_table(self) -> tuple[LakeCatalog, tuple[str, ...]]:
        sink = self.config.sink
        assert sink.type == "iceberg"
        return open_catalog(load_connection(sink.catalog)), tuple(sink.table.split("."))

    def list_staging(self) -> list[str]:
        """The staging tables of this pipeline's batches."""
        rows = self.query(
            "select tablename from pg_tables, batchledger.batch b "
            "where starts_with(tablename, format('b%%s_', b.batch_id)) "
            "and schemaname = 'batchledger_staging' and b.pipeline = %s",
            self.name,
        )
        return [name for (name,) in rows]

    def count_copies(self) -> Counter[str]:
        """How often each message id is visible; empty when there is no target yet."""
        if self.writes_elsewhere:
            return Counter(row["message_id"] for row in self.read_output())
        if not self.count_target_rows():
            return Counter()
        return Counter(message_id for (message_id,) in self.query("select message_id from {target}"))

    def find_differences(self) -> dict[str, int]:
        """Compare what was sent with what is visible, by message id: how often too few (< 0) or too many (> 0)."""
        visible = self.count_copies()
        visible.subtract(Counter(self.sent))
        return {message_id: surplus for message_id, surplus in visible.items() if surplus}

    def assert_exact(self) -> None:
        """Every record sent is visible exactly once, and the ledger proves its history."""
        assert self.find_differences() == {}
        verification = verify_pipeline(self.config)
        assert verification.holds, verification.findings


def stager_of(platform: Platform) -> SparkStager:
    """The stager of a platform in which nothing was replaced."""
    stager = platform.make_stager()
    assert isinstance(stager, SparkStager)
    return stager


def staging(platform: Platform) -> Platform:
    """The platform that writes rows twice, so that a test can look between the steps, or replace one."""
    return replace(platform, find_stream=lambda: None)


def change_stager(platform: Platform, **changes: Any) -> Platform:
    """The platform with other parts in its stager."""
    stager = replace(stager_of(platform), **changes)
    return replace(platform, make_stager=lambda: stager)


def find_secret(secret: str, text: bytes) -> list[bytes]:
    """The forms of a secret that are in the text: as it is, and within bytes that are written in hex or as Base64.

    Base64 of a shorter secret would leave too little to tell it from other text.
    """
    plain = secret.encode()
    assert len(plain) >= SHORTEST_SECRET
    encoded = [base64.b64encode(b"." * lead + plain)[4:-4] for lead in range(3)]
    return [each for each in (plain, plain.hex().encode(), *encoded) if each in text]


@contextmanager
def admin_client(options: Mapping[str, str]) -> Iterator[AdminClient]:
    """A client that outlives the futures of the block."""
    yield AdminClient(dict(options))


def create_topic(
    options: Mapping[str, str], topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic and wait until each of its partitions has a leader that answers."""
    ensure_topic(options, topic, partitions, dict(config or {}))


def delete_topic(options: Mapping[str, str], topic: str) -> None:
    """Delete a topic and wait until the broker no longer knows it."""
    with admin_client(options) as client:
        client.delete_topics([topic])[topic].result(30)
        wait_until(lambda: topic not in client.list_topics(timeout=10).topics)


def add_partitions(options: Mapping[str, str], topic: str, total: int) -> None:
    """Grow a topic to ``total`` partitions."""
    with admin_client(options) as client:
        client.create_partitions([NewPartitions(topic, total)])[topic].result(30)
        wait_until(lambda: len(client.list_topics(topic, timeout=10).topics[topic].partitions) == total)


def delete_records(options: Mapping[str, str], topic: str, partition: int, before_offset: int) -> None:
    """Let a partition begin at ``before_offset``, as retention does."""
    with admin_client(options) as client:
        doomed = KafkaTopicPartition(topic, partition, before_offset)
        client.delete_records([doomed])[doomed].result(30)


def wait_until(holds: Callable[[], object], seconds: float = 60, every: float = 0.05) -> None:
    """Wait until the condition holds; fail when it does not within the deadline.

    ``every`` so many seconds it is looked at: what costs the services much is looked at less often.
    """
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not hold in time"
        Event().wait(every)
