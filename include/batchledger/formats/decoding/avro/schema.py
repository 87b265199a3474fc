"""The writer's schema of Avro values as frozen types; named types are resolved, logical types checked.

As the specification of Avro says, a logical type that is unknown or does not fit its type is passed over: the values
are then of the type without it.

A short schema may stand for huge values: a named type counts wherever its name stands, and a name, a symbol or the
places of a decimal are written with each value. So these are bounded here, and whatever reads values relies on it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from batchledger.model.quoting import quote

_KINDS = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_UUID_BYTES, _DURATION_BYTES = 16, 12

MOST_FIELDS = 10_000
"""How many fields each value of a record may have; fields of records within count, too."""

LONGEST_NAME = 250
MOST_DIGITS = 1_000
"""The precision of a decimal; a column of PostgreSQL has no larger one."""

_LARGEST_FIXED_BYTES = 2**31 - 1
_BRANCHES_SHOWN = 5

_LOGICAL: Mapping[str, str] = MappingProxyType(
    {
        "date": "int",
        "time-millis": "int",
        "time-micros": "long",
        "timestamp-millis": "long",
        "timestamp-micros": "long",
        "timestamp-nanos": "long",
    }
)
"""Logical types of numbers, with the type that they stand on; a local timestamp is one in UTC."""


class AvroSchemaError(ValueError):
    """Why values of a writer's schema can never become the declared columns."""


@dataclass(frozen=True)
class Primitive:
    """A type without another one within. ``size`` is the number of bytes of a ``fixed``."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0


@dataclass(frozen=True)
class Enum:
    """One of these texts, written as its place."""

    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Array:
    """Values of one type."""

    items: "Type"


@dataclass(frozen=True)
class Map:
    """Values of one type by texts."""

    values: "Type"


@dataclass(frozen=True)
class RecordField:
    """A field of a record. ``default`` is JSON, and counts in a reader's schema alone, as ``aliases`` do."""

    name: str
    type: "Type"
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True)
class RecordType:
    """Fields in the order in which they are written."""

    fields: tuple[RecordField, ...]

    @cached_property
    def size(self) -> int:
        """How many fields each value has, also within records that are neither in a union nor in an array or a map."""
        return sum(1 + each.type.size if isinstance(each.type, RecordType) else 1 for each in self.fields)


@dataclass(frozen=True)
class Union:
    """A value of one of these types, after its place."""

    branches: tuple["Type", ...]


@dataclass(frozen=True)
class TypeLink:
    """A named type within itself; ``Schema.named`` has it."""

    name: str


Type = Primitive | Enum | Array | Map | RecordType | Union | TypeLink


@dataclass(frozen=True)
class Schema:
    """The record that each value is, and all named types by their full names."""

    root: RecordType
    named: Mapping[str, Type]
    is_recursive: bool

    def resolve(self, type_: Type) -> Type:
        """Return the type itself in place of a link to it."""
        return self.named[type_.name] if isinstance(type_, TypeLink) else type_


def parse_schema(text: str, references: Sequence[tuple[str, str]] = (), subject: str = "the writer's schema") -> Schema:
    """Read a schema and the named types that it uses, each after what it uses itself.

    Raises AvroSchemaError, which begins with ``subject``.
    """
    parser = _Parser(subject)
    try:
        for _, reference in references:
            parser.parse(_load(reference), "")
        root = parser.parse(_load(text), "")
    except (RecursionError, OverflowError):
        raise AvroSchemaError(f"{subject} is nested too deep, or has a size that no value has") from None
    if not isinstance(root, RecordType):
        raise AvroSchemaError(f"{subject} is not a record, and columns are the fields of one")
    return Schema(root, parser.named, parser.is_recursive)


def sort_of(type_: Primitive) -> str:
    """Return the logical type without its unit; without a logical type, the type itself."""
    return type_.logical.partition("-")[0] or type_.kind


def is_text(type_: Type) -> bool:
    """Whether a value is a text by itself."""
    return isinstance(type_, Enum) or (isinstance(type_, Primitive) and type_.kind == "string")


def describe(type_: Type) -> str:
    """Return the type in a few words, for an error."""
    match type_:
        case Primitive():
            return f"{type_.kind} ({type_.logical})" if type_.logical else type_.kind
        case Union():
            more = len(type_.branches) - _BRANCHES_SHOWN
            shown = ", ".join(map(describe, type_.branches[:_BRANCHES_SHOWN]))
            return f"a union of {shown}{f' and {more} more' if more > 0 else ''}"
        case Enum():
            return "an enum"
        case Array():
            return "an array"
        case Map():
            return "a map"
        case RecordType() | TypeLink():
            return "a record"


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A primitive type may stand there without quotes.
        return text.strip()


