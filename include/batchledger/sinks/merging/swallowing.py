"""Tables that let a statement end well and do not do to each row what it says.

A trigger that returns null, a rule with ``do instead``, row security that hides rows: PostgreSQL reports no error, so
rows would be missing from the target, or stay in it, while the ledger says otherwise. So the sink counts what the
target has done. If the table has ignored rows, their batch is refused.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import read_sql
from batchledger.model.batch import Attempt
from batchledger.model.errors import RowsRefusedError
from batchledger.sinks.staging.withdrawal import rows_to_withdraw


def find_swallowers(cursor: psycopg.Cursor[Any], target: sql.Identifier) -> Sequence[str]:
    """Return what may swallow rows of a table or of its partitions: triggers and rules by name, and row security."""
    literal = sql.Literal(target.as_string(cursor))
    cursor.execute(read_sql(__package__, "find_swallowers").format(target=literal))
    return [name for (name,) in cursor]


def rows_ignored(
    cursor: psycopg.Cursor[Any], target: sql.Identifier, name: str, attempt: Attempt, what: str
) -> RowsRefusedError:
    """Say what a table has not done to the rows of an attempt, and what may be the reason."""
    found = ", ".join(find_swallowers(cursor, target)) or "no trigger, no rule and no row security that would do so"
    return RowsRefusedError(
        f"Table {name} {what}, without an error. Nothing was published.",
        why=f"It has: {found}.",
        advice=f"Let it take every row of {attempt.batch.pipeline}, and give up every row that is published "
        "again.\nTo leave records out, use a transform.",
        batch_id=attempt.batch.batch_id,
        subject=name,
    )


def require_withdrawn(cursor: psycopg.Cursor[Any], target: sql.Identifier, name: str, attempt: Attempt) -> None:
    """Raise RowsRefusedError when rows of the attempt's ranges are still there after they were deleted."""
    if not find_swallowers(cursor, target):
        return
    query, parameters = rows_to_withdraw(target, attempt)
    cursor.execute(sql.SQL("select count(*) from ({}) kept").format(query), parameters)
    ((kept,),) = cursor.fetchall()
    if kept:
        what = f"keeps {kept:,} rows of the offsets that {attempt.batch.label} publishes again"
        raise rows_ignored(cursor, target, name, attempt, what)
