"""Made-up records for any pipeline, computed from the declared columns and the record's number alone. No I/O.

SampleRecord 17 of a schema is the same bytes in every process, so that a test or a benchmark knows what a topic holds.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from batchledger.local.samples.producer import SampleRecord
from batchledger.model.records.columns import EPOCH_UNITS, Column, decimal_size

_FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_MAKE_BY_TYPE: Mapping[str, Callable[[int], str | int | float | bool]] = {
    "boolean": lambda number: number % 2 == 0,
    **dict.fromkeys(("tinyint", "byte"), lambda number: number % 2**7),
    **dict.fromkeys(("smallint", "short"), lambda number: number % 2**15),
    **dict.fromkeys(("int", "integer"), lambda number: number % 2**31),
    **dict.fromkeys(("bigint", "long"), lambda number: number),
    **dict.fromkeys(("float", "real", "double"), lambda number: number % 10_000 / 4),
    "date": lambda number: (_FIRST_MOMENT + timedelta(days=number % 365)).date().isoformat(),
    "timestamp": lambda number: (_FIRST_MOMENT + timedelta(seconds=number)).isoformat(),
    "binary": lambda number: base64.b64encode(str(number).encode()).decode(),
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def synthesize_records(columns: tuple[Column, ...], count: int, first: int = 0) -> Iterator[SampleRecord]:
    """Yield the records numbered ``first`` to ``first + count - 1``; each carries the moment of sending as timestamp.

    A text column whose name ends in ``id`` is unique (``synthetic-000000017``); the key is the record's number.
    """
    for number in range(first, first + count):
        fields = {column.name: _make_value(column, number) for column in columns}
        yield SampleRecord(str(number).encode(), _encode(fields).encode())


def _make_value(column: Column, number: int) -> str | int | float | bool:
    if column.type == "string" and column.name.lower().endswith("id"):
        return f"synthetic-{number:09d}"
    if column.type == "string":
        return f"{column.name} {number % 100}"
    if column.type.startswith("decimal"):
        return _make_decimal(column.type, number)
    if column.type in EPOCH_UNITS:
        return (int(_FIRST_MOMENT.timestamp()) + number) * 1_000_000 // EPOCH_UNITS[column.type]
    return _MAKE_BY_TYPE[column.type](number)


def _make_decimal(type_: str, number: int) -> float:
    """Return a value that fits, for example 0.17 for record 17 and ``decimal(10,2)``."""
    precision, scale = decimal_size(type_)
    return float(number % 10 ** min(precision, 9) / 10**scale)
