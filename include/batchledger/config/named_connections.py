"""Which connections a pipeline file names, by its keys. Opens nothing."""

from collections.abc import Iterator

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.model.records.protection import ColumnProtection
from batchledger.model.records.rules import SinkMode
from batchledger.settings.connections import ALERT_TYPES, KEYS, SPARK_TYPES
from batchledger.settings.values import NamedConnection

LEDGER_KEYS = "keys of the ledger"
"""What the secret is for if no column is hashed. A ledger whose keys are stored as they are needs none."""
KEYS_OF_SECRETS = ("source.protect", LEDGER_KEYS)


def name_ledger(pipeline: PipelineConfig) -> NamedConnection:
    """Return the connection of the ledger: the sink's own if the sink is a table of PostgreSQL."""
    key = "sink.connection" if pipeline.sink.ledger_connection else "ledger"
    return NamedConnection(key, pipeline.warehouse, ("postgres",))


def list_named(pipeline: PipelineConfig) -> Iterator[NamedConnection]:
    """Yield every connection of a pipeline, in the order of its file. The secret of keys has no types: any fits."""
    yield NamedConnection("source.connection", pipeline.source.connection, ("kafka",))
    yield from pipeline.data_connections
    yield name_ledger(pipeline)
    yield NamedConnection("spark", pipeline.spark, SPARK_TYPES)
    for each in pipeline.alerts:
        yield NamedConnection("alerts", each, ALERT_TYPES)
    if ColumnProtection.HASH in pipeline.source.protect.values():
        yield NamedConnection(KEYS_OF_SECRETS[0], KEYS, ())
    elif pipeline.dedupe or pipeline.sequence or pipeline.sink.sink_mode is SinkMode.UPSERT:
        yield NamedConnection(LEDGER_KEYS, KEYS, ())
