"""The Stager port: read exactly the stored ranges with Spark and write them to staging.

Spark gets explicit numbers only: ``earliest`` and ``latest`` would be bound again at every evaluation. It reads
committed records, fails on lost data, and belongs to no consumer group (S17, S30, S37).

A timestamp that is no number of microseconds stops Spark's source, whatever the record is. Then librdkafka reads the
ranges inside Spark's tasks, so that the record can be set aside.
"""

import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce

import grpc
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from typing_extensions import override

from batchledger.adapters.decoding.decoder import RecordDecoder
from batchledger.adapters.decoding.record_schema import RECORD_SCHEMA
from batchledger.adapters.spark.call_deadline import explain_deadline
from batchledger.adapters.spark.refused_rows import explain_failure, find_carried
from batchledger.adapters.spark.tasks import (
    REPORT_SCHEMA,
    DecodeAndWriteTask,
    DecodeTask,
    ReadEachTask,
    ReadRange,
    WriteTask,
)
from batchledger.model.batch import Attempt, Batch, RecordOrigin, Staged
from batchledger.model.errors import ConfigurationError, StagingError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.rules import TombstonePolicy
from batchledger.ports import Evidence, EvidenceWriter, Sink, Stager

logger = logging.getLogger(__name__)

Transform = Callable[[DataFrame], DataFrame]

# Otherwise timestamps and old dates would mean another one on another server, and arrays would have other types.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}

# As a value: the server would have to parse a text, by one more call.
_REPORT = from_arrow_schema(REPORT_SCHEMA)

# How long one poll may wait for records that the log end says are there; Spark's default is two minutes.
POLL_TIMEOUT_MILLISECONDS = 25_000

# What Java says of a timestamp in milliseconds that is beyond all microseconds.
_TIMESTAMP_OVERFLOW = "long overflow"


@dataclass(frozen=True)
class SparkStager(Stager):
    """``open_session`` yields a session and cleans up after it.

    ``read_range`` yields the records of a range inside a task, with the columns of ``RECORD_SCHEMA``; pickled to the
    executors. ``isolation`` is a parameter only so that a test can show what another value than the default would do.
    """

    open_session: Callable[[], AbstractContextManager[SparkSession]]
    source_options: Mapping[str, str] = field(repr=False)
    read_range: ReadRange = field(repr=False)
    decoder: RecordDecoder
    transform: str | None
    evidence: Evidence
    sink: Sink
    isolation: str = "read_committed"

    @override
    def stage(self, attempt: Attempt) -> Staged:
        transform = load_transform(self.transform) if self.transform else None
        with self.open_session() as spark:
            try:
                reports, first_reader = self._run(spark, attempt, transform)
            except (PySparkException, grpc.RpcError) as error:
                failed = StagingError(
                    f"Spark could not stage {attempt.batch.label} attempt {attempt.number}. Nothing is visible.",
                    why=f"{summarise(error)}.",
                    advice="The next attempt reads the same ranges again.",
                    batch_id=attempt.batch.batch_id,
                )
                raise explain_failure(error, failed, self.transform) from error
        self._require_whole_read(attempt, first_reader)
        self.sink.seal_staging(attempt, [task for task, _ in reports])
        return Staged(reported_rows=sum(written for _, written in reports))

    def _require_whole_read(self, attempt: Attempt, first_reader: int) -> None:
        """Refuse a transform that left records unread: on a topic that may have holes they would pass for holes.

        Without ``minPartitions`` Spark reads each range in one task, and all records of quarantine in one.
        """
        is_kept = attempt.batch.origin is RecordOrigin.QUARANTINE
        finished = self.evidence.count_finished(attempt, first_reader)
        reads = 1 if is_kept else len(attempt.batch.ranges)
        if finished < reads:
            raise ConfigurationError(
                f"Only {finished} of the {reads} ranges of {attempt.batch.label} were read to their end. Nothing is "
                "visible.",
                why=f"Transform {self.transform} does not look at every record.",
                advice="Let it drop records by a condition on their values, not by limit() or a constant.",
                batch_id=attempt.batch.batch_id,
            )

    def _run(
        self, spark: SparkSession, attempt: Attempt, transform: Transform | None
    ) -> tuple[list[tuple[int, int]], int]:
        """Return the reports of the job whose rows count, and the number of its first reader.

        The evidence of an earlier job stays: its records are of the same ranges, and each counts once. If its readers
        came to their end, that says nothing about the rows, so the second job has reader numbers of its own.
        """
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        batch, evidence = attempt.batch, self.evidence.open(attempt)
        write = self._open_rows(attempt, transform, evidence, records := self._read(spark, batch))
        try:
            return _collect(write(records, 0)), 0
        except PySparkException as error:
            if _TIMESTAMP_OVERFLOW not in str(error):
                raise
            logger.warning(
                "%s attempt %d holds a record whose own timestamp is no moment, so librdkafka reads the ranges again",
                batch.label,
                attempt.number,
            )
        first_reader = len(batch.ranges)
        return _collect(write(read_each(spark, batch.ranges, self.read_range), first_reader)), first_reader

    def _open_rows(
        self, attempt: Attempt, transform: Transform | None, evidence: EvidenceWriter, records: DataFrame
    ) -> Callable[[DataFrame, int], DataFrame]:
        """Open the staging of the rows that ``records`` will be.

        Return a function of records and the number of their first reader, which writes the rows and reports.
        """
        if transform is None:
            rows = self.sink.open_staging(attempt, self.decoder.schema)

            def write(records: DataFrame, first_reader: int) -> DataFrame:
                return records.mapInArrow(DecodeAndWriteTask(self.decoder, evidence, first_reader, rows), _REPORT)

            return write
        decoded = from_arrow_schema(self.decoder.schema)

        def transformed(records: DataFrame, first_reader: int) -> DataFrame:
            return self._apply(transform, records.mapInArrow(DecodeTask(self.decoder, evidence, first_reader), decoded))

        rows = self.sink.open_staging(attempt, to_arrow_schema(transformed(records, 0).schema))
        return lambda records, first_reader: transformed(records, first_reader).mapInArrow(WriteTask(rows), _REPORT)

    def _read(self, spark: SparkSession, batch: Batch) -> DataFrame:
        if batch.origin is RecordOrigin.KAFKA:
            return read_ranges(spark, batch.ranges, self.source_options, self.isolation)
        return read_kept_records(spark, self.evidence.read_quarantine(batch))

    def _apply(self, transform: Transform, rows: DataFrame) -> DataFrame:
        deleted = (DELETED_COLUMN,) if self.decoder.tombstones is TombstonePolicy.DELETE else ()
        required = (*PROVENANCE_COLUMNS, *deleted)
        transformed = transform(rows)
        missing = [column for column in required if column not in transformed.columns]
        if missing:
            raise ConfigurationError(
                f"The transform dropped the provenance columns {', '.join(missing)}.",
                advice=f"It has to keep {', '.join(required)} on every row.",
            )
        return transformed


