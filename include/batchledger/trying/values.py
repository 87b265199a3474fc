"""Values of rows as JSON has them, so that a file can say exactly which are expected.

A number is a number if JSON holds it exactly. Decimals, moments, dates and UUIDs are texts; bytes are
``{"base64": "…"}``.
"""

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


def write_rows(rows: pa.Table) -> Iterator[Mapping[str, Any]]:
    """Yield each row, by the names of its columns."""
    columns = [[write_value(each, column.type) for each in column.to_pylist()] for column in rows.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, values, strict=True))


def write_value(value: Any, type_: pa.DataType) -> Any:  # noqa: PLR0911 -- one a type
    """Return a value of a type of Arrow, as ``to_pylist`` gives it."""
    match value:
        case Decimal():
            return format(value, "f")
        case date():
            return value.isoformat()
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case float() if pa.types.is_float32(type_):
            # The shortest text that means this number, and not the digits that 64 bits add.
            return float(str(np.float32(value)))
        case dict():
            return {each.name: write_value(value[each.name], each.type) for each in type_}
        case list() if pa.types.is_map(type_):
            return {name: write_value(each, type_.item_type) for name, each in value}
        case list():
            return [write_value(each, type_.value_type) for each in value]
        case _:
            return value
