"""The columns that would hold all values of a message."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.formats.decoding.nested import Declared
from batchledger.formats.decoding.proposing import Count, propose_within_bounds
from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.schema import is_many, is_map, is_wrapper, load_message, sort_of
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    MOST_TYPES_DEEP,
    ArrayOf,
    ColumnType,
    DecimalOf,
    Floating,
    Integer,
    Json,
    MapOf,
    Scalar,
    StructField,
    StructOf,
)

_BY_SORT: Mapping[str, ColumnType] = {
    "bool": Scalar.BOOLEAN,
    "float": Floating.FLOAT,
    "double": Floating.DOUBLE,
    **dict.fromkeys(("string", "enum", "duration"), Scalar.STRING),
    "bytes": Scalar.BINARY,
    "timestamp": Scalar.TIMESTAMP,
    "date": Scalar.DATE,
}
_WHOLE: Mapping[int, ColumnType] = {
    FieldDescriptor.CPPTYPE_INT32: Integer.INT,
    FieldDescriptor.CPPTYPE_INT64: Integer.BIGINT,
    FieldDescriptor.CPPTYPE_UINT32: Integer.BIGINT,
    FieldDescriptor.CPPTYPE_UINT64: DecimalOf(20, 0),
}


def propose_protobuf_columns(
    text: str, references: Sequence[tuple[str, str]], message: tuple[int, ...] | str
) -> tuple[Column, ...]:
    """Return a column for each field of the message, in their order. Raises ProtobufSchemaError.

    What only JSON holds is ``jsonb``, also within other types, where no pipeline can declare it.
    """
    found = load_message(compile_files(text, tuple(references)), message)
    outer = (found.full_name,)
    return tuple(Column(each.name, propose_within_bounds(partial(_propose, each, outer))) for each in found.fields)


def find_protobuf_undeclared(
    text: str, references: Sequence[tuple[str, str]], message: tuple[int, ...] | str, declared: Declared
) -> Iterator[str]:
    """Yield the fields of the message that are not declared, also within. Raises ProtobufSchemaError."""
    return _find_undeclared(load_message(compile_files(text, tuple(references)), message), declared, "", ())


def _find_undeclared(message: Descriptor, declared: Declared, place: str, outer: tuple[str, ...]) -> Iterator[str]:
    """Look into no message within itself, and into none that is not of the schema's own."""
    if declared.fields is None:
        return
    outer = (*outer, message.full_name)
    for field in message.fields:
        path = f"{place}.{field.name}" if place else field.name
        if field.name not in declared.fields:
            yield path
            continue
        within = declared.fields[field.name]
        if within is not None and is_many(field):
            within, path = within.each, f"{path}[]"
        value = field.message_type.fields_by_name["value"] if is_map(field) else field
        is_own = sort_of(value) == "message" and not is_wrapper(value)
        if within is not None and is_own and value.message_type.full_name not in outer:
            yield from _find_undeclared(value.message_type, within, path, outer)


def _propose(field: FieldDescriptor, outer: tuple[str, ...], count: Count) -> ColumnType:
    """Return the type for a value that lies within the ``outer`` messages."""
    if is_map(field):
        return MapOf(_propose_one(field.message_type.fields_by_name["value"], outer, count))
    if is_many(field):
        return ArrayOf(_propose_one(field, outer, count))
    return _propose_one(field, outer, count)


def _propose_one(field: FieldDescriptor, outer: tuple[str, ...], count: Count) -> ColumnType:
    count()
    if is_wrapper(field):
        return _propose_one(field.message_type.fields_by_name["value"], outer, count)
    match sort_of(field):
        case "whole":
            return _WHOLE[field.cpp_type]
        case "message":
            return _propose_struct(field.message_type, outer, count)
        case sort:
            return _BY_SORT.get(sort, Json.JSONB)


def _propose_struct(message: Descriptor, outer: tuple[str, ...], count: Count) -> ColumnType:
    name: str = message.full_name
    if name in outer or len(outer) > MOST_TYPES_DEEP // 2 or not message.fields:
        return Json.JSONB
    return StructOf(tuple(StructField(each.name, _propose(each, (*outer, name), count)) for each in message.fields))
