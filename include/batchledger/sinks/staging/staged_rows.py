"""The staged rows in one judgement: a session that knows which of them are duplicates, and what checks see of them.

Duplicates are found once, in a temporary table. So checks and counts agree whatever other batches do meanwhile, and
twins of the step are not in each other's way. Checks get the session with a cursor that can only read (I6). If nothing
is a duplicate, nothing is compared with that table, which would keep PostgreSQL from reading the rows in parallel.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import ranges_as_arrays, read_sql
from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.balance import StagedRange
from batchledger.model.batch import Attempt, Lane
from batchledger.model.checks import Severity
from batchledger.model.offset_sums import OffsetSums
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.rules import SequenceRule
from batchledger.model.records.times import RecordTimes
from batchledger.ports import RowsToCheck, StagedRows
from batchledger.sinks.staging.deduplication import Repeated
from batchledger.sinks.staging.key_secret import ReadSecret
from batchledger.sinks.staging.reading_cursor import ReadingCursor
from batchledger.sinks.staging.sequences import PostgresSequence
from batchledger.sinks.staging.tables import count_rows, find_aside, join_names, statement_about

_ROWS = "batchledger_rows"

SelectUnmatched = Callable[[psycopg.Cursor[Any], Attempt, sql.Composable], sql.Composable | None]


@dataclass(frozen=True)
class PostgresStagedRows(StagedRows):
    """``repeated`` belongs to the session of ``connection``, and ``cursor`` is what checks get of it."""

    connection: psycopg.Connection[Any]
    attempt: Attempt
    columns: Sequence[str]
    sequence: SequenceRule | None
    repeated: Repeated
    read_secret: ReadSecret
    select_unmatched: SelectUnmatched
    severity_of_unmatched: Severity
    cursor: type[psycopg.Cursor[Any]] = ReadingCursor

    @override
    def show(self) -> RowsToCheck:
        is_row = sql.SQL("{} is not true and _task >= 0").format(sql.Identifier(DELETED_COLUMN))
        parts = {"kept": self._kept, "is_row": is_row if DELETED_COLUMN in self.columns else sql.SQL("_task >= 0")}
        shown = join_names([each for each in self.columns if each != DELETED_COLUMN])
        view = sql.Identifier("pg_temp", _ROWS)
        with self._transaction() as cursor:
            cursor.execute(read_sql(__package__, "create_rows_view").format(view=view, columns=shown, **parts))
            cursor.execute(read_sql(__package__, "count_rows_to_check").format(**parts))
            ((accepted, checked),) = cursor.fetchall()
        # Code of a check can ask for another cursor.
        psycopg.Cursor(self.connection).execute("set default_transaction_read_only = on")
        self.connection.cursor_factory = self.cursor
        return RowsToCheck(self.connection, _ROWS, accepted, checked)

    @override
    def summarise(self) -> Sequence[StagedRange]:
        ranges = self.attempt.batch.ranges
        with self._transaction() as cursor:
            counts = self._sum_up(cursor)
            if counts is None:
                cursor.execute(statement_about("summarise_staging", self.attempt), ranges_as_arrays(ranges))
                counts = cursor.fetchall()
            repeated: Sequence[tuple[int, int]] = [(0, 0)] * len(ranges)
            if self.repeated.count:
                count = read_sql(__package__, "count_repeated").format(repeated=self.repeated.table)
                cursor.execute(count, ranges_as_arrays(ranges))
                repeated = cursor.fetchall()
        return [
            StagedRange(range_, rows, distinct, outside, *duplicates, times=RecordTimes(*times))
            for range_, (rows, distinct, outside, *times), duplicates in zip(ranges, counts, repeated, strict=True)
        ]

    def _sum_up(self, cursor: psycopg.Cursor[Any]) -> Sequence[tuple[Any, ...]] | None:
        """Return what ``summarise_staging`` does, a range after the other, if sums can tell it; else None."""
        cursor.execute(statement_about("sum_staging", self.attempt))
        found = {(topic, partition): (OffsetSums(*map(int, sums)), times) for topic, partition, *sums, times in cursor}
        counts: list[tuple[Any, ...]] = []
        for each in self.attempt.batch.ranges:
            sums, times = found.pop((each.partition.topic, each.partition.partition), (None, ()))
            if sums is None:
                counts.append((0, 0, 0, None, None, 0))
            elif sums.are_each_once and each.start <= sums.first and sums.last < each.until:
                counts.append((sums.rows, sums.rows, 0, *times))
            else:
                return None
        # What is left lies in no range.
        return None if found else counts

    @override
    def count_numbers(self) -> NumberFacts | None:
        if self.sequence is None or self.attempt.batch.lane is not Lane.LIVE:
            return None
        with self._transaction() as cursor:
            aside = find_aside(cursor, self.attempt)
            sequence = PostgresSequence(self.sequence, self.read_secret, self._kept, aside)
            return sequence.count(cursor, self.attempt)

    @override
    def count_unmatched(self) -> UnmatchedDeletions | None:
        with self._transaction() as cursor:
            query = self.select_unmatched(cursor, self.attempt, self._kept)
            if query is None:
                return None
            return UnmatchedDeletions(
                count_rows(cursor, sql.SQL("({}) unmatched").format(query)), self.severity_of_unmatched
            )

    @property
    def _kept(self) -> sql.Composable:
        return self.repeated.select_kept(self.attempt)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        """Run one transaction that may write temporary tables, also after the rows were shown."""
        with self.connection.transaction(), psycopg.Cursor(self.connection) as cursor:
            cursor.execute("set transaction read write")
            cursor.execute("set local work_mem = '256MB'")
            yield cursor
