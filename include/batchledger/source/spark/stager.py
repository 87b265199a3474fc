"""The Stager port: read exactly the stored ranges with Spark and write them to staging.

Spark deals out shares of the read, runs them side by side and repeats what fails. The tasks read their shares by
themselves, with librdkafka: committed records of explicit offsets, outside any consumer group (S17, S30, S37).
"""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import grpc
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from typing_extensions import override

from batchledger.bounds.alarm import STEP_SECONDS
from batchledger.formats.arrow_types import mark_columns, mark_hashed
from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.formats.decoding.registered import FindSchema
from batchledger.formats.decoding.surviving import BoundedDecoder, SurvivingDecoder
from batchledger.model.batch import Attempt, Batch, RecordOrigin, Staged
from batchledger.model.errors import BatchledgerError, ConfigurationError, StagingError
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS, write_columns
from batchledger.model.records.rules import TombstonePolicy
from batchledger.model.records.transforms import Transform
from batchledger.planning.shares import OFFSETS_IN_SHARE, divide, is_worth_several_tasks
from batchledger.ports import Evidence, RowStream, Sink, Stager, StagingWriter
from batchledger.source.spark.call_deadline import explain_deadline
from batchledger.source.spark.failures import explain_failure, find_carried, has_worker_died, name_failure
from batchledger.source.spark.reduction import MOST_CHARACTERS, Seal, describe_raised
from batchledger.source.spark.session import count_slots
from batchledger.source.spark.tasks import REPORT_SCHEMA, DividedRead, ReadAndWriteTask, ReadTask, Share, WriteTask
from batchledger.source.spark.transforms import ChangeRows, load_transform

logger = logging.getLogger(__name__)

ReadShare = Callable[..., Iterable[pa.RecordBatch]]
"""Takes ranges, and yields exactly their visible records, with the columns of ``RECORD_SCHEMA``."""

# Otherwise timestamps and old dates would mean another one on another server, and arrays would have other types.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}

# Each costs a call.
_EARLIER_ATTEMPTS = 3

_SPARK_ERRORS = (PySparkException, Py4JJavaError, grpc.RpcError)

# As a value: the server would have to parse a text, by one more call.
_REPORT = from_arrow_schema(REPORT_SCHEMA)


