"""The Arrow types of declared columns."""

import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    UUID_FORM,
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
_UUID_BYTES = 16
_NIL = "00000000-0000-0000-0000-000000000000"
_DIGITS = [place for place, each in enumerate(_NIL) if each != "-"]

NO_UUID = bytes(_UUID_BYTES + 1)
"""In place of a text that is no UUID: neither PostgreSQL nor Arrow takes so many bytes for one."""

_MARK, _HASHED = b"batchledger", b"hashed"
_TEXTS: Mapping[bytes, Json | Scalar] = {b"jsonb": Json.JSONB, b"uuid": Scalar.UUID}
"""Types whose values are texts in Arrow, by the marks of their fields.

Arrow's own types for JSON and UUIDs are unknown to most of its functions, and to Spark. A hash of what a record has is
marked, too. A part of a value has no mark: there these types are texts.
"""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow fields of declared columns."""
    return mark_columns(pa.schema([(column.name, to_arrow_type(column.type)) for column in columns]), columns)


def to_arrow_type(type_: ColumnType) -> pa.DataType:  # noqa: C901, PLR0911 -- one a type
    """Return the Arrow type of a column of a declared type."""
    match type_:
        case Scalar.STRING | Scalar.UUID | Json.JSONB:
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
    if (marked := _TEXTS.get(_mark_of(field))) is not None:
        return marked
    if pa.types.is_decimal(field.type):
        return DecimalOf(field.type.precision, field.type.scale)
    if pa.types.is_timestamp(field.type):
        return Scalar.TIMESTAMP if field.type.tz else None
    return _BY_ARROW.get(field.type)


def is_array(type_: pa.DataType) -> bool:
    """Whether values are arrays, of whatever length of their offsets."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def mark_columns(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """Return the schema with the fields marked that are declared with a type that Arrow does not tell from a text."""
    mark_by_type = {type_: mark for mark, type_ in _TEXTS.items()}
    return _mark(schema, {each.name: mark_by_type[each.type] for each in columns if each.type in mark_by_type})


def mark_hashed(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with the fields of these names marked as hashes, as far as they hold texts."""
    return _mark(schema, dict.fromkeys(names, _HASHED))


def is_json(field: pa.Field) -> bool:
    """Whether the texts of a field are JSON, rather than texts that JSON would quote."""
    return _TEXTS.get(_mark_of(field)) is Json.JSONB


def is_uuid(field: pa.Field) -> bool:
    """Whether the texts of a field are UUIDs, which PostgreSQL and Iceberg keep as 16 bytes."""
    return _TEXTS.get(_mark_of(field)) is Scalar.UUID


def is_hashed(field: pa.Field) -> bool:
    """Whether the texts of a field are hashes of what records have."""
    return _mark_of(field) == _HASHED


def _mark(schema: pa.Schema, marks: Mapping[str, bytes]) -> pa.Schema:
    marked = {each.name for each in schema if each.name in marks and pa.types.is_string(each.type)}
    return pa.schema(
        [each.with_metadata({_MARK: marks[each.name]}) if each.name in marked else each for each in schema]
    )


def _mark_of(field: pa.Field) -> bytes:
    return bytes((field.metadata or {}).get(_MARK, b""))


def reached(values: pa.Array, within: pa.Array) -> pa.Array:
    """Return what a part of a longer array holds of the values within."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return within.slice(first, last - first)


def group(values: pa.Array, within: pa.Array) -> pa.ListArray:
    """Return what was made of the values that are ``reached``, for each array or map."""
    return pa.ListArray.from_arrays(pc.subtract(values.offsets, values.offsets[0]).cast(pa.int32()), within)


def are_uuids(texts: pa.Array) -> pa.Array:
    """Return whether each text is a UUID, null for a null."""
    return pc.match_substring_regex(texts, f"^{UUID_FORM}$")


def pack_uuids(texts: pa.Array) -> pa.Array:
    """Return the 16 bytes of each UUID as a binary value, and ``NO_UUID`` for a text that is none. A null stays one."""
    known = texts.cast(pa.string()).fill_null(_NIL)
    is_uuid = are_uuids(known)
    digits = pc.replace_substring(pc.if_else(is_uuid, known, _NIL), "-", "").buffers()[2]
    content = pa.py_buffer(binascii.unhexlify(memoryview(digits)[: 2 * _UUID_BYTES * len(texts)]))
    packed = pa.Array.from_buffers(pa.binary(_UUID_BYTES), len(texts), [None, content]).cast(pa.binary())
    return _null_where(texts, pc.if_else(is_uuid, packed, pa.scalar(NO_UUID)))


def unpack_uuids(values: pa.Array) -> pa.Array:
    """Return the text of each value of Arrow's own type for UUIDs, in lower case. A null stays one."""
    known = values.storage.fill_null(bytes(_UUID_BYTES))
    first, count = known.offset * _UUID_BYTES, len(known)
    content = memoryview(known.buffers()[1])[first : first + count * _UUID_BYTES]
    letters = np.full((count, len(_NIL)), ord("-"), np.uint8)
    letters[:, _DIGITS] = np.frombuffer(binascii.hexlify(content), np.uint8).reshape(count, len(_DIGITS))
    offsets = np.arange(count + 1, dtype=np.int32) * len(_NIL)
    texts = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    return _null_where(values, texts)


def _null_where(values: pa.Array, made: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), made, pa.scalar(None, made.type))
