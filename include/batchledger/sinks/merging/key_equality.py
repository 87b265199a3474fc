"""Columns of a key that the table compares in another way than the rows: there two keys of the records would be one.

The ledger remembers a deleted key as a hash of what the record has, and a batch is reduced to the newest record of each
key before the table sees it. Both need the table to tell keys apart exactly as the rows do. A type with an equality of
its own (``citext``, ``character(5)``), and a collation under which different texts are equal, do not.
"""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
from psycopg import sql

from batchledger.model.errors import TargetChangedError
from batchledger.sinks.staging.tables import postgres_type

_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})
_MOMENTS = frozenset({"timestamp with time zone", "timestamp without time zone"})
_SAME_EQUALITY: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_NUMBERS, _NUMBERS),
    **dict.fromkeys(_MOMENTS, _MOMENTS),
    "text": frozenset({"text", "character varying"}),
    "boolean": frozenset({"boolean"}),
    "date": _MOMENTS | {"date"},
    "bytea": frozenset({"bytea"}),
    "uuid": frozenset({"uuid"}),
}
"""By the type of the rows: the types of a column, unless they change values, that have the same equality."""
_SIZE = re.compile(r"\([\d,-]+\)")
_VARCHAR = re.compile(r"character varying\((\d+)\)")


def has_equality_of_rows(field: pa.Field, type_: str) -> bool:
    """Whether values of the field are equal in a column of this type exactly if they are equal in the rows.

    >>> code = pa.field("code", pa.string())
    >>> [has_equality_of_rows(code, type_) for type_ in ("character varying(5)", "citext")]
    [True, False]
    """
    return _SIZE.sub("", type_) in _SAME_EQUALITY.get(postgres_type(field), ())


def require_equality_of_rows(name: str, key: Sequence[pa.Field], base_types: Mapping[str, str]) -> None:
    """Raise TargetChangedError for a column of the key whose type has an equality of its own."""
    for field in key:
        type_ = base_types.get(field.name)
        if type_ is not None and not has_equality_of_rows(field, type_):
            raise own_equality(name, f"{field.name} is {type_}, and the rows have {postgres_type(field)}")


def own_equality(name: str, what: str) -> TargetChangedError:
    """Say that the table compares keys in a way of its own."""
    return TargetChangedError(
        f"Table {name} compares a column of sink.key in its own way. Nothing was written.",
        why=f"{what}. Keys that the records keep apart could be one key there, so that a deletion would miss its row.",
        advice="Give the column the type of the rows, a text with a deterministic collation.\n"
        "If spellings differ, let a transform write each key in one way, for example by lower.",
        subject=name,
    )


def keys_too_long(types: Mapping[str, str]) -> sql.Composable:
    """Return the condition of rows with a text that is longer than its column; ``types`` belong to the key."""
    bounds = {name: found[1] for name, type_ in types.items() if (found := _VARCHAR.fullmatch(type_))}
    conditions = [
        sql.SQL("char_length({}) > {}").format(sql.Identifier(name), sql.Literal(int(bound)))
        for name, bound in bounds.items()
    ]
    return sql.SQL(" or ").join(conditions) if conditions else sql.SQL("false")
