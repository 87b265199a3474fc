"""Which field of a message becomes which column, and whether its type ever can.

Columns are matched by the names of their fields, as the ``.proto`` file has them. A column without a field is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.formats.decoding.fitting import JSON_TYPES
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.formats.decoding.protobuf.fitting import may_hold
from batchledger.formats.decoding.protobuf.schema import describe, describe_one, is_many, is_map, sort_of
from batchledger.model.records.columns import Column
from batchledger.model.records.types import ArrayOf, ColumnType, Json, MapOf, StructOf


@dataclass(frozen=True)
class PlannedColumn:
    """A column and the fields that lead to its value, the outermost first; none if the message has no such field."""

    column: Column
    fields: tuple[FieldDescriptor, ...]


def plan_columns(message: Descriptor, columns: Sequence[Column]) -> tuple[PlannedColumn, ...]:
    """Return where the value of each column is. Raises ProtobufSchemaError with the path of the field."""
    return tuple(PlannedColumn(column, _find_fields(message, column)) for column in columns)


def _find_fields(message: Descriptor, column: Column) -> tuple[FieldDescriptor, ...]:
    fields: list[FieldDescriptor] = []
    within: Descriptor | None = message
    for place, name in enumerate(column.source):
        if within is None:
            here = ".".join(column.source[:place])
            raise ProtobufSchemaError(
                f"field {here} is {describe(fields[-1])}, and column {column.name} is a field within it"
            )
        field = within.fields_by_name.get(name)
        if field is None:
            return ()
        fields.append(field)
        within = None if is_many(field) else field.message_type
    _require(fields[-1], column.type, ".".join(column.source))
    return tuple(fields)


def _require(field: FieldDescriptor, declared: ColumnType, path: str) -> None:
    """Refuse a type whose values never become a column of the declared one."""
    if not is_many(field):
        _require_one(field, declared, path)
    elif is_map(field) and isinstance(declared, MapOf):
        _require_one(field.message_type.fields_by_name["value"], declared.value, f"{path}[]")
    elif isinstance(declared, ArrayOf) and not is_map(field):
        _require_one(field, declared.element, f"{path}[]")
    elif declared in JSON_TYPES:
        _require_one(field.message_type.fields_by_name["value"] if is_map(field) else field, Json.JSONB, f"{path}[]")
    else:
        raise _refuse(path, describe(field), declared)


def _require_one(field: FieldDescriptor, declared: ColumnType, path: str) -> None:
    """Judge one value of a field, also if the field has many."""
    if isinstance(declared, StructOf) and sort_of(field) == "message":
        by_name = field.message_type.fields_by_name
        for each in declared.fields:
            if each.name in by_name:
                _require(by_name[each.name], each.type, f"{path}.{each.name}")
    elif not may_hold(sort_of(field), declared):
        raise _refuse(path, describe_one(field), declared)


def _refuse(path: str, what: str, declared: ColumnType) -> ProtobufSchemaError:
    return ProtobufSchemaError(f"field {path} is {what}, which a column of type {declared} never holds")
