"""What a message of Protobuf says of values, for proposals of columns."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.formats.decoding.proposing import Shape
from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.schema import is_many, is_map, is_wrapper, load_message, sort_of
from batchledger.model.records.types import ColumnType, DecimalOf, Floating, Integer, Json, Scalar

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


def find_protobuf_shape(text: str, references: Sequence[tuple[str, str]], message: tuple[int, ...] | str) -> Shape:
    """Return what the message is. Raises ProtobufSchemaError."""
    return _find_message(load_message(compile_files(text, tuple(references)), message))


def _find_message(message: Descriptor) -> Shape:
    return Shape(fields=partial(_list_fields, message), name=message.full_name)


def _list_fields(message: Descriptor) -> Iterator[tuple[str, Shape]]:
    yield from ((each.name, _find_shape(each)) for each in message.fields)


def _find_shape(field: FieldDescriptor) -> Shape:
    if is_map(field):
        return Shape(each=partial(_find_one, field.message_type.fields_by_name["value"]), is_map=True)
    return Shape(each=partial(_find_one, field)) if is_many(field) else _find_one(field)


def _find_one(field: FieldDescriptor) -> Shape:
    if is_wrapper(field):
        return _find_one(field.message_type.fields_by_name["value"])
    match sort_of(field):
        case "whole":
            return Shape(_WHOLE[field.cpp_type])
        case "message":
            return _find_message(field.message_type)
        case sort:
            return Shape(_BY_SORT.get(sort, Json.JSONB))
