"""The section ``sink`` of a topic, to which each row is produced as a record, and how it is built."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from batchledger.model.batch import Batch, DeliveryMode
from batchledger.model.capabilities import Capabilities
from batchledger.model.datasets import Dataset, name_topic
from batchledger.model.records.columns import Column
from batchledger.model.records.rules import HeaderForm, SinkMode
from batchledger.settings.values import (
    ConnectionId,
    Duration,
    KeyColumns,
    NamedConnection,
    Topic,
    lasting,
    written_as,
)
from batchledger.sinks.kind import SinkContext, SinkSection, StreamOpener
from batchledger.sinks.topic.alias import CONNECTION, name_alias
from batchledger.sinks.topic.capabilities import CAPABILITIES

if TYPE_CHECKING:
    from batchledger.formats.encoding.registered import RegisteredOutput
    from batchledger.sinks.topic.sink import TopicSink

_Timeout = Annotated[Duration, lasting(1, "write how long a transaction may be open, from 1s to 24h", most=86_400)]


class KafkaSinkConfig(SinkSection):
    """A topic, to which each row is produced as a record."""

    type: Literal["kafka"]
    """A Kafka topic."""
    connection: ConnectionId = CONNECTION
    """An Airflow connection of type `kafka`."""
    topic: Topic
    """If it does not exist, the first batch creates it. It belongs to one pipeline, and cannot be a topic that the
    pipeline reads.
    """
    key: KeyColumns | None = None
    """The columns that become the key: the text of one, the JSON array of several."""
    format: Literal["json", "avro"] = "json"
    """How values are written."""
    registry: ConnectionId | None = None
    """With `avro`: the connection of the schema registry, type `http`."""
    subject: Annotated[str, written_as(r"[^\s\x00-\x1f]{1,255}", "a subject without blanks")] | None = None
    """With `avro`: the subject of the schema; `<topic>-value` if it is not set."""
    headers: Annotated[HeaderForm, Field(strict=False)] = HeaderForm.SEPARATE
    """Five headers that say where a record came from, or one."""
    transaction_timeout: _Timeout = 60.0
    """How long a transaction may be open, at most what the broker allows."""
    accept_older_transactions: bool = False
    """Whether a cluster will do whose `transaction.version` is below 2."""

    @model_validator(mode="after")
    def _schema_is_registered(self) -> "KafkaSinkConfig":
        if self.format == "json":
            given = [each for each in ("registry", "subject") if each in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} is for format: avro; values in JSON have no schema that is registered")
        elif self.registry is None:
            raise ValueError("format: avro: each value names its schema, so write registry, which gives it an id")
        return self

    @property
    @override
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    @override
    def sink_mode(self) -> SinkMode:
        return SinkMode.PRODUCE

    @property
    @override
    def takes_new_columns(self) -> bool:
        return True

    @property
    @override
    def key_columns(self) -> tuple[str, ...]:
        return tuple(self.key or ())

    @property
    @override
    def target(self) -> str:
        return f"topic {self.topic}"

    @property
    @override
    def alias(self) -> str:
        """A pipeline that reads the topic has the same."""
        return name_alias({"connection": self.connection, "topic": self.topic})

    @override
    def list_connections(self) -> Iterator[NamedConnection]:
        yield NamedConnection("sink.connection", self.connection, ("kafka",))
        if self.registry is not None:
            yield NamedConnection("sink.registry", self.registry, ("http",))

    @override
    def require_fit(self, sources: Sequence[str], columns: Sequence[Column] | None, delivery: DeliveryMode) -> None:
        if self.alias in sources:
            raise ValueError(
                f"sink.topic: {self.topic!r} is in source.topics; the pipeline would read its own rows. Name "
                "another topic in sink.topic; it is created if it does not exist"
            )

    @override
    def build(self, context: SinkContext) -> "TopicSink":
        from batchledger.sinks.staging.strangers import knows_batch
        from batchledger.sinks.topic.sink import TopicSink
        from batchledger.sinks.topic.topic import KafkaOutputTopic

        topic = KafkaOutputTopic(
            self._load_options(context),
            self.topic,
            context.pipeline,
            partial(knows_batch, context.dsn, context.pipeline),
            self.transaction_timeout,
            self.headers,
            accepts_older_transactions=self.accept_older_transactions,
        )
        return TopicSink(
            context.dsn,
            topic,
            self.key_columns,
            context.deduplication,
            context.sequence,
            self._make_output(context),
            context.read_secret,
        )

    @override
    def find_stream(self, context: SinkContext) -> StreamOpener:
        from batchledger.sinks.topic.streaming import open_stream

        return partial(open_stream, self.build(context))

    @override
    def find_published(self, context: SinkContext, batch: Batch) -> tuple[Dataset, None]:
        return name_topic(self._load_options(context)["bootstrap.servers"], self.topic), None

    def _make_output(self, context: SinkContext) -> "RegisteredOutput | None":
        if self.registry is None:
            return None
        from batchledger.formats.encoding.registered import RegisteredOutput
        from batchledger.formats.registry.client import Registry
        from batchledger.settings.registry_options import registry_settings

        registry = Registry(registry_settings(context.load("sink.registry", self.registry, "http")))
        return RegisteredOutput(registry, self.subject or f"{self.topic}-value", self.topic)

    def _load_options(self, context: SinkContext) -> dict[str, str]:
        from batchledger.settings.connections import kafka_options

        return kafka_options(context.load("sink.connection", self.connection, "kafka"))