class _Parser:
    """Reads one schema after the other; a later one may use the names of those before it."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.named: dict[str, Type] = {}
        self.is_recursive = False
        self._open: set[str] = set()

    def parse(self, schema: Any, namespace: str) -> Type:  # noqa: PLR0911 -- one a kind
        match schema:
            case str():
                return Primitive(schema) if schema in _KINDS else self._find(schema, namespace)
            case list():
                if schema.count("null") > 1:
                    raise AvroSchemaError(f"{self._subject} has a union with null twice, which Avro does not allow")
                return Union(tuple(self.parse(each, namespace) for each in schema))
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._define(schema, namespace)
            case {"type": "array", "items": items}:
                return Array(self.parse(items, namespace))
            case {"type": "map", "values": values}:
                return Map(self.parse(values, namespace))
            case {"type": str(kind)} if kind in _KINDS:
                return self._add_logical(Primitive(kind), schema)
            case {"type": inner}:
                return self.parse(inner, namespace)
            case _:
                raise AvroSchemaError(f"{self._subject} is not one of Avro: a type has neither a name nor a kind")

    def _find(self, name: str, namespace: str) -> Type:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self.named or full in self._open else name
        if full in self._open:
            self.is_recursive = True
            return TypeLink(full)
        if full not in self.named:
            raise AvroSchemaError(f"{self._subject} uses the type {quote(name)}, which it does not define")
        return self.named[full]

    def _define(self, schema: Mapping[str, Any], namespace: str) -> Type:
        name = schema.get("name")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise AvroSchemaError(f"{self._subject} has a record, an enum or a fixed without a name")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(schema.get("namespace"), str):
            namespace = schema["namespace"]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self._open.add(full)
        defined = self._define_named(schema, namespace, full)
        self._open.discard(full)
        self.named[full] = defined
        return defined

    def _define_named(self, schema: Mapping[str, Any], namespace: str, full: str) -> Type:
        match schema:
            case {"type": "enum", "symbols": [_, *_] as symbols} if all(isinstance(each, str) for each in symbols):
                return Enum(tuple(map(self._require_name, symbols)))
            case {"type": "fixed", "size": int(size)} if 0 <= size <= _LARGEST_FIXED_BYTES:
                return self._add_logical(Primitive("fixed", size=size), schema)
            case {"type": "record" | "error", "fields": [*fields]} if all(_is_field(each) for each in fields):
                record = RecordType(tuple(self._read_field(each, namespace) for each in fields))
                if record.size > MOST_FIELDS:
                    raise AvroSchemaError(
                        f"{self._subject} has {quote(full)} with more than {MOST_FIELDS:,} fields, "
                        "fields of records within it included"
                    )
                return record
            case _:
                raise AvroSchemaError(f"{self._subject} does not say what {quote(full)} consists of")

    def _require_name(self, name: str) -> str:
        """Return the name of a field, or a symbol. It is written with values, and into errors."""
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise AvroSchemaError(
                f"{self._subject} has the name {quote(name)}, which is longer than {LONGEST_NAME} characters, "
                "or not one line of text"
            )
        return name

    def _read_field(self, field: Mapping[str, Any], namespace: str) -> RecordField:
        aliases = field.get("aliases")
        names = (
            tuple(each for each in aliases if isinstance(each, str) and _NAME.fullmatch(each))
            if isinstance(aliases, list)
            else ()
        )
        default = json.dumps(field["default"]) if "default" in field else None
        return RecordField(self._require_name(field["name"]), self.parse(field["type"], namespace), names, default)

    def _add_logical(self, type_: Primitive, schema: Mapping[str, Any]) -> Primitive:
        """Return the type with its logical type, if there is one that fits."""
        found = _add_logical(type_, schema)
        if found.precision > MOST_DIGITS:
            raise AvroSchemaError(f"{self._subject} has a decimal of more than {MOST_DIGITS:,} digits")
        return found


def _is_field(field: Any) -> bool:
    return isinstance(field, dict) and isinstance(field.get("name"), str) and "type" in field


def _add_logical(type_: Primitive, schema: Mapping[str, Any]) -> Primitive:
    """Return the type with its logical type, if there is one that fits."""
    kind, size, logical = type_.kind, type_.size, schema.get("logicalType")
    if not isinstance(logical, str):
        return type_
    logical = logical.removeprefix("local-") if logical.startswith("local-timestamp-") else logical
    if _LOGICAL.get(logical) == kind:
        return Primitive(kind, logical)
    match logical:
        case "decimal" if kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0:
                return Primitive(kind, "decimal", precision, scale, size)
        case "uuid" if kind == "string" or size == _UUID_BYTES:
            return Primitive(kind, "uuid", size=size)
        case "duration" if size == _DURATION_BYTES:
            return Primitive(kind, "duration", size=size)
        case _:
            pass
    return type_
