"""Columns of a table that would take values and change them in silence: round or cut them.

PostgreSQL converts a value to the type of its column when it is inserted. It says so if the value is out of range. It
says nothing if it rounds 1.105 to 1.11, or cuts the time of day off. So this module has a list of its own. A moment or
a day stays the same in a column with a time zone and in one without: the sessions of sinks are in UTC.
"""

import re
from collections.abc import Mapping

import pyarrow as pa

from batchledger.formats.arrow_types import is_array, is_json
from batchledger.sinks.staging.tables import postgres_type

_TYPE = re.compile(r"(?P<base>[a-z][a-z ]*?|\"char\")(?:\((?P<size>\d+)(?:,(?P<scale>-?\d+))?\))?(?P<zone> with.*)?")
_INTEGERS = frozenset({"smallint", "integer", "bigint"})
_FINEST, _CENTS = 6, 2
"""Digits behind the point of a second, and of money."""
_EXACT_DIGITS = {"real": 6, "double precision": 15}
"""So many digits of a decimal come back from a binary number."""

_CHANGED_BY: Mapping[str, frozenset[str]] = {
    "numeric": _INTEGERS,
    "double precision": _INTEGERS | {"real", "numeric"},
    "real": _INTEGERS | {"numeric"},
    "bigint": frozenset({"real", "double precision"}),
    "integer": frozenset({"real"}),
    "text": frozenset({'"char"', "character", "name"}),
    "timestamp with time zone": frozenset({"date", "time without time zone", "time with time zone"}),
    "timestamp without time zone": frozenset({"date", "time without time zone"}),
}
"""By the type of the rows: the types of a column that change some of their values."""


def changes_values(field: pa.Field, type_: str) -> bool:
    """Whether a column of this type, as PostgreSQL writes it, changes some values of the field without an error.

    >>> amount = pa.field("amount", pa.decimal128(10, 3))
    >>> changes_values(amount, "numeric(12,2)"), changes_values(amount, "numeric(12,3)")
    (True, False)
    """
    if type_.endswith("[]"):
        # It takes no scalar.
        return is_array(field.type) and changes_values(field.type.value_field, type_.removesuffix("[]"))
    rows, found = field.type, _TYPE.fullmatch(type_)
    if is_json(field) or pa.types.is_nested(rows):
        # A name is cut, and no other text.
        return type_ == "name"
    if found is None:
        return False
    base, size = f"{found['base']}{found['zone'] or ''}", found["size"]
    if base in _CHANGED_BY.get(postgres_type(field), ()):
        return True
    if pa.types.is_decimal(rows):
        scale = {"numeric": int(found["scale"] or 0) if size else rows.scale, "money": _CENTS}.get(base, rows.scale)
        return bool(rows.scale > scale or rows.precision > _EXACT_DIGITS.get(base, rows.precision))
    return pa.types.is_timestamp(rows) and base.startswith("timestamp") and int(size or _FINEST) < _FINEST


def describe_type(field: pa.Field) -> str:
    """Return the type of the field as PostgreSQL writes it, with the size of a decimal."""
    type_ = postgres_type(field)
    if type_.endswith("[]"):
        return f"{describe_type(field.type.value_field)}[]"
    return f"numeric({field.type.precision},{field.type.scale})" if pa.types.is_decimal(field.type) else type_
