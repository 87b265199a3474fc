"""What a pipeline declares, what its records have, and what its table has: the differences, and what each would take.

A difference is *additive* if nothing changes that is there, *widening* if a type has to become one that holds all its
values, and *breaking* otherwise: a person has to decide. Pure; no I/O.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise

from batchledger.model.counting import describe_count
from batchledger.model.records.columns import Column, read_columns, write_columns
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.outer import OuterColumns
from batchledger.model.records.types import (
    WITHIN,
    ArrayOf,
    ColumnType,
    MapOf,
    Scalar,
    StructField,
    StructOf,
    list_within,
    may_name_field,
)
from batchledger.model.records.unknown_fields import write_name

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
# What a path has as one name, also within the quotes of a pipeline file.
_PATH = re.compile(r"[^\s,<>().\"'\\]+")
_MOST_ALIASES = 100
_NO_TYPE = "no type holds its values"

MOST_ADDED = 500
"""A pipeline gets no more columns by itself: so many names are values of a producer rather than fields."""


FAULTS_SHOWN = 10


class SchemaChange(StrEnum):
    """How far a difference goes."""

    ADDITIVE = "additive"
    WIDENING = "widening"
    BREAKING = "breaking"


def fingerprint(definition: str) -> str:
    """Return what tells a schema from every other one, however often it is used: the SHA-256 of its definition."""
    return sha256(definition.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema that a pipeline has decoded records with, and the batches between which it was used."""

    fingerprint: str
    definition: str
    first_used_at: datetime
    last_used_at: datetime
    first_batch_id: int
    last_batch_id: int


def list_changes(versions: Sequence[SchemaVersion]) -> list[tuple[SchemaVersion, str]]:
    """Return each version, the newest first, with what it has changed; the oldest with its whole definition."""
    return [
        (each, describe_change(before.definition, each.definition) if before else each.definition)
        for each, before in pairwise([*versions, None])
        if each
    ]


def describe_change(before: str, after: str) -> str:
    """Say what is different in the second definition.

    >>> describe_change("id int, tax double", "id bigint, note string")
    'note string is new, tax double is gone, id int is bigint'
    """
    old, new = ({each.name: each.type for each in read_columns(text)} for text in (before, after))
    changes = [
        *(f"{name} {type_} is new" for name, type_ in new.items() if name not in old),
        *(f"{name} {type_} is gone" for name, type_ in old.items() if name not in new),
        *(f"{name} {type_} is {new[name]}" for name, type_ in old.items() if new.get(name, type_) != type_),
    ]
    return ", ".join(changes) or "the order of the columns"


def with_added(columns: Sequence[Column], added: Iterable[str], outer: OuterColumns) -> tuple[Column, ...]:
    """Return the columns of a value with those that records have brought, as texts.

    A name that is declared meanwhile, or differs by case alone from one that is there, counts no more.
    """
    by_name = {each.name.lower(): each for each in (*outer.columns, *columns)}
    for name in added:
        by_name.setdefault(name.lower(), Column(name, Scalar.STRING))
    return tuple(each for each in by_name.values() if each not in outer.columns)


