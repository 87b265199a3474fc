"""Tables that others write, for tests of watches: a topic with known records, and a table with some of them."""

import os
import signal
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from uuid import uuid4

import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql
from typing_extensions import override

from batchledger.ledger.watches import WatchStore
from batchledger.model.balance import HolePolicy
from batchledger.model.offsets import OffsetRange
from batchledger.proof.watching import Discrepancy, Found, TableLook
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.requests import Isolation
from batchledger.watching.look import TableWatch, WatchRules, look
from batchledger.watching.postgres import PostgresTable
from batchledger.watching.relation import Relation
from batchledger.watching.table import RowCoordinates
from tests.runner import let_run
from tests.support import delete_records, delete_topic, wait_until
from tests.topics import find_ends

SECONDS = 30.0


@dataclass
class ForeignTable:
    """A topic of its own, and the table ``name`` that another program makes of it."""

    options: Mapping[str, str] = field(repr=False)
    dsn: str = field(repr=False)
    partitions: int = 1
    name: str = field(default_factory=lambda: f"watched_{uuid4().hex[:10]}")
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: str = "kafka_partition int, kafka_offset bigint, note text"

    def __post_init__(self) -> None:
        """Create the topic, and an empty table."""
        self.create_topic()
        self.run(f"create table {{table}} ({self.columns})")

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier(self.name)

    @property
    def source(self) -> KafkaLog:
        return KafkaLog(self.options)

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement, which names the table as ``{table}``."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(sql.SQL(statement).format(table=self.table), values or None)

    def create_topic(self) -> None:
        """Create the topic, also again after ``delete_topic``."""
        topic = NewTopic(self.name, self.partitions, 1, config=dict(self.settings))
        admin = AdminClient(dict(self.options))
        admin.create_topics([topic])[self.name].result(SECONDS)
        # The broker answers before all of it knows the topic, and its new id.
        wait_until(lambda: len(self.source.read_log([self.name]).log_by_partition) == self.partitions)

    def delete_topic(self) -> None:
        """Delete the topic, and wait until it is gone."""
        delete_topic(self.options, self.name)
        wait_until(lambda: not self.source.read_log([self.name]).identity_by_topic)

    def produce(self, count: int, partition: int = 0, **more: Any) -> None:
        """Write so many records."""
        self.write([str(number) for number in range(count)], partition, **more)

    def write(self, values: Iterable[str | None], partition: int = 0, **more: Any) -> None:
        """Write records with these values."""
        producer, refused = Producer(dict(self.options)), list[object]()
        for each in values:
            told = {"on_delivery": lambda error, _: refused.append(error) if error else None, **more}
            producer.produce(self.name, each, partition=partition, **told)
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

    def watch(self) -> TableWatch:
        """A watch of the table, without lateness."""
        raise NotImplementedError

    def look(self, watch: TableWatch | None = None, **asked: Any) -> TableLook:
        """Look once; a moment ahead, so that records of this very millisecond count."""
        return look(watch or self.watch(), datetime.now(UTC) + timedelta(seconds=5), **asked)


@dataclass
class WatchedTopic(ForeignTable):
    """A topic, and a table with the coordinates of its committed records."""

    def insert(self, offsets: Iterable[int], partition: int = 0) -> None:
        """Write rows of these offsets."""
        rows = "insert into {table} select %s, at, 'row ' || at from unnest(%s::bigint[]) at"
        self.run(rows, [partition, list(offsets)])

    def delete(self, offsets: Sequence[int], partition: int = 0) -> None:
        rows = "delete from {table} where kafka_partition = %s and kafka_offset = any(%s)"
        self.run(rows, [partition, list(offsets)])

    @override
    def watch(self, hashed: tuple[str, ...] = (), dsn: str = "", **rules: Any) -> TableWatch:
        """A watch of the table, without lateness; the role of ``dsn`` reads the table."""
        usual: dict[str, Any] = {
            "holes": HolePolicy.TRANSACTIONAL,
            "lateness": timedelta(),
            "fingerprint": bool(hashed),
        }
        coordinates = RowCoordinates("kafka_partition", "kafka_offset")
        return TableWatch(
            WatchRules(self.name, f"{self.name} as it is", (self.name,), **{**usual, **rules}),
            self.source,
            PostgresTable(Relation(dsn or self.dsn, self.name), coordinates, (self.name,), hashed=hashed),
            WatchStore(self.dsn),
        )


def open_shop(options: Mapping[str, str], dsn: str, lacking: Container[int] = (), partitions: int = 1) -> WatchedTopic:
    """Return a topic with ten records in each partition, and a row for each but these offsets."""
    shop = WatchedTopic(options, dsn, partitions)
    for partition in range(partitions):
        shop.produce(10, partition)
        shop.insert([each for each in range(10) if each not in lacking], partition)
    return shop


def look_and_die(topic: WatchedTopic, owner: str, name: str) -> None:
    """In a process of its own: look, and be killed when a step of the look begins."""

    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(resolve_name(f"batchledger.{owner}"), name, die)
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


def pass_a_moment() -> datetime:
    """A moment behind all that is written so far, and before what comes: timestamps of Kafka count milliseconds."""
    moment = datetime.now(UTC) + timedelta(milliseconds=10)
    wait_until(lambda: datetime.now(UTC) > moment + timedelta(milliseconds=10), every=0)
    return moment


def offsets_of(look: TableLook, difference: Discrepancy) -> list[str]:
    """The ranges of a difference, as texts without the topic: ``0: 3..5``."""
    return [_short(part) for each in look.found if each.difference is difference for part in each.ranges]


def first_of(found: Found, count: int) -> list[OffsetRange]:
    """The first offsets of a difference, each as a range."""
    offsets = [(each.partition, at) for each in found.ranges for at in range(each.start, each.until)]
    return [OffsetRange(partition, at, at + 1) for partition, at in offsets[:count]]


def _short(part: OffsetRange) -> str:
    return f"{part.partition.partition}: {part.start}..{part.until}"
