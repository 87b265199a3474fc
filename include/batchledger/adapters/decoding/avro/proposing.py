"""The columns that would hold all values of a writer's schema."""

from collections.abc import Sequence

from batchledger.adapters.decoding.avro.projection import without_null
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
from batchledger.model.records.nested import MOST_TYPES_DEEP, ArrayOf, MapOf, StructField, StructOf, put_together

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
_JSON = "jsonb"


def propose_avro_columns(text: str, references: Sequence[tuple[str, str]] = ()) -> tuple[Column, ...]:
    """Return a column for each field of the record, in their order. Raises AvroSchemaError.

    What only JSON holds is ``jsonb``, also within other types, where no pipeline can declare it.
    """
    schema = parse_schema(text, references)
    return tuple(Column(each.name, _propose(schema, each.type, ())) for each in schema.root.fields)


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


def _propose(schema: AvroSchema, type_: AvroType, outer: tuple[AvroType, ...]) -> str:
    """Return the type for a value that lies within the ``outer`` types."""
    found = schema.resolve(without_null(schema.resolve(type_)))
    within = (*outer, found)
    match found if len(outer) < MOST_TYPES_DEEP else None:
        case AvroPrimitive() as plain:
            return _propose_plain(plain)
        case AvroEnum():
            return "string"
        case AvroArray(items):
            return put_together(ArrayOf(_propose(schema, items, within)))
        case AvroMap(values):
            return put_together(MapOf(_propose(schema, values, within)))
        case AvroRecord(fields) if fields and not any(found is each for each in outer):
            types = (StructField(each.name, _propose(schema, each.type, within)) for each in fields)
            return put_together(StructOf(tuple(types)))
        case _:
            return _JSON


def _propose_plain(type_: AvroPrimitive) -> str:
    if type_.logical == "decimal":
        return f"decimal({type_.precision},{type_.scale})" if type_.precision <= _MOST_DIGITS else "string"
    if "timestamp" in type_.logical:
        return "timestamp"
    if type_.logical.startswith("time-"):
        return "string"
    return _LOGICAL.get(type_.logical) or _PLAIN.get(type_.kind, _JSON)
