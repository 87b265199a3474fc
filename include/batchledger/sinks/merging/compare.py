"""A shadow of a publication on PostgreSQL: what it would do to the rows of the target, by reading alone.

The rows of a replay's ranges would go, then the rows of its attempt would come. The comparison is of values as the
target would hold them: the rows are cast to its types first, and compared byte by byte, which works for every type.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import ranges_as_arrays, read_sql
from batchledger.model.batch import Attempt
from batchledger.model.offsets import TopicPartition
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.model.records.comparison import ChangedRow, Comparison
from batchledger.sinks.merging.upsert import PostgresUpsert


@dataclass(frozen=True)
class Shadow:
    """The rows that an attempt would publish, beside a target that exists.

    ``rows``, a table or subquery, are the rows that the audit accepts; ``row_columns`` are their columns, and
    ``columns`` the target's, type by name: ``columns_after`` once the rows are there. Rows of erased keys
    (``tables.ERASED``) are none.
    """

    target: sql.Identifier
    columns: Mapping[str, str]
    columns_after: Mapping[str, str]
    rows: sql.Composable
    row_columns: Sequence[str]
    upsert: PostgresUpsert | None

    def compare(self, cursor: psycopg.Cursor[Any], attempt: Attempt, limit: int) -> Comparison:
        """Return what would become of the rows, with up to ``limit`` that would change. Raises KeyConflictError."""
        compared = [each for each in self.columns_after if each in self.row_columns]
        parameters = {"limit": limit, **ranges_as_arrays(attempt.batch.ranges)}
        if self.upsert is None:
            before, after, same_row = self._appended(compared)
        else:
            before, after, same_row = self._keyed(cursor, attempt, self.upsert, compared)
        cursor.execute(
            read_sql(__package__, "compare_rows").format(
                before=before, after=after, same_row=same_row, differing=_join(map(_differing, compared))
            ),
            parameters,
        )
        counts, examples = {}, []
        for outcome, count, topic, partition, offset, differing in cursor:
            if outcome is None:
                examples.append(ChangedRow(TopicPartition(topic, partition), offset, tuple(differing)))
            else:
                counts[outcome] = count
        absent = [each for each in self.columns if each not in (*self.row_columns, BATCH_COLUMN)]
        return Comparison(**counts, examples=tuple(examples), absent_columns=tuple(absent))

    def _appended(self, compared: Sequence[str]) -> tuple[sql.Composable, sql.Composable, sql.Composable]:
        before = read_sql(__package__, "select_appended_before").format(
            columns=self._present(compared), target=self.target
        )
        after = sql.SQL("select {}, true as is_there, 1 as copy from (select * from {} where _task >= 0) l").format(
            self._cast(compared), self.rows
        )
        return before, after, _same(("_topic", "_partition", "_offset", "copy"))

    def _keyed(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, upsert: PostgresUpsert, compared: Sequence[str]
    ) -> tuple[sql.Composable, sql.Composable, sql.Composable]:
        elsewhere = read_sql(__package__, "select_elsewhere").format(target=self.target)
        parts = upsert.collapse(cursor, attempt, self.rows, self.row_columns, elsewhere)
        parts |= {"target": self.target, "elsewhere": elsewhere}
        before = read_sql(__package__, "select_keyed_before").format(**{**parts, "columns": self._present(compared)})
        after = read_sql(__package__, "select_keyed_after").format(**{**parts, "columns": self._cast(compared)})
        return before, after, _same(upsert.rules.key)

    def _cast(self, compared: Sequence[str]) -> sql.Composed:
        types = self.columns_after
        return _join(sql.SQL(f"l.{{0}}::{types[each]} as {{0}}").format(sql.Identifier(each)) for each in compared)

    def _present(self, compared: Sequence[str]) -> sql.Composed:
        types = self.columns_after
        return _join(
            sql.SQL(f"{'t.{0}' if each in self.columns else 'null'}::{types[each]} as {{0}}").format(
                sql.Identifier(each)
            )
            for each in compared
        )


def _differing(column: str) -> sql.Composed:
    return sql.SQL("case when record_image_ne(row(b.{0}), row(a.{0})) then {1} end").format(
        sql.Identifier(column), sql.Literal(column)
    )


def _same(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(" and ").join(sql.SQL("b.{0} = a.{0}").format(sql.Identifier(each)) for each in columns)


def _join(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
