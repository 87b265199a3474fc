"""The rows that a batch takes away before it writes its own (I8), kept until the transaction ends.

The message keys and the upserts of the batch read about them from ``batchledger_withdrawn``, a temporary table with the
provenance and the key columns of these rows.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import held_as_arrays, ranges_as_arrays, read_held, read_sql, read_statement
from batchledger.model.batch import Attempt, HeldRange
from batchledger.model.records.columns import BATCH_COLUMN, PROVENANCE_COLUMNS
from batchledger.sinks.staging.spans import holder_of, read_spans
from batchledger.sinks.staging.tables import join_names

WITHDRAWN = sql.Identifier("pg_temp", "batchledger_withdrawn")


def find_replaced(cursor: psycopg.Cursor[Any], attempt: Attempt) -> Sequence[HeldRange]:
    """Return what other batches hold of the batch's ranges now, as ``withdraw`` will get it. Changes nothing (I6)."""
    cursor.execute(read_statement(__package__, "find_holders"), {"batch_id": attempt.batch.batch_id})
    return read_held(cursor)


def rows_to_withdraw(target: sql.Identifier, attempt: Attempt) -> tuple[sql.Composed, dict[str, Any]]:
    """Return the query, with its parameters, of the rows that ``withdraw_rows`` would remove now."""
    return read_sql(__package__, "select_withdrawable").format(target=target), ranges_as_arrays(attempt.batch.ranges)


def withdraw_rows(
    cursor: psycopg.Cursor[Any], target: sql.Identifier, attempt: Attempt, key_columns: Sequence[str]
) -> None:
    """Delete every row of the batch's ranges."""
    columns = list(dict.fromkeys([*PROVENANCE_COLUMNS, BATCH_COLUMN, *key_columns]))
    names = join_names(columns)
    cursor.execute(
        sql.SQL("create temporary table batchledger_withdrawn on commit drop as select {} from {} with no data").format(
            names, target
        )
    )
    removed = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each)) for each in columns)
    statement = read_sql(__package__, "withdraw_rows").format(target=target, removed=removed, columns=names)
    cursor.execute(statement, ranges_as_arrays(attempt.batch.ranges))
    cursor.execute("analyze batchledger_withdrawn")


def count_withdrawn(cursor: psycopg.Cursor[Any], pipeline: str, replaced: Sequence[HeldRange]) -> Sequence[int]:
    """Return, for each of ``replaced``, how many different offsets of it had a row."""
    statement = read_sql(__package__, "count_withdrawn").format(holder=holder_of("w._batch_id"))
    cursor.execute(statement, held_as_arrays(replaced) | read_spans(cursor, pipeline))
    return [count for (count,) in cursor]


def exists_here(cursor: psycopg.Cursor[Any], temporary_table: str) -> bool:
    """Whether this transaction has made that temporary table."""
    cursor.execute("select to_regclass(%s) is not null", [f"pg_temp.{temporary_table}"])
    return bool(cursor.fetchall()[0][0])
