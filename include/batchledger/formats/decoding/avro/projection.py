"""Which field of the writer becomes which column, and whether its type ever can.

Columns are matched by the names of their fields. A column without a field is null in every row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from batchledger.formats.decoding.avro.fits import choose_fit
from batchledger.formats.decoding.avro.schema import (
    AvroArray,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroSchemaError,
    AvroType,
    AvroUnion,
    describe,
    sort_of,
)
from batchledger.formats.decoding.fitting import Leaf
from batchledger.model.records.columns import Column
from batchledger.model.records.types import ArrayOf, ColumnType, Json, MapOf, Nested, Scalar, StructOf

# Their bytes are no text.
_NO_TEXTS = ("bytes", "fixed", "duration")


@dataclass(frozen=True)
class PlannedField:
    """A field of the writer: what it becomes itself, and what the fields within it become."""

    name: str
    type: AvroType
    leaves: tuple[Leaf, ...]
    within: "AvroPlan | None"


@dataclass(frozen=True)
class AvroPlan:
    """All fields of a record, in the writer's order; a field without a leaf is passed over."""

    fields: tuple[PlannedField, ...]


def plan_columns(schema: AvroSchema, columns: Sequence[Column]) -> AvroPlan:
    """Return what becomes of each field. Raises AvroSchemaError with the path of the field."""
    sources = [(_source(column), Leaf(place, column.name, column.type)) for place, column in enumerate(columns)]
    return _plan(schema, schema.root, sources, ())


def plan_struct(schema: AvroSchema, record: AvroRecord, name: str, struct: StructOf) -> AvroPlan:
    """Return what fields of a record become in a struct; ``name`` is the column's or field's own."""
    leaves = [
        ((field.name,), Leaf(place, f"{name}.{field.name}", field.type)) for place, field in enumerate(struct.fields)
    ]
    return _plan(schema, record, leaves, tuple(name.split(".")))


def without_null(type_: AvroType) -> AvroType:
    """Return the one type besides null, of a union that has one; else the type itself."""
    if isinstance(type_, AvroUnion):
        others = [each for each in type_.branches if each != AvroPrimitive("null")]
        if len(others) == 1:
            return others[0]
    return type_


def _source(column: Column) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(column, "source", (column.name,))
    return found


def _plan(
    schema: AvroSchema, record: AvroRecord, sources: Sequence[tuple[tuple[str, ...], Leaf]], path: tuple[str, ...]
) -> AvroPlan:
    fields = []
    for field in record.fields:
        own = [(source, leaf) for source, leaf in sources if source[0] == field.name]
        here = (*path, field.name)
        for source, leaf in own:
            if len(source) == 1:
                require_fit(schema, field.type, leaf.type, f"field {'.'.join(here)}")
        deeper = [(source[1:], leaf) for source, leaf in own if len(source) > 1]
        within = None
        if deeper:
            inner = schema.resolve(without_null(schema.resolve(field.type)))
            if not isinstance(inner, AvroRecord):
                raise AvroSchemaError(
                    f"field {'.'.join(here)} is {describe(inner)}, and column {deeper[0][1].name} is a field within it"
                )
            within = _plan(schema, inner, deeper, here)
        leaves = tuple(leaf for source, leaf in own if len(source) == 1)
        fields.append(PlannedField(field.name, field.type, leaves, within))
    return AvroPlan(tuple(fields))


def require_fit(schema: AvroSchema, type_: AvroType, declared: ColumnType, subject: str) -> None:
    """Refuse a type whose values never become a column of the declared one; ``subject`` begins the refusal."""
    found = schema.resolve(type_)
    match found:
        case AvroUnion() if not isinstance(declared, Nested) or without_null(found) is not found:
            for branch in found.branches:
                if schema.resolve(branch) != AvroPrimitive("null"):
                    require_fit(schema, branch, declared, subject)
            return
        case AvroArray() if isinstance(declared, ArrayOf):
            require_fit(schema, found.items, declared.element, f"{subject}[]")
            return
        case AvroMap() if isinstance(declared, MapOf):
            require_fit(schema, found.values, declared.value, f"{subject}[]")
            return
        case AvroRecord() if isinstance(declared, StructOf):
            by_name = {field.name: field.type for field in found.fields}
            for field in declared.fields:
                if field.name in by_name:
                    require_fit(schema, by_name[field.name], field.type, f"{subject}.{field.name}")
            return
        case _:
            pass
    if not _may_hold(found, declared):
        raise AvroSchemaError(f"{subject} is {describe(found)}, which a column of type {declared} never holds")


def _may_hold(type_: AvroType, declared: ColumnType) -> bool:
    """Whether a type that is not a union of several may become a column; nested types have been compared before."""
    if declared is Json.JSONB:
        return True
    if not isinstance(type_, AvroPrimitive):
        return declared is Scalar.STRING
    if declared is Scalar.STRING:
        return sort_of(type_) not in _NO_TEXTS
    return choose_fit(type_, declared) is not None
