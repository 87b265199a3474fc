"""Wires what looks at a pipeline: its log and its ledger. It imports no sink and no format: commands start fast."""

from collections.abc import Mapping

from batchledger.config.named_connections import name_ledger
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.watch_file import WatchConfig
from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.ledger import PostgresLedger
from batchledger.lifecycle.platform import Outlook
from batchledger.settings.connections import Connection, kafka_options, load_connection, postgres_dsn
from batchledger.source.kafka.log import KafkaLog


def load_named(pipeline: PipelineConfig, key: str, connection_id: str, *types: str) -> Connection:
    """Return the connection that ``key`` of the pipeline's file names."""
    return load_connection(connection_id, types, f"{pipeline.file}: {key}")


def ledger_dsn(pipeline: PipelineConfig) -> str:
    """The database of the ledger: the sink's own for PostgreSQL."""
    key, connection_id, types = name_ledger(pipeline)
    return postgres_dsn(load_named(pipeline, key, connection_id, *types))


def watch_ledger_dsn(watch: WatchConfig) -> str:
    """The database that keeps what a watch has proved. Raises ConfigurationError."""
    return postgres_dsn(load_connection(watch.ledger, ("postgres",), f"{watch.file}: ledger"))


def source_options(pipeline: PipelineConfig) -> dict[str, str]:
    """The checked options of the Kafka that the pipeline reads. Raises ConfigurationError."""
    return kafka_options(load_named(pipeline, "source.connection", pipeline.source.connection, "kafka"))


def build_outlook(pipeline: PipelineConfig, kafka: Mapping[str, str], dsn: str) -> Outlook:
    """Build what shows how the pipeline stands, from its ``source_options`` and ``ledger_dsn``. Opens nothing yet."""
    return Outlook(pipeline.rules, KafkaLog(kafka), PostgresLedger(dsn), PostgresDecisions(dsn))
