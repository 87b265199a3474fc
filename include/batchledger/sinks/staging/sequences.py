"""Producers' own numbering on PostgreSQL: what is missing and what came again, judged by what earlier batches brought.

Counting for the audit changes nothing (I6). The numbers are remembered in the transaction after which both the rows and
the position of the batch are visible, so a crash or a retry finds what the audit found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import read_sql
from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.offsets import single_offset
from batchledger.model.records.numbering import NumberFacts, name_missing, name_repeated
from batchledger.model.records.rules import SequenceRule
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret
from batchledger.sinks.staging.tables import hash_of_values, join_names


@dataclass(frozen=True)
class PostgresSequence:
    """Judges the numbers of ``rows``, a table or subquery of what the batch makes visible.

    ``aside`` is a table of rows that arrived and are not made visible: they fill gaps, and repeat nothing.
    """

    rules: SequenceRule
    read_secret: ReadSecret
    rows: sql.Composable
    aside: sql.Composable | None = None

    def count(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> NumberFacts:
        """Return what the audit judges."""
        self._gather(cursor, attempt, self._numbers)
        has_start = sql.Literal(self.rules.starts_at is not None)
        parts = {"rows": self.rows, "has_start": has_start, "is_numbered": self._is_numbered}
        cursor.execute(read_sql(__package__, "count_numbers").format(**parts))
        return NumberFacts(*(int(each) for each in cursor.fetchall()[0]))

    def find_offenders(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, limit: int
    ) -> dict[IntegrityCheck, Sequence[Offender]]:
        """Return up to ``limit`` records beside new gaps, and as many that repeat a number."""
        # A table, because they are looked up by number.
        cursor.execute(
            sql.SQL("create temporary table batchledger_number on commit drop as select * from {}").format(
                self._numbers
            )
        )
        cursor.execute("analyze batchledger_number")
        self._gather(cursor, attempt, sql.Identifier("pg_temp", "batchledger_number"))
        cursor.execute(read_sql(__package__, "find_missing_numbers").format(keys=self._keys), {"limit": limit})
        missing = [
            Offender(single_offset(*place), name_missing(first, last, number)) for *place, first, last, number in cursor
        ]
        cursor.execute(read_sql(__package__, "find_repeated_numbers").format(keys=self._keys), {"limit": limit})
        repeated = [Offender(single_offset(*place), name_repeated(number)) for *place, number in cursor]
        return {IntegrityCheck.NO_MISSING_NUMBERS: missing, IntegrityCheck.NO_REPEATED_NUMBERS: repeated}

    def remember(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
        """Let later batches know the numbers of this one; its gaps are known from now on."""
        self._gather(cursor, attempt, self._numbers)
        parameters = {"pipeline": attempt.batch.pipeline, "batch_id": attempt.batch.batch_id}
        cursor.execute(read_sql(__package__, "remember_numbers"), parameters)

    def _gather(self, cursor: psycopg.Cursor[Any], attempt: Attempt, numbers: sql.Composable) -> None:
        cursor.execute("set local work_mem = '256MB'")
        know_secret(cursor, self.read_secret)
        names = [sql.SQL("{}::text").format(sql.Literal(each)) for each in self._columns]
        key_hash = hash_of_values(sql.SQL(", ").join([*names, self._keys]))
        cursor.execute(
            read_sql(__package__, "gather_series").format(keys=self._keys, key_hash=key_hash, numbers=numbers),
            {"pipeline": attempt.batch.pipeline},
        )
        cursor.execute("analyze batchledger_series")

    @property
    def _numbers(self) -> sql.Composed:
        select = read_sql(__package__, "select_numbers").format(
            aliased=sql.SQL(", ").join(
                sql.SQL("{} as {}").format(sql.Identifier(column), alias)
                for column, alias in zip(self.rules.key, self._aliases, strict=True)
            ),
            number=sql.Identifier(self.rules.number),
            is_numbered=self._is_numbered,
            rows=self._arrived,
            run=self._run,
        )
        return sql.SQL("({}) numbers").format(select)

    @property
    def _arrived(self) -> sql.Composed:
        select = "select {columns}, _topic, _partition, _offset, {is_kept} as is_kept from {rows}"
        arrived = {True: self.rows, False: self.aside}
        columns = join_names(self._columns)
        parts = [
            sql.SQL(select).format(columns=columns, is_kept=sql.Literal(is_kept), rows=rows)
            for is_kept, rows in arrived.items()
            if rows is not None
        ]
        return sql.SQL("({}) arrived").format(sql.SQL(" union all ").join(parts))

    @property
    def _is_numbered(self) -> sql.Composed:
        return sql.SQL("(num_nulls({}) = 0 and {} < 9223372036854775807)").format(
            join_names(self._columns), sql.Identifier(self.rules.number)
        )

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.rules.key, self.rules.number)

    @property
    def _run(self) -> sql.Composable:
        """How many times the numbering has begun up to a record. Without a start it never begins anew."""
        if self.rules.starts_at is None:
            return sql.SQL("0::bigint")
        return sql.SQL(
            "count(*) filter (where number = {}) over "
            '(partition by {} order by _topic collate "C", _partition, _offset)'
        ).format(sql.Literal(self.rules.starts_at), self._keys)

    @property
    def _aliases(self) -> list[sql.Identifier]:
        """Names that cannot clash with names in the statements."""
        return [sql.Identifier(f"key_{number}") for number, _ in enumerate(self.rules.key)]

    @property
    def _keys(self) -> sql.Composed:
        return sql.SQL(", ").join(self._aliases)
