"""What an Avro value becomes in a column of a declared type, one record at a time; the test is docs/reference/avro.md.

A value is accepted only if the column holds exactly what was written. Any other one raises ``UnfitError``, whose text
names the column and the kind of fault, and never a value.
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from batchledger.adapters.decoding.avro.projection import JSON_TYPES, AvroPlan, Leaf, plan_struct, sort_of
from batchledger.adapters.decoding.avro.schema import (
    AvroArray,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroType,
    AvroUnion,
)
from batchledger.adapters.decoding.avro.texts import (
    NoValueError,
    read_decimal,
    read_keys,
    read_moment,
    within_days,
    within_years,
    write_json,
    write_text,
)
from batchledger.adapters.decoding.avro.wire import WireReader
from batchledger.adapters.decoding.meaning import BITS_BY_INTEGER_TYPE, UnfitError
from batchledger.model.records.columns import EPOCH_UNITS, decimal_size
from batchledger.model.records.nested import ArrayOf, MapOf, StructOf, take_apart

Fit = Callable[[Any], Any]
"""Makes a value of a column out of a value as ``WireReader`` gives it. Raises UnfitError."""

BEYOND = "a number beyond its range"
MORE_DIGITS = "a whole number with more digits than it keeps"


class ReferenceReader:
    """Reads records as the values of the columns of a plan."""

    def __init__(self, schema: AvroSchema, plan: AvroPlan, columns: int) -> None:
        self._wire = WireReader(schema)
        self._set = _make_setter(schema, plan)
        self._columns = columns

    def read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        fields = self._wire.read_record(value)
        row: list[Any] = [None] * self._columns
        self._set(fields, row)
        return row


def _make_setter(schema: AvroSchema, plan: AvroPlan) -> Callable[[list[Any], list[Any]], None]:
    """Return what puts the fields of a record at the places of their leaves."""
    steps: list[tuple[int, int, Fit]] = []
    deeper: list[tuple[int, AvroType, Callable[[list[Any], list[Any]], None]]] = []
    for number, field in enumerate(plan.fields):
        steps += [(number, leaf.place, make_fit(schema, field.type, leaf)) for leaf in field.leaves]
        if field.within is not None:
            deeper.append((number, field.type, _make_setter(schema, field.within)))

    def set_all(fields: list[Any], row: list[Any]) -> None:
        for number, place, fit in steps:
            row[place] = fit(fields[number])
        for number, type_, set_deeper in deeper:
            inner = fields[number]
            if isinstance(schema.resolve(type_), AvroUnion):
                inner = inner[1]
            if inner is not None:
                set_deeper(inner, row)

    return set_all


def make_fit(schema: AvroSchema, type_: AvroType, leaf: Leaf) -> Fit:
    """Return what makes a value of a leaf out of a written one."""
    found, apart = schema.resolve(type_), take_apart(leaf.type)
    if leaf.type in JSON_TYPES:
        return _name_errors(leaf, _make_text(schema, found, leaf.type))
    match found:
        case AvroUnion():
            fits = [make_fit(schema, branch, leaf) for branch in found.branches]
            return lambda value: fits[value[0]](value[1])
        case AvroArray() if isinstance(apart, ArrayOf):
            element = make_fit(schema, found.items, Leaf(0, f"{leaf.name}[]", apart.element))
            return lambda value: [element(each) for each in value]
        case AvroMap() if isinstance(apart, MapOf):
            read = _name_errors(leaf, _read_keys)
            of_value = make_fit(schema, found.values, Leaf(0, f"{leaf.name}[]", apart.value))
            return lambda value: [(key, of_value(each[1])) for key, each in zip(read(value), value, strict=True)]
        case AvroRecord() if isinstance(apart, StructOf):
            return _make_struct(schema, found, leaf.name, apart)
        case AvroPrimitive():
            return _name_errors(leaf, _make_scalar(found, leaf.type))
        case _:
            raise TypeError(leaf.type)


def _make_struct(schema: AvroSchema, record: AvroRecord, name: str, struct_: StructOf) -> Fit:
    set_all = _make_setter(schema, plan_struct(schema, record, name, struct_))
    names = [field.name for field in struct_.fields]

    def fit(value: list[Any]) -> dict[str, Any]:
        row: list[Any] = [None] * len(names)
        set_all(value, row)
        return dict(zip(names, row, strict=True))

    return fit


def _name_errors(leaf: Leaf, fit: Fit) -> Fit:
    def fit_or_name(value: Any) -> Any:
        try:
            return fit(value)
        except NoValueError as error:
            raise UnfitError(f"{leaf.name} ({leaf.type}) cannot hold {error}") from None

    return fit_or_name


def _read_keys(value: list[tuple[bytes, Any]]) -> list[str]:
    keys = read_keys(value)
    if any("\x00" in key for key in keys):
        raise NoValueError("U+0000")
    return keys


def _make_text(schema: AvroSchema, type_: AvroType, declared: str) -> Fit:
    if declared == "string":
        return lambda value: write_text(schema, type_, value)

    def write(value: Any) -> str | None:
        if type_ == AvroPrimitive("null") or (
            isinstance(type_, AvroUnion) and type_.branches[value[0]] == AvroPrimitive("null")
        ):
            return None
        text = write_json(schema, type_, value)
        # An escaped backslash escapes nothing.
        if "\\u0000" in text.replace("\\\\", ""):
            raise NoValueError("U+0000")
        return text

    return write


def _make_scalar(type_: AvroPrimitive, declared: str) -> Fit:
    match sort_of(type_):
        case "null" | "boolean" | "bytes" | "fixed" | "duration" | "uuid":
            return lambda value: value
        case "decimal":
            return lambda value: _fit_decimal(read_decimal(type_, value), *decimal_size(declared))
        case "date":
            return within_days
        case "timestamp":
            return lambda value: read_moment(type_, value)
        case "float" | "double":
            return float if declared == "double" else _fit_float
        case _:
            return _make_whole(declared)


def _make_whole(declared: str) -> Fit:
    if declared in EPOCH_UNITS:
        return lambda value: within_years(value * EPOCH_UNITS[declared])
    match declared:
        case "double":
            return _fit_whole_in_double
        case "float" | "real":
            return _fit_whole_in_float
        case _ if declared.startswith("decimal"):
            precision, scale = decimal_size(declared)
            return lambda value: _fit_decimal(Decimal(value), precision, scale)
        case _:
            bound = 2 ** (BITS_BY_INTEGER_TYPE[declared] - 1)
            return lambda value: _fit_integer(value, bound)


def _fit_integer(value: int, bound: int) -> int:
    if not -bound <= value < bound:
        raise NoValueError(BEYOND)
    return value


def _fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
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
