"""What a message has that the runtime passes over in silence: unknown fields, and bytes that are no value of a field.

The runtime keeps a field apart, as if it were unknown, if its number is unknown. It does the same if the number is
known and the bytes are not what its type says: another wire type, a number that a closed enum does not have, an entry
of a map with something else in it. Without a look at these the column would be null or a default.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.unknown_fields import UnknownFieldSet

from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.protobuf.compiling import BUILT_IN
from batchledger.formats.decoding.protobuf.schema import is_many, is_map
from batchledger.model.records.unknown_fields import NAMELESS

NOT_UTF8_FIELD = "field {} has a text that is not valid UTF-8"
OTHER_WIRE_TYPE = "field {} has bytes that its type does not have"
OTHER_NUMBER = "field {} has a number that its enum does not have"
OTHER_ENTRY = "field {} has an entry that its type does not have"

_VARINT = 0
_NONE: frozenset[str] = frozenset()
_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class _Inner:
    """A field with messages within."""

    name: str
    path: str
    is_many: bool
    is_map: bool
    type: Descriptor


@dataclass(frozen=True)
class _Parts:
    """What can hold something wrong in a message of one type."""

    within: tuple[_Inner, ...]
    texts: tuple[FieldDescriptor, ...]
    has_extensions: bool


class MessageChecker:
    """Looks through whole messages, into every message within."""

    def __init__(self, message: Descriptor, files: bytes) -> None:
        """``files`` are all files of the schema, as a FileDescriptorSet."""
        self._message = message
        self._lax = find_lax_files(files)
        self._parts: dict[str, _Parts] = {}
        parts = self._list_parts(message)
        self._is_flat = not (parts.within or parts.texts or parts.has_extensions)

    def look(self, message: Any) -> frozenset[str]:
        """Return the fields that the schema does not know, by their numbers: ``customer.field number 7``.

        Raises UnfitError if a message has bytes that are no value, or lacks a required field.
        """
        if self._lax and not message.IsInitialized():
            path = _INDEX.sub("[]", message.FindInitializationErrors()[0])
            raise UnfitError(f"the value lacks the required field {path}")
        if self._is_flat and not UnknownFieldSet(message):
            return _NONE
        return frozenset(self._walk(message, self._message, ""))

    def _walk(self, message: Any, type_: Descriptor, path: str) -> Iterator[str]:
        parts = self._parts.get(type_.full_name) or self._list_parts(type_)
        unknown = UnknownFieldSet(message)
        if unknown:
            for each in unknown:
                known = type_.fields_by_number.get(each.field_number)
                if known is not None:
                    raise UnfitError(_explain(known, each.wire_type).format(f"{path}{known.name}"))
                yield f"{path}{NAMELESS} {each.field_number}"
        for field in parts.texts:
            _require_text(message, field, path)
        for inner in parts.within:
            if inner.is_map:
                found = getattr(message, inner.name).values()
            elif inner.is_many:
                found = getattr(message, inner.name)
            else:
                found = (getattr(message, inner.name),) if message.HasField(inner.name) else ()
            for each in found:
                yield from self._walk(each, inner.type, f"{path}{inner.path}")
        if parts.has_extensions:
            yield from self._walk_extensions(message, path)

    def _walk_extensions(self, message: Any, path: str) -> Iterator[str]:
        for field, value in message.ListFields():
            if field.is_extension and field.message_type is not None:
                for each in value if is_many(field) else (value,):
                    yield from self._walk(each, field.message_type, f"{path}[{field.full_name}].")

    def _list_parts(self, type_: Descriptor) -> _Parts:
        within, texts = [], []
        is_lax = type_.file.name in self._lax
        for field in type_.fields:
            value = field.message_type.fields_by_name["value"] if is_map(field) else field
            if value.message_type is not None:
                mark = "[]." if is_many(field) else "."
                within.append(
                    _Inner(field.name, f"{field.name}{mark}", is_many(field), is_map(field), value.message_type)
                )
            if is_lax and (is_map(field) or field.type == FieldDescriptor.TYPE_STRING):
                texts.append(field)
        parts = self._parts[type_.full_name] = _Parts(tuple(within), tuple(texts), bool(type_.is_extendable))
        return parts


def find_lax_files(files: bytes) -> frozenset[str]:
    """Return the files of a FileDescriptorSet in which texts may be any bytes and fields may be required.

    That is so in proto2, and in an edition if the file says so.
    """
    found = FileDescriptorSet.FromString(files).file
    return frozenset(each.name for each in found if each.syntax != "proto3" and not each.name.startswith(BUILT_IN))


def _explain(field: FieldDescriptor, wire_type: int) -> str:
    if is_map(field):
        return OTHER_ENTRY
    return OTHER_NUMBER if field.enum_type is not None and wire_type == _VARINT else OTHER_WIRE_TYPE


def _require_text(message: Any, field: FieldDescriptor, path: str) -> None:
    """Refuse a text for which the runtime gives bytes, and the key of a map that it cannot give at all."""
    try:
        value = getattr(message, field.name)
        if is_map(field):
            found = [part for entry in value.items() for part in entry]
            is_bytes = field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_BYTES
            is_wrong = not is_bytes and any(isinstance(each, bytes) for each in found)
        elif is_many(field):
            is_wrong = any(isinstance(each, bytes) for each in value)
        else:
            is_wrong = isinstance(value, bytes)
    except UnicodeDecodeError:
        is_wrong = True
    if is_wrong:
        raise UnfitError(NOT_UTF8_FIELD.format(f"{path}{field.name}"))
