"""What runs inside Spark's Python workers: decode blocks, witness the offsets, set bad records aside, write rows.

The objects here are pickled to the executors, which need this package installed. Evidence is written when the rows of
its part of the read are committed, and repeating a task repeats the same evidence, so a retried or speculative task
does no harm; rows carry the id of their task attempt, and only those of accepted attempts are kept (S75).
"""

import gc
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.columns import DELETED_COLUMN
from batchledger.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.ports import EvidenceWriter, StagingWriter
from batchledger.quarantine import QUARANTINE_SCHEMA, SKIPPED_TOMBSTONE
from batchledger.spark.blocks import BlockDecoder

if TYPE_CHECKING:
    from pyspark import TaskContext

REPORT_SCHEMA = pa.schema([("task", pa.int64()), ("written", pa.int64())])

TALLY_COLUMNS = ("_written", "_runs")
RECORD_SCHEMA = QUARANTINE_SCHEMA.remove(QUARANTINE_SCHEMA.get_field_index("error"))
"""A record as it was read: what quarantine would keep of it."""

DOUBTFUL_SCHEMA = pa.schema([*RECORD_SCHEMA, ("_written", pa.int64()), ("_runs", pa.string())])
"""What is left to Spark's own decoding: records as they were read. The last row is none, but a tally of the others."""

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
        _settle_worker()
        witness = Witness()
        yield from witness.split(batches)
        witness.write(self.evidence)


@dataclass(frozen=True)
class WriteTask:
    """Second half: rows are written to staging; the result is one report of (task attempt id, rows)."""

    rows: StagingWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        _settle_worker()
        task, written = _task_attempt_id(), 0
        with self.rows.open(task) as write:
            for batch in batches:
                write(batch)
                written += batch.num_rows
        yield _report(task, written)


@dataclass(frozen=True)
class DecodeBlocksTask:
    """First half of a pipeline without a transform: what decodes for sure is written, the rest goes on to Spark.

    Takes the columns of ``RECORD_SCHEMA``. ``names`` are the columns of staging, in their order.
    """

    decoder: BlockDecoder
    rows: StagingWriter
    names: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        _settle_worker()
        witness, written = Witness(), 0
        with self.rows.open(_task_attempt_id()) as write:
            for batch in batches:
                witness.runs.extend(find_runs(batch["topic"], batch["partition"], batch["offset"]))
                decoded, is_sure = self.decoder.decode(batch["value"])
                if decoded.num_rows:
                    write(self._as_rows(decoded, batch.filter(is_sure) if is_sure.false_count else batch))
                    written += decoded.num_rows
                if is_sure.false_count:
                    yield _fill(batch.filter(pc.invert(is_sure)))
        yield _tally(written, merge_ranges(witness.runs))

    def _as_rows(self, decoded: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        by_name = {name: decoded[name] for name in decoded.schema.names}
        by_name |= {f"_{name}": records[name] for name in ("topic", "partition", "offset", "timestamp")}
        # A tombstone is never sure.
        by_name[DELETED_COLUMN] = pa.repeat(pa.scalar(value=False), records.num_rows)
        return pa.RecordBatch.from_arrays([by_name[name] for name in self.names], names=list(self.names))


@dataclass(frozen=True)
class WitnessAndWriteTask:
    """Second half of a pipeline without a transform: what Spark has decoded is written, and all that was witnessed."""

    evidence: EvidenceWriter
    rows: StagingWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over one Spark partition."""
        _settle_worker()
        task, witness, written = _task_attempt_id(), Witness(), 0
        with self.rows.open(task) as write:
            for batch in batches:
                records, written_before = _take_tally(batch, witness)
                written += written_before
                for good in witness.split([records]):
                    write(good)
                    written += good.num_rows
        witness.write(self.evidence)
        yield _report(task, written)


def _fill(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return doubtful records with the columns of the tally, empty."""
    columns = [records[name] for name in RECORD_SCHEMA.names]
    empty = [pa.nulls(records.num_rows, DOUBTFUL_SCHEMA.field(name).type) for name in TALLY_COLUMNS]
    return pa.RecordBatch.from_arrays([*columns, *empty], schema=DOUBTFUL_SCHEMA)


def _tally(written: int, runs: Sequence[OffsetRange]) -> pa.RecordBatch:
    seen = [(each.partition.topic, each.partition.partition, each.start, each.until) for each in runs]
    return pa.RecordBatch.from_pylist([{"_written": written, "_runs": json.dumps(seen)}], schema=DOUBTFUL_SCHEMA)


def _take_tally(batch: pa.RecordBatch, witness: Witness) -> tuple[pa.RecordBatch, int]:
    """Return the records of a batch, and how many rows the half before has written, of which the witness is told."""
    if "_written" not in batch.schema.names:
        return batch, 0
    is_tally = pc.is_valid(batch["_written"])
    records, written = batch.drop_columns(list(TALLY_COLUMNS)), 0
    if is_tally.true_count:
        for tally in batch.filter(is_tally).select(list(TALLY_COLUMNS)).to_pylist():
            written += tally["_written"]
            witness.runs += [
                OffsetRange(TopicPartition(topic, partition), start, until)
                for topic, partition, start, until in json.loads(tally["_runs"])
            ]
        records = records.filter(pc.invert(is_tally))
    return records, written


def _task_attempt_id() -> int:
    return int(_task_context().taskAttemptId())


def _settle_worker() -> None:
    """Make a worker's pauses between tasks short, once in its life: for a small batch they are most of its time.

    After each task it collects garbage, over 900 modules (0.07 s); before each it forgets what it knows of folders, and
    the directory of Spark's own jar, which Spark has put on the path of every worker, is read again (0.05 s).
    """
    if gc.get_freeze_count():
        return
    for jar in [entry for entry in sys.path if PurePath(entry).match("spark-core_*.jar")]:
        sys.path.remove(jar)
        for place in [each for each in sys.path_importer_cache if each.startswith(jar)]:
            del sys.path_importer_cache[place]
    gc.freeze()


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
