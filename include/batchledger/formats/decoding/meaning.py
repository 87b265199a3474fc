"""What a JSON token becomes in a column of a declared type; ``docs/reference/meaning.md`` is its test.

A token is accepted only if the column can hold exactly what the producer wrote. Nothing is completed, wrapped, rounded
or guessed. The one exception is binary floating point, whose fractions are the nearest value that the type has. Any
other token raises ``UnfitError``. Its text names the column and the kind of fault, and never a value: records are
counted by it.

A token is the exact text of one JSON value, without the white space around it, that a parser has found to be correct.
"""

import base64
import binascii
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, assert_never

import msgspec

from batchledger.model.records.columns import Column
from batchledger.model.records.types import UUID_FORM, DecimalOf, Epoch, Floating, Integer, Json, Nested, Scalar

LARGEST_EXACT_DOUBLE = 2**53
LARGEST_EXACT_FLOAT = 2**24
"""The type holds every whole number up to this one."""

EARLIEST_MICROSECONDS = -62_135_596_800_000_000
LATEST_MICROSECONDS = 253_402_300_799_999_999
"""The years 1 to 9999 of UTC, which tables and their clients can represent."""

ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
"""Hours from UTC, with minutes or without: ``Z``, ``+01:00``, ``+0100``, ``+01``."""

NO_UUID_TEXT = "a text of another form than 1b4e28ba-2fa1-11d2-883f-0016d3cca427"

_KIND_BY_FIRST_BYTE = {b'"': "a string", b"{": "an object", b"[": "an array", b"t": "a boolean", b"f": "a boolean"}
_QUOTE = ord('"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(
    rf"{_DAY.pattern}[T ]([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]+))?({ZONE})?",
)
_UUID = re.compile(UUID_FORM)
# A bigint has at most 19 digits and a sign.
_MOST_DIGITS = 20
# Without sign and leading zeros. A number with a longer exponent fits no column, nor does what is left of it.
_MOST_EXPONENT_DIGITS = 12
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_strings = msgspec.json.Decoder(str)

Reader = Callable[[bytes], Any]


class UnfitError(ValueError):
    """Why a record cannot become a row, in words that hold nothing of the record."""


def make_scalar_reader(column: Column) -> Reader:  # noqa: C901 -- one a type
    """Return the function that reads a token, not ``null``, as a value of a scalar type. Raises UnfitError."""
    read: Callable[[Column, bytes], Any]
    match type_ := column.type:
        case Scalar.STRING:
            read = _read_text
        case Scalar.BOOLEAN:
            read = _read_boolean
        case Scalar.DATE:
            read = _read_day
        case Scalar.TIMESTAMP:
            read = _read_moment
        case Scalar.BINARY:
            read = _read_bytes
        case Scalar.UUID:
            read = _read_uuid
        case Integer():
            return partial(_read_integer, column, 2 ** (type_.bits - 1))
        case Floating():
            read = _read_double if type_ is Floating.DOUBLE else _read_float
        case Epoch():
            return partial(_read_epoch, column, type_.microseconds)
        case DecimalOf(precision, scale):
            return partial(_read_decimal, column, precision, scale)
        case Json() | Nested():
            raise TypeError(type_)
        case _:
            assert_never(type_)
    return partial(read, column)


def make_text_reader(column: Column) -> Callable[[str], Any]:
    """Return the function that reads a text as a value of the column: the contents of a string, or another token.

    A record's key is such a text: ``12`` for an int, ``2026-11-22`` for a date.
    """
    if isinstance(column.type, Scalar) and column.type is not Scalar.BOOLEAN:
        read = make_scalar_reader(column)
        return lambda text: read(msgspec.json.encode(text))
    return partial(_read_bare, column, make_scalar_reader(column))


def _read_bare(column: Column, read: Reader, text: str) -> Any:
    if text not in ("true", "false") and _NUMBER.fullmatch(text) is None:
        raise unfit(column, "a text that is not its JSON")
    return read(text.encode())