def choose_added(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return which fields that records have brought get a column, beside those that got one already."""
    possible = [each for each in names if each not in known and explain_name(each) is None]
    return possible[: MOST_ADDED - len(known)]


def explain_name(name: str) -> str | None:
    """Return why a column cannot have this name, or None."""
    if _NAME.fullmatch(name) is None:
        return "a name has letters, digits and _, and begins with a letter"
    return explain_columns([name])


def find_alias(name: str, used: Collection[str]) -> str | None:
    """Return a name that a column can have for a field whose own name it cannot have; None if no path leads there.

    ``used`` are names in small letters that others have. Example: ``timestamp`` for ``@timestamp``.
    """
    if _PATH.fullmatch(name) is None or not name.isprintable():
        return None
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    plain = plain if plain[:1].isalpha() else f"field_{plain}"
    for candidate in (plain, *(f"{plain}_{number}" for number in range(2, _MOST_ALIASES))):
        if candidate.lower() not in used and explain_name(candidate) is None:
            return candidate
    return None


@dataclass(frozen=True, slots=True)
class SampledField:
    """What the sampled records have in a column, under a name that is not declared, or at a place within a column.

    ``records`` have it, with ``values`` values: an array has any number. A declared part that no schema has is in 0
    records. ``type`` holds all of them: the declared one, a wider one, or one that fits if it is not declared; None if
    there is no such type. ``unfit`` values do not fit the declared type; ``error`` says why the first does not. A value
    that fails because of one within counts there alone: ``within`` has the fields of a struct by name, or what is in an
    array or a map as ``WITHIN``.
    """

    records: int
    type: ColumnType | None
    unfit: int = 0
    error: str | None = None
    values: int = 0
    within: Mapping[str, "SampledField"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """``records`` records were looked at, and ``unreadable`` more that cannot be read; or ``noun`` says what else.

    ``columns`` are what records have for the declared columns that they have; ``fields`` are their other fields. If
    ``has_values`` is false, the schemas of records were looked at, and no value.
    """

    records: int
    unreadable: int
    columns: Mapping[str, SampledField]
    fields: Mapping[str, SampledField]
    noun: str = "record"
    has_values: bool = True
    faults: tuple[tuple[str, str], ...] = ()
    """Where the first unreadable ones are, and why they are."""

    @property
    def _is_by_records(self) -> bool:
        """Whether a schema counts as often as records have it."""
        return not self.has_values and self.noun == "record"

    def describe_found(self, records: int) -> str:
        """Say how many have a field: ``204 of 1,000 records have it``."""
        verb = "has" if records == 1 else "have"
        what = "a schema with it" if self._is_by_records else "it"
        return f"{records:,} of {describe_count(self.records, self.noun)} {verb} {what}"

    def describe_unfit(self, found: SampledField) -> str:
        """Say how many do not fit: ``3 of 1,000 values do not fit``."""
        share = f"{found.unfit:,} of {describe_count(found.values, 'value' if self.has_values else self.noun)}"
        if self._is_by_records:
            return f"{share} {'has' if found.unfit == 1 else 'have'} a schema that does not fit"
        return f"{share} {'does' if found.unfit == 1 else 'do'} not fit"


_NO_SAMPLE = Sample(0, 0, {}, {})


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table: its type, and what its definition takes. ``change`` is None if rows fit as they are.

    ``wanted`` is the type that rows would give it, in the table's own words. ``name`` may be the path of a part:
    ``customer.address.zip``, or ``items[].price`` for a field of an array's elements or of a map's values.
    """

    name: str
    type: str | None
    wanted: str | None
    change: SchemaChange | None
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different, how far it goes, and what a person may do: a line of the pipeline file, or a statement.

    ``column`` is the path of a part if it lies within a column, as in ``TableColumn``. Its line declares the whole
    column, as all its records have it.
    """

    column: str
    change: SchemaChange
    told: str
    declare: str | None = None
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The declared columns beside a sample of the records and the table; each of these may be unknown (None).

    Columns of key and headers have the ``taken`` names.
    """

    declared: Sequence[Column]
    sample: Sample | None = None
    table: Sequence[TableColumn] | None = None
    taken: Sequence[str] = ()

    @property
    def differences(self) -> list[Difference]:
        """All differences of the records: in the declared columns, then in their other fields. Then of the table."""
        return [*self._differences_of_columns(), *self._differences_of_fields(), *self._differences_of_table()]

    @property
    def _looked(self) -> Sample:
        return self.sample or _NO_SAMPLE

    @property
    def is_broken(self) -> bool:
        """Whether a difference is breaking."""
        return any(each.change is SchemaChange.BREAKING for each in self.differences)

    @property
    def proposal(self) -> str:
        """The schema that would take all sampled records, as a pipeline file writes it."""
        kept = [write_columns([replace(each, type=self._type_of(each))]) for each in self.declared]
        return ", ".join([*kept, *(each.declare for each in self._differences_of_fields() if each.declare)])

    def _type_of(self, column: Column) -> ColumnType:
        found = self._looked.columns.get(column.name)
        return widen(column.type, found) if found else column.type

    def _differences_of_columns(self) -> Iterator[Difference]:
        for column in self.declared:
            found = self._looked.columns.get(column.name)
            if found is None and not self._looked.has_values and self._looked.records:
                yield _lacking(column.name)
            if found is not None:
                declare = write_columns([replace(column, type=self._type_of(column))])
                yield from self._differences_within(column.name, column.type, found, declare)

    def _differences_within(
        self, path: str, type_: ColumnType, found: SampledField, declare: str
    ) -> Iterator[Difference]:
        """Yield what is different at a place that is declared as this type, and within it."""
        if found.unfit:
            told = f"declared as {type_}, and {self._looked.describe_unfit(found)}: {found.error}"
            change = SchemaChange.BREAKING if found.type is None else SchemaChange.WIDENING
            yield Difference(path, change, told, None if found.type is None else declare)
        for name, each in list_within(type_):
            part = found.within.get(name)
            if part is not None and not part.records:
                yield _lacking(_join(path, name))
            elif part is not None:
                yield from self._differences_within(_join(path, name), each, part, declare)
        if isinstance(type_, StructOf):
            for name, new, fault in _list_new(type_, found):
                yield self._new(_join(path, write_name(name)), new, fault and f"field: {fault}", declare)

    def _new(self, path: str, found: SampledField, fault: str | None, declare: str) -> Difference:
        """Return the difference of a field that is not declared. A ``fault`` begins with what it cannot be."""
        told = f"{self._looked.describe_found(found.records)}, and it is not declared"
        told = f"{told}. It cannot be a {fault}" if fault else told
        return Difference(path, SchemaChange.ADDITIVE, told, None if fault else declare)

    def _differences_of_fields(self) -> Iterator[Difference]:
        # Databases and Spark do not tell names apart by case.
        by_lower = {column.name.lower(): column.name for column in self.declared}
        declared = {column.name for column in self.declared}
        taken = {name.lower() for name in self.taken}
        fields = self._looked.fields
        used = {*by_lower, *taken, *(name.lower() for name in fields)}
        for name, found in fields.items():
            fault, column = explain_name(name), name
            if fault is not None and (alias := find_alias(name, used)) is not None:
                fault, column = None, alias
                used.add(alias.lower())
            fault = fault or (None if found.type else _NO_TYPE)
            other = by_lower.setdefault(column.lower(), column)
            fault = fault or (None if other == column else f"{other} has the same letters")
            if name in declared:
                fault = "a column of its name takes another field"
            if name.lower() in taken:
                fault = "a column of key or headers has its name; give that one another name"
            path = () if column == name else (name,)
            declare = write_columns([Column(column, found.type or Scalar.STRING, path)])
            new = self._new(write_name(name), found, fault and f"column: {fault}", declare)
            yield (
                replace(new, told=f"{new.told}. A column takes it by an alias: {declare}")
                if path and not fault
                else new
            )

    def _differences_of_table(self) -> Iterator[Difference]:
        for each in self.table or ():
            if each.change is None:
                continue
            if each.type is None:
                told = f"declared, and the table has no such {'field' if '.' in each.name else 'column'}"
            elif each.wanted is None:
                told = f"the table has it, as {each.type}, it must not be null, and no row would fill it"
            else:
                told = f"the table has it as {each.type}, and rows would have {each.wanted}"
            yield Difference(each.name, each.change, told, statement=each.statement)


def widen(type_: ColumnType, found: SampledField) -> ColumnType:
    """Return a declared type as all that was sampled needs it; it stays as it is where no type holds the values.

    >>> (items,) = read_columns("items array<struct<n int>>")
    >>> tag = SampledField(1, None, within={"tag": SampledField(1, Scalar.STRING)})
    >>> print(widen(items.type, SampledField(1, None, within={WITHIN: tag})))
    array<struct<n int, tag string>>
    """
    match type_:
        case StructOf(declared):
            fields = [
                StructField(name, widen(each, found.within[name]) if name in found.within else each)
                for name, each in declared
            ]
            new = [(name, each.type) for name, each, fault in _list_new(type_, found) if fault is None]
            return StructOf((*fields, *(StructField(name, each) for name, each in new if each is not None)))
        case ArrayOf(element):
            return ArrayOf(widen(element, found.within[WITHIN])) if found.within else type_
        case MapOf(value):
            return MapOf(widen(value, found.within[WITHIN])) if found.within else type_
        case _:
            return found.type or type_


def _list_new(struct: StructOf, found: SampledField) -> Iterator[tuple[str, SampledField, str | None]]:
    """Yield the fields that a struct does not declare, each with why it cannot have it, or None."""
    declared = {each.name for each in struct.fields}
    by_lower = {name.lower(): name for name in declared}
    for name, each in found.within.items():
        if name in declared:
            continue
        fault = None if may_name_field(name) else "a name has letters, digits and _, and begins with no digit"
        fault = fault or (None if each.type else _NO_TYPE)
        other = by_lower.setdefault(name.lower(), name)
        yield name, each, fault or (None if other == name else f"{other} has the same letters")


def _lacking(path: str) -> Difference:
    told = "declared, and no schema has it: it is null, or has a default of source.reader_schema"
    return Difference(path, SchemaChange.ADDITIVE, told)


def _join(path: str, name: str) -> str:
    return f"{path}{name}" if name == WITHIN else f"{path}.{name}"
