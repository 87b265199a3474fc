"""What an Avro schema says of values, for proposals of columns."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.projection import without_null
from batchledger.formats.decoding.proposing import Shape
from batchledger.model.records.types import MOST_DIGITS, ColumnType, DecimalOf, Floating, Integer, Json, Scalar

_BY_SORT: Mapping[str, ColumnType] = {
    "boolean": Scalar.BOOLEAN,
    "int": Integer.INT,
    "long": Integer.BIGINT,
    "float": Floating.FLOAT,
    "double": Floating.DOUBLE,
    **dict.fromkeys(("string", "time"), Scalar.STRING),
    **dict.fromkeys(("bytes", "fixed", "duration"), Scalar.BINARY),
    "uuid": Scalar.UUID,
    "date": Scalar.DATE,
    "timestamp": Scalar.TIMESTAMP,
}


def find_avro_shape(text: str, references: Sequence[tuple[str, str]]) -> Shape:
    """Return what the record is. Raises AvroSchemaError."""
    schema = avro.parse_schema(text, references)
    return _find_shape(schema, schema.root)


def _list_fields(schema: avro.Schema, record: avro.RecordType) -> Iterator[tuple[str, Shape]]:
    yield from ((each.name, _find_shape(schema, each.type)) for each in record.fields)


def _find_shape(schema: avro.Schema, type_: avro.Type) -> Shape:
    found, shape = schema.resolve(without_null(schema.resolve(type_))), Shape()
    match found:
        case avro.Primitive(logical="decimal", precision=precision, scale=scale):
            shape = Shape(DecimalOf(precision, scale) if precision <= MOST_DIGITS else Scalar.STRING)
        case avro.Primitive():
            shape = Shape(_BY_SORT.get(avro.sort_of(found), Json.JSONB))
        case avro.Enum():
            shape = Shape(Scalar.STRING)
        case avro.Array(items):
            shape = Shape(each=partial(_find_shape, schema, items))
        case avro.Map(values):
            shape = Shape(each=partial(_find_shape, schema, values), is_map=True)
        case avro.RecordType():
            shape = Shape(fields=partial(_list_fields, schema, found), name=id(found))
        case _:
            # A union of several types.
            pass
    return shape
