"""Which field of the writer becomes which column, and whether its type ever can.

Columns are matched by the names of their fields. A column without a field is null in every row. ``choose_fit`` says
what values become, by the type of the column.

``ReferenceReader`` makes the values of one record at a time; the test is docs/reference/avro.md. A value is accepted
only if the column holds exactly what was written. Any other one raises ``UnfitError``, whose text names the column and
the kind of fault, and never a value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.texts import (
    read_decimal,
    read_keys,
    read_moment,
    read_text,
    within_days,
    write_json,
    write_scalar,
    write_text,
)
from batchledger.formats.decoding.avro.wire import WireReader
from batchledger.formats.decoding.fitting import (
    JSON_TYPES,
    Fit,
    Leaf,
    NoValueError,
    fit_decimal,
    make_float_fit,
    make_whole_fit,
    name_errors,
    require_no_zero,
)
from batchledger.formats.decoding.meaning import NO_UUID_TEXT, spell_uuid
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    ArrayOf,
    ColumnType,
    DecimalOf,
    Epoch,
    Floating,
    Integer,
    Json,
    MapOf,
    Nested,
    Scalar,
    StructOf,
)

_WHOLE = ("int", "long")


def choose_fit(type_: avro.Primitive, declared: ColumnType) -> Fit | None:  # noqa: C901, PLR0911 -- one a type
    """Return what makes a value of a column out of a written one; None if a column never holds such values.

    What is returned raises NoValueError.
    """
    sort = avro.sort_of(type_)
    if sort == "null":
        return _keep
    match declared:
        case Scalar.BOOLEAN:
            return _keep if sort == "boolean" else None
        case Scalar.BINARY:
            is_held = sort in ("bytes", "fixed", "duration") or (sort == "uuid" and type_.kind == "fixed")
            return _keep if is_held else None
        case Scalar.UUID:
            return _choose_uuid_fit(type_)
        case Scalar.DATE:
            return within_days if sort == "date" else None
        case Scalar.TIMESTAMP:
            return partial(read_moment, type_) if sort == "timestamp" else None
        case Integer():
            is_held = sort in _WHOLE or (sort == "time" and declared.bits == 64)
            return make_whole_fit(declared) if is_held else None
        case Floating() if sort in ("float", "double"):
            return make_float_fit(declared)
        case DecimalOf(precision, scale) if sort == "decimal":
            return lambda value: fit_decimal(read_decimal(type_, value), precision, scale)
        case Floating() | DecimalOf() | Epoch():
            return make_whole_fit(declared) if sort in _WHOLE else None
        case Scalar.STRING | Json() | Nested():
            return None
        case _:
            assert_never(declared)


def _keep(value: Any) -> Any:
    return value


def _choose_uuid_fit(type_: avro.Primitive) -> Fit | None:
    if type_.kind == "string":
        return _read_uuid
    return partial(write_scalar, type_) if avro.sort_of(type_) == "uuid" else None


def _read_uuid(value: bytes) -> str:
    found = spell_uuid(read_text(value))
    if found is None:
        raise NoValueError(NO_UUID_TEXT)
    return found


# Their bytes are no text.
_NO_TEXTS = ("bytes", "fixed", "duration")


@dataclass(frozen=True)
class PlannedField:
    """A field of the writer: what it becomes itself, and what the fields within it become."""

    name: str
    type: avro.Type
    leaves: tuple[Leaf, ...]
    within: "AvroPlan | None"


@dataclass(frozen=True)
class AvroPlan:
    """All fields of a record, in the writer's order; a field without a leaf is passed over."""

    fields: tuple[PlannedField, ...]


def plan_columns(schema: avro.Schema, columns: Sequence[Column]) -> AvroPlan:
    """Return what becomes of each field. Raises avro.AvroSchemaError with the path of the field."""
    sources = [(_source(column), Leaf(place, column.name, column.type)) for place, column in enumerate(columns)]
    return _plan(schema, schema.root, sources, ())


def plan_struct(schema: avro.Schema, record: avro.RecordType, name: str, struct: StructOf) -> AvroPlan:
    """Return what fields of a record become in a struct; ``name`` is the column's or field's own."""
    leaves = [
        ((field.name,), Leaf(place, f"{name}.{field.name}", field.type)) for place, field in enumerate(struct.fields)
    ]
    return _plan(schema, record, leaves, tuple(name.split(".")))


def without_null(type_: avro.Type) -> avro.Type:
    """Return the one type besides null, of a union that has one; else the type itself."""
    if isinstance(type_, avro.Union):
        others = [each for each in type_.branches if each != avro.Primitive("null")]
        if len(others) == 1:
            return others[0]
    return type_


def _source(column: Column) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(column, "source", (column.name,))
    return found


