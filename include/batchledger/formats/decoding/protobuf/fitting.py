"""What a Protobuf value becomes in a column of a declared type, one value at a time.

The test is docs/reference/protobuf.md. A value is accepted only if the column holds exactly what was written. Any other
one raises ``UnfitError``, whose text names the column and the kind of fault, and never a value.
"""

from collections.abc import Callable
from datetime import date
from typing import Any, assert_never

import msgspec
from google.protobuf.descriptor import FieldDescriptor

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
from batchledger.formats.decoding.protobuf.schema import is_many, is_map, is_wrapper, sort_of
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
        case Scalar.DATE | Scalar.TIMESTAMP | DecimalOf() if sort == "string":
            return _read_as_json(leaf)
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
