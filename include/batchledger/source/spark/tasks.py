"""What runs inside Spark's Python workers: read records, decode them, witness offsets, set bad ones aside, write rows.

The objects here are pickled to the executors, which need this package installed. Spark deals out numbers of shares. A
task reads its share by itself, so no record passes through the JVM. Evidence counts when its share has come to its end.
A repeated task repeats the same evidence, so a retried or speculative task does no harm. Rows carry the id of their
task attempt, and only rows of accepted attempts are kept (S75).
"""

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.bounds.alarm import STEP_SECONDS, STEPS
from batchledger.formats.arrow_types import are_uuids, is_uuid
from batchledger.formats.decoding.surviving import BoundedDecoder, SurvivingDecoder
from batchledger.model.checks import Offender
from batchledger.model.errors import RowsRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges, single_offset
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.model.records.unknown_fields import UnknownFieldCounter
from batchledger.ports import EvidenceWriter, StagingWriter, Testimony
from batchledger.source.spark.failures import carrying_errors

if TYPE_CHECKING:
    from pyspark import TaskContext

Share = Callable[[], Iterable[pa.RecordBatch]]
"""Yields the visible records of a share of the read, with the columns of ``RECORD_SCHEMA``."""

Decoder = BoundedDecoder | SurvivingDecoder

NUMBER = "id"
"""The column of the numbers of shares."""

_OBJECTS_BETWEEN_COLLECTIONS = 100_000

REPORT_SCHEMA = pa.schema([("task", pa.int64()), ("written", pa.int64())])


