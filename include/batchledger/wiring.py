"""From configuration to concrete adapters: the only place that names concrete classes, apart from kinds of sinks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from batchledger.books.history import load_published_history, load_quarantined
from batchledger.config.extras import require_extra
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.incidents import PostgresIncidents
from batchledger.ledger.presence import PostgresPresences
from batchledger.ledger.retiring import has_freed_target
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.following import Follow, follow_in_log, follow_nothing
from batchledger.lifecycle.platform import Platform, StageStep
from batchledger.looking import build_outlook, ledger_dsn, load_named, source_options
from batchledger.model.batch import Attempt
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.contract import Contract
from batchledger.model.records.lookup import FoundRecords, combine_records, find_reach
from batchledger.model.records.rules import SinkMode
from batchledger.model.stream_address import StreamAddress
from batchledger.monitoring.alerting import Alerting
from batchledger.monitoring.messages import Links
from batchledger.ports import Auditor, Channel, CrashHook, RowChecks, RowStream, Sink, Stager, no_crash
from batchledger.proof.proving import prove, prove_ledger
from batchledger.proof.verification import Verification
from batchledger.reading import (
    decode_records,
    make_decoder,
    make_erasure_check,
    make_secret_check,
    open_schemas,
    sample_records,
    sample_registry,
)
from batchledger.settings.connections import (
    ALERT_TYPES,
    SPARK_TYPES,
    Connection,
    check_extra,
    http_request,
    load_connection,
    spark_server,
    stream_address,
    webhook_tls,
)
from batchledger.settings.key_secret import read_key_secret
from batchledger.sinks.kind import SinkContext
from batchledger.source.kafka.clients import to_client_options
from batchledger.source.kafka.log import KafkaLog
from batchledger.source.kafka.records import read_first, read_share
from batchledger.source.spark.submit import submit_stage
from batchledger.source.spark.versions import require_one_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from batchledger.formats.decoding.decoder import RecordDecoder
    from batchledger.source.spark.stager import SparkStager

logger = logging.getLogger(__name__)

OpenSession = Callable[[], AbstractContextManager["SparkSession"]]


def build_platform(
    pipeline: PipelineConfig,
    open_session: OpenSession | None = None,
    crash: CrashHook = no_crash,
    follow: Follow | None = None,
    held: int | None = None,
) -> Platform:
    """Build everything that the steps of one pipeline need. Opens nothing yet. Raises ConfigurationError.

    ``open_session`` replaces the Spark session of the pipeline's connection. ``follow`` shows the progress of the stage
    step, instead of the log. ``held``: the process that has started this one is at work on this batch.
    """
    kafka, dsn = source_options(pipeline), ledger_dsn(pipeline)
    evidence, sink = PostgresEvidence(dsn, keeps_payloads=not pipeline.source.protect), build_sink(pipeline, dsn)
    # Here already, so that no batch is opened if the registry's connection is not defined.
    find_schemas = open_schemas(pipeline, dsn)

    def make_stager() -> Stager:
        return build_stager(
            pipeline,
            make_decoder(pipeline, dsn),
            open_session=open_session or _connect_session(pipeline, pipeline.spark),
            read_share=partial(read_share, {**kafka, **to_client_options(pipeline.source.options)}),
            evidence=evidence,
            sink=sink,
            open_schemas=find_schemas,
        )

    return Platform(
        **vars(build_outlook(pipeline, kafka, dsn)),
        presences=PostgresPresences(dsn),
        evidence=evidence,
        sink=sink,
        make_stager=make_stager,
        make_auditor=_make_auditor,
        prove=partial(verify_pipeline, pipeline),
        require_secret=make_secret_check(pipeline, dsn),
        require_known_erasures=make_erasure_check(pipeline, dsn),
        make_row_checks=partial(_make_row_checks, pipeline) if pipeline.checks else None,
        crash=crash,
        follow=follow or follow_in_log(),
        held=held,
        find_stream=partial(_find_stream, pipeline, dsn, is_near=open_session is not None),
    )


def _find_stream(
    pipeline: PipelineConfig, dsn: str, *, is_near: bool
) -> Callable[[Attempt], AbstractContextManager[RowStream]] | None:
    """Return what opens a stream into the target; None if the sink has none, or Spark's tasks do not reach it."""
    open_stream = pipeline.sink.find_stream(sink_context(pipeline, dsn))
    if open_stream is None:
        return None
    address = StreamAddress() if is_near else stream_address(_load_spark(pipeline))
    return None if address is None else partial(open_stream, address)


