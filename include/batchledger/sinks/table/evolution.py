"""New and wider columns of a table that exists, in the transaction that publishes the rows which need them.

A change of a column needs the table for itself. A lock that waits for one reader keeps every later reader waiting, so
this one does not wait: it is asked for again and again for a while, and the publication fails if a reader never leaves.
Readers wait only while the publication goes on that has the lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg import sql

from batchledger.model.errors import ServiceUnavailableError, TargetChangedError
from batchledger.model.records.columns import PROVENANCE_COLUMNS
from batchledger.model.records.rules import Evolution

LARGEST_REWRITE_BYTES = 1024**3
_REWRITTEN_BYTES_A_SECOND = 50 * 1024**2
_TRIES_FOR_SECONDS = 10.0
_SECONDS_BETWEEN_TRIES = 0.1

ARRAY = "[]"
"""What PostgreSQL writes behind the type of an array's elements."""

_WIDER_SCALARS = {"smallint": ("integer", "bigint"), "integer": ("bigint",), "real": ("double precision",)}

WIDER_TYPES: Mapping[str, frozenset[str]] = {
    f"{narrow}{array}": frozenset(f"{each}{array}" for each in wider)
    for narrow, wider in _WIDER_SCALARS.items()
    for array in ("", ARRAY)
}
"""The types that hold every value of a type, or of an array. A double writes the value of a real with more digits."""


@dataclass(frozen=True)
class ColumnChanges:
    """Types by name: of columns that the table does not have, and of those that are wider in the rows."""

    added: Mapping[str, str]
    widened: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)

    def alter(self, table: sql.Identifier) -> sql.Composed:
        """Return the changes as a statement."""
        add, widen = "add column {} " + "{}", "alter column {} type " + "{}"
        clauses = [
            sql.SQL(form).format(sql.Identifier(name), sql.SQL(type_))
            for form, types in ((add, self.added), (widen, self.widened))
            for name, type_ in types.items()
        ]
        return sql.SQL("alter table {} {}").format(table, sql.SQL(", ").join(clauses))


NOTHING_CHANGES = ColumnChanges({}, {})


def plan_changes(
    evolution: Evolution, known: Mapping[str, str], staged: Mapping[str, str], key: Sequence[str]
) -> ColumnChanges:
    """Return what a table with the ``known`` columns may become for rows with the ``staged`` ones, type by name.

    What it may not become is left to PostgreSQL, which refuses the rows. A column of the ``key`` stays as it is. The
    columns of the records' places are never added: if rows are there already, their places would be empty.
    """
    added, widened = {}, {}
    for name, type_ in staged.items():
        if name not in known and evolution.adds and name not in PROVENANCE_COLUMNS:
            added[name] = type_
        elif name in known and evolution.widens and name not in key and type_ in WIDER_TYPES.get(known[name], ()):
            widened[name] = type_
    return ColumnChanges(added, widened)


def require_changeable(cursor: psycopg.Cursor[Any], table: sql.Identifier, name: str, changes: ColumnChanges) -> None:
    """Raise TargetChangedError when the table is another role's, or when the changes would rewrite a large table.

    A rewrite takes long, and holds the lock as long.
    """
    if not changes:
        return
    # A partitioned table has no size of its own.
    cursor.execute(
        "select pg_has_role(c.relowner, 'usage'), current_user::text, coalesce("
        "(select sum(pg_total_relation_size(relid)) from pg_partition_tree(c.oid)), pg_total_relation_size(c.oid)) "
        "from pg_class c where c.oid = to_regclass(%s)",
        [table.as_string(cursor)],
    )
    ((is_own, role, size_bytes),) = cursor.fetchall()
    if not is_own:
        raise TargetChangedError(
            f"Table {name} needs other columns, and role {role} does not own it. Nothing was written.",
            advice=f"Do it as its owner: {describe_changes(cursor, table, changes)}\nOr give the table to {role}.",
            subject=name,
        )
    if changes.widened and size_bytes > LARGEST_REWRITE_BYTES:
        columns = ", ".join(f"{column} to {type_}" for column, type_ in changes.widened.items())
        raise TargetChangedError(
            f"Table {name} is too large to widen {columns} while a batch is published. Nothing was written.",
            why=f"It has {size_bytes / 1024**3:.1f} GiB. PostgreSQL would write all of it anew, and let no query read "
            f"it meanwhile: about {size_bytes / _REWRITTEN_BYTES_A_SECOND:,.0f} s.",
            advice=f"Do it when that suits: {describe_changes(cursor, table, changes)}",
            subject=name,
        )


def describe_changes(cursor: psycopg.Cursor[Any], table: sql.Identifier, changes: ColumnChanges) -> str:
    """Return the changes as people write them."""
    return changes.alter(table).as_string(cursor)


def lock_table(cursor: psycopg.Cursor[Any], table: sql.Identifier, name: str) -> None:
    """Lock the table against every other use. Raises ServiceUnavailableError when others hold it all the time."""
    until = monotonic() + _TRIES_FOR_SECONDS
    while True:
        try:
            with cursor.connection.transaction():
                cursor.execute(sql.SQL("lock table {} in access exclusive mode nowait").format(table))
        except psycopg.errors.LockNotAvailable as error:
            if monotonic() < until:
                sleep(_SECONDS_BETWEEN_TRIES)
                continue
            raise ServiceUnavailableError(
                f"Table {name} needs new columns or wider ones, and others use it all the time. Nothing was published.",
                why=f"It is held by {', '.join(_find_holders(cursor, table)) or 'sessions that have just ended'}.",
                advice="The next try may find it free. Or end these sessions.",
                subject=name,
            ) from error
        return


def _find_holders(cursor: psycopg.Cursor[Any], table: sql.Identifier) -> Sequence[str]:
    cursor.execute(
        "select format('session %%s of %%s', l.pid, coalesce(nullif(a.application_name, ''), a.usename, 'unknown')) "
        "from pg_locks l left join pg_stat_activity a on a.pid = l.pid "
        "where l.relation = to_regclass(%s) and l.granted and l.pid <> pg_backend_pid() "
        "group by 1 order by 1 limit 5",
        [table.as_string(cursor)],
    )
    return [holder for (holder,) in cursor]
