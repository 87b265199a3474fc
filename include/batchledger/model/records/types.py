"""The types that columns are declared with, as values: parsed once, where a text enters.

``str`` of a type is its one text, which files, ledger and messages show. Each wing of the package maps the types in one
``match`` that ends in ``assert_never``, so that the type checker names what a new member lacks. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from typing_extensions import override

from batchledger.model.quoting import quote

WITHIN = "[]"
"""What an element of an array and a value of a map are called in a path: ``items[].price``."""

MOST_TYPES_DEEP = 20
"""How many types may lie within each other."""

MOST_DIGITS = 38
"""The largest precision of a decimal."""

UUID_FORM = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
"""The one text of a UUID that both RFC 9562 and PostgreSQL know: 32 digits in groups, in either case."""

_NESTED = re.compile(r"(?P<kind>array|map|struct)\s*<(?P<inner>.*)>", re.DOTALL | re.IGNORECASE)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_FIELD = re.compile(rf"(?P<name>{_NAME})\s*(?::|\s)\s*(?P<type>.+)", re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\)")

_BITS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}
_MICROSECONDS = {"timestamp_s": 1_000_000, "timestamp_ms": 1_000, "timestamp_us": 1}


class _Named(Enum):
    """A type whose text is its value."""

    @override
    def __str__(self) -> str:
        return str(self.value)


class Scalar(_Named):
    """Values that are neither numbers nor have values within."""

    STRING = "string"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    UUID = "uuid"


class Integer(_Named):
    """Whole numbers with a sign; several names have the same width."""

    TINYINT = "tinyint"
    BYTE = "byte"
    SMALLINT = "smallint"
    SHORT = "short"
    INT = "int"
    INTEGER = "integer"
    BIGINT = "bigint"
    LONG = "long"

    @property
    def bits(self) -> int:
        """The width, with the sign."""
        return _BITS[self.value]


class Floating(_Named):
    """Binary floating point."""

    FLOAT = "float"
    REAL = "real"
    DOUBLE = "double"


class Epoch(_Named):
    """Timestamps that a record holds as a number since 1970."""

    SECONDS = "timestamp_s"
    MILLISECONDS = "timestamp_ms"
    MICROSECONDS = "timestamp_us"

    @property
    def microseconds(self) -> int:
        """The length of its unit."""
        return _MICROSECONDS[self.value]


class Json(_Named):
    """Any JSON, as its text. It has one member."""

    JSONB = "jsonb"


@dataclass(frozen=True, slots=True)
class DecimalOf:
    """Decimals of so many digits, ``scale`` of them behind the point."""

    precision: int
    scale: int

    @override
    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


class Nested:
    """A type with others within."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ArrayOf(Nested):
    """An array of values of one type."""

    element: "ColumnType"

    @override
    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf(Nested):
    """Values of one type by names that are texts."""

    value: "ColumnType"

    @override
    def __str__(self) -> str:
        return f"map<string, {self.value}>"


class StructField(NamedTuple):
    """A field of a struct, with its type."""

    name: str
    type: "ColumnType"


@dataclass(frozen=True, slots=True)
class StructOf(Nested):
    """An object whose fields are known."""

    fields: tuple[StructField, ...]

    @override
    def __str__(self) -> str:
        return f"struct<{', '.join(f'{each.name} {each.type}' for each in self.fields)}>"


NumberType: TypeAlias = Integer | Floating | Epoch | DecimalOf
"""What whole numbers fit into."""
ScalarType: TypeAlias = Scalar | NumberType
"""Without values within, so that it can be a key."""
ColumnType: TypeAlias = ScalarType | Json | ArrayOf | MapOf | StructOf

NAMED_TYPES: Mapping[str, Scalar | Integer | Floating | Epoch | Json] = MappingProxyType(
    {
        str(each): each
        for each in (
            Scalar.STRING, Scalar.BOOLEAN, *Integer, *Floating, Scalar.DATE, Scalar.TIMESTAMP, Scalar.BINARY,
            Scalar.UUID, *Json, *Epoch,
        )
    }
)  # fmt: skip
"""The types that a name alone declares, in the order in which people read them."""


def parse_type(text: str) -> ColumnType:
    """Return the type that a text declares, in whatever form. Raises ValueError with what is allowed."""
    return _parse(text, MOST_TYPES_DEEP)


def list_within(type_: ColumnType) -> Sequence[tuple[str, ColumnType]]:
    """Return name and type of each part: the fields of a struct, or what is in an array or a map as ``WITHIN``."""
    match type_:
        case ArrayOf(each) | MapOf(each):
            return [(WITHIN, each)]
        case StructOf(fields):
            return fields
        case _:
            return []


def has_json(type_: ColumnType) -> bool:
    """Whether a value is JSON, or has JSON within."""
    return isinstance(type_, Json) or any(has_json(each) for _, each in list_within(type_))


def may_name_field(name: str) -> bool:
    """Whether a struct can declare a field of this name."""
    return re.fullmatch(_NAME, name) is not None


def _parse(text: str, levels: int) -> ColumnType:
    text = text.strip()
    found = _NESTED.fullmatch(text)
    if found is None:
        return _parse_plain(text.lower())
    if not levels:
        raise ValueError(f"more than {MOST_TYPES_DEEP} types lie within each other")
    within = [each.strip() for each in split_outside(found["inner"])]
    match found["kind"].lower(), within:
        case "array", [element]:
            return ArrayOf(_parse(element, levels - 1))
        case "map", [key, value]:
            if key.lower() != "string":
                raise ValueError("the names of a map are texts; write map<string, type>")
            return MapOf(_parse(value, levels - 1))
        case "struct", fields:
            return StructOf(tuple(_parse_fields(fields, levels - 1)))
        case kind, _:
            form = "array<type>" if kind == "array" else "map<string, type>"
            raise ValueError(f"{quote(text)} has another number of types than {form}")


def _parse_plain(text: str) -> ColumnType:
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        precision, scale = int(decimal["precision"]), int(decimal["scale"] or 0)
        if not 0 < precision <= MOST_DIGITS or scale > precision:
            raise ValueError(f"{text} is not between decimal(1,0) and decimal(38,38)")
        return DecimalOf(precision, scale)
    if text not in NAMED_TYPES:
        raise ValueError(
            f"type {quote(text)} is not known; allowed are {', '.join(NAMED_TYPES)}, decimal(p,s), "
            "array<type>, map<string, type>, struct<name type, ...>"
        )
    return NAMED_TYPES[text]


def _parse_fields(fields: list[str], levels: int) -> Iterator[StructField]:
    seen = set()
    for text in fields:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise ValueError(f"{quote(text)} is not a field; write struct<name type, name type>")
        name = found["name"]
        if name.lower() in seen:
            raise ValueError(f"field {quote(name)} appears twice")
        seen.add(name.lower())
        try:
            yield StructField(name, _parse(found["type"], levels))
        except ValueError as error:
            raise ValueError(f"field {quote(name)}: {error}") from None


def split_outside(text: str) -> Iterator[str]:
    """Yield what lies between commas that are within no brackets."""
    start = depth = 0
    for place, character in enumerate(text):
        if character in "(<":
            depth += 1
        elif character in ")>":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
