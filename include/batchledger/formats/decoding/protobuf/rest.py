"""What is left of a Protobuf message beside declared columns, as JSON (``source.unknown_fields: keep``).

Fields keep their places as ``formats/decoding/rest.py`` keeps them, and have the texts that a ``jsonb`` column has. A
field that the schema does not know has no name, so it is not kept.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.formats.decoding.fitting import Fit, Leaf, name_errors
from batchledger.formats.decoding.nested import Declared, declare_fields
from batchledger.formats.decoding.protobuf.schema import is_many, is_map
from batchledger.formats.decoding.protobuf.texts import convert_field, encode_json, write_key
from batchledger.model.records.columns import REST, Column

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