def unfit(column: Column, what: str) -> UnfitError:
    """Return the error of a column that has no place for a value."""
    return UnfitError(f"{column.name} ({column.type}) cannot hold {what}")


def kind_of(token: bytes) -> str:
    """Return what a token is, in words."""
    return _KIND_BY_FIRST_BYTE.get(token[:1], "a number")


def _is_number(token: bytes) -> bool:
    return token[:1] not in _KIND_BY_FIRST_BYTE


def _read_string(token: bytes) -> str:
    return token[1:-1].decode() if b"\\" not in token else _strings.decode(token)


def _read_text(column: Column, token: bytes) -> str:
    """Keep anything but a string as it was written, so that nested JSON keeps its numbers."""
    if token[0] != _QUOTE:
        return token.decode()
    text = _read_string(token)
    if "\x00" in text:
        raise unfit(column, "U+0000")
    return text


def _read_boolean(column: Column, token: bytes) -> bool:
    if token in (b"true", b"false"):
        return token == b"true"
    raise unfit(column, kind_of(token))


def _read_integer(column: Column, bound: int, token: bytes) -> int:
    """``bound`` is 2 to the power of the type's bits without the sign."""
    number = _whole_number(column, token)
    if not -bound <= number < bound:
        raise unfit(column, "a number beyond its range")
    return number


def _whole_number(column: Column, token: bytes) -> int:
    if not _is_number(token):
        raise unfit(column, kind_of(token))
    if not token.removeprefix(b"-").isdigit():
        raise unfit(column, "a number with a fraction or an exponent")
    if len(token) > _MOST_DIGITS:
        raise unfit(column, "a number beyond its range")
    return int(token)


def _read_epoch(column: Column, microseconds: int, token: bytes) -> int:
    """The unit is ``microseconds`` long; returns microseconds since 1970."""
    return _within_years(column, _whole_number(column, token) * microseconds)


def _within_years(column: Column, moment: int) -> int:
    if not EARLIEST_MICROSECONDS <= moment <= LATEST_MICROSECONDS:
        raise unfit(column, "a moment outside of the years 1 to 9999")
    return moment


def _read_double(column: Column, token: bytes) -> float:
    return _as_written(column, token, _nearest_double(column, token), LARGEST_EXACT_DOUBLE)


def _read_float(column: Column, token: bytes) -> float:
    nearest = _nearest_double(column, token)
    try:
        value: float = struct.unpack("<f", struct.pack("<f", nearest))[0]
    except OverflowError:
        raise unfit(column, "a number beyond its range") from None
    if nearest and not value:
        raise unfit(column, "a number that is too close to 0")
    return _as_written(column, token, value, LARGEST_EXACT_FLOAT)


def _nearest_double(column: Column, token: bytes) -> float:
    if not _is_number(token):
        raise unfit(column, kind_of(token))
    value = float(token)
    if value in (float("inf"), float("-inf")):
        raise unfit(column, "a number beyond its range")
    if not value and re.search(rb"[1-9]", re.split(rb"[eE]", token)[0]):
        raise unfit(column, "a number that is too close to 0")
    return value


def _as_written(column: Column, token: bytes, value: float, largest_exact: int) -> float:
    """Refuse a whole number if the value has other digits: the number was an identifier or an amount, no measure.

    Example: 9007199254740993 would become 9007199254740992. 12345678901234567000 stays: it has as many digits as
    JavaScript writes of a double.
    """
    if abs(value) < largest_exact or not token.removeprefix(b"-").isdigit():
        return value
    digits = len(token.removeprefix(b"-").rstrip(b"0"))
    if Decimal(f"{value:.{max(digits, 1) - 1}e}") != Decimal(token.decode()):
        raise unfit(column, "a whole number with more digits than it keeps")
    return value


