"""A ledger in a real PostgreSQL whose sink is a topic of a real broker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from batchledger.model.records.rules import SinkMode
from batchledger.proof.proving import prove
from batchledger.proof.verification import Verification
from batchledger.sinks.staging.strangers import knows_batch
from batchledger.sinks.topic.sink import TopicSink
from batchledger.sinks.topic.topic import KafkaOutputTopic
from tests.contract.warehouses import PostgresWarehouse
from tests.topics import read_rows

DEADLINE_SECONDS = 30.0


@dataclass
class TopicWarehouse(PostgresWarehouse):
    """See the protocol. All tests share the ledger; pipeline and topic belong to this one."""

    options: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        return f"{self.schema}_orders"

    @property
    def sink(self) -> TopicSink:  # type: ignore[override]  # One over the same database.
        topic = KafkaOutputTopic(self.options, self.topic, self.pipeline, partial(knows_batch, self.dsn, self.pipeline))
        return TopicSink(self.dsn, topic, self.key, self.deduplication, self.sequence, read_secret=self.read_secret)

    def read_target(self) -> Sequence[Mapping[str, Any]]:
        """The records that a reader of committed ones sees, with their headers as columns."""
        return read_rows(self.options, self.topic)

    def replace_target(self) -> None:
        admin = AdminClient(dict(self.options))
        admin.delete_topics([self.topic])[self.topic].result(DEADLINE_SECONDS)

    def prove(self) -> Verification:
        count = partial(self.sink.count_target, self.pipeline)
        return prove(self.pipeline, self.load_published_history, count, SinkMode.PRODUCE)


def open_topic(dsn: str, options: Mapping[str, str]) -> Iterator[TopicWarehouse]:
    """Lend a warehouse whose sink is a topic of the broker that ``options`` name."""
    warehouse = TopicWarehouse(dsn, options=options)
    yield warehouse
    warehouse.drop()
