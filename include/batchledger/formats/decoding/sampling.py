"""Looks at sampled records: which type would hold each field, judged by the readers that decode records.

So what this module says of a record is what ``docs/reference/meaning.md`` says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from batchledger.formats.decoding.avro.resolution import name_by_writer
from batchledger.formats.decoding.avro.schema import AvroSchemaError
from batchledger.formats.decoding.faults import explain_fault
from batchledger.formats.decoding.meaning import Reader, UnfitError
from batchledger.formats.decoding.nested import (
    Declared,
    declare_fields,
    elements,
    fields_given_once,
    make_path_reader,
    parse_fields,
)
from batchledger.formats.decoding.objects import parse_object
from batchledger.formats.decoding.proposing import propose_columns
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.formats.decoding.registered import Written, find_shape, find_undeclared, make_datum_decoder
from batchledger.model.records.columns import Column
from batchledger.model.records.contract import FAULTS_SHOWN, Sample, SampledField
from batchledger.model.records.types import (
    MOST_DIGITS,
    WITHIN,
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
    has_json,
    list_within,
)
from batchledger.model.records.writer_schemas import WriterSchema

MOST_FIELDS = 2_000
"""More names than so many in one object are values of the producer rather than fields."""

_HOLDS_EVERYTHING = Scalar.STRING
_NUMBERS: Sequence[ColumnType] = (Integer.BIGINT, DecimalOf(MOST_DIGITS, 0), Floating.DOUBLE)
_PROPOSED: Sequence[ColumnType] = (Scalar.BOOLEAN, *_NUMBERS, Scalar.DATE, Scalar.TIMESTAMP, _HOLDS_EVERYTHING)
"""The types in which values of an undeclared field are tried; a text holds everything."""

_WIDER: Mapping[ColumnType, Sequence[ColumnType]] = {
    **dict.fromkeys((Integer.TINYINT, Integer.BYTE), (Integer.SMALLINT, Integer.INT, Integer.BIGINT)),
    **dict.fromkeys((Integer.SMALLINT, Integer.SHORT), (Integer.INT, Integer.BIGINT)),
    **dict.fromkeys((Integer.INT, Integer.INTEGER), (Integer.BIGINT,)),
    **dict.fromkeys((Floating.FLOAT, Floating.REAL), (Floating.DOUBLE,)),
}


@dataclass
class _Place:
    """A column, a part of one, or a field that is not declared. ``declared`` is the column with its reader.

    ``left`` are the types that may hold all values so far, the narrowest first, with their readers. If the place is
    declared, these are wider types, which hold all that fits the declared one.
    """

    declared: tuple[Column, Reader] | None
    left: dict[ColumnType, Reader]
    records: int = 0
    values: int = 0
    has_value: bool = False
    unfit: int = 0
    error: str | None = None
    within: dict[str, "_Place"] = field(default_factory=dict)
    last_record: int = -1

    def take(self, token: bytes, record: int) -> bool:
        """Take note of a value of the record with this number. Return whether it fits what is declared."""
        self.records += record != self.last_record
        self.last_record = record
        self.values += 1
        if token == b"null":
            return True
        self.has_value = True
        if self.declared is None:
            if token[:1] == b'"':
                # A text of digits is a number for a decimal column, and more often it is a code.
                self.left = {type_: read for type_, read in self.left.items() if type_ not in _NUMBERS}
            self._narrow(token)
            return True
        column, read = self.declared
        parts = [(self._find(column, name), each) for name, each in _open(column, token)]
        fit_within = [part.take(each, record) for part, each in parts if part is not None]
        why = _explain(read, token)
        if why is not None and all(fit_within):
            self.unfit += 1
            self.error = self.error or why
            self._narrow(token)
        return why is None

    def describe(self) -> SampledField:
        """Return what the values have in common."""
        type_ = next(iter(self.left), None) if self.has_value else _HOLDS_EVERYTHING
        if self.declared is not None and not self.unfit:
            type_ = self.declared[0].type
        within = {name: each.describe() for name, each in self.within.items()}
        return SampledField(self.records, type_, self.unfit, self.error, self.values, within)

    def _narrow(self, token: bytes) -> None:
        self.left = {type_: read for type_, read in self.left.items() if _explain(read, token) is None}

    def _find(self, column: Column, name: str) -> "_Place | None":
        """Return the part of this name, None if there are too many."""
        if name not in self.within:
            type_ = dict(list_within(column.type)).get(name)
            if type_ is None and len(self.within) >= MOST_FIELDS:
                return None
            path = f"{column.name}{name}" if name == WITHIN else f"{column.name}.{name}"
            self.within[name] = _begin(path) if type_ is None else _begin_declared(Column(path, type_))
        return self.within[name]


def _open(column: Column, token: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the parts that the declared type names of a value; none if it is of another kind."""
    for name in column.source[1:]:
        token = bytes(fields_given_once.decode(token).get(name, b"null")) if token[:1] == b"{" else b"null"
    match column.type, token[:1]:
        case ArrayOf(), b"[":
            yield from ((WITHIN, bytes(each)) for each in elements.decode(token))
        case MapOf(), b"{":
            yield from ((WITHIN, each) for _, each in parse_fields(token))
        case StructOf(), b"{":
            yield from parse_fields(token)
        case _:
            pass


