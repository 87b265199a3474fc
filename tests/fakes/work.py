"""The Stager and Auditor ports in memory: JSON records with a ``message_id``, and every integrity check judged."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from typing_extensions import override

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.model.attempt_facts import AttemptFacts
from batchledger.model.batch import Attempt, Batch, RecordOrigin, Staged
from batchledger.model.checks import CHECKS_OF_NUMBERS, CheckResult, IntegrityCheck, Outcome, Severity
from batchledger.model.errors import StagingError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.rules import TombstonePolicy
from batchledger.ports import Auditor, Evidence, Sink, Stager
from tests.fakes.source import MemoryBroker, Record, stamp, to_moment

ROW_SCHEMA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        pa.field("message_id", pa.string()),
    ]
)

Rows = list[dict[str, Any]]


def keep_all(rows: Rows) -> Rows:
    """The transform that changes nothing."""
    return rows


@dataclass(frozen=True)
class MemoryStager(Stager):
    """``alter`` stands between decoding and writing: a transform, or a fault that a test plants.

    ``decode`` makes columns of a value; what it refuses is quarantined.
    """

    broker: MemoryBroker
    evidence: Evidence
    sink: Sink
    alter: Callable[[Rows], Rows] = keep_all
    schema: pa.Schema = ROW_SCHEMA
    tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE
    key: tuple[str, ...] = ()
    decode: Callable[[bytes], Mapping[str, Any]] = json.loads

    @override
    def stage(self, attempt: Attempt) -> Staged:
        """One task a range."""
        evidence = self.evidence.open(attempt)
        is_deleting = self.tombstones is TombstonePolicy.DELETE
        schema = self.schema.append(pa.field(DELETED_COLUMN, pa.bool_())) if is_deleting else self.schema
        writer = self.sink.open_staging(attempt, schema)
        reported = 0
        for task, each in enumerate(attempt.batch.ranges):
            try:
                records = self._read(attempt.batch, each)
            except LookupError as error:
                raise StagingError(f"{attempt.batch.label}: {error}") from error
            rows, undecodable, skipped = self._decode(each, records)
            batch = pa.RecordBatch.from_pylist(self.alter(rows), schema=schema)
            with writer.open(task) as write:
                write(batch)
            reported += batch.num_rows
            visible = [OffsetRange(each.partition, offset, offset + 1) for offset, _ in records]
            with evidence.open(0) as testimony:
                testimony.set_aside(pa.RecordBatch.from_pylist(undecodable, schema=QUARANTINE_SCHEMA))
                testimony.finish(visible, skipped)
        self.sink.seal_staging(attempt, range(len(attempt.batch.ranges)))
        return Staged(reported)

    def _read(self, batch: Batch, range_: OffsetRange) -> Sequence[tuple[int, Record]]:
        if batch.origin is RecordOrigin.KAFKA:
            return list(self.broker.read(range_))
        kept = self.evidence.read_quarantine(batch).to_pylist()
        partition = range_.partition
        return [
            (row["offset"], Record(row["value"], to_moment(row["timestamp_ms"]), row["key"]))
            for row in kept
            if (row["topic"], row["partition"]) == (partition.topic, partition.partition) and row["offset"] in range_
        ]

    def _decode(
        self, range_: OffsetRange, records: Sequence[tuple[int, Record]]
    ) -> tuple[Rows, Rows, list[OffsetRange]]:
        topic, partition = range_.partition.topic, range_.partition.partition
        rows, undecodable, skipped = [], [], []
        for offset, record in records:
            if record.value is None and self.tombstones is TombstonePolicy.SKIP:
                skipped.append(OffsetRange(range_.partition, offset, offset + 1))
                continue
            try:
                place = {"_topic": topic, "_partition": partition, "_offset": offset, "_timestamp": record.timestamp}
                rows.append({**place, **self._columns_of(record)})
            except (ValueError, KeyError, TypeError) as error:
                place = {"topic": topic, "partition": partition, "offset": offset}
                place["timestamp_ms"] = stamp(record)
                rest = {"key": record.key, "value": record.value, "headers": "[]", "error": f"not decodable: {error}"}
                undecodable.append({**place, **rest})
        return rows, undecodable, skipped

    def _columns_of(self, record: Record) -> dict[str, Any]:
        names = [name for name in self.schema.names if name not in PROVENANCE_COLUMNS]
        if record.value is not None:
            decoded = self.decode(record.value)
            columns = {name: decoded.get(name) for name in names} | {"message_id": decoded["message_id"]}
        elif self.tombstones is TombstonePolicy.KEEP:
            columns = dict.fromkeys(names)
        elif self.tombstones is TombstonePolicy.DELETE:
            if record.key is None:
                raise ValueError("a tombstone without a key")
            columns = {**dict.fromkeys(names), self.key[0]: record.key.decode()}
        else:
            raise ValueError("a tombstone")
        is_deleting = self.tombstones is TombstonePolicy.DELETE
        return {**columns, DELETED_COLUMN: record.value is None} if is_deleting else columns


@dataclass(frozen=True)
class MemoryAuditor(Auditor):
    """``ignored`` checks pass whatever they find: a negative control."""

    ignored: frozenset[IntegrityCheck] = frozenset()

    @override
    def judge(self, facts: AttemptFacts) -> Sequence[CheckResult]:
        ranges = facts.ranges
        next_offsets = {each.partition: each.next_offset for each in facts.positions or ()}
        repeated = sum(each.staged - each.distinct for each in ranges)
        outside = sum(each.outside for each in ranges)
        forbidden_holes = sum(len(each.range) - each.visible for each in ranges)
        forbidden_holes -= sum(each.holes for each in facts.balances)
        unexplained = [each.unexplained for each in facts.balances]
        moved = [each.range for each in ranges if next_offsets.get(each.range.partition) != each.range.start]
        staged = sum(each.staged for each in ranges) + outside
        numbers = facts.numbers or NumberFacts()
        messages = sum(each.duplicates - each.known_duplicates for each in ranges) * facts.is_blocked_by_duplicates
        if facts.positions is None:
            moved = []
        faults = {
            IntegrityCheck.NO_DUPLICATE_OFFSETS: f"rows that repeat an offset: {repeated}" if repeated else "",
            IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: f"rows outside: {outside}" if outside else "",
            IntegrityCheck.NO_UNEXPLAINED_HOLES: f"{forbidden_holes} offsets are holes" if forbidden_holes else "",
            IntegrityCheck.BALANCE_CLOSES: f"unexplained: {unexplained}" if any(unexplained) else "",
            IntegrityCheck.RANGES_MEET_POSITION: f"moved: {', '.join(map(str, moved))}" if moved else "",
            IntegrityCheck.NO_PUBLISHED_OFFSETS: f"published: {facts.published}" if facts.published else "",
            IntegrityCheck.NO_DUPLICATE_MESSAGES: f"records that repeat a message: {messages}" if messages else "",
            IntegrityCheck.NO_MISSING_NUMBERS: f"numbers missing: {facts.missing_numbers}"
            if facts.missing_numbers
            else "",
            IntegrityCheck.NO_REPEATED_NUMBERS: f"{numbers.repeated} numbers repeat" if numbers.repeated else "",
            IntegrityCheck.QUARANTINE_WITHIN_LIMIT: (
                f"quarantined: {facts.quarantined} of {facts.records}; {', '.join(facts.quarantine.lines)}"
                if facts.drains
                else ""
            ),
            IntegrityCheck.STAGED_AS_REPORTED: (
                f"reported {facts.reported}, found {staged}" if staged != facts.reported - facts.set_aside else ""
            ),
        }
        if facts.unmatched is not None:
            unmatched = facts.unmatched.records
            faults[IntegrityCheck.DELETIONS_FIND_ROWS] = f"deletions without a row: {unmatched}" if unmatched else ""
        empty = CHECKS_OF_NUMBERS if facts.numbers is not None and not facts.numbers.series else frozenset()
        return [
            CheckResult(
                check.value,
                Outcome.FAILED
                if fault and check not in self.ignored
                else Outcome.EMPTY
                if check in empty
                else Outcome.PASSED,
                fault or "nothing found",
                {"fault": fault},
                _severity_of(check, facts),
            )
            for check, fault in faults.items()
        ]


def _severity_of(check: IntegrityCheck, facts: AttemptFacts) -> Severity:
    if check is IntegrityCheck.DELETIONS_FIND_ROWS and facts.unmatched is not None:
        return facts.unmatched.severity
    return facts.severity_of_numbers if check in CHECKS_OF_NUMBERS else Severity.CRITICAL