def build_stager(pipeline: PipelineConfig, decoder: "RecordDecoder", **parts: Any) -> "SparkStager":
    """Build what stages records of a pipeline with Spark; ``parts`` are the other fields of the stager."""
    require_one_version()
    # Imported here because Spark takes seconds, and the other steps do without it.
    from batchledger.source.spark.stager import SparkStager

    return SparkStager(decoder=decoder, transform=pipeline.row_transform, **parts)


def choose_stage_step(pipeline: PipelineConfig, follow: Follow = follow_nothing) -> StageStep:
    """Return how the stage step runs: in this process over Spark Connect, or in a process of spark-submit.

    The type of the Spark connection decides: ``spark_connect`` or ``spark``. Raises ConfigurationError for others.
    ``follow`` shows the progress of spark-submit to readers who do not see its log.
    """
    connection = _load_spark(pipeline)
    match connection.type:
        case "spark_connect":
            return run_batch.stream_or_stage
        case "spark":
            name, mode = pipeline.name, connection.extra.get("deploy-mode")
            return partial(submit_stage, pipeline=name, connection_id=pipeline.spark, deploy_mode=mode, follow=follow)
        case _:
            raise _wrong_spark_type(connection)


def verify_pipeline(pipeline: PipelineConfig) -> Verification:
    """Prove the invariants over the whole history of a pipeline, and compare its target with the ledger.

    A retired pipeline that has given up its target is proved by the ledger alone. Raises UnsettledError if replays keep
    it from an end.
    """
    dsn = ledger_dsn(pipeline)
    if has_freed_target(dsn, pipeline.name):
        why = "a person has retired the pipeline, and freed it"
        return prove_ledger(pipeline.name, load_published_history(dsn, pipeline.name), pipeline.sink.sink_mode, why)
    return prove(
        pipeline.name,
        partial(load_published_history, dsn, pipeline.name),
        partial(build_sink(pipeline, dsn).count_target, pipeline.name),
        pipeline.sink.sink_mode,
    )


def verify_history(dsn: str, pipeline: str) -> Verification:
    """Prove what a ledger shows of a pipeline whose file is gone: only the file says where the target is."""
    return prove_ledger(pipeline, load_published_history(dsn, pipeline), SinkMode.APPEND, "the pipeline file is gone")


def find_records(pipeline: PipelineConfig, ranges: Sequence[OffsetRange], limit: int) -> FoundRecords:
    """Return the first ``limit`` records of the ranges, from Kafka or from quarantine.

    Raises ConfigurationError if neither Kafka nor quarantine has a partition of the ranges.
    """
    options, dsn = source_options(pipeline), ledger_dsn(pipeline)
    quarantined = load_quarantined(dsn, pipeline.name, ranges, limit + 1)
    log = KafkaLog(options).read_log(sorted({each.partition.topic for each in ranges})).log_by_partition
    known = {*log, *(each.partition for each in quarantined)}
    unknown = [str(each.partition) for each in ranges if each.partition not in known]
    if unknown:
        raise ConfigurationError(
            f"Kafka has no partition {', '.join(unknown)}. Nothing was read.",
            advice=f"See which partitions the pipeline reads: batchledger batches {pipeline.name}",
            pipeline=pipeline.name,
        )
    reach = find_reach(ranges, log)
    found = combine_records(reach, read_first(options, reach.readable, limit + 1), quarantined, limit)
    return replace(found, records=decode_records(pipeline, dsn, found.records))


def compare_schema(pipeline: PipelineConfig, sampled: int = 0, *, is_registry_asked: bool = False) -> Contract:
    """Compare the declared columns with the ``sampled`` newest records of the topics, and with the table.

    The newest schemas of the registry may be compared instead of records. A table is not compared if a transform makes
    its rows. Raises ConfigurationError if no topic is there.
    """
    dsn = ledger_dsn(pipeline)
    decoder, table = make_decoder(pipeline, dsn), None
    if pipeline.transform is None:
        table = build_sink(pipeline, dsn).compare_columns(decoder.schema)
    sample = None
    if is_registry_asked:
        sample = sample_registry(pipeline, dsn, decoder)
    elif sampled:
        sample = sample_records(pipeline, dsn, source_options(pipeline), sampled, decoder)
    return Contract(decoder.columns, sample, table, [each.name for each in decoder.outer.columns])


