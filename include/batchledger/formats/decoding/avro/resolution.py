"""Decodes Avro values with a reader's schema beside the writer's, as the specification of Avro resolves the two.

A column takes the writer's field of its name, or else of an alias that the reader's field has. If the writer has
neither, the column takes the default of the reader's field. The types of the reader play no part beside: a value
becomes what its writer's type says. Texts of JSON are what the writer wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from batchledger.formats.arrow_types import arrow_schema, to_arrow_type
from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.defaults import make_default
from batchledger.formats.decoding.avro.projection import without_null
from batchledger.model.records.columns import Column
from batchledger.model.records.types import ArrayOf, ColumnType, MapOf, StructField, StructOf

_Finish = Callable[[pa.Array], pa.Array]
"""Makes values of a declared type out of values that the writer's names and fields gave."""


class _Reading(NamedTuple):
    """What is read by the writer's names, and what makes the declared values out of it; None if nothing is to do.

    A struct of ``type`` has a name twice if two of the declared fields read the same field of the writer.
    """

    type: ColumnType
    finish: _Finish | None = None


@dataclass(frozen=True)
class ResolvingDecoder:
    """Decodes as ``AvroDecoder`` does; a field that the writer lacks is filled by the reader's schema.

    Raises AvroSchemaError if a field or a default can never become its column.
    """

    writer: tuple[str, tuple[tuple[str, str], ...]]
    reader: tuple[str, tuple[tuple[str, str], ...]]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        # So that a schema that does not fit is refused before a record is read.
        _ = self._by_names

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept in between consists of functions, which do not pickle.
        return type(self), (self.writer, self.reader, self.columns)

    @property
    def written_columns(self) -> tuple[Column, ...]:
        """The columns by the writer's names of their fields."""
        return self._by_names.columns

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, Mapping[int, str]]:
        """Return what ``AvroDecoder.decode`` does."""
        rows, is_decoded, errors = self._by_names.decode(values)
        columns = [
            each if finish is None else finish(each) for each, finish in zip(rows.columns, self._finishes, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.columns)), is_decoded, errors

    @cached_property
    def _by_names(self) -> AvroDecoder:
        return AvroDecoder(*self.writer, tuple(column for column, _ in self._resolved))

    @cached_property
    def _finishes(self) -> Sequence[_Finish | None]:
        return [finish for _, finish in self._resolved]

    @cached_property
    def _resolved(self) -> Sequence[tuple[Column, _Finish | None]]:
        resolver = _Resolver(avro.parse_schema(*self.writer), avro.parse_schema(*self.reader))
        return [resolver.resolve_column(column) for column in self.columns]


def name_by_writer(
    writer: tuple[str, tuple[tuple[str, str], ...]], reader: tuple[str, tuple[tuple[str, str], ...]], column: Column
) -> Column:
    """Return the column by the writer's names of its fields, also if their types do not fit.

    A field that the writer lacks keeps its name. Raises AvroSchemaError if a default can never become its column.
    """
    found, _ = _Resolver(avro.parse_schema(*writer), avro.parse_schema(*reader)).resolve_column(column)
    way = len(found.source)
    if way == len(column.source):
        return found
    return Column(column.name, column.type, (*found.source, *column.source[way:]))


