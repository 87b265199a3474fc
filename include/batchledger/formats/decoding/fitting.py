"""What numbers and moments become in a column, for formats whose values have types: Avro and Protobuf.

A value is accepted only if the column holds exactly what was written. The tests are the pages of the formats.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from batchledger.formats.decoding.meaning import EARLIEST_MICROSECONDS, LATEST_MICROSECONDS, UnfitError
from batchledger.model.records.types import ColumnType, DecimalOf, Epoch, Floating, Integer, Json, NumberType, Scalar

JSON_TYPES = (Scalar.STRING, Json.JSONB)
"""Types of columns that hold almost every value as a text."""

Fit = Callable[[Any], Any]
"""Makes a value of a column out of a value of the format. Raises UnfitError."""

BEYOND = "a number beyond its range"
MORE_DIGITS = "a whole number with more digits than it keeps"
OUTSIDE_OF_YEARS = "a moment outside of the years 1 to 9999"


class NoValueError(ValueError):
    """What a value is that a column cannot hold, as an error ends."""


@dataclass(frozen=True)
class Leaf:
    """The column at a place, which a field becomes; ``name`` is for errors."""

    place: int
    name: str
    type: ColumnType


def name_errors(leaf: Leaf, fit: Fit) -> Fit:
    """Return the function whose errors name the column."""

    def fit_or_name(value: Any) -> Any:
        try:
            return fit(value)
        except NoValueError as error:
            raise UnfitError(f"{leaf.name} ({leaf.type}) cannot hold {error}") from None

    return fit_or_name


def require_no_zero(text: str) -> str:
    """Return JSON that a database can hold. Raises NoValueError."""
    # An escaped backslash escapes nothing.
    if "\\u0000" in text.replace("\\\\", ""):
        raise NoValueError("U+0000")
    return text


def within_years(microseconds: int) -> int:
    """Return the moment, counted from 1970. Raises NoValueError."""
    if not EARLIEST_MICROSECONDS <= microseconds <= LATEST_MICROSECONDS:
        raise NoValueError(OUTSIDE_OF_YEARS)
    return microseconds


def make_whole_fit(declared: NumberType) -> Fit:
    """Return what makes a value of a column out of a whole number. Raises NoValueError."""
    match declared:
        case Integer():
            bound = 2 ** (declared.bits - 1)
            return lambda value: _fit_integer(value, bound)
        case Floating():
            return _fit_whole_in_double if declared is Floating.DOUBLE else _fit_whole_in_float
        case Epoch():
            unit = declared.microseconds
            return lambda value: within_years(value * unit)
        case DecimalOf(precision, scale):
            return lambda value: fit_decimal(Decimal(value), precision, scale)


def _fit_integer(value: int, bound: int) -> int:
    if not -bound <= value < bound:
        raise NoValueError(BEYOND)
    return value


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return the decimal without zeros at its end. Raises NoValueError."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    if not kept:
        return Decimal(0)
    exponent = int(exponent) + len(text) - len(kept)
    if len(kept) + exponent > precision - scale:
        raise NoValueError(BEYOND)
    if -exponent > scale:
        raise NoValueError(f"a number with more than {scale} decimal places")
    return Decimal((sign, tuple(map(int, kept)), exponent))


def _fit_whole_in_double(value: int) -> float:
    if int(float(value)) != value:
        raise NoValueError(MORE_DIGITS)
    return float(value)


def _fit_whole_in_float(value: int) -> float:
    # Through a double a number could be rounded twice; then it is not exact in either.
    if int(_nearest_float(float(value))) != value:
        raise NoValueError(MORE_DIGITS)
    return float(value)


def make_float_fit(declared: Floating) -> Fit:
    """Return what makes a value of a column out of a double or a float. Raises NoValueError."""
    return float if declared is Floating.DOUBLE else _fit_float


def _fit_float(value: float) -> float:
    """The nearest float; every value that is written as a float stays itself."""
    if not math.isfinite(value):
        return value
    nearest = _nearest_float(value)
    if value and not nearest:
        raise NoValueError("a number that is too close to 0")
    return nearest


def _nearest_float(value: float) -> float:
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise NoValueError(BEYOND) from None
    return nearest
