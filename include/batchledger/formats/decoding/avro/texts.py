"""Avro values as texts: what a ``string`` column holds of a value that is no text, and JSON of nested ones.

The text of a value is always the same: without white space, with the fields of a record in the order of the schema.
What is left beside declared columns (``source.unknown_fields: keep``) has the same texts, and its fields keep their
places as ``formats/decoding/documents.py`` keeps them.
"""

import base64
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from functools import partial
from typing import Any

import msgspec

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.wire import WireReader
from batchledger.formats.decoding.fitting import Leaf, NoValueError, name_errors, require_no_zero, within_years
from batchledger.formats.decoding.meaning import EARLIEST_MICROSECONDS, LATEST_MICROSECONDS
from batchledger.formats.decoding.nested import Declared, declare_fields
from batchledger.model.records.columns import REST, Column

NOT_UTF8_TEXT = "a text that is not valid UTF-8"
NO_SUCH_TIME = "a time that no clock shows"

# Of UTC, as is all that is counted from it.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_OF_DAY = 86_400_000_000
EARLIEST_DAY = EARLIEST_MICROSECONDS // _MICROSECONDS_OF_DAY
LATEST_DAY = LATEST_MICROSECONDS // _MICROSECONDS_OF_DAY
_MOST_DIGITS = 10_000


def write_json(schema: avro.Schema, type_: avro.Type, value: Any) -> str:
    """Return a value as JSON: bytes in base64, decimals as plain numbers, moments as ISO 8601 texts in UTC.

    Raises NoValueError.
    """
    return "".join(_write(schema, type_, value))


def write_text(schema: avro.Schema, type_: avro.Type, value: Any) -> str | None:
    """Return what a ``string`` column holds: a text as it is, the JSON of anything else without quotes around it.

    Raises NoValueError.
    """
    found = schema.resolve(type_)
    if isinstance(found, avro.Union):
        branch, within = value
        return write_text(schema, found.branches[branch], within)
    if isinstance(found, avro.Enum):
        symbol: str = found.symbols[value]
        return symbol
    if isinstance(found, avro.Primitive):
        if found.kind == "null":
            return None
        text = read_text(value) if avro.is_text(found) else write_scalar(found, value)
        if "\x00" in text:
            raise NoValueError("U+0000")
        return text
    return write_json(schema, found, value)


