"""The Sink port in memory; it shares the ledger's database, as the PostgreSQL sink does."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from batchledger.model.balance import StagedRange, TargetCount, TargetCounts
from batchledger.model.batch import Attempt, HeldRange, Target
from batchledger.model.capabilities import Capabilities
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.errors import (
    ConfigurationError,
    DecisionRefusedError,
    StagingError,
    StagingLostError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.times import RecordTimes, to_milliseconds
from batchledger.ports import RowsToCheck, RowsToPublish, Sink, StagedRows, StagingWriter, TargetAccess
from batchledger.sinks.table.capabilities import CAPABILITIES
from tests.fakes.comparison import compare_rows
from tests.fakes.database import (
    AttemptKey,
    Coordinate,
    MemoryDatabase,
    Row,
    StoredStaging,
    StoredTarget,
    Tables,
    coordinate_of,
    is_over,
)


@dataclass(frozen=True)
class MemoryStagingWriter(StagingWriter):
    database: MemoryDatabase
    key: AttemptKey

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """Like the real one it looks at staging only when there is something to write."""
        rows: list[Row] = []

        def write(batch: pa.RecordBatch) -> None:
            rows.extend(batch.to_pylist())
            self.database.arriving[self.key] += batch.num_rows

        try:
            yield write
        finally:
            self.database.arriving[self.key] -= len(rows)
        if not rows:
            return
        with self.database.transaction() as tables:
            staging = tables.staging.get(self.key)
            if staging is None or staging.is_sealed:
                raise StagingError(f"the staging of attempt {self.key[1]} of batch {self.key[0]} takes no more rows.")
            written = {**staging.rows_by_task, task: (*staging.rows_by_task.get(task, ()), *rows)}
            tables.staging[self.key] = replace(staging, rows_by_task=written)


@dataclass(frozen=True)
class MemoryStagedRows(StagedRows):
    rows: Sequence[Row]
    attempt: Attempt

    @override
    def show(self) -> RowsToCheck:
        """The connection is the rows themselves."""
        return RowsToCheck(list(self.rows), "rows", len(self.rows), len(self.rows))

    @override
    def summarise(self) -> Sequence[StagedRange]:
        held: dict[OffsetRange | None, list[Coordinate]] = defaultdict(list)
        times: dict[OffsetRange | None, list[int | None]] = defaultdict(list)
        for row in self.rows:
            held[_range_of(row, self.attempt)].append(coordinate_of(row))
            written_at = row["_timestamp"]
            times[_range_of(row, self.attempt)].append(None if written_at is None else to_milliseconds(written_at))
        return [
            StagedRange(
                each,
                len(held[each]),
                len(set(held[each])),
                0 if number else len(held[None]),
                times=RecordTimes.of(times[each]),
            )
            for number, each in enumerate(self.attempt.batch.ranges)
        ]

    @override
    def count_numbers(self) -> None:
        return None

    @override
    def count_unmatched(self) -> None:
        return None


@dataclass(frozen=True)
class MemorySink(Sink):
    """``table`` names the target in the database. It only appends: what a rule does with rows is PostgreSQL's alone."""

    capabilities: ClassVar[Capabilities] = CAPABILITIES
    database: MemoryDatabase
    table: str

    @property
    def name(self) -> str:
        return f"table {self.table}"

    @property
    def committed(self) -> Tables:
        """What is stored now."""
        return self.database.committed

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> MemoryStagingWriter:
        if (fault := explain_columns(schema.names)) is not None:
            raise ConfigurationError(f"the rows for {self.table} cannot be staged: {fault}.")
        with self.database.transaction() as tables:
            target = self.committed.targets.get(self.table)
            if target is not None and not set(schema.names) <= set(target.schema.names):
                raise TargetChangedError(f"table {self.table} cannot take the rows of {attempt.batch.label}.")
            tables.staging[_key(attempt)] = StoredStaging(schema)
        return MemoryStagingWriter(self.database, _key(attempt))

    @override
    def count_arriving(self, attempt: Attempt) -> int:
        return self.database.arriving[_key(attempt)]

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        with self.database.transaction() as tables:
            staging = tables.staging[_key(attempt)]
            accepted = {task: rows for task, rows in staging.rows_by_task.items() if task in accepted_tasks}
            tables.staging[_key(attempt)] = replace(staging, rows_by_task=accepted, is_sealed=True)

    @contextmanager
    @override
    def read_staged(self, attempt: Attempt) -> Iterator["MemoryStagedRows"]:
        yield MemoryStagedRows(staging_of(self.committed, attempt).rows, attempt)

    @override
    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        rows = self.committed.staging[_key(attempt)].rows
        times = Counter(coordinate_of(row) for row in rows if _range_of(row, attempt) is not None)
        repeated = sorted(coordinate for coordinate, count in times.items() if count > 1)
        outside = sorted({coordinate_of(row) for row in rows if _range_of(row, attempt) is None})
        found = {
            IntegrityCheck.NO_DUPLICATE_OFFSETS: [offender_at(each) for each in repeated[:limit]],
            IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: [offender_at(each) for each in outside[:limit]],
        }
        return {check: offenders for check, offenders in found.items() if check in checks}

    @override
    def find_refused(self, rows: RowsToPublish, limit: int) -> Sequence[Offender]:
        return ()

    @override
    def remember_numbers(self, rows: RowsToPublish) -> None:
        return None

    @override
    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        doomed = {(each.partition, offset) for each in records for offset in range(each.start, each.until)}
        with self.database.transaction() as tables:
            staging = tables.staging[_key(attempt)]
            kept = {
                task: tuple(row for row in rows if coordinate_of(row) not in doomed)
                for task, rows in staging.rows_by_task.items()
            }
            aside = tuple(row for row in staging.rows if coordinate_of(row) in doomed)
            tables.staging[_key(attempt)] = replace(staging, rows_by_task=kept, aside=(*staging.aside, *aside))

    @override
    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        places = [(row["_batch_id"], coordinate_of(row)) for row in self.read_target()]
        return [
            sum(
                batch_id == each.batch_id and partition == each.range.partition and offset in each.range
                for batch_id, (partition, offset) in places
            )
            for each in held
        ]

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """Everything is done to a copy, and looked at."""
        tables = self.committed.copy()
        staging = staging_of(tables, attempt)
        before = tables.targets.get(self.table) or StoredTarget("none yet", staging.schema)
        tables.targets[self.table] = before
        MemorySink.withdraw(self, RowsToPublish(tables, attempt, 0))
        after = _with_rows(tables.targets[self.table].rows, attempt, staging.rows)
        return compare_rows(before, staging.schema.names, after, ("_topic", "_partition", "_offset"), attempt, limit)

    @override
    def check(self, rows: RowsToPublish) -> None:
        """Nothing is known before."""

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        tables: Tables = rows.connection
        attempt, old = rows.attempt, self._find_old(tables, rows.attempt)
        if old:
            target = tables.targets[self.table]
            kept = tuple(row for row in target.rows if not _is_within(row, attempt))
            tables.targets[self.table] = replace(target, rows=kept)
        removed = {(row["_batch_id"], coordinate_of(row)) for row in old}
        counts = [
            sum(
                holder == each.batch_id and partition == each.range.partition and offset in each.range
                for holder, (partition, offset) in removed
            )
            for each in rows.replaced
        ]
        return Withdrawn(counts)

    @override
    def compare_columns(self, schema: pa.Schema) -> None:
        """Rows of any columns fit."""

    @override
    def claim_target(self, attempt: Attempt, connection: Tables | None = None) -> TargetClaim:
        target = (connection or self.committed).targets.get(self.table)
        return TargetClaim(self.table, None if target is None else target.identity)

    @override
    def find_target(self) -> Target | None:
        target = self.committed.targets.get(self.table)
        return None if target is None else Target(self.table, target.identity)

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        tables: Tables = rows.connection
        attempt = rows.attempt
        staging = staging_of(tables, attempt)
        target = tables.targets.get(self.table) or self.create(attempt, staging.schema)
        strangers = [row for row in target.rows if _is_within(row, attempt) and not _is_known(tables, row)]
        if strangers and self.capabilities.shares_transaction:
            raise TargetChangedError(f"table {self.table} holds {len(strangers)} rows of {attempt.batch.label} already")
        tables.targets[self.table] = replace(target, rows=_with_rows(target.rows, attempt, staging.rows))
        return PreparedRows(len(staging.rows), 0)

    def create(self, attempt: Attempt, schema: pa.Schema) -> StoredTarget:
        """Return a target without rows."""
        return StoredTarget(f"created by {attempt.batch.label}", schema)

    @override
    def truncate(self, access: TargetAccess) -> int:
        tables: Tables = access.connection
        target = tables.targets.get(self.table)
        if target is None:
            access.forget_target()
            return 0
        access.confirm_target(TargetClaim(self.table, target.identity))
        tables.targets[self.table] = replace(target, rows=())
        return len(target.rows)

    @override
    def erase(self, access: TargetAccess, key: ErasureKey) -> Erased:
        tables: Tables = access.connection
        target = tables.targets.get(self.table)
        if target is None:
            raise DecisionRefusedError(f"table {self.table} of {access.pipeline} is not there. Nothing was erased.")
        access.confirm_target(TargetClaim(self.table, target.identity))
        doomed = [row for row in target.rows if all(row.get(column) == value for column, value in key.pairs)]
        tables.targets[self.table] = replace(target, rows=tuple(row for row in target.rows if row not in doomed))
        for row in doomed:
            stored = tables.batches[row["_batch_id"]]
            tables.batches[row["_batch_id"]] = replace(stored, erased=(*stored.erased, coordinate_of(row)))
        return Erased(len(doomed), 0, is_remembered=False, type_by_column=dict.fromkeys(key.columns, "text"))

    @override
    def drop_staging(self, attempt: Attempt) -> None:
        with self.database.transaction() as tables:
            tables.staging = {key: staging for key, staging in tables.staging.items() if not is_over(key, attempt)}

    @override
    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        offsets: dict[tuple[int, TopicPartition], list[int]] = defaultdict(list)
        for row in self.read_target():
            partition, offset = coordinate_of(row)
            if within is None or any(each.partition == partition and offset in each for each in within):
                offsets[row["_batch_id"], partition].append(offset)
        return TargetCounts(
            {key: TargetCount(len(held), len(set(held)), min(held), max(held)) for key, held in offsets.items()}
        )

    def _find_old(self, tables: Tables, attempt: Attempt) -> Sequence[Row]:
        """Return the rows in the ranges of the batch, of every writer."""
        target = tables.targets.get(self.table)
        return [row for row in target.rows if _is_within(row, attempt)] if target else []

    def read_target(self) -> Sequence[Row]:
        """Return what a reader of the target sees now."""
        target = self.committed.targets.get(self.table)
        return () if target is None else target.rows


