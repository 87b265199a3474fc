"""Rows of files as Arrow tables: finds them by key or range, and counts them by batch and partition."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import BATCH_COLUMN, COORDINATE_COLUMNS
from batchledger.sinks.iceberg.coordinates import Offsets, group, lie_within
from batchledger.sinks.iceberg.files import read_files
from batchledger.sinks.iceberg.layout import read_schema
from batchledger.sinks.iceberg.snapshots import plan_snapshot

Place = tuple[int, TopicPartition]
"""Batch id and partition."""


def read_within(
    table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str], within: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that lie within the ranges."""
    for each in read_files(table, tasks, columns):
        yield each.filter(_is_among(each, within))


def read_rows(
    table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str], within: Sequence[OffsetRange], keys: pa.Table
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that lie within the ranges or have one of the keys, each once; one file is in memory at a time.

    A file without such rows yields an empty batch. Otherwise the transaction that takes the rows could idle while a
    whole table is read, which the database does not allow.
    """
    schema, names = read_schema(table, columns), keys.schema.names
    wanted = _unsigned_zeros(keys.cast(pa.schema([schema.field(each) for each in names])), names)
    for task in tasks:
        rows = _unsigned_zeros(pa.Table.from_batches(read_files(table, [task], columns), schema), names)
        same_key = rows.join(wanted, keys=names, join_type="left semi")
        here = [rows.filter(_is_within(rows, each)) for each in within]
        found = _unique(pa.concat_tables([same_key.select(columns), *here]))
        yield from found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]


def find_offsets(
    table: Table, tasks: Sequence[FileScanTask], within: Sequence[OffsetRange] | None = None
) -> Mapping[Place, Offsets]:
    """Return the offsets of the rows of every batch and partition, of ``within`` only."""
    found: dict[Place, list[Offsets]] = defaultdict(list)
    for each in read_files(table, tasks, (*COORDINATE_COLUMNS, BATCH_COLUMN)):
        rows = each if within is None else each.filter(_is_among(each, within))
        for place, offsets in _by_place(pa.Table.from_batches([rows])):
            found[place].append(offsets)
    return {place: np.concatenate(offsets) for place, offsets in found.items()}


def count_repeated(table: Table, tasks: Sequence[FileScanTask], key: Sequence[str]) -> Mapping[Place, int]:
    """Return how many rows of every batch and partition have the key of another row."""
    columns = list(dict.fromkeys([*COORDINATE_COLUMNS, BATCH_COLUMN, *key]))
    batches = read_files(table, tasks, columns)
    rows = _unsigned_zeros(pa.Table.from_batches(batches, read_schema(table, columns)), key)
    copies = rows.group_by(list(key)).aggregate([([], "count_all")])
    again = copies.filter(pc.greater(copies["count_all"], 1)).select(list(key))
    same_key = rows.join(again, keys=list(key), join_type="left semi")
    return {place: len(offsets) for place, offsets in _by_place(same_key)}


def read_held(
    table: Table, snapshot: Snapshot, columns: Sequence[str], within: Sequence[OffsetRange], keys: pa.Table | None
) -> Iterator[pa.RecordBatch]:
    """Yield what a snapshot holds in some ranges, or with some keys; a column that the table lacks is null."""
    present = read_schema(table).names
    known = [each for each in columns if each in present]
    if keys is None or not set(keys.schema.names) <= set(present):
        rows = read_within(table, plan_snapshot(table, snapshot, lie_within(within)), known, within)
    else:
        rows = read_rows(table, plan_snapshot(table, snapshot), known, within, keys)
    yield from (_with_nulls(each, columns) for each in rows)


def _with_nulls(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows with these columns in this order; what they do not have is null."""
    if rows.schema.names == list(columns):
        return rows
    nulls = pa.nulls(rows.num_rows, pa.string())
    arrays = [rows[each] if each in rows.schema.names else nulls for each in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _is_within(rows: pa.Table | pa.RecordBatch, range_: OffsetRange) -> Any:
    is_partition = pc.and_(
        pc.equal(rows["_topic"], range_.partition.topic), pc.equal(rows["_partition"], range_.partition.partition)
    )
    is_in = pc.and_(pc.greater_equal(rows["_offset"], range_.start), pc.less(rows["_offset"], range_.until))
    return pc.and_(is_partition, is_in)


def _is_among(rows: pa.RecordBatch, ranges: Sequence[OffsetRange]) -> Any:
    marked = np.zeros(rows.num_rows, dtype=bool)
    for each in ranges:
        # Other writers may have added rows without coordinates.
        marked |= pc.fill_null(_is_within(rows, each), fill_value=False).to_numpy(zero_copy_only=False)
    return pa.array(marked)


def _unsigned_zeros(rows: pa.Table, key: Collection[str]) -> pa.Table:
    """Return the rows with 0.0 for -0.0 in the key: Arrow tells them apart, and the ledger's database does not."""
    for name in key:
        field = rows.schema.field(name)
        if pa.types.is_floating(field.type):
            values = pc.add(rows[name], pa.scalar(0.0, field.type))
            rows = rows.set_column(rows.schema.get_field_index(name), field, values)
    return rows


def _unique(rows: pa.Table) -> pa.Table:
    """Return each row once: a row is identified by its record's coordinates."""
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows)))
    first = numbered.group_by(list(COORDINATE_COLUMNS)).aggregate([("_row", "min")])
    return rows.take(first["_row_min"])


def _by_place(rows: pa.Table) -> Iterator[tuple[Place, Offsets]]:
    for batch_id in rows[BATCH_COLUMN].unique().to_pylist():
        for partition, offsets in group(rows.filter(pc.equal(rows[BATCH_COLUMN], batch_id))):
            yield (batch_id, partition), offsets
