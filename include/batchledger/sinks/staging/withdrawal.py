"""The rows that a batch takes away before it writes its own (I8), kept until the transaction ends.

The message keys and the upserts of the batch read about them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import held_as_arrays, ranges_as_arrays, read_held, read_sql, read_statement
from batchledger.model.batch import Attempt, HeldRange
from batchledger.model.records.columns import BATCH_COLUMN, PROVENANCE_COLUMNS
from batchledger.sinks.staging.spans import holder_of, read_spans
from batchledger.sinks.staging.tables import join_names

OldRows = tuple[sql.Composable, dict[str, Any]]
"""The query, with its parameters, of the rows that other batches have published of an attempt's ranges."""


@dataclass(frozen=True)
class WithdrawnRows:
    """Rows that were taken away: ``table`` has their provenance and their key columns until the transaction ends."""

    table: sql.Identifier

    @property
    def old(self) -> OldRows:
        """The same rows as a query."""
        return sql.SQL("select * from {}").format(self.table), {}

    def count(self, cursor: psycopg.Cursor[Any], pipeline: str, replaced: Sequence[HeldRange]) -> Sequence[int]:
        """Return, for each of ``replaced``, how many different offsets of it had a row."""
        statement = read_sql(__package__, "count_withdrawn").format(table=self.table, holder=holder_of("w._batch_id"))
        cursor.execute(statement, held_as_arrays(replaced) | read_spans(cursor, pipeline))
        return [count for (count,) in cursor]


def find_replaced(cursor: psycopg.Cursor[Any], attempt: Attempt) -> Sequence[HeldRange]:
    """Return what other batches hold of the batch's ranges now, as ``withdraw`` will get it. Changes nothing (I6)."""
    cursor.execute(read_statement(__package__, "find_holders"), {"batch_id": attempt.batch.batch_id})
    return read_held(cursor)


def rows_to_withdraw(target: sql.Identifier, attempt: Attempt) -> OldRows:
    """Return the query, with its parameters, of the rows that ``withdraw_rows`` would remove now."""
    return read_sql(__package__, "select_withdrawable").format(target=target), ranges_as_arrays(attempt.batch.ranges)


def withdraw_rows(
    cursor: psycopg.Cursor[Any], target: sql.Identifier, attempt: Attempt, key_columns: Sequence[str]
) -> WithdrawnRows:
    """Delete every row of the batch's ranges."""
    withdrawn = WithdrawnRows(sql.Identifier("pg_temp", "batchledger_withdrawn"))
    columns = list(dict.fromkeys([*PROVENANCE_COLUMNS, BATCH_COLUMN, *key_columns]))
    names = join_names(columns)
    cursor.execute(
        sql.SQL("create temporary table {} on commit drop as select {} from {} with no data").format(
            withdrawn.table, names, target
        )
    )
    removed = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each)) for each in columns)
    parts = {"target": target, "table": withdrawn.table, "removed": removed, "columns": names}
    cursor.execute(read_sql(__package__, "withdraw_rows").format(**parts), ranges_as_arrays(attempt.batch.ranges))
    cursor.execute(sql.SQL("analyze {}").format(withdrawn.table))
    return withdrawn
