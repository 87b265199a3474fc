"""The Sink port in memory; it shares the ledger's database, as the PostgreSQL sink does."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.balance import StagedRange, TargetCount, TargetCounts
from batchledger.model.batch import Attempt, HeldRange, Lane, Target
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
from batchledger.model.offsets import OffsetRange, TopicPartition, intersect
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from batchledger.model.records.times import RecordTimes, to_milliseconds
from batchledger.ports import RowsToCheck, RowsToPublish, Sink, StagedRows, StagingWriter, TargetAccess
from batchledger.sinks.staging.key_types import describe_types, is_hash_changed, require_same_types
from tests.fakes.comparison import compare_rows
from tests.fakes.database import (
    ERASED,
    AttemptKey,
    Coordinate,
    MemoryDatabase,
    Row,
    StoredStaging,
    StoredTarget,
    Tables,
    coordinate_of,
    is_erased,
    is_over,
)
from tests.fakes.deduplication import Judged, drop_duplicates, find_held, judge, recall
from tests.fakes.erasure import MemoryErasure
from tests.fakes.sequences import judge_numbers, name_numbers, remember_numbers
from tests.fakes.upsert import apply_updates, count_repeated_keys, find_unmatched


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
    """``judged`` is what was known of the message keys when the rows were opened."""

    sink: "MemorySink"
    attempt: Attempt
    judged: Judged

    @override
    def show(self) -> RowsToCheck:
        """The connection is the rows themselves."""
        checked = [row for row in self._kept if not row.get(DELETED_COLUMN) and not is_erased(row)]
        return RowsToCheck(checked, "rows", len(self._kept), len(checked))

    @override
    def summarise(self) -> Sequence[StagedRange]:
        held: dict[OffsetRange | None, list[Coordinate]] = defaultdict(list)
        times: dict[OffsetRange | None, list[int | None]] = defaultdict(list)
        for row in self._rows:
            held[_range_of(row, self.attempt)].append(coordinate_of(row))
            written_at = row["_timestamp"]
            times[_range_of(row, self.attempt)].append(None if written_at is None else to_milliseconds(written_at))
        outside, duplicates = len(held[None]), self.judged.duplicates
        return [
            StagedRange(
                each,
                len(held[each]),
                len(set(held[each])),
                0 if number else outside,
                sum(coordinate in duplicates for coordinate in held[each]),
                sum(coordinate in duplicates.keys() - self.judged.repeated.keys() for coordinate in held[each]),
                RecordTimes.of(times[each]),
            )
            for number, each in enumerate(self.attempt.batch.ranges)
        ]

    @override
    def count_numbers(self) -> NumberFacts | None:
        if self.sink.sequence is None or self.attempt.batch.lane is not Lane.LIVE:
            return None
        return judge_numbers(self.sink.committed, self.attempt, self._kept, self.sink.sequence).facts

    @override
    def count_unmatched(self) -> UnmatchedDeletions | None:
        upsert, staging = self.sink.upsert, staging_of(self.sink.committed, self.attempt)
        if upsert is None or DELETED_COLUMN not in staging.schema.names:
            return None
        return UnmatchedDeletions(len(self.sink.find_unmatched(self.attempt, self._kept)), upsert.unmatched_deletions)

    @property
    def _rows(self) -> Sequence[Row]:
        return staging_of(self.sink.committed, self.attempt).rows

    @property
    def _kept(self) -> Sequence[Row]:
        return [row for row in self._rows if coordinate_of(row) not in self.judged.duplicates]


@dataclass(frozen=True)
class MemorySink(Sink):
    """``table`` names the target in the database."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    database: MemoryDatabase
    table: str
    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None

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
        named = (
            ("dedupe.key", self.deduplication.key if self.deduplication else ()),
            ("sink.key", self.upsert.key if self.upsert else ()),
            ("sequence", (*self.sequence.key, self.sequence.number) if self.sequence else ()),
        )
        for option, names in named:
            missing = set(names) - set(schema.names)
            if missing:
                raise ConfigurationError(f"{option} names columns that the rows do not have: {sorted(missing)}.")
        if self.sequence and not pa.types.is_integer(schema.field(self.sequence.number).type):
            raise ConfigurationError(f"sequence.number names {self.sequence.number!r}, which is not an integer.")
        with self.database.transaction() as tables:
            target = self.committed.targets.get(self.table)
            if target is not None and not set(schema.names) <= {*target.schema.names, DELETED_COLUMN}:
                raise TargetChangedError(f"table {self.table} cannot take the rows of {attempt.batch.label}.")
            if target is not None and self.upsert and target.unique_key != frozenset(self.upsert.key):
                raise TargetChangedError(f"table {self.table} has no unique index on exactly {self.upsert.key}.")
            self._keep_types(tables, attempt, schema)
            tables.staging[_key(attempt)] = StoredStaging(schema)
        return MemoryStagingWriter(self.database, _key(attempt))

    def _keep_types(self, tables: Tables, attempt: Attempt, schema: pa.Schema) -> None:
        rules = {
            "dedupe.key": (self.deduplication, {owner for owner, _ in tables.message_keys}),
            "sink.key": (self.upsert, {key[0] for key, row in tables.deleted_keys.items() if not is_erased(row)}),
            "sequence.key": (self.sequence, {owner for owner, _ in tables.sequences}),
        }
        pipeline = attempt.batch.pipeline
        for name, (rule, owners) in rules.items():
            if rule is None:
                continue
            now = describe_types(rule.key, schema)
            before = tables.key_types.get((pipeline, name, tuple(now)))
            target = tables.targets.get(self.table)
            has_rows = name == "sink.key" and target is not None and bool(target.rows)
            if before is not None and (pipeline in owners or (has_rows and is_hash_changed(before, now))):
                require_same_types(pipeline, name, before, now)
            if not attempt.batch.is_dry_run:
                tables.key_types[pipeline, name, tuple(now)] = now

    @override
    def count_arriving(self, attempt: Attempt) -> int:
        return self.database.arriving[_key(attempt)]

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        with self.database.transaction() as tables:
            staging = tables.staging[_key(attempt)]
            accepted = {task: rows for task, rows in staging.rows_by_task.items() if task in accepted_tasks}
            erasure = MemoryErasure(self.table, self.deduplication, self.upsert)
            marked = {task: erasure.mark(tables, attempt, rows) for task, rows in accepted.items()}
            tables.staging[_key(attempt)] = replace(staging, rows_by_task=marked, is_sealed=True)

    @contextmanager
    @override
    def read_staged(self, attempt: Attempt) -> Iterator["MemoryStagedRows"]:
        tables = self.committed
        yield MemoryStagedRows(self, attempt, self._judge(tables, attempt, staging_of(tables, attempt).rows))

    @override
    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        tables = self.committed
        rows = tables.staging[_key(attempt)].rows
        repeats = sorted(self._judge(tables, attempt, rows).repeated.items())
        times = Counter(coordinate_of(row) for row in rows if _range_of(row, attempt) is not None)
        repeated = sorted(coordinate for coordinate, count in times.items() if count > 1)
        outside = sorted({coordinate_of(row) for row in rows if _range_of(row, attempt) is None})
        kept = [row for row in rows if coordinate_of(row) not in self._judge(tables, attempt, rows).duplicates]
        unmatched = self.find_unmatched(attempt, kept) if IntegrityCheck.DELETIONS_FIND_ROWS in checks else []
        found = {
            IntegrityCheck.DELETIONS_FIND_ROWS: [offender_at(each) for each in unmatched[:limit]],
            IntegrityCheck.NO_DUPLICATE_OFFSETS: [offender_at(each) for each in repeated[:limit]],
            IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: [offender_at(each) for each in outside[:limit]],
            IntegrityCheck.NO_DUPLICATE_MESSAGES: [
                offender_at(at, f"repeats {each.first[0]}@{each.first[1]}") for at, each in repeats[:limit]
            ],
            **self._name_numbers(tables, attempt, limit),
        }
        return {check: offenders for check, offenders in found.items() if check in checks}

    def find_unmatched(self, attempt: Attempt, rows: Sequence[Row]) -> Sequence[Coordinate]:
        """Which of the rows delete a key of which nothing is known."""
        target = self.committed.targets.get(self.table)
        held = target.rows if target is not None else ()
        return find_unmatched(self.committed, attempt, held, rows, self.upsert) if self.upsert else []

    @override
    def find_refused(self, rows: RowsToPublish, limit: int) -> Sequence[Offender]:
        return ()

    @override
    def remember_numbers(self, rows: RowsToPublish) -> int | None:
        attempt, tables = rows.attempt, rows.connection
        if self.sequence is None or attempt.batch.lane is not Lane.LIVE:
            return None
        dropped = tables.duplicates.get(attempt.batch.batch_id, {})
        rows = [row for row in staging_of(tables, attempt).rows if coordinate_of(row) not in dropped]
        remember_numbers(tables, attempt, rows, self.sequence)
        return len(rows)

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
        rows = staging.rows
        dropped = self._judge(tables, attempt, rows).duplicates
        kept_back = [row for row in rows if is_erased(row)]
        rows = tuple(row for row in rows if coordinate_of(row) not in dropped)
        before = tables.targets.get(self.table) or StoredTarget("none yet", staging.schema)
        tables.targets[self.table] = before
        MemorySink.withdraw(self, RowsToPublish(tables, attempt, 0))
        after = self._apply(tables, attempt, tables.targets[self.table].rows, rows)
        key = self.upsert.key if self.upsert else ("_topic", "_partition", "_offset")
        compared = compare_rows(before, staging.schema.names, after, key, attempt, limit)
        return replace(compared, erased_again=len(kept_back))

    @override
    def check(self, rows: RowsToPublish) -> None:
        """Nothing is known before."""

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        tables: Tables = rows.connection
        attempt, old = rows.attempt, self._find_old(tables, rows.attempt)
        if self.deduplication is not None and rows.takes_over:
            tables.recalled[attempt.batch.batch_id] = recall(tables, old, rows.replaced, self.deduplication)
        if old:
            target = tables.targets[self.table]
            kept = tuple(row for row in target.rows if not _is_within(row, attempt))
            tables.targets[self.table] = replace(target, rows=kept)
        tables.deleted_keys = {
            key: row
            for key, row in tables.deleted_keys.items()
            if key[0] != attempt.batch.pipeline or not _is_within(row, attempt) or is_erased(row)
        }
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
        accepted, held = staging.rows, frozenset[Coordinate]()
        if self.deduplication is not None:
            if rows.has_rows:
                held = find_held(tables, attempt, accepted, self.deduplication)
            accepted = drop_duplicates(tables, attempt, accepted, self.deduplication)
        target = tables.targets.get(self.table) or self.create(attempt, staging.schema)
        missing = [row for row in accepted if coordinate_of(row) not in held]
        strangers = [row for row in target.rows if _is_within(row, attempt) and not _is_known(tables, row)]
        if strangers and self.upsert is None and self.capabilities.shares_transaction:
            raise TargetChangedError(f"table {self.table} holds {len(strangers)} rows of {attempt.batch.label} already")
        content = self._apply(tables, attempt, target.rows, missing)
        tables.targets[self.table] = replace(target, rows=content)
        stored = tables.batches[attempt.batch.batch_id]
        marked = tuple(coordinate_of(row) for row in accepted if is_erased(row))
        tables.batches[attempt.batch.batch_id] = replace(stored, erased=marked)
        return PreparedRows(len(accepted), len(staging.rows) - len(accepted))

    def _apply(self, tables: Tables, attempt: Attempt, held: Sequence[Row], rows: Iterable[Row]) -> tuple[Row, ...]:
        """Return the target as it is with the rows; an erased one deletes its key, if it leaves a version."""
        new = [{**row, "_batch_id": attempt.batch.batch_id} for row in rows]
        if self.upsert is None:
            return (*held, *(row for row in new if not is_erased(row)))
        named = [row for row in new if not is_erased(row) or all(row[each] is not None for each in self.upsert.key)]
        told = [
            {**row, DELETED_COLUMN: True} if row.get(ERASED) else row for row in named if row.get(ERASED) is not False
        ]
        return apply_updates(tables, attempt, held, told, self.upsert)

    def create(self, attempt: Attempt, schema: pa.Schema) -> StoredTarget:
        """Return a target without rows."""
        unique_key = frozenset(self.upsert.key if self.upsert else ())
        return StoredTarget(f"created by {attempt.batch.label}", schema, unique_key)

    @override
    def truncate(self, access: TargetAccess) -> int:
        tables: Tables = access.connection
        tables.message_keys = {key: each for key, each in tables.message_keys.items() if key[0] != access.pipeline}
        tables.deleted_keys = {
            key: each for key, each in tables.deleted_keys.items() if key[0] != access.pipeline or is_erased(each)
        }
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
        return MemoryErasure(self.table, self.deduplication, self.upsert).erase(tables, access.pipeline, key)

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
        counts_keys = self.upsert is not None and within is None
        repeated = count_repeated_keys(self.read_target(), self.upsert) if counts_keys else {}
        return TargetCounts(
            {
                key: TargetCount(len(held), len(set(held)), min(held), max(held), repeated.get(key, 0))
                for key, held in offsets.items()
            }
        )

    def _kept(self, tables: Tables, attempt: Attempt) -> Sequence[Row]:
        rows = tables.staging[_key(attempt)].rows
        dropped = self._judge(tables, attempt, rows).duplicates
        return [row for row in rows if coordinate_of(row) not in dropped]

    def _name_numbers(
        self, tables: Tables, attempt: Attempt, limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        if self.sequence is None or attempt.batch.lane is not Lane.LIVE:
            return {}
        return name_numbers(judge_numbers(tables, attempt, self._kept(tables, attempt), self.sequence), limit)

    def _judge(self, tables: Tables, attempt: Attempt, rows: Sequence[Row]) -> Judged:
        """What the publication will judge of the message keys of ``rows``. Changes nothing (I6)."""
        if self.deduplication is None:
            return Judged({}, {})
        replaced = [
            HeldRange(batch_id, each)
            for batch_id, other in tables.batches.items()
            if other.batch.pipeline == attempt.batch.pipeline and batch_id != attempt.batch.batch_id
            for each in intersect(other.held, attempt.batch.ranges)
        ]
        recalled = None
        if attempt.batch.takes_over(replaced):
            recalled = recall(tables, self._find_old(tables, attempt), replaced, self.deduplication)
        return judge(tables, attempt, rows, self.deduplication, recalled)

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
