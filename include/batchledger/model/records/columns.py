"""The columns that a pipeline file declares: ``"message_id string, dep_delay double"`` as frozen values.

The text is Spark's DDL for a flat record of scalar types, checked here without Spark, so that a bad schema is refused
while a DAG file is parsed. ``decoding.meaning`` says what JSON becomes in a column of each type. Nested JSON is
declared as ``string``, which keeps its text, and a transform can read it. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from batchledger.model.quoting import quote

COORDINATE_COLUMNS = ("_topic", "_partition", "_offset")
PROVENANCE_COLUMNS = (*COORDINATE_COLUMNS, "_timestamp")
BATCH_COLUMN = "_batch_id"
DELETED_COLUMN = "_deleted"
"""Whether the row deletes its key. A sink with mode upsert acts on it and does not store it."""

SCALAR_TYPES = (
    "string", "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long",
    "float", "real", "double", "date", "timestamp", "binary",
)  # fmt: skip

EPOCH_UNITS: Mapping[str, int] = MappingProxyType(
    {"timestamp_s": 1_000_000, "timestamp_ms": 1_000, "timestamp_us": 1},
)
"""Types of timestamps that a record holds as a number since 1970, with the microseconds of their unit."""

INTEGER_TYPES = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")

_COLUMN = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s+(?P<type>.+)", re.DOTALL)
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\s*\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\)")


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column; ``type`` is a Spark scalar type in lower case, such as ``double`` or ``decimal(10,2)``.

    ``EPOCH_UNITS`` adds types of Batchledger: the record has a number, and the column is a timestamp.
    """

    name: str
    type: str


def parse_columns(text: str) -> tuple[Column, ...]:
    """Read a schema string. Raises ValueError with the offending column and what is allowed."""
    columns = tuple(_parse_column(part.strip()) for part in _split(text))
    seen = set()
    for column in columns:
        name = column.name.lower()
        if name in seen:
            raise ValueError(f"column {quote(name)} appears twice")
        seen.add(name)
    return columns


def write_columns(columns: Iterable[Column]) -> str:
    """Return the text that ``parse_columns`` reads as these columns; the same columns give the same text."""
    return ", ".join(f"{each.name} {each.type}" for each in columns)


def decimal_size(type_: str) -> tuple[int, int]:
    """Return precision and scale of a declared decimal type."""
    precision, scale = type_.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _split(text: str) -> Iterator[str]:
    """Return what lies between commas that are not within parentheses."""
    pieces: list[str] = []
    for piece in text.split(","):
        pieces.append(piece)
        is_open = len(pieces) > 1 or "(" in piece
        if not is_open or ")" in piece:
            yield ",".join(pieces)
            pieces = []
    if pieces:
        yield ",".join(pieces)


def _parse_column(text: str) -> Column:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"{quote(text)} is not a column; write 'name type, name type'")
    name, type_ = match["name"], match["type"].strip().lower()
    if name.startswith("_"):
        raise ValueError(f"column {quote(name)}: names with a leading underscore are kept for the provenance columns")
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is not None:
        precision, scale = int(decimal["precision"]), int(decimal["scale"] or 0)
        if not 0 < precision <= 38 or scale > precision:
            raise ValueError(f"column {quote(name)}: {type_} is not between decimal(1,0) and decimal(38,38)")
        return Column(name, f"decimal({precision},{scale})")
    if type_ not in (*SCALAR_TYPES, *EPOCH_UNITS):
        allowed = ", ".join((*SCALAR_TYPES, *EPOCH_UNITS))
        raise ValueError(
            f"column {quote(name)} has type {quote(type_)}; allowed are {allowed}, decimal(p,s). "
            "Declare nested JSON as string and read it in a transform"
        )
    return Column(name, type_)