class _Resolver:
    """Compares two schemas as far as columns need it."""

    def __init__(self, writer: avro.Schema, reader: avro.Schema) -> None:
        self._writer, self._reader = writer, reader

    def resolve_column(self, column: Column) -> tuple[Column, _Finish | None]:
        """Return the column by the writer's names, and what makes the declared one of it."""
        written, read = self._writer.root, self._reader.root
        names: list[str] = []
        for place, name in enumerate(column.source):
            theirs, own = _find_written(written, read, name), _find(read, name)
            if theirs is None:
                if own is None or own.default is None:
                    break
                default = make_default(self._reader, own, column.source[place + 1 :], column.type)
                constant = _repeat(default, column.type)
                if not names:
                    return column, constant
                # The record that lacks the field may be null: a struct of nothing else says so.
                outer = Column(column.name, StructOf((StructField(name, column.type),)), tuple(names))
                return outer, _finish_outer(_finish_struct(outer.type, [constant]))
            names.append(theirs.name)
            if own is None:
                break
            if place == len(column.source) - 1:
                part = self._resolve(column.type, theirs.type, own.type)
                return Column(column.name, part.type, tuple(names)), part.finish
            inner, inner_read = _inner(self._writer, theirs.type), _inner(self._reader, own.type)
            if not isinstance(inner, avro.RecordType) or not isinstance(inner_read, avro.RecordType):
                break
            written, read = inner, inner_read
        return Column(column.name, column.type, (*names, *column.source[len(names) :])), None

    def _resolve(self, declared: ColumnType, written: avro.Type, read: avro.Type) -> _Reading:
        match declared, _inner(self._writer, written), _inner(self._reader, read):
            case ArrayOf(element), avro.Array(items), avro.Array(read_items):
                part = self._resolve(element, items, read_items)
                if part.finish is not None:
                    return _Reading(ArrayOf(part.type), _finish_array(declared, part.finish))
            case MapOf(value), avro.Map(values), avro.Map(read_values):
                part = self._resolve(value, values, read_values)
                if part.finish is not None:
                    return _Reading(MapOf(part.type), _finish_map(declared, part.finish))
            case StructOf() as struct, avro.RecordType() as record, avro.RecordType() as read_record:
                return self._resolve_struct(struct, record, read_record)
            case _:
                pass
        return _Reading(declared)

    def _resolve_struct(self, declared: StructOf, written: avro.RecordType, read: avro.RecordType) -> _Reading:
        parts: list[_Reading] = []
        names: list[str] = []
        for field in declared.fields:
            theirs, own, part = _find_written(written, read, field.name), _find(read, field.name), _Reading(field.type)
            if theirs is not None and own is not None:
                part = self._resolve(field.type, theirs.type, own.type)
            elif own is not None and own.default is not None:
                part = _Reading(field.type, _repeat(make_default(self._reader, own, (), field.type), field.type))
            parts.append(part)
            names.append(field.name if theirs is None else theirs.name)
        finishes = [part.finish for part in parts]
        if not any(finishes) and names == [field.name for field in declared.fields]:
            return _Reading(declared)
        inner = StructOf(tuple(StructField(name, part.type) for name, part in zip(names, parts, strict=True)))
        return _Reading(inner, _finish_struct(declared, finishes))


def _inner(schema: avro.Schema, type_: avro.Type) -> avro.Type:
    return schema.resolve(without_null(schema.resolve(type_)))


def _find(record: avro.RecordType, name: str) -> avro.RecordField | None:
    return next((each for each in record.fields if each.name == name), None)


def _find_written(written: avro.RecordType, read: avro.RecordType, name: str) -> avro.RecordField | None:
    """Return the writer's field that a name of the reader leads to."""
    own = _find(read, name)
    # An alias that is a field of the reader, too, means that one.
    aliases = () if own is None else (each for each in own.aliases if _find(read, each) is None)
    return next((found for each in (name, *aliases) if (found := _find(written, each)) is not None), None)


def _repeat(value: Any, declared: ColumnType) -> _Finish:
    """Return what puts one value in the place of all that are there."""
    constant = pa.array([value], to_arrow_type(declared))
    return lambda values: constant.take(pa.array(np.zeros(len(values), np.int64)))


def _finish_struct(declared: ColumnType, finishes: Sequence[_Finish | None]) -> _Finish:
    fields = list(to_arrow_type(declared))

    def finish(values: pa.Array) -> pa.Array:
        children = [
            values.field(place) if each is None else each(values.field(place)) for place, each in enumerate(finishes)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())

    return finish


def _finish_outer(finish: _Finish) -> _Finish:
    """Return what takes out the one field of a struct; it is null if the struct is."""
    return lambda structs: finish(structs).flatten()[0]


def _finish_array(declared: ColumnType, finish_items: _Finish) -> _Finish:
    type_ = to_arrow_type(declared)
    return lambda values: pa.ListArray.from_arrays(
        values.offsets, finish_items(values.values), type=type_, mask=values.is_null()
    )


def _finish_map(declared: ColumnType, finish_values: _Finish) -> _Finish:
    type_ = to_arrow_type(declared)
    return lambda values: pa.MapArray.from_arrays(
        values.offsets, values.keys, finish_values(values.items), type=type_, mask=values.is_null()
    )
