"""The Evidence port in memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from typing_extensions import override

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.model.balance import WitnessedRange
from batchledger.model.batch import Attempt, Batch
from batchledger.model.checks import FailedRecord
from batchledger.model.errors import StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, merge_ranges
from batchledger.model.records.quarantine import ErrorKind, QuarantineContent, summarise
from batchledger.model.records.times import RecordTimes
from batchledger.model.records.unknown_fields import UnknownFieldCounter, UnknownFields, sum_up
from batchledger.ports import Evidence, EvidenceWriter, Testimony
from tests.fakes.database import AttemptKey, MemoryDatabase, StoredEvidence, Tables, is_over


@dataclass(frozen=True)
class MemoryEvidenceWriter(EvidenceWriter):
    database: MemoryDatabase
    key: AttemptKey

    @contextmanager
    @override
    def open(self, reader: int) -> Iterator["MemoryTestimony"]:
        with self.database.transaction() as tables:
            yield MemoryTestimony(tables, self.key, reader)


@dataclass(frozen=True)
class MemoryTestimony(Testimony):
    tables: Tables
    key: AttemptKey
    reader: int

    @override
    def set_aside(self, records: pa.RecordBatch) -> None:
        held = self.tables.evidence[self.key]
        self.tables.evidence[self.key] = replace(held, quarantined=(*held.quarantined, *records.to_pylist()))

    @override
    def finish(
        self,
        visible: Sequence[OffsetRange],
        tombstones: Sequence[OffsetRange] = (),
        unknown: UnknownFieldCounter | None = None,
    ) -> None:
        held = self.tables.evidence[self.key]
        self.tables.evidence[self.key] = replace(
            held,
            readers=held.readers | {self.reader},
            visible=(*held.visible, *visible),
            tombstones=(*held.tombstones, *tombstones),
            unknown=held.unknown | ({} if unknown is None else {self.reader: unknown}),
        )


@dataclass(frozen=True)
class MemoryEvidence(Evidence):
    database: MemoryDatabase

    @override
    def open(self, attempt: Attempt) -> MemoryEvidenceWriter:
        key = (attempt.batch.batch_id, attempt.number)
        with self.database.transaction() as tables:
            tables.evidence[key] = StoredEvidence()
        return MemoryEvidenceWriter(self.database, key)

    @override
    def summarise(self, attempt: Attempt) -> Sequence[WitnessedRange]:
        held = self._held(attempt)
        set_aside = {
            (TopicPartition(row["topic"], row["partition"]), row["offset"]): row["timestamp_ms"]
            for row in held.quarantined
        }
        return [
            WitnessedRange(
                each,
                visible=len(each) - count_offsets(find_gaps(held.visible, within=[each])),
                quarantined=sum(partition == each.partition and offset in each for partition, offset in set_aside),
                tombstones=len(each) - count_offsets(find_gaps(held.tombstones, within=[each])),
                times=RecordTimes.of(
                    written_at
                    for (partition, offset), written_at in set_aside.items()
                    if partition == each.partition and offset in each
                ),
            )
            for each in attempt.batch.ranges
        ]

    @override
    def summarise_quarantine(self, attempt: Attempt) -> QuarantineContent:
        places = sorted(
            {(row["error"], row["topic"], row["partition"], row["offset"]) for row in self._held(attempt).quarantined}
        )
        counts = Counter(error for error, *_ in places)
        first = {error: place for error, *place in reversed(places)}
        return summarise(
            [
                ErrorKind(error, count, OffsetRange(TopicPartition(topic, partition), offset, offset + 1))
                for error, count in counts.items()
                for topic, partition, offset in [first[error]]
            ]
        )

    @override
    def summarise_unknown_fields(self, attempt: Attempt) -> UnknownFields:
        counters = self._held(attempt).unknown.values()
        return sum_up(sum(each.records for each in counters), [seen for each in counters for seen in each.list_first()])

    @override
    def count_finished(self, attempt: Attempt) -> int:
        return len(set(self._held(attempt).readers))

    @override
    def count_seen(self, attempt: Attempt) -> int:
        held = self.database.committed.evidence.get((attempt.batch.batch_id, attempt.number), StoredEvidence())
        return count_offsets(merge_ranges(held.visible))

    @override
    def find_holes(self, attempt: Attempt) -> Sequence[OffsetRange]:
        return find_gaps(self._held(attempt).visible, within=attempt.batch.ranges)

    @override
    def read_quarantine(self, batch: Batch) -> pa.Table:
        rows = [
            {name: row[name] for name in QUARANTINE_SCHEMA.names}
            for (owner, partition, offset), row in sorted(
                self.database.committed.quarantine.items(), key=lambda i: i[0]
            )
            if owner == batch.pipeline and any(each.partition == partition and offset in each for each in batch.ranges)
        ]
        return pa.Table.from_pylist(rows, schema=QUARANTINE_SCHEMA)

    @override
    def set_aside(self, attempt: Attempt, failed: Sequence[FailedRecord], records: pa.Table) -> Sequence[OffsetRange]:
        rows = {(TopicPartition(row["topic"], row["partition"]), row["offset"]): row for row in records.to_pylist()}
        missing = [each.range for each in failed if (each.partition, each.offset) not in rows]
        if missing:
            return merge_ranges(missing)
        with self.database.transaction() as tables:
            held = tables.evidence[attempt.batch.batch_id, attempt.number]
            known = {(TopicPartition(row["topic"], row["partition"]), row["offset"]) for row in held.quarantined}
            new = tuple(
                {**rows[each.partition, each.offset], "error": each.reason, "checks": each.checks}
                for each in failed
                if (each.partition, each.offset) not in known
            )
            tables.evidence[attempt.batch.batch_id, attempt.number] = replace(
                held, quarantined=(*held.quarantined, *new)
            )
        return ()

    @override
    def list_set_aside(self, attempt: Attempt) -> Sequence[FailedRecord]:
        found = [
            FailedRecord(TopicPartition(row["topic"], row["partition"]), row["offset"], row["checks"])
            for row in self._held(attempt).quarantined
            if "checks" in row
        ]
        return sorted(found, key=lambda each: each.range)

    @override
    def drop(self, attempt: Attempt) -> None:
        with self.database.transaction() as tables:
            tables.evidence = {key: held for key, held in tables.evidence.items() if not is_over(key, attempt)}

    def _held(self, attempt: Attempt) -> StoredEvidence:
        held = self.database.committed.evidence.get((attempt.batch.batch_id, attempt.number))
        if held is None:
            raise StagingLostError(f"{attempt.batch.label}: the evidence of attempt {attempt.number} is gone.")
        return held
