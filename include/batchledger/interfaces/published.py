"""Looks up what an event says of a published batch. Changes nothing."""

from batchledger.books.history import load_batch_history
from batchledger.config.datasets import name_database_table
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.config.sink_sections import IcebergSinkConfig, KafkaSinkConfig, PostgresSinkConfig
from batchledger.looking import ledger_dsn, source_options
from batchledger.model.batch import Batch
from batchledger.model.datasets import Dataset, name_location, name_topic
from batchledger.model.published import PublishedBatch
from batchledger.wiring import sink_catalog, sink_options


def describe_published(pipeline: PipelineConfig, batch_id: int) -> PublishedBatch:
    """Return what an event says of a batch that the pipeline has published.

    Raises what the ledger raises, and for an Iceberg table what its catalog raises: ServiceUnavailableError,
    TargetChangedError.
    """
    history = load_batch_history(ledger_dsn(pipeline), batch_id)
    servers = source_options(pipeline)["bootstrap.servers"]
    target, snapshot_id = _find_target(pipeline, history.batch)
    return PublishedBatch(
        batch=history.batch,
        target=target,
        sources=[name_topic(servers, topic) for topic in pipeline.source.topics],
        accepted=sum(each.accepted or 0 for each in history.ranges),
        duplicates=sum(each.duplicates or 0 for each in history.ranges),
        quarantined=sum(each.quarantined or 0 for each in history.ranges),
        checks=history.checks,
        schema=history.schema,
        is_transformed=pipeline.transform is not None,
        fingerprint=history.attempts[-1].fingerprint,
        snapshot_id=snapshot_id,
    )


def _find_target(pipeline: PipelineConfig, batch: Batch) -> tuple[Dataset, int | None]:
    match pipeline.sink:
        case PostgresSinkConfig() as sink:
            return name_database_table(ledger_dsn(pipeline), sink.qualified_table), None
        case KafkaSinkConfig() as sink:
            return name_topic(sink_options(pipeline, sink)["bootstrap.servers"], sink.topic), None
        case IcebergSinkConfig() as sink:
            # Imported here because it takes a second, and other pipelines do without it.
            from batchledger.sinks.iceberg.published import find_published

            location, snapshot_id = find_published(sink_catalog(pipeline, sink), sink.identifier, batch)
            return name_location(location), snapshot_id
