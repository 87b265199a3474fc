"""What Avro values become in columns, by the type of the column: what a column never holds is not here.

Texts and nested values are made elsewhere: ``reference`` makes them, and ``projection`` says what they hold.
"""

from functools import partial
from typing import Any, assert_never

from batchledger.formats.decoding.avro.schema import AvroPrimitive, sort_of
from batchledger.formats.decoding.avro.texts import read_decimal, read_moment, within_days
from batchledger.formats.decoding.fitting import Fit, fit_decimal, make_float_fit, make_whole_fit
from batchledger.model.records.types import ColumnType, DecimalOf, Epoch, Floating, Integer, Json, Nested, Scalar

_WHOLE = ("int", "long")


def choose_fit(type_: AvroPrimitive, declared: ColumnType) -> Fit | None:  # noqa: C901, PLR0911 -- one a type
    """Return what makes a value of a column out of a written one; None if a column never holds such values.

    What is returned raises NoValueError.
    """
    sort = sort_of(type_)
    if sort == "null":
        return _keep
    match declared:
        case Scalar.BOOLEAN:
            return _keep if sort == "boolean" else None
        case Scalar.BINARY:
            is_held = sort in ("bytes", "fixed", "duration") or (sort == "uuid" and type_.kind == "fixed")
            return _keep if is_held else None
        case Scalar.DATE:
            return within_days if sort == "date" else None
        case Scalar.TIMESTAMP:
            return partial(read_moment, type_) if sort == "timestamp" else None
        case Integer():
            is_held = sort in _WHOLE or (sort == "time" and declared.bits == 64)
            return make_whole_fit(declared) if is_held else None
        case Floating() if sort in ("float", "double"):
            return make_float_fit(declared)
        case DecimalOf(precision, scale) if sort == "decimal":
            return lambda value: fit_decimal(read_decimal(type_, value), precision, scale)
        case Floating() | DecimalOf() | Epoch():
            return make_whole_fit(declared) if sort in _WHOLE else None
        case Scalar.STRING | Json() | Nested():
            return None
        case _:
            assert_never(declared)


def _keep(value: Any) -> Any:
    return value
