"""The Arrow types of declared columns."""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from batchledger.model.records.columns import EPOCH_UNITS, Column, decimal_size
from batchledger.model.records.nested import ArrayOf, MapOf, StructOf, take_apart

MOMENT = pa.timestamp("us", "UTC")

_SCALARS: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "jsonb": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "date": pa.date32(),
    "timestamp": MOMENT,
    "binary": pa.binary(),
    **dict.fromkeys(EPOCH_UNITS, MOMENT),
}
_JSON = {b"batchledger": b"jsonb"}
"""Marks a field of texts as JSON. Arrow's own type for it is unknown to most of its functions, and to Spark."""
_HASHED = {b"batchledger": b"hashed"}
"""Marks a field of texts that are hashes of what records have."""


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow fields of declared columns."""
    names = [column.name for column in columns if column.type == "jsonb"]
    return mark_json(pa.schema([(column.name, to_arrow_type(column.type)) for column in columns]), names)


def to_arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type of a column of a declared type."""
    match take_apart(type_):
        case ArrayOf(element):
            return pa.list_(to_arrow_type(element))
        case MapOf(value):
            return pa.map_(pa.string(), to_arrow_type(value))
        case StructOf(fields):
            return pa.struct([(each.name, to_arrow_type(each.type)) for each in fields])
        case None if type_.startswith("decimal"):
            return pa.decimal128(*decimal_size(type_))
        case None:
            return _SCALARS[type_]


def is_array(type_: pa.DataType) -> bool:
    """Whether values are arrays, of whatever length of their offsets."""
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def mark_json(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema with the fields of these names marked as JSON, as far as they hold texts."""
    return _mark(schema, names, _JSON)


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
