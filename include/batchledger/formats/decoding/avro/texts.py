"""Avro values as texts: what a ``string`` column holds of a value that is no text, and JSON of nested ones.

The text of a value is always the same: without white space, with the fields of a record in the order of the schema.
"""

import base64
import math
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import msgspec

from batchledger.formats.decoding.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroLink,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroType,
    AvroUnion,
    is_text,
    sort_of,
)
from batchledger.formats.decoding.fitting import NoValueError, within_years
from batchledger.formats.decoding.meaning import EARLIEST_MICROSECONDS, LATEST_MICROSECONDS

NOT_UTF8_TEXT = "a text that is not valid UTF-8"
NO_SUCH_TIME = "a time that no clock shows"

# Of UTC, as is all that is counted from it.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_OF_DAY = 86_400_000_000
EARLIEST_DAY = EARLIEST_MICROSECONDS // _MICROSECONDS_OF_DAY
LATEST_DAY = LATEST_MICROSECONDS // _MICROSECONDS_OF_DAY
_MOST_DIGITS = 10_000


def write_json(schema: AvroSchema, type_: AvroType, value: Any) -> str:
    """Return a value as JSON: bytes in base64, decimals as plain numbers, moments as ISO 8601 texts in UTC.

    Raises NoValueError.
    """
    return "".join(_write(schema, type_, value))


def write_text(schema: AvroSchema, type_: AvroType, value: Any) -> str | None:
    """Return what a ``string`` column holds: a text as it is, the JSON of anything else without quotes around it.

    Raises NoValueError.
    """
    found = schema.resolve(type_)
    if isinstance(found, AvroUnion):
        branch, within = value
        return write_text(schema, found.branches[branch], within)
    if isinstance(found, AvroEnum):
        symbol: str = found.symbols[value]
        return symbol
    if isinstance(found, AvroPrimitive):
        if found.kind == "null":
            return None
        text = read_text(value) if is_text(found) else write_scalar(found, value)
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


def _write(schema: AvroSchema, type_: AvroType, value: Any) -> Iterator[str]:
    found = schema.resolve(type_)
    match found:
        case AvroUnion():
            branch, within = value
            yield from _write(schema, found.branches[branch], within)
        case AvroEnum():
            yield quote_text(found.symbols[value])
        case AvroArray():
            yield from _enclose("[", (("", found.items, each) for each in value), "]", schema)
        case AvroMap():
            keys = read_keys(value)
            pairs = zip(keys, value, strict=True)
            yield from _enclose(
                "{", ((f"{quote_text(key)}:", found.values, each[1]) for key, each in pairs), "}", schema
            )
        case AvroRecord():
            fields = zip(found.fields, value, strict=True)
            yield from _enclose("{", ((f"{quote_text(f.name)}:", f.type, each) for f, each in fields), "}", schema)
        case AvroLink():
            raise TypeError(found)
        case AvroPrimitive():
            text = read_text(value) if is_text(found) else write_scalar(found, value)
            yield quote_text(text) if _is_quoted(found, value) else text


def _enclose(start: str, parts: Iterator[tuple[str, AvroType, Any]], end: str, schema: AvroSchema) -> Iterator[str]:
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


def _is_quoted(type_: AvroPrimitive, value: Any) -> bool:
    match sort_of(type_):
        case "null" | "boolean" | "int" | "long" | "decimal":
            return False
        case "float" | "double":
            return not math.isfinite(value)
        case _:
            return True


def write_scalar(type_: AvroPrimitive, value: Any) -> str:  # noqa: PLR0911 -- one a kind
    """Return the text of a value that is no text itself. Raises NoValueError."""
    match sort_of(type_):
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


def read_decimal(type_: AvroPrimitive, value: bytes) -> Decimal:
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


def read_moment(type_: AvroPrimitive, value: int) -> int:
    """Return microseconds since 1970. Raises NoValueError."""
    microseconds = value
    if type_.logical == "timestamp-millis":
        microseconds = value * 1_000
    elif type_.logical == "timestamp-nanos":
        microseconds, rest = divmod(value, 1_000)
        if rest:
            raise NoValueError("a moment with more than 6 digits of a second")
    return within_years(microseconds)
