"""Coordinates of rows in the files of an Iceberg table: which columns they are, and which files may have them.

No other column is read. Rows that a position delete or a deletion vector removes are no rows.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    Or,
)
from pyiceberg.io.pyarrow import ArrowScan, _read_deletes
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, StringType, StructType

from batchledger.model.offsets import OffsetRange
from batchledger.watching.counting import Integers
from batchledger.watching.table import ENDLESS, RowCoordinates, refuse_table

MOST_NAMED = 100
"""A filter names at most so many ranges; more become one."""
DIGITS = "^[0-9]{1,18}$"
LARGEST = 9 * 10**18


class CoordinateColumn(NamedTuple):
    """A column that holds a coordinate, maybe within structs."""

    path: tuple[str, ...]
    type: IcebergType
    field_id: int

    @property
    def name(self) -> str:
        """What Iceberg calls it."""
        return ".".join(self.path)

    @property
    def is_integer(self) -> bool:
        """Whether files know its smallest and largest number."""
        return isinstance(self.type, IntegerType | LongType)

    def read(self, rows: pa.RecordBatch) -> Any:
        """Return the values of rows."""
        found = rows[self.path[0]]
        for part in self.path[1:]:
            found = pc.struct_field(found, part)
        return found

    def read_integers(self, rows: pa.RecordBatch) -> Integers:
        """Return the numbers of rows; what is no whole number is -1."""
        found = self.read(rows)
        match self.type:
            case StringType():
                found = pc.if_else(pc.match_substring_regex(found, DIGITS), found, None)
            case DecimalType():
                is_offset = pc.and_(pc.greater_equal(found, 0), pc.less_equal(found, LARGEST))
                found = pc.if_else(is_offset, found, None)
            case _:
                pass
        numbers: Integers = pc.fill_null(found.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
        return numbers


class Rows(NamedTuple):
    """Rows of some topics: which of the topics, partition, offset, and which row of its batch. -1 is missing."""

    topics: Integers
    partitions: Integers
    offsets: Integers
    places: Integers

    def choose(self, is_chosen: Any) -> "Rows":
        """Return some of them."""
        return Rows(*(each[is_chosen] for each in self))


class CoordinateColumns(NamedTuple):
    """The columns that say which record a row is of."""

    partition: CoordinateColumn
    offset: CoordinateColumn
    topic: CoordinateColumn | None

    @property
    def all(self) -> list[CoordinateColumn]:
        """Every one of them."""
        return [each for each in self if each is not None]

    def read(self, batch: pa.RecordBatch, topics: Sequence[str]) -> Rows:
        """Return the rows of these topics, and the ones that say none."""
        count = batch.num_rows
        partitions, offsets = self.partition.read_integers(batch), self.offset.read_integers(batch)
        if self.topic is None:
            return Rows(np.zeros(count, np.int64), partitions, offsets, np.arange(count))
        names = self.topic.read(batch)
        numbers = pc.index_in(names, value_set=pa.array(topics, names.type)).cast(pa.int64())
        is_missing = names.is_null().to_numpy(zero_copy_only=False)
        found = Rows(pc.fill_null(numbers, -1).to_numpy(), partitions, offsets, np.arange(count))
        return found.choose((found.topics >= 0) | is_missing)


def find_columns(name: str, schema: Schema, coordinates: RowCoordinates) -> CoordinateColumns:
    """Return the columns of a table's coordinates. Raises ConfigurationError if one is not there, or has no numbers."""
    topic = None
    if coordinates.topic is not None:
        topic = _find(name, schema, "topic", coordinates.topic)
        if not isinstance(topic.type, StringType):
            raise refuse_table(name, f"has a topic of type {topic.type}", "Name a column of text.")
    return CoordinateColumns(
        _require_numbers(name, "partition", _find(name, schema, "partition", coordinates.partition)),
        _require_numbers(name, "offset", _find(name, schema, "offset", coordinates.offset)),
        topic,
    )


def _find(name: str, schema: Schema, what: str, path: str) -> CoordinateColumn:
    parts = tuple(re.split(r"[.:]", path))
    type_: IcebergType = schema.as_struct()
    field_id = 0
    for part in parts:
        if not isinstance(type_, StructType):
            raise refuse_table(name, f"has no {path} for the {what}: type {type_} has no parts", "Correct the path.")
        found = next((each for each in type_.fields if each.name == part), None)
        if found is None:
            advice = f"Write in coordinates what the column {part} is called."
            raise refuse_table(name, f"has no {path} for the {what}", advice)
        type_, field_id = found.field_type, found.field_id
    return CoordinateColumn(parts, type_, field_id)


def _require_numbers(name: str, what: str, column: CoordinateColumn) -> CoordinateColumn:
    match column.type:
        case IntegerType() | LongType() | StringType() | DecimalType(scale=0):
            return column
        case _:
            is_float = str(column.type) in ("float", "double")
            advice = "Numbers above 2⁵³ would not be exact." if is_float else "Name a whole number, or a text."
            raise refuse_table(name, f"has {column.name} of type {column.type} for the {what}", advice)


def choose_files(columns: CoordinateColumns, spans: Sequence[OffsetRange]) -> BooleanExpression:
    """Return a filter by which files are chosen: all rows of the spans pass, all without coordinates, maybe more."""
    named = [_lies_in(columns, each) for each in spans]
    if len(spans) > MOST_NAMED:
        start, until = min(each.start for each in spans), max(each.until for each in spans)
        named = [_within(columns.offset, start, until)]
    numbers = [each for each in (columns.partition, columns.offset) if each.is_integer]
    strays = [_predicate(IsNull, each.name) for each in columns.all]
    strays += [_predicate(LessThan, each.name, 0) for each in numbers]
    return reduce(Or, [*named, *strays])


def _lies_in(columns: CoordinateColumns, span: OffsetRange) -> BooleanExpression:
    found = _within(columns.offset, span.start, span.until)
    if columns.partition.is_integer:
        found = And(found, _predicate(EqualTo, columns.partition.name, span.partition.partition))
    if columns.topic is not None:
        found = And(found, _predicate(EqualTo, columns.topic.name, span.partition.topic))
    return found


def _within(column: CoordinateColumn, start: int, until: int) -> BooleanExpression:
    """Return the comparison; everything passes if files do not know the numbers of the column."""
    if not column.is_integer:
        return AlwaysTrue()
    above = _predicate(GreaterThanOrEqual, column.name, start)
    return above if until == ENDLESS else And(above, _predicate(LessThan, column.name, until))


def _predicate(kind: Any, column: str, *value: object) -> BooleanExpression:
    found: BooleanExpression = kind(column, *value)
    return found


def open_files(table: Table, columns: CoordinateColumns) -> Callable[[FileScanTask], Iterator[pa.RecordBatch]]:
    """Return what reads the coordinates of a file, batch by batch, without deleted rows.

    PyIceberg's own scan holds the batches of whole files, and applies a position delete to each copy of its file, also
    to one that was added after it.
    """
    projected = table.schema().select(*(each.name for each in columns.all))
    scan = ArrowScan(table.metadata, table.io, projected, AlwaysTrue())
    read_deletes = cache(partial(_read_deletes, table.io))

    def read(task: FileScanTask) -> Iterator[pa.RecordBatch]:
        path = task.file.file_path
        deleted = [by_path[path] for by_path in map(read_deletes, task.delete_files) if path in by_path]
        return scan._record_batches_from_scan_tasks_and_deletes([task], {path: deleted})

    return read