def _plan(
    schema: avro.Schema, record: avro.RecordType, sources: Sequence[tuple[tuple[str, ...], Leaf]], path: tuple[str, ...]
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
            if not isinstance(inner, avro.RecordType):
                raise avro.AvroSchemaError(
                    f"field {'.'.join(here)} is {avro.describe(inner)}, and column {deeper[0][1].name} is a field "
                    "within it"
                )
            within = _plan(schema, inner, deeper, here)
        leaves = tuple(leaf for source, leaf in own if len(source) == 1)
        fields.append(PlannedField(field.name, field.type, leaves, within))
    return AvroPlan(tuple(fields))


def require_fit(schema: avro.Schema, type_: avro.Type, declared: ColumnType, subject: str) -> None:
    """Refuse a type whose values never become a column of the declared one; ``subject`` begins the refusal."""
    found = schema.resolve(type_)
    match found:
        case avro.Union() if not isinstance(declared, Nested) or without_null(found) is not found:
            for branch in found.branches:
                if schema.resolve(branch) != avro.Primitive("null"):
                    require_fit(schema, branch, declared, subject)
            return
        case avro.Array() if isinstance(declared, ArrayOf):
            require_fit(schema, found.items, declared.element, f"{subject}[]")
            return
        case avro.Map() if isinstance(declared, MapOf):
            require_fit(schema, found.values, declared.value, f"{subject}[]")
            return
        case avro.RecordType() if isinstance(declared, StructOf):
            by_name = {field.name: field.type for field in found.fields}
            for field in declared.fields:
                if field.name in by_name:
                    require_fit(schema, by_name[field.name], field.type, f"{subject}.{field.name}")
            return
        case _:
            pass
    if not _may_hold(found, declared):
        raise avro.AvroSchemaError(
            f"{subject} is {avro.describe(found)}, which a column of type {declared} never holds"
        )


def _may_hold(type_: avro.Type, declared: ColumnType) -> bool:
    """Whether a type that is not a union of several may become a column; nested types have been compared before."""
    if declared is Json.JSONB:
        return True
    if not isinstance(type_, avro.Primitive):
        return declared is Scalar.STRING
    if declared is Scalar.STRING:
        return avro.sort_of(type_) not in _NO_TEXTS
    return choose_fit(type_, declared) is not None


class ReferenceReader:
    """Reads records as the values of the columns of a plan."""

    def __init__(self, schema: avro.Schema, plan: AvroPlan, columns: int) -> None:
        self._wire = WireReader(schema)
        self._set = _make_setter(schema, plan)
        self._columns = columns

    def read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        fields = self._wire.read_record(value)
        row: list[Any] = [None] * self._columns
        self._set(fields, row)
        return row


def _make_setter(schema: avro.Schema, plan: AvroPlan) -> Callable[[list[Any], list[Any]], None]:
    """Return what puts the fields of a record at the places of their leaves."""
    steps: list[tuple[int, int, Fit]] = []
    deeper: list[tuple[int, avro.Type, Callable[[list[Any], list[Any]], None]]] = []
    for number, field in enumerate(plan.fields):
        steps += [(number, leaf.place, make_fit(schema, field.type, leaf)) for leaf in field.leaves]
        if field.within is not None:
            deeper.append((number, field.type, _make_setter(schema, field.within)))

    def set_all(fields: list[Any], row: list[Any]) -> None:
        for number, place, fit in steps:
            row[place] = fit(fields[number])
        for number, type_, set_deeper in deeper:
            inner = fields[number]
            if isinstance(schema.resolve(type_), avro.Union):
                inner = inner[1]
            if inner is not None:
                set_deeper(inner, row)

    return set_all


def make_fit(schema: avro.Schema, type_: avro.Type, leaf: Leaf) -> Fit:
    """Return what makes a value of a leaf out of a written one."""
    found, declared = schema.resolve(type_), leaf.type
    if declared in JSON_TYPES:
        return name_errors(leaf, _make_text(schema, found, declared))
    match found:
        case avro.Union():
            fits = [make_fit(schema, branch, leaf) for branch in found.branches]
            return lambda value: fits[value[0]](value[1])
        case avro.Array() if isinstance(declared, ArrayOf):
            element = make_fit(schema, found.items, Leaf(0, f"{leaf.name}[]", declared.element))
            return lambda value: [element(each) for each in value]
        case avro.Map() if isinstance(declared, MapOf):
            read = name_errors(leaf, _read_keys)
            of_value = make_fit(schema, found.values, Leaf(0, f"{leaf.name}[]", declared.value))
            return lambda value: [(key, of_value(each[1])) for key, each in zip(read(value), value, strict=True)]
        case avro.RecordType() if isinstance(declared, StructOf):
            return _make_struct(schema, found, leaf.name, declared)
        case avro.Primitive() if (fit := choose_fit(found, declared)) is not None:
            return name_errors(leaf, fit)
        case _:
            raise TypeError(declared)


def _make_struct(schema: avro.Schema, record: avro.RecordType, name: str, struct_: StructOf) -> Fit:
    set_all = _make_setter(schema, plan_struct(schema, record, name, struct_))
    size = len(struct_.fields)

    def fit(value: list[Any]) -> tuple[Any, ...]:
        row: list[Any] = [None] * size
        set_all(value, row)
        # By places and not by names: a reader's schema may lead two fields to one name of the writer.
        return tuple(row)

    return fit


def _read_keys(value: list[tuple[bytes, Any]]) -> list[str]:
    keys = read_keys(value)
    if any("\x00" in key for key in keys):
        raise NoValueError("U+0000")
    return keys


def _make_text(schema: avro.Schema, type_: avro.Type, declared: ColumnType) -> Fit:
    if declared is Scalar.STRING:
        return lambda value: write_text(schema, type_, value)

    def write(value: Any) -> str | None:
        if type_ == avro.Primitive("null") or (
            isinstance(type_, avro.Union) and type_.branches[value[0]] == avro.Primitive("null")
        ):
            return None
        return require_no_zero(write_json(schema, type_, value))

    return write
