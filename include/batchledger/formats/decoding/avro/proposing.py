"""The columns that would hold all values of a writer's schema."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from batchledger.formats.decoding.avro.projection import without_null
from batchledger.formats.decoding.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroType,
    parse_schema,
    sort_of,
)
from batchledger.formats.decoding.nested import Declared
from batchledger.formats.decoding.proposing import Count, propose_within_bounds
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    MOST_DIGITS,
    MOST_TYPES_DEEP,
    ArrayOf,
    ColumnType,
    DecimalOf,
    Floating,
    Integer,
    Json,
    MapOf,
    Scalar,
    StructField,
    StructOf,
)

_BY_SORT: Mapping[str, ColumnType] = {
    "boolean": Scalar.BOOLEAN,
    "int": Integer.INT,
    "long": Integer.BIGINT,
    "float": Floating.FLOAT,
    "double": Floating.DOUBLE,
    **dict.fromkeys(("string", "uuid", "time"), Scalar.STRING),
    **dict.fromkeys(("bytes", "fixed", "duration"), Scalar.BINARY),
    "date": Scalar.DATE,
    "timestamp": Scalar.TIMESTAMP,
}


def propose_avro_columns(text: str, references: Sequence[tuple[str, str]] = ()) -> tuple[Column, ...]:
    """Return a column for each field of the record, in their order. Raises AvroSchemaError.

    What only JSON holds is ``jsonb``, also within other types, where no pipeline can declare it.
    """
    schema = parse_schema(text, references)
    return tuple(
        Column(each.name, propose_within_bounds(partial(_propose, schema, each.type, ())))
        for each in schema.root.fields
    )


def find_avro_undeclared(text: str, references: Sequence[tuple[str, str]], declared: Declared) -> Iterator[str]:
    """Yield the fields of the record that are not declared, also within. Raises AvroSchemaError."""
    return _find_undeclared(parse_schema(text, references).root, declared, "")


def _find_undeclared(type_: AvroType, declared: Declared, place: str) -> Iterator[str]:
    """Look into no type within itself, and into no value of one type or another."""
    match without_null(type_):
        case AvroArray(inner) | AvroMap(inner) if declared.each is not None:
            yield from _find_undeclared(inner, declared.each, f"{place}[]")
        case AvroRecord(fields) if declared.fields is not None:
            for each in fields:
                path = f"{place}.{each.name}" if place else each.name
                if each.name not in declared.fields:
                    yield path
                elif (within := declared.fields[each.name]) is not None:
                    yield from _find_undeclared(each.type, within, path)
        case _:
            pass


def _propose(schema: AvroSchema, type_: AvroType, outer: tuple[AvroType, ...], count: Count) -> ColumnType:
    """Return the type for a value that lies within the ``outer`` types."""
    count()
    found = schema.resolve(without_null(schema.resolve(type_)))
    within = (*outer, found)
    match found if len(outer) < MOST_TYPES_DEEP else None:
        case AvroPrimitive() as plain:
            return _propose_plain(plain)
        case AvroEnum():
            return Scalar.STRING
        case AvroArray(items):
            return ArrayOf(_propose(schema, items, within, count))
        case AvroMap(values):
            return MapOf(_propose(schema, values, within, count))
        case AvroRecord(fields) if fields and not any(found is each for each in outer):
            types = (StructField(each.name, _propose(schema, each.type, within, count)) for each in fields)
            return StructOf(tuple(types))
        case _:
            return Json.JSONB


def _propose_plain(type_: AvroPrimitive) -> ColumnType:
    if type_.logical == "decimal":
        return DecimalOf(type_.precision, type_.scale) if type_.precision <= MOST_DIGITS else Scalar.STRING
    return _BY_SORT.get(sort_of(type_), Json.JSONB)