@dataclass
class Witness:
    """Notes which offsets pass by, which of them are skipped, and unknown fields; writes what is set aside at once."""

    decoder: Decoder
    testimony: Testimony
    runs: list[OffsetRange] = field(default_factory=list)
    skipped: list[OffsetRange] = field(default_factory=list)
    unknown: UnknownFieldCounter = field(default_factory=UnknownFieldCounter)

    def decode(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch of records."""
        self.runs.extend(_runs_of(records))
        decoded = self.decoder.decode(records)
        if decoded.skipped is not None:
            self.skipped.extend(_runs_of(decoded.skipped))
        if decoded.set_aside is not None:
            self.testimony.set_aside(decoded.set_aside)
        for names, seen in decoded.undeclared:
            self.unknown.count(names, seen)
        yield from decoded.rows

    def finish(self) -> None:
        """Write what was seen: this share has come to its end."""
        self.testimony.finish(merge_ranges(self.runs), merge_ranges(self.skipped), self.unknown)


def _runs_of(records: pa.RecordBatch) -> list[OffsetRange]:
    return find_runs(records["topic"], records["partition"], records["offset"])


def find_runs(topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> list[OffsetRange]:
    """Return the maximal runs of neighbouring offsets, in the order of the rows.

    Example: offsets 4, 5, 6, 9 of ``orders[0]`` are the runs ``orders[0] 4..7`` and ``orders[0] 9..10``.
    """
    if not len(offsets):
        return []
    numbers, parts = offsets.to_numpy(), partitions.to_numpy()
    same_topic = pc.equal(topics.slice(1), topics.slice(0, len(topics) - 1)).to_numpy(zero_copy_only=False)
    is_next = (numbers[1:] == numbers[:-1] + 1) & (parts[1:] == parts[:-1]) & same_topic
    breaks = (~is_next).nonzero()[0] + 1
    runs = []
    for first, until in zip([0, *breaks], [*breaks, len(numbers)], strict=True):
        partition = TopicPartition(topics[int(first)].as_py(), int(parts[first]))
        runs.append(OffsetRange(partition, int(numbers[first]), int(numbers[until - 1]) + 1))
    return runs


@dataclass(frozen=True)
class DividedRead:
    """The shares of a read, and what becomes of their records in any task."""

    shares: Sequence[Share] = field(repr=False)
    decoder: Decoder
    evidence: EvidenceWriter
    step_seconds: float = STEP_SECONDS

    @contextmanager
    def open(self, number: int) -> Iterator[tuple[Iterator[pa.RecordBatch], Witness]]:
        """Yield the rows of a share, and its witness, which has to finish when all of them were taken.

        A step ends when rows are taken, and with each block of records, which may hold no row.
        """
        with STEPS.bounded(self.step_seconds), self.evidence.open(number) as testimony:
            witness = Witness(self.decoder, testimony)
            yield self._read(number, witness), witness

    def _read(self, number: int, witness: Witness) -> Iterator[pa.RecordBatch]:
        for records in self.shares[number]():
            for rows in witness.decode(records):
                yield rows
                STEPS.made()
            STEPS.made()


@dataclass(frozen=True)
class ReadTask:
    """First half of a pipeline with a transform: records are read, decoded and witnessed, rows go on to the transform.

    Takes numbers of shares.
    """

    reading: DividedRead

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        settle_worker()
        for number in _numbers(batches):
            with carrying_errors(), self.reading.open(number) as (rows, witness):
                yield from rows
                witness.finish()


@dataclass(frozen=True)
class WriteTask:
    """Second half: rows of a schema are written to staging; the result is one report of (task attempt id, rows)."""

    rows: StagingWriter
    schema: pa.Schema
    step_seconds: float = STEP_SECONDS

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        settle_worker()
        task, written = _task_attempt_id(), 0
        with carrying_errors(), STEPS.bounded(self.step_seconds), self.rows.open(task) as write:
            for batch in batches:
                write(spell_uuids(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)))
                written += batch.num_rows
                STEPS.made()
        yield _report(task, written)


@dataclass(frozen=True)
class ReadAndWriteTask:
    """A pipeline without a transform: records are read, decoded, witnessed and written to staging in one worker.

    Takes numbers of shares; the result is a report for each.
    """

    reading: DividedRead
    rows: StagingWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        settle_worker()
        task = _task_attempt_id()
        for number in _numbers(batches):
            written = 0
            # The rows are committed first: the evidence says that this share has come to its end.
            with carrying_errors(), self.reading.open(number) as (rows, witness):
                with self.rows.open(task) as write:
                    for batch in rows:
                        write(batch)
                        written += batch.num_rows
                witness.finish()
            yield _report(task, written)


def spell_uuids(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that a transform has made, with each UUID in the one text that it has in a column.

    Raises RowsRefusedError for another text: a target that has no type for UUIDs would take it.
    """
    for place, column in enumerate(rows.schema):
        if is_uuid(column):
            texts = rows.column(place)
            wrong = pc.index(are_uuids(texts), value=False).as_py()
            if wrong >= 0:
                offset = single_offset(*(rows[each][wrong].as_py() for each in COORDINATE_COLUMNS))
                row = Offender(offset, f"{column.name}: no UUID")
                raise RowsRefusedError(
                    f"The transform has made a text in {column.name} that is no UUID. Nothing was published.",
                    why=f"The first is {row}.",
                    advice="Correct the transform: a UUID is a text such as 1b4e28ba-2fa1-11d2-883f-0016d3cca427.",
                    coordinates=(str(row),),
                )
            rows = rows.set_column(place, column, pc.utf8_lower(texts))
    return rows


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch[NUMBER].to_pylist()


def _task_attempt_id() -> int:
    return int(_task_context().taskAttemptId())


@cache
def settle_worker() -> None:
    """Make a worker fit to live long, once in its life.

    Its pauses between tasks are most of a small batch's time. After each task it collects garbage, over 900 modules
    (0.07 s). Before each it forgets what it knows of folders, and reads the directory of Spark's own jar again
    (0.05 s): Spark has put the jar on the path of every worker.

    An executor starts the workers of a Connect session in an empty folder of this session. It deletes the folder after
    30 minutes of rest although the workers go on; PyIceberg fails in a worker whose working directory is gone.
    """
    if os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default") != "default":
        os.chdir("/")
    for jar in [entry for entry in sys.path if PurePath(entry).match("spark-core_*.jar")]:
        sys.path.remove(jar)
        for place in [each for each in sys.path_importer_cache if each.startswith(jar)]:
            del sys.path_importer_cache[place]
    gc.freeze()
    # By default the messages of a read are visited again and again, which was a twelfth of the worker's time.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def _task_context() -> "TaskContext":
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this function runs inside a Spark task only")
    return context


def _report(task: int, written: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"task": [task], "written": [written]})
