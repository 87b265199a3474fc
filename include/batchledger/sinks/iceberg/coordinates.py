"""Sets of offsets, by which rows of files are chosen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    Or,
)

from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.iceberg.layout import stored_name

Offsets = npt.NDArray[np.int64]
MOST_NAMED = 100
"""A filter names at most so many ranges; more become one range."""
AT_ONCE_ROWS = 50_000


class Change(NamedTuple):
    """What a commit does: ``removed`` rows go, and all staged rows come but the ``dropped`` ones, which are ``added``.

    The first two are tables of (topic, partition, offset); ``added`` is a number, for comparison.
    """

    removed: pa.Table
    dropped: pa.Table
    added: int


@dataclass(frozen=True)
class Coordinates:
    """Sorted offsets by partition."""

    by_partition: Mapping[TopicPartition, Offsets]

    @classmethod
    def of(cls, table: pa.Table) -> "Coordinates":
        """Read a table of (topic, partition, offset)."""
        return cls({key: np.unique(offsets) for key, offsets in group(table)})

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))

    def mark(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row of a batch, with the names of the rows, whether its offset is in the set."""
        marked = np.zeros(batch.num_rows, dtype=bool)
        # Other writers may have added rows without coordinates.
        offsets = pc.fill_null(batch["_offset"], -1).to_numpy()
        for partition, wanted in self.by_partition.items():
            is_topic = pc.equal(batch["_topic"], partition.topic)
            is_here = pc.and_(is_topic, pc.equal(batch["_partition"], partition.partition))
            marked |= pc.fill_null(is_here, fill_value=False).to_numpy(zero_copy_only=False) & np.isin(offsets, wanted)
        return pa.array(marked)

    @property
    def bounds(self) -> list[OffsetRange]:
        """One range around the offsets of each partition."""
        return [OffsetRange(key, int(each[0]), int(each[-1]) + 1) for key, each in self.by_partition.items()]


def group(table: pa.Table) -> Iterator[tuple[TopicPartition, Offsets]]:
    """Yield the offsets of each partition of a table of rows."""
    grouped = table.group_by(["_topic", "_partition"]).aggregate([("_offset", "list")])
    for row in range(grouped.num_rows):
        offsets = grouped["_offset_list"][row].values.to_numpy()
        yield TopicPartition(grouped["_topic"][row].as_py(), grouped["_partition"][row].as_py()), offsets


def lie_within(ranges: Sequence[OffsetRange]) -> BooleanExpression:
    """Return a filter that takes all rows of the ranges, and maybe more: files are chosen by it."""
    if not ranges:
        return AlwaysFalse()
    if len(ranges) > MOST_NAMED:
        start, until = min(each.start for each in ranges), max(each.until for each in ranges)
        return And(_is(GreaterThanOrEqual, "_offset", start), _is(LessThan, "_offset", until))
    return reduce(Or, map(_lies_in, ranges))


def _lies_in(range_: OffsetRange) -> BooleanExpression:
    return And(
        _is(EqualTo, "_topic", range_.partition.topic),
        _is(EqualTo, "_partition", range_.partition.partition),
        _is(GreaterThanOrEqual, "_offset", range_.start),
        _is(LessThan, "_offset", range_.until),
    )


def _is(predicate: Any, column: str, value: object) -> BooleanExpression:
    expression: BooleanExpression = predicate(stored_name(column), value)
    return expression


def as_coordinates(rows: Iterable[tuple[str, int, int]]) -> pa.Table:
    """Return (topic, partition, offset) of rows as a table; of a cursor's, a part at a time is made Python's values."""
    schema = pa.schema({"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()})
    iterator, parts = iter(rows), []
    while part := list(islice(iterator, AT_ONCE_ROWS)):
        columns = zip(*part, strict=True)
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        parts.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(parts, schema)
