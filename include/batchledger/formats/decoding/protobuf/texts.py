"""Protobuf values as texts: what ``string`` and ``jsonb`` columns hold of values that are no text.

A text is the JSON of Protobuf itself (ProtoJSON), with the names that fields have in the file and without absent
fields. It is always the same for the same value: without white space, its names in the order of their letters.
"""

import base64
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict

from batchledger.formats.decoding.avro.texts import NOT_UTF8_TEXT
from batchledger.formats.decoding.fitting import NoValueError, require_no_zero
from batchledger.formats.decoding.protobuf.schema import find_name, is_many, is_map, name_type
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
