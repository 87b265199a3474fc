"""The message of a writer's schema that records hold, and what its fields are.

Each schema has descriptors of its own, so that two versions of one file never meet.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.model.errors import ConfigurationError
from batchledger.model.quoting import quote

LONGEST_NAME = 250
"""How long the name of a field or of an enum's number may be: it is written with values."""

_TAKEN = frozenset(dir(Message)) | {"DESCRIPTOR", "Extensions", "FindInitializationErrors"}

WRAPPERS = "google/protobuf/wrappers.proto"

_WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
_NAMES: Mapping[int, str] = MappingProxyType(
    {
        getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
        for name in (*_WHOLE, "bool", "string", "bytes", "float", "double")
    }
)
_SORTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_WHOLE, "whole"),
        "google.protobuf.Timestamp": "timestamp",
        "google.protobuf.Duration": "duration",
        "google.type.Date": "date",
        **{f"google.protobuf.{name}": "JSON" for name in ("Struct", "Value", "ListValue", "FieldMask")},
        "google.protobuf.Any": "any",
    }
)


def load_message(files: bytes, message: tuple[int, ...] | str) -> Descriptor:
    """Return a message of the last of some files, by its indexes or its full name. Raises ProtobufSchemaError."""
    own, pool = _load_files(files)
    name = message if isinstance(message, str) else _find_name(own, message)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ProtobufSchemaError(f"the writer's schema has no message {quote(name)}") from None


@lru_cache(maxsize=256)
def _load_files(files: bytes) -> tuple[FileDescriptorProto, DescriptorPool]:
    """Return the last file, and all of them in a pool of their own."""
    if api_implementation.Type() != "upb":
        raise ConfigurationError(
            "The package protobuf is installed without upb. Nothing was written.",
            why="Its pure Python reads some messages in another way.",
            advice="Install the wheel of protobuf, which has it, and unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION.",
        )
    pool = DescriptorPool()
    try:
        found = FileDescriptorSet.FromString(files).file
        for file in found:
            _require_names(file, file.message_type)
            pool.Add(file)
    except (TypeError, DecodeError):
        raise ProtobufSchemaError("the runtime of Protobuf does not take the writer's schema") from None
    return found[len(found) - 1], pool


def _require_names(within: FileDescriptorProto | DescriptorProto, messages: Iterable[DescriptorProto]) -> None:
    """Refuse long names, and fields that would stand in the place of a method of their message.

    The runtime itself calls such a method.
    """
    numbers = (each.name for enum in within.enum_type for each in enum.value)
    fields = [each.name for each in within.field] if isinstance(within, DescriptorProto) else []
    for name in (*numbers, *fields):
        if len(name) > LONGEST_NAME:
            raise ProtobufSchemaError(f"the name {quote(name)} is longer than {LONGEST_NAME} characters")
    for name in fields:
        if name in _TAKEN:
            raise ProtobufSchemaError(
                f"field {name} of message {within.name} has a name that the runtime of Protobuf needs itself"
            )
    for message in messages:
        _require_names(message, message.nested_type)


def _find_name(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    """Return the full name of a message.

    Confluent's client in Java leaves the entries of maps out when it counts nested messages. Its client in Python
    counts them. If both ways lead to a message, and not to the same one, nothing says which the producer meant.
    """
    found = {each for leaves_out in (True, False) if (each := _walk(file, indexes, leaves_out)) is not None}
    if not found:
        # They may be any bytes, so they are not named.
        raise ProtobufSchemaError("the writer's schema has no message with its indexes")
    if len(found) > 1:
        first, second = sorted(found)
        raise ProtobufSchemaError(
            f"the message with its indexes is {first} or {second}: clients count differently behind a map"
        )
    return found.pop()


def _walk(file: FileDescriptorProto, indexes: tuple[int, ...], leaves_out: bool) -> str | None:
    names, within = ([file.package] if file.package else []), list(file.message_type)
    found: DescriptorProto | None = None
    for index in indexes:
        messages = [each for each in within if not (leaves_out and each.options.map_entry)]
        if index >= len(messages):
            return None
        found = messages[index]
        names.append(found.name)
        within = list(found.nested_type)
    return None if found is None or found.options.map_entry else ".".join(names)


def make_class(message: Descriptor) -> Any:
    """Return the class whose ``FromString`` reads values."""
    return GetMessageClass(message)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field has values by keys."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_many(field: FieldDescriptor) -> bool:
    """Whether a field has any number of values: it is repeated or a map."""
    # Version 5 of the runtime has the label alone, and version 7 has none.
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_wrapper(field: FieldDescriptor) -> bool:
    """Whether the field is a message around one scalar, which is there to be absent."""
    return field.message_type is not None and field.message_type.file.name == WRAPPERS


def name_type(field: FieldDescriptor) -> str:
    """Return the type of one value: ``int64``, ``enum``, or the full name of a message."""
    if field.message_type is not None:
        return str(field.message_type.full_name)
    return "enum" if field.enum_type is not None else _NAMES[field.type]


def sort_of(field: FieldDescriptor) -> str:
    """Return what one value of a field is for a column; a wrapper is what it holds."""
    if is_wrapper(field):
        return sort_of(field.message_type.fields_by_name["value"])
    name = name_type(field)
    return _SORTS.get(name, name if field.message_type is None else "message")


def describe(field: FieldDescriptor) -> str:
    """Return the type of a field in a few words, for an error."""
    if is_map(field):
        return "a map"
    return "repeated" if is_many(field) else describe_one(field)


def describe_one(field: FieldDescriptor) -> str:
    """Return the type of one value of a field in a few words, for an error."""
    name = name_type(field)
    if name == "enum":
        return "an enum"
    return name if field.message_type is None or name.startswith("google.") else "a message"


def find_name(enum: EnumDescriptor, number: int) -> str | None:
    """Return the first name that an enum has for a number, None if it has none."""
    found = enum.values_by_number.get(number)
    return None if found is None else str(found.name)