@dataclass(frozen=True)
class SparkStager(Stager):
    """``open_session`` yields a session and cleans up after it. ``read_share`` is pickled to the executors.

    ``open_schemas`` looks up the schemas that the records of an attempt name. ``splits_ranges``: several tasks may read
    one range, side by side.
    """

    open_session: Callable[[], AbstractContextManager[SparkSession]]
    read_share: ReadShare = field(repr=False)
    decoder: RecordDecoder
    transform: Transform | None
    evidence: Evidence
    sink: Sink
    offsets_in_share: int = OFFSETS_IN_SHARE
    open_schemas: Callable[[Attempt], FindSchema] | None = None
    step_seconds: float = STEP_SECONDS
    splits_ranges: bool = True

    @override
    def stage(self, attempt: Attempt) -> Staged:
        seal = Seal()
        with self.open_session() as spark, seal.lent_to_workers(spark):
            # A module that declares functions for Spark as it is imported needs the session.
            transform = load_transform(self.transform, self._required) if self.transform else None
            try:
                with _alone(spark, attempt):
                    shares = self._divide(attempt.batch, spark)
                    reports = self._run_or_survive(spark, attempt, shares, transform)
            except _SPARK_ERRORS as error:
                failed = StagingError(
                    f"Spark could not stage {attempt.batch.label} attempt {attempt.number}. Nothing is visible.",
                    why=f"{summarise(error)}.",
                    advice="The next attempt reads the same ranges again.",
                    batch_id=attempt.batch.batch_id,
                    ranges=attempt.batch.ranges,
                )
                explained = explain_failure(error, failed, self.transform)
                explained.quoted = seal.open(str(error))
                # Logs show the cause of an error, too.
                raise explained from None
        self._require_whole_read(attempt, len(shares))
        self.sink.seal_staging(attempt, sorted({task for task, _ in reports}))
        return Staged(sum(written for _, written in reports), write_columns(self.decoder.declared))

    @override
    def into(self, stream: RowStream) -> "SparkStager":
        return replace(self, sink=stream.sink, splits_ranges=not stream.in_order)

    def _divide(self, batch: Batch, spark: SparkSession) -> list[Share]:
        if batch.origin is RecordOrigin.QUARANTINE:
            return [partial(read_quarantine, self.evidence, batch)]
        slots = count_slots(spark) if is_worth_several_tasks(batch.ranges) else 1
        shares = divide(batch.ranges, slots, self.offsets_in_share, splits=self.splits_ranges)
        return [partial(self.read_share, ranges) for ranges in shares]

    def _require_whole_read(self, attempt: Attempt, shares: int) -> None:
        """Refuse a transform that left records unread: on a topic that may have holes they would pass for holes."""
        finished = self.evidence.count_finished(attempt)
        if finished < shares:
            raise ConfigurationError(
                f"{attempt.batch.label} was not read to its end, but {finished} of {shares} parts of it. Nothing is "
                "visible.",
                why=f"Transform {self.transform} does not look at every record.",
                advice="Let it drop records by a condition on their values, not by limit() or a constant.",
                batch_id=attempt.batch.batch_id,
            )

    def _run_or_survive(
        self, spark: SparkSession, attempt: Attempt, shares: Sequence[Share], transform: ChangeRows | None
    ) -> list[tuple[int, int]]:
        """Return the reports of the tasks whose rows count: task and rows, one a share, or one a task.

        If a worker dies, all shares are read once more, and each block is decoded in a process of its own. Evidence
        that comes twice is the same, and rows of tasks without a report do not count.
        """
        evidence, decoder = self.evidence.open(attempt), self._open_decoder(attempt)
        staging = OpenedStaging(partial(self.sink.open_staging, attempt))
        reading = DividedRead(shares, BoundedDecoder(decoder), evidence, self.step_seconds)
        try:
            return self._run(spark, reading, staging, transform)
        except _SPARK_ERRORS as error:
            if not has_worker_died(error):
                raise
            logger.warning(
                "A worker died while it staged %s attempt %d. Its records are decoded again, each block in a process "
                "of its own, to find the record that ends it.",
                attempt.batch.label,
                attempt.number,
            )
        try:
            return self._run(spark, replace(reading, decoder=SurvivingDecoder(decoder)), staging, transform)
        except _SPARK_ERRORS as error:
            if not has_worker_died(error):
                raise
        raise StagingError(
            f"A worker of Spark dies of {attempt.batch.label} attempt {attempt.number}. Nothing is visible.",
            why="It has died again although each record was decoded in a process of its own. So it is killed from "
            f"outside, makes no progress for {self.step_seconds:.0f} s, or dies of "
            f"{f'transform {self.transform}' if self.transform else 'writing the rows'}.",
            advice="The next attempt reads the same ranges again. Look at the log of Spark's workers.",
            batch_id=attempt.batch.batch_id,
            ranges=attempt.batch.ranges,
        )

    def _run(
        self, spark: SparkSession, reading: DividedRead, staging: "OpenedStaging", transform: ChangeRows | None
    ) -> list[tuple[int, int]]:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        count = len(reading.shares)
        numbers = spark.range(0, count, 1, count)
        if transform is None:
            reports = numbers.mapInArrow(ReadAndWriteTask(reading, staging.open(self.decoder.schema)), _REPORT)
        else:
            records = numbers.mapInArrow(ReadTask(reading), from_arrow_schema(self.decoder.schema))
            transformed = self._apply(transform, records)
            # Spark knows texts alone.
            marked = mark_columns(to_arrow_schema(transformed.schema), self.decoder.declared)
            schema = mark_hashed(marked, self.decoder.protector.hashed)
            reports = transformed.mapInArrow(WriteTask(staging.open(schema), schema, self.step_seconds), _REPORT)
        return [(row.task, row.written) for row in reports.collect()]

    def _open_decoder(self, attempt: Attempt) -> RecordDecoder:
        """Return the decoder, which looks up the schemas of records for this attempt."""
        return self.decoder.with_schemas(self.open_schemas(attempt)) if self.open_schemas else self.decoder

    @property
    def _required(self) -> tuple[str, ...]:
        """The columns that a transform has to keep."""
        deleted = (DELETED_COLUMN,) if self.decoder.tombstones is TombstonePolicy.DELETE else ()
        return (*PROVENANCE_COLUMNS, *deleted)

    def _apply(self, transform: ChangeRows, rows: DataFrame) -> DataFrame:
        try:
            transformed = transform(rows)
        except (BatchledgerError, *_SPARK_ERRORS):
            raise
        except Exception as error:  # noqa: BLE001 -- A transform may raise anything.
            raise StagingError(
                f"Transform {self.transform} ended with an error. Nothing is visible.",
                why=f"{describe_raised(error)}.",
                quoted="".join(traceback.format_exception(error))[-MOST_CHARACTERS:],
            ) from None
        missing = [column for column in self._required if column not in transformed.columns]
        if missing:
            raise ConfigurationError(
                f"The transform dropped the provenance columns {', '.join(missing)}.",
                advice=f"It has to keep {', '.join(self._required)} on every row.",
            )
        return transformed


@contextmanager
def _alone(spark: SparkSession, attempt: Attempt) -> Iterator[None]:
    """Let no earlier job of the batch run on beside the one of the block. One of a later attempt goes on.

    The server goes on with the job of a step that was killed; a step that is ended otherwise releases it. Other ledgers
    may use the same session.
    """
    batch = f"batchledger-batch-{attempt.batch.batch_id}-{attempt.batch.planned_at.timestamp()}"
    for earlier in range(max(1, attempt.number - _EARLIER_ATTEMPTS), attempt.number + 1):
        spark.interruptTag(f"{batch}-a{earlier}")
    tag = f"{batch}-a{attempt.number}"
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@dataclass
class OpenedStaging:
    """The staging of an attempt, which is opened when the schema of its rows is known, and once."""

    create: Callable[[pa.Schema], StagingWriter]
    writer: StagingWriter | None = None

    def open(self, schema: pa.Schema) -> StagingWriter:
        """Return what writes rows of the schema."""
        self.writer = self.writer or self.create(schema)
        return self.writer


def read_quarantine(evidence: Evidence, batch: Batch) -> Iterator[pa.RecordBatch]:
    """Yield the quarantined records of the ranges of a batch, as a read of Kafka does."""
    yield from evidence.read_quarantine(batch).drop_columns(["error"]).to_batches(max_chunksize=10_000)


def summarise(error: BaseException) -> str:
    """Return what workers have said without values, or the name of a Spark error."""
    if (unanswered := explain_deadline(error)) is not None:
        return unanswered
    if carried := find_carried(error):
        said = (" ".join(" ".join(parts).split()) for _, *parts, _ in carried)
        return " | ".join(dict.fromkeys(said))[:1200].rstrip(".")
    return name_failure(error)
