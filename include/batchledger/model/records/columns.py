"""The columns that a pipeline file declares: ``"message_id string, dep_delay double"`` as frozen values.

The text is Spark's DDL, checked here without Spark, so that a bad schema is refused while a DAG file is parsed.
``decoding.meaning`` says what JSON becomes in a column of each type. A value that is an object or an array may become a
nested type, ``jsonb``, or a ``string``, which keeps its text. ``customer.id as customer_id bigint`` takes a field out
of an object. Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from batchledger.model.quoting import quote
from batchledger.model.records.types import ColumnType, Json, ScalarType, has_json, parse_type, split_outside

COORDINATE_COLUMNS = ("_topic", "_partition", "_offset")
PROVENANCE_COLUMNS = (*COORDINATE_COLUMNS, "_timestamp")
BATCH_COLUMN = "_batch_id"
DELETED_COLUMN = "_deleted"
"""Whether the row deletes its key. A sink with mode upsert acts on it and does not store it."""

_COLUMN = re.compile(
    r"(?:(?P<path>[^\s,<>()]+)\s+as\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s+(?P<type>.+)", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column. ``path`` leads to the field, through objects, if it is not the field of its name."""

    name: str
    type: ColumnType
    path: tuple[str, ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Whether the value has no values within, so that it can be a key."""
        return isinstance(self.type, ScalarType)

    @property
    def source(self) -> tuple[str, ...]:
        """The names of the fields that lead to the value, the outermost first."""
        return self.path or (self.name,)


REST = Column("_rest", Json.JSONB)
"""The fields of a record that no other column declares, if a pipeline keeps them."""


def parse_columns(text: str) -> tuple[Column, ...]:
    """Read a schema string. Raises ValueError with the offending column and what is allowed."""
    columns = tuple(_parse_column(part.strip()) for part in split_outside(text))
    _require_apart(columns)
    seen = set()
    for column in columns:
        name = column.name.lower()
        if name in seen:
            raise ValueError(f"column {quote(name)} appears twice")
        seen.add(name)
    return columns


def write_columns(columns: Iterable[Column]) -> str:
    """Return the text that ``parse_columns`` reads as these columns; the same columns give the same text."""
    return ", ".join(
        f"{'.'.join(each.path)} as {each.name} {each.type}" if each.path else f"{each.name} {each.type}"
        for each in columns
    )


def read_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that ``write_columns`` has written, ``REST`` too. Raises ValueError."""
    parts = [part.strip() for part in split_outside(text)]
    return tuple(REST if part == write_columns([REST]) else _parse_column(part) for part in parts)


def _parse_column(text: str) -> Column:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"{quote(text)} is not a column; write 'name type, name type'")
    name = match["name"]
    if name.startswith("_"):
        raise ValueError(f"column {quote(name)}: names with a leading underscore are kept for the provenance columns")
    path = tuple(match["path"].split(".")) if match["path"] else ()
    if not all(path):
        raise ValueError(f"column {quote(name)}: {quote(match['path'])} is no path; write 'customer.id as {name} type'")
    try:
        type_ = parse_type(match["type"])
    except ValueError as error:
        raise ValueError(f"column {quote(name)}: {error}") from None
    if type_ is not Json.JSONB and has_json(type_):
        raise ValueError(f"column {quote(name)}: jsonb is a column of its own; declare the outer value as jsonb")
    return Column(name, type_, () if path == (name,) else path)


def _require_apart(columns: Iterable[Column]) -> None:
    """Refuse a path that leads to another one's value or into it, which would have to be an object and a value."""
    by_path = {column.path: column for column in columns if column.path}
    for path, column in by_path.items():
        for length in range(1, len(path)):
            if path[:length] in by_path:
                raise ValueError(
                    f"column {quote(column.name)} is a part of column {quote(by_path[path[:length]].name)}; "
                    "declare the outer one alone, as a struct"
                )