def read_text(value: bytes) -> str:
    """Return the characters of UTF-8. Raises NoValueError."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise NoValueError(NOT_UTF8_TEXT) from None


def _write(schema: avro.Schema, type_: avro.Type, value: Any) -> Iterator[str]:
    found = schema.resolve(type_)
    match found:
        case avro.Union():
            branch, within = value
            yield from _write(schema, found.branches[branch], within)
        case avro.Enum():
            yield quote_text(found.symbols[value])
        case avro.Array():
            yield from _enclose("[", (("", found.items, each) for each in value), "]", schema)
        case avro.Map():
            keys = read_keys(value)
            pairs = zip(keys, value, strict=True)
            yield from _enclose(
                "{", ((f"{quote_text(key)}:", found.values, each[1]) for key, each in pairs), "}", schema
            )
        case avro.RecordType():
            fields = zip(found.fields, value, strict=True)
            yield from _enclose("{", ((f"{quote_text(f.name)}:", f.type, each) for f, each in fields), "}", schema)
        case avro.TypeLink():
            raise TypeError(found)
        case avro.Primitive():
            text = read_text(value) if avro.is_text(found) else write_scalar(found, value)
            yield quote_text(text) if _is_quoted(found, value) else text


def _enclose(start: str, parts: Iterator[tuple[str, avro.Type, Any]], end: str, schema: avro.Schema) -> Iterator[str]:
    yield start
    for place, (prefix, type_, value) in enumerate(parts):
        yield f",{prefix}" if place else prefix
        yield from _write(schema, type_, value)
    yield end


def read_keys(pairs: list[tuple[bytes, Any]]) -> list[str]:
    """Return the keys of a map. Raises NoValueError, also if a key is given twice."""
    keys = [read_text(key) for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise NoValueError("a name that is given twice")
    return keys


def quote_text(text: str) -> str:
    """Return a text as JSON has it."""
    return msgspec.json.encode(text).decode()


def _is_quoted(type_: avro.Primitive, value: Any) -> bool:
    match avro.sort_of(type_):
        case "null" | "boolean" | "int" | "long" | "decimal":
            return False
        case "float" | "double":
            return not math.isfinite(value)
        case _:
            return True


def write_scalar(type_: avro.Primitive, value: Any) -> str:  # noqa: PLR0911 -- one a kind
    """Return the text of a value that is no text itself. Raises NoValueError."""
    match avro.sort_of(type_):
        case "null":
            return "null"
        case "boolean":
            return "true" if value else "false"
        case "int" | "long":
            return str(value)
        case "float" | "double":
            return _write_double(value)
        case "decimal":
            return f"{read_decimal(type_, value):f}"
        case "date":
            return date.fromordinal(_EPOCH.toordinal() + within_days(value)).isoformat()
        case "time":
            return _write_time(value if type_.logical == "time-micros" else value * 1_000)
        case "timestamp":
            moment = _EPOCH + timedelta(microseconds=read_moment(type_, value))
            return f"{moment.replace(tzinfo=None).isoformat()}Z"
        case "uuid":
            return str(uuid.UUID(bytes=value))
        case _:
            return base64.b64encode(value).decode()


def _write_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_time(microseconds: int) -> str:
    if not 0 <= microseconds < _MICROSECONDS_OF_DAY:
        raise NoValueError(NO_SUCH_TIME)
    return (_EPOCH + timedelta(microseconds=microseconds)).time().isoformat()


def read_decimal(type_: avro.Primitive, value: bytes) -> Decimal:
    """Return the number with all places of its scale. Raises NoValueError."""
    if not value:
        raise NoValueError("a decimal without a byte")
    unscaled = int.from_bytes(value, "big", signed=True)
    if len(value) * 3 > _MOST_DIGITS:
        raise NoValueError("a number beyond its range")
    with localcontext(prec=_MOST_DIGITS):
        return Decimal(unscaled).scaleb(-type_.scale)


def within_days(days: int) -> int:
    """Return the day, counted from 1970. Raises NoValueError."""
    if not EARLIEST_DAY <= days <= LATEST_DAY:
        raise NoValueError("a day outside of the years 1 to 9999")
    return days


def read_moment(type_: avro.Primitive, value: int) -> int:
    """Return microseconds since 1970. Raises NoValueError."""
    microseconds = value
    if type_.logical == "timestamp-millis":
        microseconds = value * 1_000
    elif type_.logical == "timestamp-nanos":
        microseconds, rest = divmod(value, 1_000)
        if rest:
            raise NoValueError("a moment with more than 6 digits of a second")
    return within_years(microseconds)


Leave = Callable[[Any], str | None]
"""Returns what is left of a value that was read, None if nothing is. Raises NoValueError."""


def make_rest_reader(schema: avro.Schema, columns: Sequence[Column]) -> Callable[[bytes], str | None] | None:
    """Return what reads the fields of a whole value that no column declares; None if the schema has no such field.

    It returns None if nothing is left of a value, and raises UnfitError.
    """
    leave = _make_leave(schema, schema.root, declare_fields(columns))
    if leave is None:
        return None
    wire, write = WireReader(schema), name_errors(Leaf(0, REST.name, REST.type), partial(_write_rest, leave))
    return lambda value: write(wire.read_record(value))


def _write_rest(leave: Leave, fields: list[Any]) -> str | None:
    text = leave(fields)
    return None if text is None else require_no_zero(text)


def _make_leave(schema: avro.Schema, type_: avro.Type, declared: Declared) -> Leave | None:
    """Return what leaves the undeclared part of values of a type; None if it never leaves any."""
    match schema.resolve(type_):
        case avro.Union(branches):
            return _make_union(tuple(_make_leave(schema, each, declared) for each in branches))
        case avro.RecordType() as record if declared.fields is not None:
            return _make_record(schema, record, declared)
        case avro.Array(items) if declared.each is not None:
            return _make_array(_make_leave(schema, items, declared.each))
        case avro.Map(values) if declared.each is not None:
            return _make_map(_make_leave(schema, values, declared.each))
        case _:
            return None


def _make_union(leaves: tuple[Leave | None, ...]) -> Leave | None:
    if not any(leaves):
        return None

    def leave_one(value: tuple[int, Any]) -> str | None:
        branch, within = value
        leave = leaves[branch]
        return leave and leave(within)

    return leave_one


def _make_record(schema: avro.Schema, record: avro.RecordType, declared: Declared) -> Leave | None:
    known = declared.fields or {}
    steps: list[tuple[int, str, Leave]] = []
    for number, field in enumerate(record.fields):
        within = known.get(field.name)
        leave: Leave | None = None
        if field.name not in known:
            leave = partial(write_json, schema, field.type)
        elif within is not None:
            leave = _make_leave(schema, field.type, within)
        if leave is not None:
            steps.append((number, quote_text(field.name), leave))

    def leave_fields(value: list[Any]) -> str | None:
        return _join((name, leave(value[number])) for number, name, leave in steps)

    return leave_fields if steps else None


def _make_array(leave: Leave | None) -> Leave | None:
    if leave is None:
        return None

    def leave_items(value: list[Any]) -> str | None:
        parts = [leave(each) for each in value]
        return f"[{','.join(each or 'null' for each in parts)}]" if any(parts) else None

    return leave_items


def _make_map(leave: Leave | None) -> Leave | None:
    if leave is None:
        return None

    def leave_values(value: list[tuple[bytes, Any]]) -> str | None:
        keys = read_keys(value)
        return _join((quote_text(key), leave(each)) for key, (_, each) in zip(keys, value, strict=True))

    return leave_values


def _join(fields: Iterable[tuple[str, str | None]]) -> str | None:
    written = ",".join(f"{name}:{each}" for name, each in fields if each is not None)
    return f"{{{written}}}" if written else None
