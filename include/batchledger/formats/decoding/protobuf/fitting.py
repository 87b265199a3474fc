"""Which field of a message becomes which column, whether its type ever can, and what its values become, one by one.

Columns are matched by the names of their fields, as the ``.proto`` file has them. A column without a field is null.

The test is docs/reference/protobuf.md. A value is accepted only if the column holds exactly what was written. Any other
one raises ``UnfitError``, whose text names the column and the kind of fault, and never a value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, assert_never

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from batchledger.formats.decoding.fitting import (
    JSON_TYPES,
    Fit,
    Leaf,
    NoValueError,
    make_float_fit,
    make_whole_fit,
    name_errors,
    within_years,
)
from batchledger.formats.decoding.meaning import make_scalar_reader
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.formats.decoding.protobuf.schema import describe, describe_one, is_many, is_map, is_wrapper, sort_of
from batchledger.formats.decoding.protobuf.texts import make_text, require_text, write_key
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    ArrayOf,
    ColumnType,
    DecimalOf,
    Epoch,
    Floating,
    Integer,
    Json,
    MapOf,
    Nested,
    Scalar,
    StructOf,
)

Get = Callable[[Any], Any]
"""Takes a field out of a message; None if it is absent."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_NANOSECONDS = 1_000_000_000


def make_getter(field: FieldDescriptor) -> Get:
    """Return what takes a field out of a message."""
    name = field.name
    if is_wrapper(field) and not is_many(field):
        return lambda message: getattr(message, name).value if message.HasField(name) else None
    if field.has_presence:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: getattr(message, name)


def make_fit(field: FieldDescriptor, leaf: Leaf) -> Fit:
    """Return what makes a value of a leaf out of a field's value."""
    declared = leaf.type
    if is_map(field) and isinstance(declared, MapOf):
        return _make_map(field.message_type.fields_by_name["value"], leaf, declared.value)
    if is_many(field) and isinstance(declared, ArrayOf):
        element = _make_one(field, Leaf(0, f"{leaf.name}[]", declared.element))
        if is_wrapper(field):
            return lambda value: [element(each.value) for each in value]
        return lambda value: [element(each) for each in value]
    if is_many(field):
        return name_errors(leaf, make_text(field, declared, is_one=False))
    return _make_one(field, leaf)


def _make_map(of_value: FieldDescriptor, leaf: Leaf, declared: ColumnType) -> Fit:
    fit = _make_one(of_value, Leaf(0, f"{leaf.name}[]", declared))
    unwrap: Get = (lambda each: each.value) if is_wrapper(of_value) else (lambda each: each)
    of_key = name_errors(leaf, lambda key: require_text(write_key(key)))
    # In the order of the keys: the runtime has them in no order.
    return lambda value: [(of_key(key), fit(unwrap(each))) for key, each in sorted(value.items(), key=_take_key)]


def _take_key(entry: tuple[Any, Any]) -> Any:
    return entry[0]


def _make_one(field: FieldDescriptor, leaf: Leaf) -> Fit:
    """Return what makes a leaf out of one value, also of a field that has many; a wrapper has been taken off."""
    declared, sort = leaf.type, sort_of(field)
    if isinstance(declared, StructOf):
        return _make_struct(field, leaf.name, declared)
    if is_wrapper(field):
        return _make_one(field.message_type.fields_by_name["value"], leaf)
    if declared in JSON_TYPES and (sort, declared) != ("string", Scalar.STRING):
        return name_errors(leaf, make_text(field, declared, is_one=True))
    fit = _choose_fit(sort, leaf)
    if fit is None:
        raise TypeError(declared)
    return name_errors(leaf, fit)


def may_hold(sort: str, declared: ColumnType) -> bool:
    """Whether a column may hold values of a sort, each by itself; a struct has been compared before."""
    if declared in JSON_TYPES:
        return sort != "any" and (sort, declared) != ("bytes", Scalar.STRING)
    return _choose_fit(sort, Leaf(0, "", declared)) is not None


def _choose_fit(sort: str, leaf: Leaf) -> Fit | None:  # noqa: C901, PLR0911 -- one a type
    """Return what makes a value of a leaf, None if it never holds values of this sort. A ``string`` has texts alone."""
    match declared := leaf.type:
        case Scalar.STRING:
            return require_text if sort == "string" else None
        case Scalar.BOOLEAN:
            return _keep if sort == "bool" else None
        case Scalar.BINARY:
            return _keep if sort == "bytes" else None
        case Scalar.DATE | Scalar.TIMESTAMP | Scalar.UUID | DecimalOf() if sort == "string":
            return _read_as_json(leaf)
        case Scalar.UUID:
            return None
        case Scalar.DATE:
            return _read_day if sort == "date" else None
        case Scalar.TIMESTAMP:
            return _read_timestamp if sort == "timestamp" else None
        case Integer():
            return make_whole_fit(declared) if sort in ("whole", "enum") else None
        case Floating() if sort in ("float", "double"):
            return make_float_fit(declared)
        case Floating() | DecimalOf() | Epoch():
            return make_whole_fit(declared) if sort == "whole" else None
        case Json() | Nested():
            return None
        case _:
            assert_never(declared)


def _keep(value: Any) -> Any:
    return value


def _read_as_json(leaf: Leaf) -> Fit:
    read = make_scalar_reader(Column(leaf.name, leaf.type))
    return lambda value: read(msgspec.json.encode(require_text(value)))


def _make_struct(field: FieldDescriptor, name: str, struct: StructOf) -> Fit:
    by_name = field.message_type.fields_by_name
    steps: list[tuple[str, Get, Fit]] = []
    for each in struct.fields:
        inner = by_name.get(each.name)
        if inner is not None:
            leaf = Leaf(0, f"{name}.{each.name}", each.type)
            steps.append((each.name, make_getter(inner), make_fit(inner, leaf)))

    def fit(message: Any) -> dict[str, Any]:
        found = [(key, get(message), of_value) for key, get, of_value in steps]
        return {key: None if value is None else of_value(value) for key, value, of_value in found}

    return fit


def _read_timestamp(value: Any) -> int:
    """Microseconds since 1970."""
    seconds, nanoseconds = value.seconds, value.nanos
    if not 0 <= nanoseconds < _NANOSECONDS:
        raise NoValueError("a moment whose nanoseconds are no part of a second")
    microseconds, rest = divmod(nanoseconds, 1_000)
    if rest:
        raise NoValueError("a moment with more than 6 digits of a second")
    return within_years(seconds * 1_000_000 + microseconds)


def _read_day(value: Any) -> int:
    """Days since 1970."""
    try:
        return date(value.year, value.month, value.day).toordinal() - _EPOCH_DAY
    except (ValueError, OverflowError):
        raise NoValueError("a day that no calendar has") from None


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
