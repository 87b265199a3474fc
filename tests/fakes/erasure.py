"""Erasure in memory: the same rule as the PostgreSQL sink's, written row by row."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batchledger.model.batch import Attempt
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.rules import Deduplication, Upsert
from tests.fakes.database import ERASED, Row, Tables, coordinate_of


@dataclass(frozen=True)
class MemoryErasure:
    """Erases from the target named ``table``."""

    table: str
    deduplication: Deduplication | None
    upsert: Upsert | None

    def erase(self, tables: Tables, pipeline: str, key: ErasureKey) -> Erased:
        bounds = _find_bounds(tables, pipeline)
        is_remembered = tables.erased.get((pipeline, key)) != bounds
        tables.erased[pipeline, key] = bounds
        doomed = [row for row in tables.targets[self.table].rows if _holds(row, key)]
        leaves = self._leaves_versions(key)
        keys = self._remove(tables, pipeline, doomed, [dict(key.pairs)], leaves)
        return Erased(len(doomed), keys, is_remembered, dict.fromkeys(key.columns, "text"), leaves)

    def mark(self, tables: Tables, attempt: Attempt, rows: Sequence[Row]) -> tuple[Row, ...]:
        """Return the sealed rows, with a mark at those that were erased: whether they leave a version."""
        return tuple(self._mark(tables, attempt.batch.pipeline, row) for row in rows)

    def _mark(self, tables: Tables, pipeline: str, row: Row) -> Row:
        kept = tables.erased_offsets.get((pipeline, coordinate_of(row)))
        if kept is not None:
            return {**row, ERASED: kept}
        for (owner, key), bounds in tables.erased.items():
            if owner == pipeline and _holds(row, key) and _is_below(row, bounds):
                return {**row, ERASED: self._leaves_versions(key)}
        return row

    def _leaves_versions(self, key: ErasureKey) -> bool:
        return self.upsert is not None and not set(key.columns) <= set(self.upsert.key)

    def _remove(self, tables: Tables, pipeline: str, doomed: Sequence[Row], given: Sequence[Row], leaves: bool) -> int:
        """Remove rows, count them in their batches, and forget the keys; return how many keys were remembered."""
        target = tables.targets[self.table]
        tables.targets[self.table] = replace(target, rows=tuple(row for row in target.rows if row not in doomed))
        for row in doomed:
            stored = tables.batches[row["_batch_id"]]
            tables.batches[row["_batch_id"]] = replace(stored, erased=(*stored.erased, coordinate_of(row)))
        messages, deletions = (
            _keys_of([*doomed, *given], rule.key if rule else None) for rule in (self.deduplication, self.upsert)
        )
        gone_messages = [(pipeline, key) for key in messages if (pipeline, key) in tables.message_keys]
        gone_deletions = [(pipeline, key) for key in deletions if not leaves and (pipeline, key) in tables.deleted_keys]
        for batch_id, listed in tables.duplicates.items():
            if tables.batches[batch_id].batch.pipeline == pipeline:
                repeats = [at for at, each in listed.items() if each.key in messages]
                tables.erased_offsets |= {(pipeline, at): False for at in repeats}
        for row in doomed:
            tables.erased_offsets[pipeline, coordinate_of(row)] = leaves
            if leaves and self.upsert is not None:
                (key,) = _keys_of([row], self.upsert.key)
                tables.deleted_keys[pipeline, key] = {**row, "_deleted": True, ERASED: True}
        for each in gone_messages:
            del tables.message_keys[each]
        for each in gone_deletions:
            del tables.deleted_keys[each]
        for batch_id, listed in tables.duplicates.items():
            if tables.batches[batch_id].batch.pipeline == pipeline:
                tables.duplicates[batch_id] = {
                    at: replace(each, key=None) if each.key in messages else each for at, each in listed.items()
                }
        return len(gone_messages) + len(gone_deletions)


def _find_bounds(tables: Tables, pipeline: str) -> dict[TopicPartition, int]:
    bounds: dict[TopicPartition, int] = {}
    for stored in tables.batches.values():
        for each in stored.batch.ranges if stored.batch.pipeline == pipeline else ():
            bounds[each.partition] = max(each.until, bounds.get(each.partition, 0))
    return bounds


def _holds(row: Row, key: ErasureKey) -> bool:
    return all(str(row.get(column)) == value for column, value in key.pairs)


def _is_below(row: Row, bounds: Mapping[TopicPartition, int]) -> bool:
    partition, offset = coordinate_of(row)
    return offset < bounds.get(partition, 0)


def _keys_of(rows: Sequence[Row], columns: Sequence[str] | None) -> set[str]:
    """The keys as the other fakes write them, of the rows that have all of the columns."""
    known = [row for row in rows if columns is not None and row.keys() >= set(columns)]
    return {json.dumps([row[each] for each in columns or ()], default=str) for row in known}