def _read_decimal(column: Column, precision: int, scale: int, token: bytes) -> Decimal:
    """Also from a string that holds a JSON number, as producers write amounts that must not pass through a double."""
    text = token.decode()
    if not _is_number(token):
        if token[0] != _QUOTE:
            raise unfit(column, kind_of(token))
        text = _read_string(token)
        if _NUMBER.fullmatch(text) is None:
            raise unfit(column, "a text that is not a number")
    sign, digits, exponent = _shortest(text)
    if digits and len(digits) + exponent > precision - scale:
        raise unfit(column, "a number beyond its range")
    if digits and -exponent > scale:
        raise unfit(column, f"a number with more than {scale} decimal places")
    return Decimal((sign, digits, exponent))


def _shortest(text: str) -> tuple[int, tuple[int, ...], int]:
    """Return sign, digits and exponent of a number, without zeros at the end; no digits for 0.

    The exponent may be beyond all that ``Decimal`` takes, so ``Decimal`` does not parse it.
    """
    mantissa, _, power = text.lower().partition("e")
    sign, digits, fraction = Decimal(mantissa).as_tuple()
    places = int(power.lstrip("+-").lstrip("0")[:_MOST_EXPONENT_DIGITS] or 0)
    exponent = int(fraction) + (-places if power.startswith("-") else places)
    kept = "".join(map(str, digits)).rstrip("0")
    if not kept:
        return 0, (), 0
    return sign, digits[: len(kept)], exponent + len(digits) - len(kept)


def _read_day(column: Column, token: bytes) -> int:
    """Days since 1970."""
    return _day_number(column, _match(column, _DAY, token))


def _match(column: Column, form: re.Pattern[str], token: bytes) -> re.Match[str]:
    if token[0] != _QUOTE:
        raise unfit(column, kind_of(token))
    found = form.fullmatch(_read_string(token))
    if found is None:
        example = "2026-11-22" if form is _DAY else "2026-11-22T01:02:03Z"
        raise unfit(column, f"a text of another form than {example}")
    return found


def _day_number(column: Column, found: re.Match[str]) -> int:
    year, month, day = map(int, found.groups()[:3])
    try:
        return date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        raise unfit(column, "a day that no calendar has") from None


def _read_moment(column: Column, token: bytes) -> int:
    """Microseconds since 1970; a moment that names no zone is in UTC."""
    found = _match(column, _MOMENT, token)
    days = _day_number(column, found)
    hour, minute, second = (int(found[place]) for place in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise unfit(column, "a time that no clock shows")
    fraction = (found[7] or "").rstrip("0")
    if len(fraction) > 6:
        raise unfit(column, "a moment with more than 6 digits of a second")
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - _seconds_from_utc(found[8])
    return _within_years(column, seconds * 1_000_000 + int(fraction.ljust(6, "0")))


def _seconds_from_utc(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = (int(digits[:2]) * 60 + int(digits[2:])) * 60
    return -seconds if zone[0] == "-" else seconds


def _read_bytes(column: Column, token: bytes) -> bytes:
    if token[0] != _QUOTE:
        raise unfit(column, kind_of(token))
    return decode_base64(column, _read_string(token))


def decode_base64(column: Column, text: str) -> bytes:
    """Return the bytes of a text in base64 of RFC 4648, section 4, with its padding. Raises UnfitError."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = None
    # Otherwise bits behind the last byte would be lost silently.
    if found is None or base64.b64encode(found).decode() != text:
        raise unfit(column, "a text that is not base64")
    return found


def _read_uuid(column: Column, token: bytes) -> str:
    if token[0] != _QUOTE:
        raise unfit(column, kind_of(token))
    found = spell_uuid(_read_string(token))
    if found is None:
        raise unfit(column, NO_UUID_TEXT)
    return found


def spell_uuid(text: str) -> str | None:
    """Return the text that a UUID has in a column, in lower case; None if the text is not one in ``UUID_FORM``."""
    return text.lower() if _UUID.fullmatch(text) else None
