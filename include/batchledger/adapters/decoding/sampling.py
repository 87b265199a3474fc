"""Looks at sampled records: which type would hold each field, judged by the readers that decode records.

So what this module says of a record is what ``docs/reference/meaning.md`` says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchledger.adapters.decoding.avro.schema import AvroSchemaError
from batchledger.adapters.decoding.framing import FIRST_MESSAGE
from batchledger.adapters.decoding.meaning import Reader, UnfitError
from batchledger.adapters.decoding.nested import make_reader
from batchledger.adapters.decoding.objects import parse_object
from batchledger.adapters.decoding.protobuf.compiling import ProtobufSchemaError
from batchledger.adapters.decoding.registered import make_datum_decoder, propose_columns
from batchledger.model.records.columns import Column, decimal_size
from batchledger.model.records.contract import Sample, SampledField
from batchledger.model.records.writer_schemas import WriterSchema

MOST_FIELDS = 2_000
"""More names than so many are values of the producer rather than fields."""

_PROPOSED = ("boolean", "bigint", "decimal(38,0)", "double", "date", "timestamp", "string")
"""The types in which values of an undeclared field are tried; a text holds everything."""
_NUMBERS = ("bigint", "decimal(38,0)", "double")
_HOLDS_EVERYTHING = "string"

_WIDER: Mapping[str, Sequence[str]] = {
    "tinyint": ("smallint", "int", "bigint"),
    "byte": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "short": ("int", "bigint"),
    "int": ("bigint",),
    "integer": ("bigint",),
    "float": ("double",),
    "real": ("double",),
}
_MOST_DIGITS = 38


@dataclass
class _Field:
    """``left`` are the types that may hold all values so far, the narrowest first, with their readers.

    If the field is declared, these are wider types, which hold all that fits the declared one.
    """

    declared: tuple[str, Reader] | None
    left: dict[str, Reader]
    records: int = 0
    values: int = 0
    unfit: int = 0
    error: str | None = None

    def take(self, token: bytes) -> None:
        """Take note of a value that is not null."""
        self.values += 1
        if self.declared is not None:
            why = _explain(self.declared[1], token)
            if why is None:
                return
            self.unfit += 1
            self.error = self.error or why
        elif token[:1] == b'"':
            # A text of digits is a number for a decimal column, and more often it is a code.
            self.left = {type_: read for type_, read in self.left.items() if type_ not in _NUMBERS}
        self.left = {type_: read for type_, read in self.left.items() if _explain(read, token) is None}

    def describe(self) -> SampledField:
        """Return what the values have in common."""
        if self.declared is not None and not self.unfit:
            return SampledField(self.records, self.declared[0])
        if not self.values:
            return SampledField(self.records, _HOLDS_EVERYTHING)
        return SampledField(self.records, next(iter(self.left), None), self.unfit, self.error)


def look_at(values: Iterable[bytes | None], columns: Sequence[Column]) -> Sample:
    """Return what the values of records have; tombstones are passed over."""
    declared = {column.name: column.type for column in columns}
    fields: dict[str, _Field] = {}
    records = unreadable = 0
    for value in values:
        if value is None:
            continue
        try:
            parsed = dict(parse_object(value))
        except UnfitError:
            unreadable += 1
            continue
        records += 1
        for name, token in parsed.items():
            if name not in fields and len(fields) >= MOST_FIELDS:
                continue
            known = fields.get(name) or fields.setdefault(name, _begin(name, declared.get(name)))
            known.records += 1
            if token != b"null":
                known.take(token)
    return Sample(records, unreadable, {name: each.describe() for name, each in fields.items()})


def look_at_schemas(found: Mapping[WriterSchema, int], columns: Sequence[Column], unreadable: int = 0) -> Sample:
    """Return what the schemas of records say of their values; ``found`` has the number of records by schema."""
    declared = {column.source[0]: column for column in columns}
    seen: dict[str, list[tuple[int, str, str | None]]] = {}
    readable = 0
    for schema, records in found.items():
        try:
            # Most files of Protobuf have one message for their records, and it stands first.
            proposed = propose_columns(schema, FIRST_MESSAGE)
        except (AvroSchemaError, ProtobufSchemaError):
            unreadable += records
            continue
        readable += records
        for each in proposed:
            column = declared.get(each.name)
            why = None if column is None else _explain_schema(schema, column)
            seen.setdefault(each.name, []).append((records, each.type, why))
    fields = {name: _sum_up(each, declared.get(name)) for name, each in seen.items()}
    return Sample(readable, unreadable, fields)


def _sum_up(seen: Sequence[tuple[int, str, str | None]], declared: Column | None) -> SampledField:
    records = sum(each for each, _, _ in seen)
    unfit = [(each, why) for each, _, why in seen if why is not None]
    if unfit:
        return SampledField(records, None, sum(each for each, _ in unfit), unfit[0][1])
    types = {type_ for _, type_, _ in seen}
    widest = [each for each in types if all(other == each or each in _WIDER.get(other, ()) for other in types)]
    return SampledField(records, declared.type if declared else next(iter(widest), _HOLDS_EVERYTHING))


def _explain_schema(schema: WriterSchema, column: Column) -> str | None:
    """Return why a column cannot hold the values of its field, or None."""
    try:
        make_datum_decoder(schema, (column,), FIRST_MESSAGE)
    except (AvroSchemaError, ProtobufSchemaError) as error:
        return str(error)
    return None


def _begin(name: str, declared: str | None) -> _Field:
    left = {type_: make_reader(Column(name, type_)) for type_ in _candidates(declared)}
    return _Field(None if declared is None else (declared, make_reader(Column(name, declared))), left)


def _candidates(declared: str | None) -> Iterator[str]:
    if declared is None:
        yield from _PROPOSED
    elif declared.startswith("decimal"):
        precision, scale = decimal_size(declared)
        yield from (f"decimal({digits},{scale})" for digits in range(precision + 1, _MOST_DIGITS + 1))
    else:
        yield from _WIDER.get(declared, ())


def _explain(read: Reader, token: bytes) -> str | None:
    """Return why a column cannot hold the value, or None."""
    try:
        read(token)
    except UnfitError as error:
        return str(error)
    return None
