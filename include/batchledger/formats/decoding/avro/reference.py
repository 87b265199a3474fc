"""What an Avro value becomes in a column of a declared type, one record at a time; the test is docs/reference/avro.md.

A value is accepted only if the column holds exactly what was written. Any other one raises ``UnfitError``, whose text
names the column and the kind of fault, and never a value.
"""

from collections.abc import Callable, Sequence
from typing import Any

from batchledger.formats.decoding.avro.fits import choose_fit
from batchledger.formats.decoding.avro.projection import AvroPlan, plan_struct
from batchledger.formats.decoding.avro.schema import (
    AvroArray,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroSchema,
    AvroType,
    AvroUnion,
)
from batchledger.formats.decoding.avro.texts import read_keys, write_json, write_text
from batchledger.formats.decoding.avro.wire import WireReader
from batchledger.formats.decoding.fitting import JSON_TYPES, Fit, Leaf, NoValueError, name_errors, require_no_zero
from batchledger.model.records.types import ArrayOf, ColumnType, MapOf, Scalar, StructOf


class ReferenceReader:
    """Reads records as the values of the columns of a plan."""

    def __init__(self, schema: AvroSchema, plan: AvroPlan, columns: int) -> None:
        self._wire = WireReader(schema)
        self._set = _make_setter(schema, plan)
        self._columns = columns

    def read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column. Raises UnfitError."""
        fields = self._wire.read_record(value)
        row: list[Any] = [None] * self._columns
        self._set(fields, row)
        return row


def _make_setter(schema: AvroSchema, plan: AvroPlan) -> Callable[[list[Any], list[Any]], None]:
    """Return what puts the fields of a record at the places of their leaves."""
    steps: list[tuple[int, int, Fit]] = []
    deeper: list[tuple[int, AvroType, Callable[[list[Any], list[Any]], None]]] = []
    for number, field in enumerate(plan.fields):
        steps += [(number, leaf.place, make_fit(schema, field.type, leaf)) for leaf in field.leaves]
        if field.within is not None:
            deeper.append((number, field.type, _make_setter(schema, field.within)))

    def set_all(fields: list[Any], row: list[Any]) -> None:
        for number, place, fit in steps:
            row[place] = fit(fields[number])
        for number, type_, set_deeper in deeper:
            inner = fields[number]
            if isinstance(schema.resolve(type_), AvroUnion):
                inner = inner[1]
            if inner is not None:
                set_deeper(inner, row)

    return set_all


def make_fit(schema: AvroSchema, type_: AvroType, leaf: Leaf) -> Fit:
    """Return what makes a value of a leaf out of a written one."""
    found, declared = schema.resolve(type_), leaf.type
    if declared in JSON_TYPES:
        return name_errors(leaf, _make_text(schema, found, declared))
    match found:
        case AvroUnion():
            fits = [make_fit(schema, branch, leaf) for branch in found.branches]
            return lambda value: fits[value[0]](value[1])
        case AvroArray() if isinstance(declared, ArrayOf):
            element = make_fit(schema, found.items, Leaf(0, f"{leaf.name}[]", declared.element))
            return lambda value: [element(each) for each in value]
        case AvroMap() if isinstance(declared, MapOf):
            read = name_errors(leaf, _read_keys)
            of_value = make_fit(schema, found.values, Leaf(0, f"{leaf.name}[]", declared.value))
            return lambda value: [(key, of_value(each[1])) for key, each in zip(read(value), value, strict=True)]
        case AvroRecord() if isinstance(declared, StructOf):
            return _make_struct(schema, found, leaf.name, declared)
        case AvroPrimitive() if (fit := choose_fit(found, declared)) is not None:
            return name_errors(leaf, fit)
        case _:
            raise TypeError(declared)


def _make_struct(schema: AvroSchema, record: AvroRecord, name: str, struct_: StructOf) -> Fit:
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


def _make_text(schema: AvroSchema, type_: AvroType, declared: ColumnType) -> Fit:
    if declared is Scalar.STRING:
        return lambda value: write_text(schema, type_, value)

    def write(value: Any) -> str | None:
        if type_ == AvroPrimitive("null") or (
            isinstance(type_, AvroUnion) and type_.branches[value[0]] == AvroPrimitive("null")
        ):
            return None
        return require_no_zero(write_json(schema, type_, value))

    return write
