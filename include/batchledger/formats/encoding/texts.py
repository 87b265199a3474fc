"""How a value is written in a record of an output topic; ``docs/guides/topic.md`` says it in words.

The texts are PostgreSQL's (``row_to_json``, ``::text`` and ``jsonb_build_array``), as a session in UTC writes them: the
first version let PostgreSQL write them, and readers of a topic rely on it. ``tests/contract/test_output_texts.py``
compares them with a real one. ``blocks`` writes many values at once, and leaves to this module what it is not sure of.

A moment is a number of microseconds since 1970, a date a number of days. Both are of any year.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import frexp
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

Write = Callable[[Any], str]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)
_DAYS_OF_400_YEARS = 146_097
_MICROSECONDS_OF_A_DAY = 86_400_000_000
_MOST_DIGITS = 17
_BITS_OF_A_DOUBLE, _BITS_OF_A_FLOAT = 53, 24
# The mantissa of a power of two, as frexp gives it.
_POWER_OF_TWO = 0.5


def make_writer(type_: pa.DataType) -> Write:
    """Return the function that writes a value of the type, not null, as a JSON token."""
    write = make_text_writer(type_)
    if pa.types.is_floating(type_):
        return lambda value: write(value) if np.isfinite(value) else write_string(write(value))
    if pa.types.is_timestamp(type_):
        zone = "+00:00" if type_.tz else ""
        return lambda value: write_string(write_moment(value, "T", zone))
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return write
    return lambda value: write_string(write(value))


def make_element_writer(type_: pa.DataType) -> Write:
    """Return the function that writes a value as an element of a key: JSON, but numbers have no exponent, 0 no sign."""
    write = make_writer(type_)
    if not pa.types.is_floating(type_):
        return write
    # The sum makes 0 of -0.
    return lambda value: f"{Decimal(write(value + 0.0)):f}" if np.isfinite(value) else write(value)


def make_text_writer(type_: pa.DataType) -> Write:
    """Return the function that writes a value as the text that it has by itself, which is the key of one column."""
    write: Write = str
    match type_:
        case _ if pa.types.is_floating(type_):
            write = partial(write_float, bits=type_.bit_width)
        case _ if pa.types.is_timestamp(type_):
            write = partial(write_moment, between=" ", zone="+00" if type_.tz else "")
        case _ if pa.types.is_date(type_):
            write = write_date
        case _ if pa.types.is_decimal(type_):
            write = "{:f}".format
        case _ if pa.types.is_boolean(type_):
            write = _write_boolean
        case _ if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
            write = _write_bytes
        case _:
            # Texts and whole numbers.
            pass
    return write


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


def _write_bytes(value: bytes) -> str:
    return rf"\x{value.hex()}"


def write_string(text: str) -> str:
    """Return a JSON string: only quotes, backslashes and control characters are escaped."""
    return msgspec.json.encode(text).decode()


def write_float(value: float, bits: int) -> str:
    """Return the shortest digits that lie nearer to this number than to its neighbours; 32 or 64 bits.

    A text that lies exactly between two numbers stands for neither: 1e23 is 9.999999999999999e+22. An exponent is
    written below 0.0001, and from 1e15 on, with 32 bits from 1e6 on.
    """
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if np.signbit(value) else ""
    if value == 0:
        return f"{sign}0"
    digits, exponent = _find_digits(abs(np.float32(value) if bits == 32 else np.float64(value)))
    if not -4 <= exponent < (6 if bits == 32 else 15):
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    before_point = max(exponent + 1, 0)
    whole = digits[:before_point].ljust(before_point, "0") or "0"
    fraction = "0" * (-exponent - 1) + digits[before_point:]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _find_digits(number: Any) -> tuple[str, int]:
    """Return digits without zeros at the end, and the exponent of the first one. Example: 0.025 gives 25 and -2."""
    text = np.format_float_scientific(number, unique=True, trim="-")
    bits = _BITS_OF_A_DOUBLE if isinstance(number, np.float64) else _BITS_OF_A_FLOAT
    # Below, no short text lies exactly between two numbers.
    if number >= 2**bits:
        exact, step = Fraction(int(number)), Fraction(2 ** (frexp(number)[1] - bits))
        # Below a power of two, numbers are twice as dense.
        below = exact - step / (4 if frexp(number)[0] == _POWER_OF_TWO else 2)
        longer = (f"{float(number):.{count}e}" for count in range(_MOST_DIGITS))
        text = next(each for each in (text, *longer) if below < Fraction(each) < exact + step / 2)
    digits, _, exponent = text.partition("e")
    return digits.replace(".", "").rstrip("0"), int(exponent)


def write_date(days: int) -> str:
    """Return the date so many days after 1970-01-01."""
    whole, rest = divmod(days, _DAYS_OF_400_YEARS)
    day = (_EPOCH + timedelta(rest)).date()
    return _write_year(day, 400 * whole, "")


def write_moment(microseconds: int, between: str, zone: str) -> str:
    """Return date, ``between``, time with as many digits as it needs, and ``zone``."""
    days, rest = divmod(microseconds, _MICROSECONDS_OF_A_DAY)
    time = (_EPOCH + timedelta(microseconds=rest)).time()
    fraction = f".{time.microsecond:06d}".rstrip("0") if time.microsecond else ""
    whole, left = divmod(days, _DAYS_OF_400_YEARS)
    return _write_year((_EPOCH + timedelta(left)).date(), 400 * whole, f"{between}{time:%H:%M:%S}{fraction}{zone}")


def _write_year(day: date, later_by: int, rest: str) -> str:
    """Return the day, so many years later, and what follows. The year before 1 is 1 BC."""
    year = day.year + later_by
    return f"{year if year > 0 else 1 - year:04d}-{day:%m-%d}{rest}{'' if year > 0 else ' BC'}"