def look_at(values: Iterable[bytes | None], columns: Sequence[Column], named: Sequence[str] = ()) -> Sample:
    """Return what the values of records have; tombstones are passed over.

    ``named`` is what the records are called. The names may come while the values do, each no later than its value.
    """
    declared = declare_fields(_without_parts(columns)).fields or {}
    places = {column.name: (column.source[0], _begin_declared(column)) for column in columns}
    fields: dict[str, _Place] = {}
    records = unreadable = 0
    faults: list[tuple[str, str]] = []
    for number, value in enumerate(values):
        if value is None:
            continue
        try:
            parsed = dict(parse_object(value))
        except UnfitError as error:
            unreadable += 1
            if len(faults) < FAULTS_SHOWN:
                why = ": ".join(filter(None, (str(error), explain_fault(str(error), value))))
                faults.append((named[number] if number < len(named) else "a value", why))
            continue
        records += 1
        for name, place in places.values():
            if name in parsed:
                place.take(parsed[name], records)
        for name, token in parsed.items():
            if _is_taken(declared, name, token) or (name not in fields and len(fields) >= MOST_FIELDS):
                continue
            known = fields.get(name) or fields.setdefault(name, _begin(name))
            known.take(token, records)
    return Sample(
        records,
        unreadable,
        {name: each.describe() for name, (_, each) in places.items() if each.records},
        {name: each.describe() for name, each in fields.items()},
        faults=tuple(faults),
    )


