"""Tables that others write, for tests of watches: a topic with known records, and a table with some of them."""

import os
import signal
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql

from batchledger.ledger.watches import WatchStore
from batchledger.model.balance import HolePolicy
from batchledger.model.offsets import OffsetRange
from batchledger.proof.watching import Discrepancy, TableLook
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.requests import Isolation
from batchledger.watching.look import TableWatch, WatchRules, look
from batchledger.watching.postgres import PostgresTable
from batchledger.watching.table import RowCoordinates
from tests.runner import let_run
from tests.support import delete_records, wait_until
from tests.topics import find_ends

SECONDS = 30.0


@dataclass
class WatchedTopic:
    """A topic of its own, and the table ``name`` with a row for each of its committed records."""

    options: Mapping[str, str] = field(repr=False)
    dsn: str = field(repr=False)
    partitions: int = 1
    name: str = field(default_factory=lambda: f"watched_{uuid4().hex[:10]}")
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the topic, and an empty table."""
        self.create_topic()
        with self.connect() as connection:
            connection.execute(
                sql.SQL("create table {} (kafka_partition int, kafka_offset bigint, note text)").format(self.table)
            )

    @property
    def table(self) -> sql.Identifier:
        """The table."""
        return sql.Identifier(self.name)

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection that commits."""
        with psycopg.connect(self.dsn) as connection:
            yield connection

    def create_topic(self) -> None:
        """Create the topic, also again after ``delete_topic``."""
        topic = NewTopic(self.name, self.partitions, 1, config=dict(self.settings))
        admin = AdminClient(dict(self.options))
        admin.create_topics([topic])[self.name].result(SECONDS)
        # The broker answers before all of it knows the topic, and its new id.
        wait_until(lambda: len(self.watch().source.read_log([self.name]).log_by_partition) == self.partitions)

    def delete_topic(self) -> None:
        """Delete the topic, and wait until it is gone."""
        admin = AdminClient(dict(self.options))
        admin.delete_topics([self.name])[self.name].result(SECONDS)
        wait_until(lambda: not self.watch().source.read_log([self.name]).identity_by_topic)

    def produce(self, count: int, partition: int = 0, **more: Any) -> None:
        """Write so many records."""
        producer, refused = Producer(dict(self.options)), list[object]()
        for number in range(count):
            producer.produce(
                self.name,
                b"%d" % number,
                partition=partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
                **more,
            )
        assert producer.flush(SECONDS) == 0
        assert refused == []

    def produce_in_transaction(self, count: int, *, is_committed: bool, partition: int = 0) -> None:
        """Write so many records and the marker of their transaction."""
        producer = Producer({**self.options, "transactional.id": uuid4().hex})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(self.name, b"%d" % number, partition=partition)
        assert producer.flush(SECONDS) == 0
        if is_committed:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
        # The broker answers before it has written the marker.
        places = [KafkaTopicPartition(self.name, partition)]
        wait_until(lambda: len({tuple(find_ends(self.options, places, each)) for each in Isolation}) == 1)

    def expire(self, before: int) -> None:
        """Let Kafka remove what lies before an offset of the first partition."""
        delete_records(self.options, self.name, 0, before)

    def insert(self, offsets: Iterable[int], partition: int = 0) -> None:
        """Write rows of these offsets."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.executemany(
                sql.SQL("insert into {} values (%s, %s, %s)").format(self.table),
                [(partition, each, f"row {each}") for each in offsets],
            )

    def delete(self, offsets: Sequence[int], partition: int = 0) -> None:
        """Delete rows."""
        with self.connect() as connection:
            statement = sql.SQL("delete from {} where kafka_partition = %s and kafka_offset = any(%s)")
            connection.execute(statement.format(self.table), [partition, list(offsets)])

    def watch(self, hashed: tuple[str, ...] = (), **rules: Any) -> TableWatch:
        """A watch of the table, without lateness."""
        rules["fingerprint"] = bool(hashed)
        return TableWatch(
            WatchRules(
                self.name, f"{self.name} as it is", (self.name,), HolePolicy.TRANSACTIONAL, timedelta(), **rules
            ),
            KafkaLog(self.options),
            PostgresTable(
                self.dsn, self.name, RowCoordinates("kafka_partition", "kafka_offset"), (self.name,), hashed=hashed
            ),
            WatchStore(self.dsn),
        )

    def look(self, watch: TableWatch | None = None, **asked: Any) -> TableLook:
        """Look once; a moment ahead, so that records of this very millisecond count."""
        return look(watch or self.watch(), datetime.now(UTC) + timedelta(seconds=5), **asked)


def open_shop(options: Mapping[str, str], dsn: str, lacking: Container[int] = (), partitions: int = 1) -> WatchedTopic:
    """Return a topic with ten records in each partition, and a row for each but these offsets."""
    shop = WatchedTopic(options, dsn, partitions)
    for partition in range(partitions):
        shop.produce(10, partition)
        shop.insert([each for each in range(10) if each not in lacking], partition)
    return shop


def look_and_die(topic: WatchedTopic, module: str, owner: str, name: str) -> None:
    """In a process of its own: look, and be killed when a step of the look begins."""

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    loaded = import_module(f"batchledger.{module}")
    setattr(getattr(loaded, owner) if owner else loaded, name, die)
    topic.look()


def write_watch_file(folder: Path, shop: WatchedTopic, **changes: Any) -> Path:
    """Write the file of a watch of the same name, and let the role of tests look."""
    return write_watch(folder, shop.dsn, shop.name, shop.name, shop.name, **changes)


def write_watch(folder: Path, dsn: str, name: str, topic: str, table: str, /, **changes: Any) -> Path:
    """Write the file of a watch, without lateness, and let the role of tests look."""
    content = {
        "watch": name,
        "source": {"topics": [topic]},
        "table": {"connection": "warehouse", "name": table},
        "coordinates": {"partition": "kafka_partition", "offset": "kafka_offset"},
        "lateness": 0,
        **changes,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    let_run(dsn, name)
    return path


def declare(watch: TableWatch, holes: HolePolicy) -> TableWatch:
    """The same watch with another word about holes."""
    return replace(watch, rules=replace(watch.rules, holes=holes))


def offsets_of(look: TableLook, difference: Discrepancy) -> list[str]:
    """The ranges of a difference, as texts without the topic: ``0: 3..5``."""
    return [_short(part) for each in look.found if each.difference is difference for part in each.ranges]


def _short(part: OffsetRange) -> str:
    return f"{part.partition.partition}: {part.start}..{part.until}"
