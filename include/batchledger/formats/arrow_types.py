"""The Arrow types of declared columns."""

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import pyarrow as pa

from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    ArrayOf,
    ColumnType,
    DecimalOf,
    Epoch,
    Floating,
    Integer,
    Json,
    MapOf,
    Scalar,
    ScalarType,
    StructOf,
)

MOMENT = pa.timestamp("us", "UTC")

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_JSON = {b"batchledger": b"jsonb"}
"""Marks a field of texts as JSON. Arrow's own type for it is unknown to most of its functions, and to Spark."""
_HASHED = {b"batchledger": b"hashed"}
"""Marks a field of texts that are hashes of what records have."""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow fields of declared columns."""
    return mark_columns(pa.schema([(column.name, to_arrow_type(column.type)) for column in columns]), columns)


def to_arrow_type(type_: ColumnType) -> pa.DataType:  # noqa: C901, PLR0911 -- one a type
    """Return the Arrow type of a column of a declared type."""
    match type_:
        case Scalar.STRING | Json.JSONB:
            return pa.string()
        case Scalar.BOOLEAN:
            return pa.bool_()
        case Scalar.DATE:
            return pa.date32()
        case Scalar.TIMESTAMP | Epoch():
            return MOMENT
        case Scalar.BINARY:
            return pa.binary()
        case Integer():
            return _INTEGERS[type_.bits]
        case Floating():
            return pa.float64() if type_ is Floating.DOUBLE else pa.float32()
        case DecimalOf(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayOf(element):
            return pa.list_(to_arrow_type(element))
        case MapOf(value):
            return pa.map_(pa.string(), to_arrow_type(value))
        case StructOf(fields):
            return pa.struct([(each.name, to_arrow_type(each.type)) for each in fields])
        case _:
            assert_never(type_)


_BY_ARROW: Mapping[pa.DataType, ScalarType] = {
    **{to_arrow_type(each): each for each in reversed((*Scalar, *Integer, *Floating))},
    pa.large_string(): Scalar.STRING,
    pa.large_binary(): Scalar.BINARY,
}


def find_type(field: pa.Field) -> ScalarType | Json | None:
    """Return the type that the values of a field have; None if they are of none, or have values within.

    It is the first one with the Arrow type. A transform may make types that no column is declared with.
    """
    if is_json(field):
        return Json.JSONB
    if pa.types.is_decimal(field.type):
        return DecimalOf(field.type.precision, field.type.scale)
    if pa.types.is_timestamp(field.type):
        return Scalar.TIMESTAMP if field.type.tz else None
    return _BY_ARROW.get(field.type)


def is_array(type_: pa.DataType) -> bool:
    """Whether values are arrays, of whatever length of their offsets."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def mark_columns(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """Return the schema with the fields marked that are declared as JSON, as far as they hold texts."""
    return _mark(schema, [each.name for each in columns if each.type is Json.JSONB], _JSON)


def mark_hashed(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with the fields of these names marked as hashes, as far as they hold texts."""
    return _mark(schema, names, _HASHED)


def is_json(field: pa.Field) -> bool:
    """Whether the texts of a field are JSON, rather than texts that JSON would quote."""
    return _is_marked(field, _JSON)


def is_hashed(field: pa.Field) -> bool:
    """Whether the texts of a field are hashes of what records have."""
    return _is_marked(field, _HASHED)


def _mark(schema: pa.Schema, names: Collection[str], mark: Mapping[bytes, bytes]) -> pa.Schema:
    return pa.schema(
        [each.with_metadata(mark) if each.name in names and pa.types.is_string(each.type) else each for each in schema]
    )


def _is_marked(field: pa.Field, mark: Mapping[bytes, bytes]) -> bool:
    return bool(field.metadata) and mark.items() <= field.metadata.items()
