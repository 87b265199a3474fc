"""The columns that would hold all values of a writer's schema."""

from collections.abc import Sequence

from batchledger.adapters.decoding.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroType,
    AvroUnion,
    parse_schema,
)
from batchledger.adapters.decoding.nested import Declared
from batchledger.model.records.columns import Column
from batchledger.model.records.nested import MOST_TYPES_DEEP

_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_LOGICAL = {"date": "date", "uuid": "string", "duration": "binary"}
_MOST_DIGITS = 38


def propose_avro_columns(text: str, references: Sequence[tuple[str, str]] = ()) -> tuple[Column, ...]:
    """Return a column for each field of the record, in their order. Raises AvroSchemaError."""
    schema = parse_schema(text, references)
    return tuple(Column(each.name, _propose(schema, each.type, 0) or "jsonb") for each in schema.root.fields)


def declare_record(text: str, references: Sequence[tuple[str, str]] = ()) -> Declared:
    """Return the fields of the record, and within. Raises AvroSchemaError."""
    schema = parse_schema(text, references)
    return Declared({each.name: _declare(each.type) for each in schema.root.fields})


def _declare(type_: AvroType) -> Declared | None:
    """Return what a type has within; None for a scalar, a type within itself, and a value of one type or another."""
    match type_:
        case AvroUnion(branches):
            others = [each for each in branches if each != AvroPrimitive("null")]
            return _declare(others[0]) if len(others) == 1 else None
        case AvroArray(inner) | AvroMap(inner):
            within = _declare(inner)
            return None if within is None else Declared(each=within)
        case AvroRecord(fields):
            return Declared({each.name: _declare(each.type) for each in fields})
        case _:
            return None


def _propose(schema: AvroSchema, type_: AvroType, level: int) -> str | None:
    """Return a declared type, None if only JSON holds the values."""
    found: str | None = None
    match schema.resolve(type_) if level < MOST_TYPES_DEEP else None:
        case AvroPrimitive() as plain:
            found = _propose_plain(plain)
        case AvroEnum():
            found = "string"
        case AvroUnion(branches):
            others = [each for each in branches if each != AvroPrimitive("null")]
            found = _propose(schema, others[0], level) if len(others) == 1 else None
        case AvroArray(items):
            element = _propose(schema, items, level + 1)
            found = element and f"array<{element}>"
        case AvroMap(values):
            value = _propose(schema, values, level + 1)
            found = value and f"map<string, {value}>"
        case AvroRecord(fields):
            within = {each.name: _propose(schema, each.type, level + 1) for each in fields}
            if within and all(within.values()):
                found = f"struct<{', '.join(f'{name} {each}' for name, each in within.items())}>"
        case _:
            pass
    return found


def _propose_plain(type_: AvroPrimitive) -> str | None:
    if type_.logical == "decimal":
        return f"decimal({type_.precision},{type_.scale})" if type_.precision <= _MOST_DIGITS else "string"
    if "timestamp" in type_.logical:
        return "timestamp"
    if type_.logical.startswith("time-"):
        return "string"
    return _LOGICAL.get(type_.logical) or _PLAIN.get(type_.kind)
