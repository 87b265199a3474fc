"""What a pipeline declares, what its records have, and what its table has: the differences, and what each would take.

A difference is *additive* if nothing changes that is there, *widening* if a type has to become one that holds all its
values, and *breaking* otherwise: a person has to decide. Pure; no I/O.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise

from batchledger.model.counting import describe_count
from batchledger.model.records.columns import Column, read_columns
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.outer import OuterColumns
from batchledger.model.records.unknown_fields import write_name

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


MOST_ADDED = 500
"""A pipeline gets no more columns by itself: so many names are values of a producer rather than fields."""


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
        by_name.setdefault(name.lower(), Column(name, "string"))
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


@dataclass(frozen=True, slots=True)
class SampledField:
    """What the sampled records have under one name.

    ``type`` holds all its values: the declared one, a wider one, or one that fits if it is not declared; None if there
    is no such type. ``unfit`` values do not fit the declared type; ``error`` says why the first does not.
    """

    records: int
    type: str | None
    unfit: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """``records`` records were looked at, and ``unreadable`` more that cannot be read; or ``noun`` says what else."""

    records: int
    unreadable: int
    fields: Mapping[str, SampledField]
    noun: str = "record"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the table: its type, and what its definition takes. ``change`` is None if rows fit as they are.

    ``wanted`` is the type that rows would give it, in the table's own words.
    """

    name: str
    type: str | None
    wanted: str | None
    change: SchemaChange | None
    statement: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different, how far it goes, and what a person may do: a line of the pipeline file, or a statement."""

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
        """All differences: of the records in the order of their fields, then of the table."""
        return [*self._differences_of_records(), *self._differences_of_table()]

    @property
    def is_broken(self) -> bool:
        """Whether a difference is breaking."""
        return any(each.change is SchemaChange.BREAKING for each in self.differences)

    @property
    def proposal(self) -> str:
        """The schema that would take all sampled records, as a pipeline file writes it."""
        kept = [f"{each.name} {self._type_of(each)}" for each in self.declared]
        known = {column.name for column in self.declared}
        new = [each.declare for each in self._differences_of_records() if each.column not in known and each.declare]
        return ", ".join([*kept, *new])

    def _type_of(self, column: Column) -> str:
        found = self.sample.fields.get(column.name) if self.sample else None
        return (found and found.type) or column.type

    def _differences_of_records(self) -> Iterator[Difference]:
        if self.sample is None:
            return
        declared = {column.name: column.type for column in self.declared}
        # Databases and Spark do not tell names apart by case.
        by_lower = {name.lower(): name for name in declared}
        taken = {name.lower() for name in self.taken}
        for name, found in self.sample.fields.items():
            share = f"{found.records:,} of {describe_count(self.sample.records, self.sample.noun)}"
            if name not in declared:
                told = f"{share} have it, and it is not declared"
                fault = explain_name(name) or ("no type holds its values" if found.type is None else None)
                other = by_lower.setdefault(name.lower(), name)
                fault = fault or (None if other == name else f"{other} has the same letters")
                if name.lower() in taken:
                    fault = "a column of key or headers has its name; give that one another name"
                told = f"{told}. It cannot be a column: {fault}" if fault else told
                declare = None if fault else f"{name} {found.type}"
                yield Difference(write_name(name), SchemaChange.ADDITIVE, told, declare)
            elif found.unfit:
                share = f"{found.unfit:,} of {describe_count(found.records, 'value')}"
                told = f"declared as {declared[name]}, and {share} do not fit: {found.error}"
                change = SchemaChange.BREAKING if found.type is None else SchemaChange.WIDENING
                yield Difference(name, change, told, found.type and f"{name} {found.type}")

    def _differences_of_table(self) -> Iterator[Difference]:
        for each in self.table or ():
            if each.change is None:
                continue
            if each.type is None:
                told = "declared, and the table has no such column"
            elif each.wanted is None:
                told = f"the table has it, as {each.type}, it must not be null, and no row would fill it"
            else:
                told = f"the table has it as {each.type}, and rows would have {each.wanted}"
            yield Difference(each.name, each.change, told, statement=each.statement)
