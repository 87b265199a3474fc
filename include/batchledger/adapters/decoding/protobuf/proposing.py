"""The columns that would hold all values of a message."""

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.adapters.decoding.nested import Declared
from batchledger.adapters.decoding.protobuf.compiling import compile_files
from batchledger.adapters.decoding.protobuf.schema import is_many, is_map, is_wrapper, load_message, sort_of
from batchledger.model.records.columns import Column
from batchledger.model.records.nested import MOST_TYPES_DEEP, ArrayOf, MapOf, StructField, StructOf, put_together

_BY_SORT = {
    "bool": "boolean",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "timestamp": "timestamp",
    "duration": "string",
    "date": "date",
}
_JSON = "jsonb"
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "bigint",
    FieldDescriptor.CPPTYPE_UINT32: "bigint",
    FieldDescriptor.CPPTYPE_UINT64: "decimal(20,0)",
}


def propose_protobuf_columns(
    text: str, references: Sequence[tuple[str, str]], message: tuple[int, ...] | str
) -> tuple[Column, ...]:
    """Return a column for each field of the message, in their order. Raises ProtobufSchemaError.

    What only JSON holds is ``jsonb``, also within other types, where no pipeline can declare it.
    """
    found = load_message(compile_files(text, tuple(references)), message)
    return tuple(Column(each.name, _propose(each, (found.full_name,))) for each in found.fields)


def declare_message(text: str, references: Sequence[tuple[str, str]], message: tuple[int, ...] | str) -> Declared:
    """Return the fields of the message, and within. Raises ProtobufSchemaError."""
    found = load_message(compile_files(text, tuple(references)), message)
    return Declared({each.name: _declare(each, (found.full_name,)) for each in found.fields})


def _declare(field: FieldDescriptor, within: tuple[str, ...]) -> Declared | None:
    """Return what a field has within; None for what is no message of the schema's own, or a message within itself."""
    value = field.message_type.fields_by_name["value"] if is_map(field) else field
    if sort_of(value) != "message" or is_wrapper(value) or value.message_type.full_name in within:
        return None
    type_ = value.message_type
    found = Declared({each.name: _declare(each, (*within, type_.full_name)) for each in type_.fields})
    return Declared(each=found) if is_many(field) else found


def _propose(field: FieldDescriptor, outer: tuple[str, ...]) -> str:
    """Return the type for a value that lies within the ``outer`` messages."""
    if is_map(field):
        return put_together(MapOf(_propose_one(field.message_type.fields_by_name["value"], outer)))
    if is_many(field):
        return put_together(ArrayOf(_propose_one(field, outer)))
    return _propose_one(field, outer)


def _propose_one(field: FieldDescriptor, outer: tuple[str, ...]) -> str:
    if is_wrapper(field):
        return _propose_one(field.message_type.fields_by_name["value"], outer)
    match sort_of(field):
        case "whole":
            return _WHOLE[field.cpp_type]
        case "message":
            return _propose_struct(field.message_type, outer)
        case sort:
            return _BY_SORT.get(sort, _JSON)


def _propose_struct(message: Descriptor, outer: tuple[str, ...]) -> str:
    name: str = message.full_name
    if name in outer or len(outer) > MOST_TYPES_DEEP // 2 or not message.fields:
        return _JSON
    return put_together(
        StructOf(tuple(StructField(each.name, _propose(each, (*outer, name))) for each in message.fields))
    )
