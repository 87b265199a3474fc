"""What kind of relation may be a target: a table, also a partitioned one, that keeps the rows that it takes.

Anything else lets rows vanish without an error: a view hides them, a rule with ``do instead`` sends them elsewhere, an
unlogged table is empty after a crash of the server. A replay would not find such rows, and would store them twice.
Triggers and row security depend on the row, so they are judged with each publication (``swallowing``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import read_sql
from batchledger.model.errors import TargetChangedError

_TABLES = frozenset({"r", "p"})
_KINDS: Mapping[str, str] = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
    "i": "an index",
    "I": "an index",
}
_WHY: Mapping[str, str] = {
    "v": "A row that its query hides would vanish behind it, and a replay would store the row twice.",
    "m": "PostgreSQL fills it from its query alone.",
    "f": "Its rows are committed on another server. A crash may leave them there without their position.",
}
_OTHER_TABLE = "Name a table in sink.table. If it does not exist, the first publication creates it."


def require_table(cursor: psycopg.Cursor[Any], table: sql.Identifier, name: str, *, is_keyed: bool) -> None:
    """Raise TargetChangedError unless the relation, and each of its partitions, keeps the rows that it takes.

    ``is_keyed``: rows are applied by key, so that one unique index has to cover all of them.
    """
    literal = sql.Literal(table.as_string(cursor))
    cursor.execute(read_sql(__package__, "describe_relations").format(target=literal))
    for is_part, part, *facts in cursor.fetchall():
        fault = _find_fault(name if not is_part else part, *facts, is_keyed=is_keyed)
        if fault is not None:
            is_, why, advice = fault
            what = f"Partition {part} of {name}" if is_part else name
            raise TargetChangedError(f"{what} {is_}. Nothing was written.", why=why, advice=advice, subject=name)


def _find_fault(
    part: str, kind: str, is_unlogged: bool, rules: Sequence[str], has_children: bool, *, is_keyed: bool
) -> tuple[str, str, str] | None:
    """Return what is wrong, why, and what to do."""
    if kind not in _TABLES:
        return f"is {_KINDS.get(kind, 'no table')}", _WHY.get(kind, "It holds no rows."), _OTHER_TABLE
    if is_unlogged:
        why = "PostgreSQL empties it when the server crashes, and the ledger would still say that its rows are there."
        return "is unlogged", why, f"Let PostgreSQL log it: alter table {part} set logged\nOr: {_OTHER_TABLE}"
    if rules:
        why = "PostgreSQL does what the rule says in place of what a publication says, and reports no error."
        return (
            f"has rules that do something instead: {', '.join(rules)}",
            why,
            f"Disable them: alter table {part} disable rule {rules[0]}\nTo leave records out, use a transform.",
        )
    if has_children and is_keyed:
        why = "Its unique index does not cover these tables, so a key could have two rows."
        return "has tables that inherit from it", why, f"Use declarative partitions.\nOr: {_OTHER_TABLE}"
    return None
