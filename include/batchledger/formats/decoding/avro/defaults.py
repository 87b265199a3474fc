"""What a reader's schema gives in place of a field that a writer does not have: the field's default, for a column."""

import json
from typing import Any

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.projection import make_fit, require_fit
from batchledger.formats.decoding.avro.wire import NUMBER_FORMS
from batchledger.formats.decoding.fitting import Leaf
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.model.records.types import ColumnType

_BITS = {"int": 32, "long": 64}

MOST_PARTS = 10_000
"""How many values may lie within a default, and be tried: the defaults of records within it belong to it."""


class _MisfitError(ValueError):
    """A default is no value of its type."""


def make_default(reader: avro.Schema, field: avro.RecordField, within: tuple[str, ...], declared: ColumnType) -> Any:
    """Return the value of a column in records without the field; ``within`` leads on through the default.

    Raises avro.AvroSchemaError if the default is no value of its type, or never fits the column.
    """
    name = ".".join((field.name, *within))
    try:
        type_, value = _take_branch(reader, field.type, _DefaultReader(reader).read_own(field))
        for each in within:
            if value is None:
                return None
            if not isinstance(type_, avro.RecordType):
                raise avro.AvroSchemaError(
                    f"the reader's field {field.name} is {avro.describe(type_)}, and {name} leads within it"
                )
            place = next((place for place, inner in enumerate(type_.fields) if inner.name == each), None)
            if place is None:
                return None
            type_, value = _take_branch(reader, type_.fields[place].type, value[place])
        if value is None:
            return None
        require_fit(reader, type_, declared, f"the reader's default of field {name}")
        return make_fit(reader, type_, Leaf(0, name, declared))(value)
    except (_MisfitError, RecursionError):
        raise avro.AvroSchemaError(f"the reader's default of field {field.name} is no value of its type") from None
    except UnfitError as error:
        raise avro.AvroSchemaError(f"the reader's default of field {field.name} does not fit: {error}") from None


def _take_branch(schema: avro.Schema, type_: avro.Type, value: Any) -> tuple[avro.Type, Any]:
    """Return a type that is no union, and the value without the place of its branch."""
    found = schema.resolve(type_)
    if isinstance(found, avro.Union):
        place, value = value
        found = schema.resolve(found.branches[place])
    return found, value


class _DefaultReader:
    """Reads one default. Raises _MisfitError, and avro.AvroSchemaError if it takes too many steps."""

    def __init__(self, schema: avro.Schema) -> None:
        self._schema = schema
        self._parts = 0

    def read_own(self, field: avro.RecordField) -> Any:
        """Return the default of a field in the form in which ``WireReader`` has values."""
        if field.default is None:
            raise _MisfitError
        return self._read(field.type, json.loads(field.default))

    def _read(self, type_: avro.Type, default: Any) -> Any:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise avro.AvroSchemaError(f"the reader's schema has a default of more than {MOST_PARTS:,} parts")
        match self._schema.resolve(type_), default:
            case avro.Union(branches), _:
                # Since version 1.12 of Avro a default may be of any branch; before, of the first one.
                for place, branch in enumerate(branches):
                    try:
                        return place, self._read(branch, default)
                    except _MisfitError:
                        continue
            case avro.Enum(symbols), str() if default in symbols:
                return symbols.index(default)
            case avro.Array(items), list():
                return [self._read(items, each) for each in default]
            case avro.Map(values), dict():
                return [(_encode(key), self._read(values, each)) for key, each in default.items()]
            case avro.RecordType(fields), dict():
                return [
                    self._read(each.type, default[each.name]) if each.name in default else self.read_own(each)
                    for each in fields
                ]
            case avro.Primitive() as plain, _:
                return _read_primitive(plain, default)
            case _:
                pass
        raise _MisfitError


def _encode(text: str) -> bytes:
    # What is no text of Unicode becomes no UTF-8, which is refused where it is written.
    return text.encode(errors="surrogatepass")


def _read_primitive(type_: avro.Primitive, default: Any) -> Any:
    match type_.kind, default:
        case "null", None:
            return None
        case "boolean", bool():
            return default
        case "int" | "long", int() if not isinstance(default, bool) and -1 <= default >> (_BITS[type_.kind] - 1) <= 0:
            return default
        case "float" | "double", int() | float() if not isinstance(default, bool):
            form = NUMBER_FORMS[type_.kind]
            try:
                return form.unpack(form.pack(default))[0]
            except OverflowError:
                raise _MisfitError from None
        case "string", str():
            return _encode(default)
        case "bytes" | "fixed", str() if all(each <= "\xff" for each in default):
            # Each character stands for the byte of its number.
            written = default.encode("latin-1")
            if type_.kind == "bytes" or len(written) == type_.size:
                return written
        case _:
            pass
    raise _MisfitError