def _without_parts(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns that take their fields whole: what differs within a column is found there."""
    return tuple(replace(each, type=_HOLDS_EVERYTHING) for each in columns)


def _is_taken(declared: Mapping[str, Declared | None], name: str, token: bytes) -> bool:
    """Whether columns take all of a field, as a whole or by paths."""
    if name not in declared:
        return False
    within = declared[name]
    return within is None or next(within.find_unknown(token), None) is None


class _SchemaPart(NamedTuple):
    """What a schema of ``records`` records has at a place: the type that holds all values.

    ``declared`` is the type that is declared there, by the writer's names of its fields.
    """

    written: Written
    records: int
    type: ColumnType
    declared: ColumnType = _HOLDS_EVERYTHING


def look_at_schemas(
    found: Mapping[Written, int],
    columns: Sequence[Column],
    unreadable: int = 0,
    reader: WriterSchema | None = None,
    faults: Sequence[tuple[str, str]] = (),
) -> Sample:
    """Return what the schemas of records say of their values; ``found`` has the number of records by schema.

    ``reader`` is the schema of Avro that a pipeline reads them with. ``faults`` are places of records without a schema,
    with the reasons.
    """
    refused: list[tuple[str, str]] = []
    records = 0
    places: dict[str, list[_SchemaPart]] = {}
    fields: dict[str, list[_SchemaPart]] = {}
    for written, count in found.items():
        schema, message = written
        try:
            proposed = propose_columns(find_shape(schema, message))
        except (AvroSchemaError, ProtobufSchemaError) as error:
            unreadable += count
            refused.append((f"schema {schema.id}", str(error)))
            continue
        records += count
        whole = StructOf(tuple(StructField(each.name, each.type) for each in proposed))
        own = []
        for column in columns:
            try:
                named = _name_by_writer(schema, reader, column)
                type_ = _follow(whole, named.source)
            except AvroSchemaError:
                # A default never becomes the column, as the decoder explains, whatever the writer has.
                named, type_ = column, _HOLDS_EVERYTHING
            own.append(named)
            if type_ is not None:
                places.setdefault(column.name, []).append(_SchemaPart(written, count, type_, named.type))
        undeclared = find_undeclared(schema, _without_parts(own), message)
        first_names = {path.partition(".")[0] for path in undeclared}
        for each in proposed:
            if each.name in first_names:
                fields.setdefault(each.name, []).append(_SchemaPart(written, count, each.type))
    return Sample(
        records,
        unreadable,
        {
            each.name: _compare(places[each.name], each.type, partial(_explain_schema, reader, each))[0]
            for each in columns
            if each.name in places
        },
        {name: _propose(each, if_json=Json.JSONB) for name, each in fields.items()},
        has_values=False,
        faults=tuple([*faults, *refused][:FAULTS_SHOWN]),
    )


def _name_by_writer(schema: WriterSchema, reader: WriterSchema | None, column: Column) -> Column:
    if reader is None or schema.type is not reader.type:
        return column
    return name_by_writer((schema.text, schema.named_texts), (reader.text, reader.named_texts), column)


def _follow(whole: ColumnType, path: Sequence[str]) -> ColumnType | None:
    """Return the type at the end of a path, None if there is none; or on its way, if it cannot go on.

    Why it cannot go on, the decoder explains.
    """
    type_: ColumnType | None = whole
    for name in path:
        if isinstance(type_, StructOf):
            type_ = dict(type_.fields).get(name)
    return type_


def _compare(
    seen: Sequence[_SchemaPart], declared: ColumnType, explain: Callable[[ColumnType, Written], str | None]
) -> tuple[SampledField, frozenset[Written]]:
    """Return what schemas have at a place that is declared as this type, and those that do not fit there or within.

    ``explain`` returns why a schema does not fit a type at this place, in a column that has nothing else:
    ``items array<struct<price int>>``.
    """
    types = dict(list_within(declared))
    alike = [each for each in seen if type(each.type) is type(declared)]
    # If all schemas say what is within, a declared part that none of them has is a part of no record.
    parts: dict[str, list[_SchemaPart]] = {name: [] for name in types if len(alike) == len(seen)}
    for each in alike:
        own = zip(list_within(each.declared), types, strict=True)
        named = {by_writer: (name, type_) for (by_writer, type_), name in own}
        for by_writer, type_ in list_within(each.type):
            name, part = named.get(by_writer, (by_writer, _HOLDS_EVERYTHING))
            parts.setdefault(name, []).append(each._replace(type=type_, declared=part))
    within: dict[str, SampledField] = {}
    failed: frozenset[Written] = frozenset()
    for name, found in parts.items():
        if name in types:
            within[name], others = _compare(found, types[name], partial(_explain_part, explain, declared, name))
            failed |= others
        else:
            within[name] = _propose(found, if_json=_HOLDS_EVERYTHING)
    faults = [(each, explain(declared, each.written)) for each in seen if each.written not in failed]
    unfit = [(each, why) for each, why in faults if why is not None]
    records = sum(each.records for each in seen)
    count, error = sum(each.records for each, _ in unfit), unfit[0][1] if unfit else None
    fits = SampledField(records, None if unfit else declared, count, error, records, within)
    return fits, failed | {each.written for each, _ in unfit}


def _explain_part(
    explain: Callable[[ColumnType, Written], str | None],
    outer: ColumnType,
    name: str,
    type_: ColumnType,
    written: Written,
) -> str | None:
    match outer:
        case ArrayOf():
            return explain(ArrayOf(type_), written)
        case MapOf():
            return explain(MapOf(type_), written)
        case _:
            return explain(StructOf((StructField(name, type_),)), written)


def _propose(seen: Sequence[_SchemaPart], if_json: ColumnType) -> SampledField:
    """Return what schemas have that is not declared. ``if_json`` is the type if a part of it is only JSON."""
    records, types = sum(each.records for each in seen), {each.type for each in seen}
    widest = [each for each in types if all(other == each or each in _WIDER.get(other, ()) for other in types)]
    found = next(iter(widest), _HOLDS_EVERYTHING)
    return SampledField(records, if_json if has_json(found) else found, values=records)


def _explain_schema(reader: WriterSchema | None, column: Column, type_: ColumnType, written: Written) -> str | None:
    """Return why a column of this type cannot hold the values of its field, or None."""
    schema, message = written
    try:
        make_datum_decoder(schema, (replace(column, type=type_),), message, reader)
    except (AvroSchemaError, ProtobufSchemaError) as error:
        return str(error)
    return None


def _begin(name: str) -> _Place:
    return _Place(None, {type_: make_path_reader(Column(name, type_)) for type_ in _PROPOSED})


def _begin_declared(column: Column) -> _Place:
    wider = {type_: make_path_reader(replace(column, type=type_)) for type_ in _list_wider(column.type)}
    return _Place((column, make_path_reader(column)), wider)


def _list_wider(declared: ColumnType) -> Sequence[ColumnType]:
    if isinstance(declared, DecimalOf):
        return [DecimalOf(digits, declared.scale) for digits in range(declared.precision + 1, MOST_DIGITS + 1)]
    return _WIDER.get(declared, ())


def _explain(read: Reader, token: bytes) -> str | None:
    """Return why a column cannot hold the value, or None."""
    try:
        read(token)
    except UnfitError as error:
        return str(error)
    return None
