"""Looks up what an event says of a published batch. Changes nothing."""

from batchledger.books.history import load_batch_history
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.looking import ledger_dsn, source_options
from batchledger.model.datasets import name_topic
from batchledger.model.published import PublishedBatch
from batchledger.wiring import sink_context


def describe_published(pipeline: PipelineConfig, batch_id: int) -> PublishedBatch:
    """Return what an event says of a batch that the pipeline has published.

    Raises what the ledger raises, and for an Iceberg table what its catalog raises: ServiceUnavailableError,
    TargetChangedError.
    """
    dsn = ledger_dsn(pipeline)
    history = load_batch_history(dsn, batch_id)
    servers = source_options(pipeline)["bootstrap.servers"]
    target, snapshot_id = pipeline.sink.find_published(sink_context(pipeline, dsn), history.batch)
    return PublishedBatch(
        batch=history.batch,
        target=target,
        alias=pipeline.sink.alias,
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
