"""Types with a type within: ``array<bigint>``, ``map<string, double>``, ``struct<id bigint, tag string>``. Pure.

A declared type is kept as one text, in the one form that ``normalize`` writes. ``take_apart`` gives what it is made of.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from batchledger.model.quoting import quote

WITHIN = "[]"
"""What an element of an array and a value of a map are called in a path: ``items[].price``."""

MOST_TYPES_DEEP = 20
"""How many types may lie within each other."""

_NESTED = re.compile(r"(?P<kind>array|map|struct)\s*<(?P<inner>.*)>", re.DOTALL | re.IGNORECASE)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_FIELD = re.compile(rf"(?P<name>{_NAME})\s*(?::|\s)\s*(?P<type>.+)", re.DOTALL)


class StructField(NamedTuple):
    """A field of a struct, with its declared type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array of values of one declared type."""

    element: str


@dataclass(frozen=True, slots=True)
class MapOf:
    """Values of one declared type by names that are texts."""

    value: str


@dataclass(frozen=True, slots=True)
class StructOf:
    """An object whose fields are known."""

    fields: tuple[StructField, ...]


def take_apart(type_: str) -> ArrayOf | MapOf | StructOf | None:
    """Return what a declared type is made of, None for a type without another one within."""
    if not type_.endswith(">"):
        return None
    kind, _, inner = type_[:-1].partition("<")
    match kind:
        case "array":
            return ArrayOf(inner)
        case "map":
            return MapOf(inner.partition(", ")[2])
        case _:
            return StructOf(tuple(StructField(*each.strip().split(" ", 1)) for each in split_outside(inner)))


def put_together(inner: ArrayOf | MapOf | StructOf) -> str:
    """Return the declared type that ``take_apart`` takes apart like this."""
    match inner:
        case ArrayOf(element):
            return f"array<{element}>"
        case MapOf(value):
            return f"map<string, {value}>"
        case StructOf(fields):
            return f"struct<{', '.join(f'{each.name} {each.type}' for each in fields)}>"


def list_within(inner: ArrayOf | MapOf | StructOf | None) -> Sequence[tuple[str, str]]:
    """Return name and type of each part: the fields of a struct, or what is in an array or a map as ``WITHIN``."""
    match inner:
        case ArrayOf(each) | MapOf(each):
            return [(WITHIN, each)]
        case StructOf(fields):
            return fields
        case None:
            return []


def may_name_field(name: str) -> bool:
    """Whether a struct can declare a field of this name."""
    return re.fullmatch(_NAME, name) is not None


def is_nested(type_: str) -> bool:
    """Whether a declared type has another one within."""
    return type_.endswith(">")


def normalize(text: str, normalize_scalar: Callable[[str], str], levels: int = MOST_TYPES_DEEP) -> str:
    """Return a type in its one form. Raises ValueError, as ``normalize_scalar`` does for what is not nested."""
    found = _NESTED.fullmatch(text.strip())
    if found is None:
        return normalize_scalar(text.strip())
    if not levels:
        raise ValueError(f"more than {MOST_TYPES_DEEP} types lie within each other")
    within = [each.strip() for each in split_outside(found["inner"])]
    match found["kind"].lower(), within:
        case "array", [element]:
            return put_together(ArrayOf(normalize(element, normalize_scalar, levels - 1)))
        case "map", [key, value]:
            if key.lower() != "string":
                raise ValueError("the names of a map are texts; write map<string, type>")
            return put_together(MapOf(normalize(value, normalize_scalar, levels - 1)))
        case "struct", fields:
            return put_together(StructOf(tuple(_normalize_fields(fields, normalize_scalar, levels - 1))))
        case kind, _:
            form = "array<type>" if kind == "array" else "map<string, type>"
            raise ValueError(f"{quote(text.strip())} has another number of types than {form}")


def _normalize_fields(fields: list[str], normalize_scalar: Callable[[str], str], levels: int) -> Iterator[StructField]:
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
            yield StructField(name, normalize(found["type"], normalize_scalar, levels))
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
