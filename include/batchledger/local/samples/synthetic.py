"""Made-up records for any pipeline, computed from the declared columns and the record's number alone. No I/O.

SampleRecord 17 of a schema is the same bytes in every process, so that a test or a benchmark knows what a topic holds.
"""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from batchledger.local.samples.producer import SampleRecord
from batchledger.model.records.columns import Column
from batchledger.model.records.types import DecimalOf, Epoch, Floating, Integer, Scalar

_FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_encode = json.JSONEncoder(separators=(",", ":")).encode


def synthesize_records(columns: tuple[Column, ...], count: int, first: int = 0) -> Iterator[SampleRecord]:
    """Yield the records numbered ``first`` to ``first + count - 1``; each carries the moment of sending as timestamp.

    A text column whose name ends in ``id`` is unique (``synthetic-000000017``); the key is the record's number.
    """
    for number in range(first, first + count):
        fields = {column.name: _make_value(column, number) for column in columns}
        yield SampleRecord(str(number).encode(), _encode(fields).encode())


def _make_value(column: Column, number: int) -> str | int | float | bool:  # noqa: C901, PLR0911 -- one a type
    match type_ := column.type:
        case Scalar.STRING if column.name.lower().endswith("id"):
            return f"synthetic-{number:09d}"
        case Scalar.STRING:
            return f"{column.name} {number % 100}"
        case Scalar.BOOLEAN:
            return number % 2 == 0
        case Scalar.DATE:
            return (_FIRST_MOMENT + timedelta(days=number % 365)).date().isoformat()
        case Scalar.TIMESTAMP:
            return (_FIRST_MOMENT + timedelta(seconds=number)).isoformat()
        case Scalar.BINARY:
            return base64.b64encode(str(number).encode()).decode()
        case Scalar.UUID:
            return str(UUID(int=number))
        case Integer():
            return number % (1 << (type_.bits - 1))
        case Floating():
            return number % 10_000 / 4
        case Epoch():
            return (int(_FIRST_MOMENT.timestamp()) + number) * 1_000_000 // type_.microseconds
        case DecimalOf(precision, scale):
            # It fits: for example 0.17 for record 17 and decimal(10,2).
            return float(number % 10 ** min(precision, 9) / 10**scale)
        case _:
            raise TypeError(type_)
