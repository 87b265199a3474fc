"""Protobuf values as texts: what ``string`` and ``jsonb`` columns hold of values that are no text.

A text is the JSON of Protobuf itself (ProtoJSON), with the names that fields have in the file and without absent
fields. It is always the same for the same value: without white space, its names in the order of their letters. What is
left beside declared columns (``source.unknown_fields: keep``) has the same texts, and its fields keep their places as
``formats/decoding/documents.py`` keeps them. A field that the schema does not know has no name, so it is not kept.
"""

import base64
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict

from batchledger.formats.decoding.avro.texts import NOT_UTF8_TEXT
from batchledger.formats.decoding.fitting import Fit, Leaf, NoValueError, name_errors, require_no_zero
from batchledger.formats.decoding.nested import Declared, declare_fields
from batchledger.formats.decoding.protobuf.schema import find_name, is_many, is_map, name_type
from batchledger.model.records.columns import REST, Column
from batchledger.model.records.types import ColumnType, Scalar

_WIDE = ("int64", "uint64", "sint64", "fixed64", "sfixed64")
# Without a single type: what an Any holds is not looked into.
_NO_TYPES = DescriptorPool()


def make_text(field: FieldDescriptor, declared: ColumnType, is_one: bool) -> Callable[[Any], str | None]:
    """Return what writes a value for a column; ``is_one``: one value of a field that may have many.

    A ``string`` column has no quotes around a text. The null of a ``google.protobuf.Value`` is null. The functions that
    are returned raise NoValueError.
    """
    convert = _convert_one if is_one else convert_field

    def write(value: Any) -> str | None:
        found = convert(field, value)
        if found is None:
            return None
        if declared is Scalar.STRING and isinstance(found, str):
            return require_text(found)
        if declared is Scalar.STRING and is_one and field.enum_type is not None:
            raise NoValueError("a number that its enum does not have")
        return encode_json(found)

    return write


def encode_json(value: Any) -> str:
    """Return a value as text, with names in the order of their letters. Raises NoValueError."""
    return require_no_zero(msgspec.json.encode(value, order="deterministic").decode())


def require_text(text: str | bytes) -> str:
    """Return a text that a table can hold. The runtime gives bytes for a text that is not UTF-8."""
    if isinstance(text, bytes):
        raise NoValueError(NOT_UTF8_TEXT)
    if "\x00" in text:
        raise NoValueError("U+0000")
    return text


def write_key(key: Any) -> str:
    """Return the key of a map as the JSON of Protobuf has it."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def convert_field(field: FieldDescriptor, value: Any) -> Any:
    """Return the value of a field as Python's JSON has it. Raises NoValueError."""
    if is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        return {write_key(key): _convert_one(of_value, each) for key, each in value.items()}
    if is_many(field):
        return [_convert_one(field, each) for each in value]
    return _convert_one(field, value)


def _convert_one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _convert_message(value)
    match name_type(field):
        case "enum":
            # Its own number, if the enum is open and does not have it.
            return find_name(field.enum_type, value) or value
        case "bytes":
            return base64.b64encode(value).decode()
        case "float" | "double" if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case "float":
            # The shortest digits that stand for it.
            return float(str(np.float32(value)))
        case name:
            return str(value) if name in _WIDE else value


def _convert_message(value: Any) -> Any:
    try:
        return MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=_NO_TYPES)
    except TypeError:
        raise NoValueError("a google.protobuf.Any") from None
    except (JsonError, ValueError):
        raise NoValueError("a value that the JSON of Protobuf does not have") from None


Leave = Callable[[Any], Any]
"""Returns what is left of a value, as Python's JSON has it; None if nothing is. Raises NoValueError."""


def make_rest_writer(message: Descriptor, columns: Sequence[Column]) -> Fit | None:
    """Return what writes the fields of a message that no column declares; None if the schema has no such field.

    It returns None if nothing is left of a message, and raises UnfitError.
    """
    leave = _make_leave(message, declare_fields(columns))
    return leave and name_errors(Leaf(0, REST.name, REST.type), partial(_write, leave))


def _write(leave: Leave, message: Any) -> str | None:
    left = leave(message)
    return None if left is None else encode_json(left)


def _make_leave(type_: Descriptor, declared: Declared) -> Leave | None:
    """Return what leaves the undeclared fields of messages of a type; None if it never leaves any."""
    known = declared.fields or {}
    within: dict[str, Leave] = {}
    for field in type_.fields:
        inner = known.get(field.name)
        if inner is not None and (leave := _make_within(field, inner)) is not None:
            within[field.name] = leave
    if all(field.name in known for field in type_.fields) and not (within or type_.is_extendable):
        return None

    def leave_fields(message: Any) -> dict[str, Any] | None:
        left: dict[str, Any] = {}
        for field, value in message.ListFields():
            if field.is_extension:
                left[f"[{field.full_name}]"] = convert_field(field, value)
            elif field.name not in known:
                left[field.name] = convert_field(field, value)
            elif field.name in within and (rest := within[field.name](value)) is not None:
                left[field.name] = rest
        return left or None

    return leave_fields


def _make_within(field: FieldDescriptor, declared: Declared) -> Leave | None:
    if not is_many(field):
        return _make_one(field, declared)
    value = field.message_type.fields_by_name["value"] if is_map(field) else field
    leave = None if declared.each is None else _make_one(value, declared.each)
    if leave is None:
        return None
    return partial(_leave_values if is_map(field) else _leave_elements, leave)


def _make_one(field: FieldDescriptor, declared: Declared) -> Leave | None:
    """Return what leaves the undeclared part of one value of a field."""
    return None if declared.fields is None else _make_leave(field.message_type, declared)


def _leave_values(leave: Leave, value: Any) -> dict[str, Any] | None:
    return {write_key(key): left for key, each in value.items() if (left := leave(each)) is not None} or None


def _leave_elements(leave: Leave, value: Any) -> list[Any] | None:
    left = [leave(each) for each in value]
    return left if any(left) else None
