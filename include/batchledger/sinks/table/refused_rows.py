"""Which rows a table refuses, and why, when a publication has been refused as a whole.

PostgreSQL names no row, and for a text that is too long no column either. So the rows are handed over once more, in
pieces, within a transaction that the caller rolls back. A piece that is taken stays, so that later rows meet what they
would meet in the publication. A piece that is refused is halved until one row is left. So each row is taken once, and a
refused one costs a few pieces more: what this costs is bounded by the batch, by ``limit`` and by a deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import cause_of, read_sql, without_values
from batchledger.database.weather import Cause
from batchledger.model.batch import Attempt
from batchledger.model.checks import Offender
from batchledger.model.offsets import single_offset
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.sinks.staging.tables import join_names
from batchledger.sinks.table.target import TargetTable

_LARGEST_PIECE = 4_096
_LOOKS_FOR_SECONDS = 60.0
_IGNORED = "the table ignores it, without an error"


@dataclass(frozen=True)
class RefusedRows:
    """Hands the rows of an attempt to its target once more; the transaction has to be rolled back afterwards."""

    cursor: psycopg.Cursor[Any]
    target: TargetTable
    attempt: Attempt
    columns: Sequence[str]

    def find(self, rows: sql.Composable, limit: int) -> Sequence[Offender]:
        """Return up to ``limit`` of ``rows``, a table or subquery, in their order, with what the table says of each.

        The words quote no value. Fewer than there are if it takes too long.
        """
        self.cursor.execute("set constraints all immediate")
        total = self._number(rows)
        found: list[Offender] = []
        place, size, until = 0, _LARGEST_PIECE, monotonic() + _LOOKS_FOR_SECONDS
        while place < total and len(found) < limit and monotonic() < until:
            size = min(size, total - place)
            refusal = self._try(place, size)
            if refusal is None:
                place, size = place + size, min(2 * size, _LARGEST_PIECE)
            elif size > 1:
                size //= 2
            else:
                found.append(self._name(place, refusal))
                place += 1
        return found

    def _number(self, rows: sql.Composable) -> int:
        """Write the rows that would be stored to ``batchledger_tried``, in their order; return how many these are."""
        if self.target.updates is not None:
            # The table gets the newest record of each key alone.
            updates, target = self.target.updates, self.target.identifier
            parts = updates.collapse(self.cursor, self.attempt, rows, self.columns, target)
            rows = read_sql(__package__, "select_last").format(rows=rows, last=parts["last"])
        names = join_names(self.columns)
        self.cursor.execute(read_sql(__package__, "number_rows").format(columns=names, rows=rows))
        total = self.cursor.rowcount
        self.cursor.execute("create unique index on batchledger_tried (_place)")
        self.cursor.execute("analyze batchledger_tried")
        return total

    def _try(self, place: int, size: int) -> psycopg.Error | str | None:
        """Hand a piece over; return what the table says against it. What is taken stays."""
        query = sql.SQL("(select {}, _task from batchledger_tried where _place >= {} and _place < {}) piece")
        piece = query.format(join_names(self.columns), sql.Literal(place), sql.Literal(place + size))
        try:
            with self.cursor.connection.transaction() as savepoint:
                if self.target.updates is not None:
                    self.target.updates.begin_again(self.cursor)
                taken = self.target.apply(self.cursor, self.attempt, piece, self.columns)
                if taken < size:
                    raise psycopg.Rollback(savepoint)
        except psycopg.Error as error:
            if cause_of(error) is not Cause.REFUSAL:
                raise
            return error
        return None if taken == size else _IGNORED

    def _name(self, place: int, refusal: psycopg.Error | str) -> Offender:
        self.cursor.execute("select _topic, _partition, _offset from batchledger_tried where _place = %s", [place])
        ((topic, partition, offset),) = self.cursor.fetchall()
        said = refusal if isinstance(refusal, str) else without_values(refusal)
        column = None if isinstance(refusal, str) else refusal.diag.column_name or self._find_column(place)
        return Offender(
            single_offset(topic, partition, offset), f"{column}: {said}" if column and column not in said else said
        )

    def _find_column(self, place: int) -> str | None:
        """Return the first column whose type does not take the row's value."""
        stored = [each for each in self.columns if not (self.target.upsert and each == DELETED_COLUMN)]
        connection = self.cursor.connection
        with connection.transaction(force_rollback=True):
            # Types with their sizes, and nothing else that could refuse a value.
            create = "create temporary table batchledger_types on commit drop as select {} from {} with no data"
            self.cursor.execute(sql.SQL(create).format(join_names(stored), self.target.identifier))
            insert = "insert into batchledger_types ({0}) select {0} from batchledger_tried where _place = {1}"
            for name in stored:
                try:
                    with connection.transaction():
                        self.cursor.execute(sql.SQL(insert).format(sql.Identifier(name), sql.Literal(place)))
                except psycopg.Error as error:
                    if cause_of(error) is not Cause.REFUSAL:
                        raise
                    return name
        return None