def build_alerting(pipeline: PipelineConfig) -> Alerting:
    """Build what the alerts of one pipeline need. Opens nothing yet."""
    alerting = build_alerting_of(pipeline.name, ledger_dsn(pipeline), pipeline.alerts)
    return replace(alerting, deadlines=pipeline.deadlines.rules)


def build_alerting_of(name: str, dsn: str, channels: Sequence[str]) -> Alerting:
    """Build what the alerts of a pipeline or a watch need whose ledger ``dsn`` names. Opens nothing yet."""
    return Alerting(
        pipeline=name,
        incidents=PostgresIncidents(dsn),
        channels=tuple(channels),
        open_channel=open_channel,
        links=Links(_airflow_url()),
    )


def open_channel(connection_id: str) -> Channel:
    """Return the channel behind an Airflow connection. Raises ConfigurationError."""
    # Imported here because a pipeline rarely needs all of them.
    connection = check_extra(load_connection(connection_id, ALERT_TYPES, "alerts"))
    asked_by = f"Connection {connection_id!r} of type {connection.type!r}"
    match connection.type:
        case "apprise":
            require_extra("apprise", asked_by)
            from batchledger.channels.apprise import AppriseChannel

            return AppriseChannel(connection_id)
        case "smtp":
            require_extra("smtp", asked_by)
            from batchledger.channels.mail import MailChannel

            return MailChannel(connection_id)
        case "http":
            from batchledger.channels.webhook import WebhookChannel

            return WebhookChannel(connection_id, *http_request(connection), webhook_tls(connection))
        case _:
            raise ConfigurationError(
                f"Connection {connection_id!r} has type {connection.type!r}. No alert was sent.",
                why="Alerts go through connections of type 'apprise', 'smtp' and 'http'.",
                advice="Change its type, or name another connection under alerts in the pipeline file.",
                subject=connection_id,
            )


def _airflow_url() -> str | None:
    """Return the address of Airflow, as its own configuration says."""
    from airflow.sdk.configuration import conf

    return conf.get("api", "base_url", fallback=None) or None


def build_sink(pipeline: PipelineConfig, dsn: str) -> Sink:
    """Build the sink of a pipeline, with its staging in the database of the ledger. Opens nothing yet."""
    return pipeline.sink.build(sink_context(pipeline, dsn))


def sink_context(pipeline: PipelineConfig, dsn: str) -> SinkContext:
    """Return what the sink of a pipeline is built with."""
    return SinkContext(
        pipeline=pipeline.name,
        dsn=dsn,
        load=partial(load_named, pipeline),
        read_secret=read_key_secret,
        lend_spark=partial(_lend_spark, pipeline),
        deduplication=pipeline.deduplication,
        sequence=pipeline.numbering,
        has_checks=bool(pipeline.checks),
    )


def _load_spark(pipeline: PipelineConfig) -> Connection:
    return check_extra(load_named(pipeline, "spark", pipeline.spark, *SPARK_TYPES))


def _make_auditor() -> Auditor:
    from batchledger.checks.integrity import IntegrityAuditor

    return IntegrityAuditor()


def _make_row_checks(pipeline: PipelineConfig) -> RowChecks:
    from batchledger.checks.rows import PipelineChecks

    return PipelineChecks(pipeline.requested_checks, pipeline.folder)


@contextmanager
def _lend_spark(pipeline: PipelineConfig, user: str) -> "Iterator[SparkSession | None]":
    """Lend a session to one user, such as a catalog; None if the pipeline uses spark-submit, which keeps no session.

    The stage step has another session: a session keeps the first catalog that it sees under a name, and its login.
    """
    if _load_spark(pipeline).type == "spark":
        yield None
        return
    with _connect_session(pipeline, f"{pipeline.spark}/{user}")() as session:
        yield session


def _connect_session(pipeline: PipelineConfig, name: str) -> OpenSession:
    from batchledger.source.spark.session import open_connect_session

    if (connection := _load_spark(pipeline)).type != "spark_connect":
        raise _wrong_spark_type(connection)
    url, tls = spark_server(connection)
    return partial(open_connect_session, url, name, tls=tls)


def _wrong_spark_type(connection: Connection) -> ConfigurationError:
    return ConfigurationError(
        f"Connection {connection.connection_id!r} has type {connection.type!r}. Nothing was staged.",
        why="Allowed are 'spark_connect' (a server that stays warm) and 'spark' (spark-submit).",
        advice="Change its type, or name another connection as spark in the pipeline file.",
        subject=connection.connection_id,
    )
