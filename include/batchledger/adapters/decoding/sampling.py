"""Looks at sampled records: which type would hold each field, judged by the readers that decode records.

So what this module says of a record is what ``docs/reference/meaning.md`` says.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchledger.adapters.decoding.meaning import UnfitError, make_reader
from batchledger.adapters.decoding.objects import parse_object
from batchledger.model.records.columns import Column, decimal_size
from batchledger.model.records.contract import Sample, SampledField

MOST_FIELDS = 2_000
"""More names than so many are values of the producer rather than fields."""

_PROPOSED = ("boolean", "bigint", "decimal(38,0)", "double", "date", "timestamp", "string")
"""The types in which values of an undeclared field are tried; a text holds everything."""
_NUMBERS = ("bigint", "decimal(38,0)", "double")
_OF_NULLS = "string"

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
    """Which types hold all values so far, beginning with the narrowest."""

    name: str
    declared: str | None
    left: list[str]
    records: int = 0
    values: int = 0
    unfit: int = 0
    error: str | None = None

    def take(self, token: bytes) -> None:
        """Take note of a value that is not null."""
        self.values += 1
        if self.declared is not None and (why := _explain(self.name, self.declared, token)) is not None:
            self.unfit += 1
            self.error = self.error or why
        # A text of digits is a number for a decimal column, and more often it is a code.
        left = [each for each in self.left if not (self.declared is None and token[:1] == b'"' and each in _NUMBERS)]
        self.left = [type_ for type_ in left if _explain(self.name, type_, token) is None]

    def describe(self) -> SampledField:
        """Return what the values have in common."""
        if self.declared is not None and not self.unfit:
            return SampledField(self.records, self.declared)
        if not self.values:
            return SampledField(self.records, _OF_NULLS)
        return SampledField(self.records, self.left[0] if self.left else None, self.unfit, self.error)


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
            type_ = declared.get(name)
            known = fields.setdefault(name, _Field(name, type_, list(_candidates(type_))))
            known.records += 1
            if token != b"null":
                known.take(token)
    return Sample(records, unreadable, {name: each.describe() for name, each in fields.items()})


def _candidates(declared: str | None) -> Iterator[str]:
    if declared is None:
        yield from _PROPOSED
    elif declared.startswith("decimal"):
        precision, scale = decimal_size(declared)
        yield from (f"decimal({digits},{scale})" for digits in range(precision, _MOST_DIGITS + 1))
    else:
        yield declared
        yield from _WIDER.get(declared, ())


def _explain(name: str, type_: str, token: bytes) -> str | None:
    """Return why a column of this type cannot hold the value, or None."""
    try:
        make_reader(Column(name, type_))(token)
    except UnfitError as error:
        return str(error)
    return None