def offender_at(place: Coordinate, note: str = "") -> Offender:
    """Name one record."""
    partition, offset = place
    return Offender(OffsetRange(partition, offset, offset + 1), note)


def _with_rows(held: Sequence[Row], attempt: Attempt, rows: Sequence[Row]) -> tuple[Row, ...]:
    return (*held, *({**row, "_batch_id": attempt.batch.batch_id} for row in rows))


def staging_of(tables: Tables, attempt: Attempt) -> StoredStaging:
    """The staging of an attempt. Raises StagingLostError."""
    if _key(attempt) not in tables.staging:
        raise StagingLostError(f"{attempt.batch.label}: the staging of attempt {attempt.number} is gone.")
    return tables.staging[_key(attempt)]


def _key(attempt: Attempt) -> AttemptKey:
    return attempt.batch.batch_id, attempt.number


def _is_within(row: Row, attempt: Attempt) -> bool:
    return _range_of(row, attempt) is not None


def _is_known(tables: Tables, row: Row) -> bool:
    """Whether the batch that the row names has written rows there."""
    (partition, offset), stored = coordinate_of(row), tables.batches.get(row["_batch_id"])
    within = stored.batch.ranges if stored is not None and stored.has_rows else ()
    return any(each.partition == partition and offset in each for each in within)


def _range_of(row: Row, attempt: Attempt) -> OffsetRange | None:
    partition, offset = coordinate_of(row)
    return next((each for each in attempt.batch.ranges if each.partition == partition and offset in each), None)
