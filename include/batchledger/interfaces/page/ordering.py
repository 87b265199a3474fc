"""In which order a table shows its lines, and which lines it shows: what an address says about both. Pure; no I/O.

An address names a column as Airflow's own do: ``sort=unread`` counts upwards, ``sort=-unread`` downwards. The columns
of a table are a closed enum. An address can name nothing else, and no name from an address reaches a database.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from typing_extensions import override

from batchledger.model.counting import describe_count
from batchledger.model.errors import ConfigurationError

Line = TypeVar("Line")


class SortColumn(StrEnum):
    """The columns that a table can be sorted by; each table has an enum of its own.

    ``is_largest_first``: the first press of its button shows the largest value first.
    """

    is_largest_first: bool

    def __new__(cls, name: str, is_largest_first: bool = False) -> Self:
        """Return a column by its name in an address."""
        column = str.__new__(cls, name)
        column._value_, column.is_largest_first = name, is_largest_first
        return column


Key = TypeVar("Key", bound=SortColumn)


@dataclass(frozen=True, slots=True)
class SortOrder(Generic[Key]):
    """Lines by the value of one column."""

    column: Key
    is_descending: bool = False

    @override
    def __str__(self) -> str:
        return f"{'-' if self.is_descending else ''}{self.column}"

    def after_press(self, column: Key) -> "SortOrder[Key]":
        """Return the order that the button of a column asks for: a second press turns the order round."""
        if column is self.column:
            return SortOrder(column, not self.is_descending)
        return SortOrder(column, column.is_largest_first)

    def describe(self, column: Key) -> str:
        """Return the value of ``aria-sort`` for the head of a column."""
        if column is not self.column:
            return "none"
        return "descending" if self.is_descending else "ascending"


def read_order(text: str | None, columns: type[Key], usual: SortOrder[Key]) -> SortOrder[Key]:
    """Return the order that an address names, or the usual one. Raises ConfigurationError for an unknown column."""
    if not text:
        return usual
    name = text.removeprefix("-")
    if name not in list(columns):
        raise ConfigurationError(
            f"This table cannot be sorted by {name[:40]!r}.",
            why="The address of the page names this column.",
            advice=f"Choose one of: {', '.join(columns)}.",
            subject="sort",
        )
    return SortOrder(columns(name), text.startswith("-"))


def arrange(
    lines: Iterable[Line], order: SortOrder[Key], values: Mapping[Key, Callable[[Line], Any]], usual: SortOrder[Key]
) -> list[Line]:
    """Return the lines in an order; lines with equal values keep the order in which they came.

    Lines whose value is not known come last, upwards and downwards. ``usual`` is the order in which the lines came.

    Worked example: 3, None, 7 become 3, 7, None upwards, and 7, 3, None downwards.
    """
    found = list(lines)
    if order == usual:
        return found
    read = values[order.column]
    known = [each for each in found if read(each) is not None]
    unknown = [each for each in found if read(each) is None]
    return [*sorted(known, key=read, reverse=order.is_descending), *unknown]


def holds_text(wanted: str, *texts: str) -> bool:
    """Whether one of the texts holds each word that is looked for, in upper case or lower case."""
    joined = "\n".join(texts).casefold()
    return all(word in joined for word in wanted.casefold().split())


def write_query(*parts: Mapping[str, Any], anchor: str = "", **changes: Any) -> str:
    """Return the query of an address: what stands in the parts, with changes. No empty value, no page 1."""
    joined: dict[str, Any] = {}
    for part in (*parts, changes):
        joined.update(part)
    query = urlencode({name: str(value) for name, value in joined.items() if value not in (None, "", 1)})
    return f"?{query}{anchor}" if query else anchor


def keep_fields(*parts: Mapping[str, str], without: str) -> dict[str, str]:
    """Return what the hidden fields of a form keep: all parts, without the field that the form itself sends."""
    return {name: value for part in parts for name, value in part.items() if name != without}


def count_found(found: int, total: int, one: str, many: str = "") -> str:
    """Return what a screen reader says after a change of the filter: ``3 of 340 pipelines``."""
    counted = describe_count(total, one, many)
    return counted if found == total else f"{found:,} of {counted}"
