"""Sets of offsets, by which rows of files are chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

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
