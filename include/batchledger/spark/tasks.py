"""What runs inside Spark's Python workers: witness the offsets, set bad records aside, write rows.

The objects here are pickled to the executors, which need this package installed. Evidence is written whatever becomes
of the rows, and repeating a task repeats the same evidence, so a retried or speculative task does no harm; rows carry
the id of their task attempt, and only those of accepted attempts are kept (S75).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.ports import EvidenceWriter, StagingWriter
from batchledger.quarantine import QUARANTINE_SCHEMA, SKIPPED_TOMBSTONE

if TYPE_CHECKING:
    from pyspark import TaskContext

REPORT_SCHEMA = "task long, written long"

_SET_ASIDE_COLUMNS = ("_error", "_key", "_value", "_headers")


@dataclass
class Witness:
    """Notes which offsets pass by, which of them are skipped, and keeps the records that are set aside."""

    runs: list[OffsetRange] = field(default_factory=list)
    skipped: list[OffsetRange] = field(default_factory=list)
    set_aside: list[pa.RecordBatch] = field(default_factory=list)

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the good rows of each batch without the columns that only bad records need."""
        for batch in batches:
            self.runs.extend(_runs_of(batch))
            is_good = pc.is_null(batch["_error"])
            good = batch
            if is_good.false_count:
                self._set_aside(batch.filter(pc.invert(is_good)))
                good = batch.filter(is_good)
            if good.num_rows:
                yield good.drop_columns(_SET_ASIDE_COLUMNS)

    def _set_aside(self, bad: pa.RecordBatch) -> None:
        is_skipped = pc.equal(bad["_error"], SKIPPED_TOMBSTONE)
        self.skipped.extend(_runs_of(bad.filter(is_skipped)))
        if is_skipped.false_count:
            self.set_aside.append(bad.filter(pc.invert(is_skipped)))

    def write(self, evidence: EvidenceWriter) -> None:
        """Write what was seen as evidence of this part of the read."""
        evidence.write(_part_of_the_read(), merge_ranges(self.runs), self.quarantined, merge_ranges(self.skipped))

    @property
    def quarantined(self) -> pa.Table | None:
        """The records set aside, with the columns of ``QUARANTINE_SCHEMA``."""
        if not self.set_aside:
            return None
        table = pa.Table.from_batches(self.set_aside)
        columns = [table[f"_{name}"] for name in QUARANTINE_SCHEMA.names]
        return pa.table(columns, names=QUARANTINE_SCHEMA.names).cast(QUARANTINE_SCHEMA)


def _runs_of(batch: pa.RecordBatch) -> list[OffsetRange]:
    return find_runs(batch["_topic"], batch["_partition"], batch["_offset"])


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
class WitnessTask:
    """First half of a pipeline with a transform: evidence is written, good rows go on to the transform."""

    evidence: EvidenceWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        witness = Witness()
        yield from witness.split(batches)
        witness.write(self.evidence)


@dataclass(frozen=True)
class WriteTask:
    """Second half: rows are written to staging; the result is one report of (task attempt id, rows)."""

    rows: StagingWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        task = _task_attempt_id()
        yield _report(task, self.rows.write(task, iter(batches)))


@dataclass(frozen=True)
class WitnessAndWriteTask:
    """Both halves in one pass, for a pipeline without a transform."""

    evidence: EvidenceWriter
    rows: StagingWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        task, witness = _task_attempt_id(), Witness()
        written = self.rows.write(task, witness.split(batches))
        witness.write(self.evidence)
        yield _report(task, written)


def _task_attempt_id() -> int:
    return int(_task_context().taskAttemptId())


def _part_of_the_read() -> int:
    return int(_task_context().partitionId())


def _task_context() -> "TaskContext":
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this function runs inside a Spark task only")
    return context


def _report(task: int, written: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"task": [task], "written": [written]})