def read_ranges(
    spark: SparkSession, ranges: Sequence[OffsetRange], options: Mapping[str, str], isolation: str
) -> DataFrame:
    """Return the records of exactly ``ranges``: key and value as bytes, headers as JSON; one Spark partition a range.

    Spark reads one range of a partition at a time, so further ones are further reads of the same job.
    """
    rounds: list[dict[TopicPartition, OffsetRange]] = []
    for each in ranges:
        free = next((taken for taken in rounds if each.partition not in taken), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[each.partition] = each
    return reduce(DataFrame.union, [_read_once(spark, list(each.values()), options, isolation) for each in rounds])


def _read_once(
    spark: SparkSession, ranges: Sequence[OffsetRange], options: Mapping[str, str], isolation: str
) -> DataFrame:
    starts: dict[str, dict[str, int]] = {}
    untils: dict[str, dict[str, int]] = {}
    for each in ranges:
        topic, number = each.partition.topic, str(each.partition.partition)
        starts.setdefault(topic, {})[number] = each.start
        untils.setdefault(topic, {})[number] = each.until
    explicit = {
        "assign": json.dumps({topic: [int(number) for number in offsets] for topic, offsets in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(untils),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
        "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MILLISECONDS),
    }
    records = spark.read.format("kafka").options(**{**options, **explicit}).load()
    # As Arrow lists of structs the headers would take longer than all the rest, even if there are none.
    pairs = F.transform(
        "headers", lambda each: F.struct(each["key"].alias("key"), F.base64(each["value"]).alias("value"))
    )
    headers = F.when(F.col("headers").isNotNull(), F.to_json(pairs)).alias("headers")
    timestamp = F.unix_millis("timestamp").alias("timestamp_ms")
    return records.select("topic", "partition", "offset", timestamp, "key", "value", headers)


def read_kept_records(spark: SparkSession, kept: pa.Table) -> DataFrame:
    """Return records as a read of Kafka does, in one Spark partition; ``kept`` has ``QUARANTINE_SCHEMA``."""
    return spark.createDataFrame(kept.drop_columns(["error"])).coalesce(1)


def read_each(spark: SparkSession, ranges: Sequence[OffsetRange], read_range: ReadRange) -> DataFrame:
    """Return the records of exactly ``ranges``, one Spark partition a range, read by ``read_range`` in its task."""
    numbers = spark.range(0, len(ranges), 1, len(ranges))
    return numbers.mapInArrow(ReadEachTask(tuple(ranges), read_range), from_arrow_schema(RECORD_SCHEMA))


def _collect(reports: DataFrame) -> list[tuple[int, int]]:
    return [(row.task, row.written) for row in reports.collect()]


def load_transform(reference: str) -> Transform:
    """Import ``module:function``. Raises ConfigurationError."""
    module_name, _, function_name = reference.partition(":")
    try:
        transform: Transform = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Transform {reference!r} cannot be loaded.",
            why=f"{error}.",
            advice="Write it as module:function, importable where the pipeline runs.",
            subject=reference,
        ) from error
    return transform


def summarise(error: BaseException) -> str:
    """Return what a worker of ours has said, or the telling lines of a Spark error, without the stack traces."""
    if (unanswered := explain_deadline(error)) is not None:
        return unanswered
    if carried := find_carried(error):
        said = (" ".join(" ".join(parts).split()) for _, *parts in carried)
        return " | ".join(dict.fromkeys(said))[:1200].rstrip(".")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "JVM stacktrace", "..."))]
    causes = [line for line in telling if "Error" in line or "Exception" in line] or telling
    return " | ".join(dict.fromkeys([*telling[:1], *causes[-2:]]))[:1200]
