"""The idempotent consumer on PostgreSQL: message keys are remembered in the transaction that publishes their rows.

Counting for the audit changes nothing (I6); dropping happens within the publication and finds the same duplicates,
because what is remembered depends on the moments at which batches were planned and not on the clock.

With at-least-once delivery, an earlier attempt may have committed the rows of a batch with their keys, and died. The
keys tell which rows these are, and they are not inserted again.

A batch that takes offsets over judges its rows by what was decided about them before (``rules.Deduplication``).
The audit reads that from the target and the list of duplicates; the publication takes both away, so ``recall`` keeps
them first. Keys then change as little as possible: a replay that reads what was read before
changes nothing but the batch that they belong to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import held_as_arrays, ranges_as_arrays, read_sql, read_statement
from batchledger.model.batch import Attempt, HeldRange, Lane
from batchledger.model.checks import Offender
from batchledger.model.offsets import single_offset
from batchledger.model.records.rules import Deduplication
from batchledger.ports import RowsToPublish
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret
from batchledger.sinks.staging.tables import hash_of, join_names, rows_table, short_hash_of, statement_about
from batchledger.sinks.staging.withdrawal import OldRows

_VERDICT = (
    "key_hash bytea, _topic text, _partition int, _offset bigint, is_duplicate boolean, first_topic text, "
    "first_partition int, first_offset bigint"
)
_REPEATED = (
    "_topic text, _partition int, _offset bigint, first_topic text, first_partition int, first_offset bigint, "
    "is_settled boolean"
)


@dataclass(frozen=True)
class AcceptedRows:
    """What a publication makes of the sealed rows of its attempt.

    ``missing``, a table or subquery, are the rows to insert. ``held`` counts rows that the target has already from an
    earlier attempt. ``dropped`` counts the duplicates.
    """

    missing: sql.Composable
    held: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Repeated:
    """The duplicates among the sealed rows of an attempt, as they were found once: a ``table`` of the session."""

    count: int = 0

    @property
    def table(self) -> sql.Identifier:
        """As statements write it."""
        return sql.Identifier("pg_temp", "batchledger_repeated")

    def select_kept(self, attempt: Attempt) -> sql.Composable:
        """Return the table or subquery of the sealed rows that are no duplicates."""
        if not self.count:
            return rows_table(attempt)
        return sql.SQL("({}) kept").format(statement_about("select_unrepeated", attempt, repeated=self.table))

    def find_new(self, cursor: psycopg.Cursor[Any], limit: int) -> Sequence[Offender]:
        """Return up to ``limit`` of those that were not listed before, with the records before them."""
        cursor.execute(read_sql(__package__, "find_repeated").format(repeated=self.table), {"limit": limit})
        return [
            Offender(
                single_offset(topic, partition, offset), f"repeats {first_topic}[{first_partition}]@{first_offset}"
            )
            for topic, partition, offset, first_topic, first_partition, first_offset in cursor
        ]


@dataclass(frozen=True)
class PostgresDeduplication:
    """Knows the duplicates among the sealed rows of an attempt."""

    rules: Deduplication
    read_secret: ReadSecret

    def list_repeated(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange], old: OldRows | None
    ) -> Repeated:
        """List the duplicates, as of now. Nothing changes (I6). In steps, as in ``_judge``.

        What was decided before about the ``old`` rows counts; they are None if the batch takes none over.
        """
        cursor.execute(f"create temporary table batchledger_repeated ({_REPEATED})")
        if old is not None:
            self._judge_taken_over(cursor, attempt, replaced, old)
            cursor.execute(read_statement(__package__, "list_judged_repeated"))
        else:
            know_secret(cursor, self.read_secret)
            known = read_sql(__package__, "find_known").format(keyed=self._keyed(attempt))
            cursor.execute(known, self._parameters(attempt))
            cursor.execute("analyze batchledger_known")
            hashes = {
                "key": join_names(self.rules.key),
                "key_hash": hash_of(self.rules.key),
                "short_hash": short_hash_of(self.rules.key),
            }
            cursor.execute(statement_about("find_again", attempt, **hashes))
            cursor.execute("analyze batchledger_again")
            cursor.execute(statement_about("list_repeated", attempt, **hashes))
        repeated = Repeated(cursor.rowcount)
        cursor.execute("analyze batchledger_repeated")
        return repeated

    def select_accepted(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange], old: OldRows
    ) -> sql.Composed:
        """Return the subquery of rows that a replay would accept. Changes nothing (I6)."""
        self._judge_taken_over(cursor, attempt, replaced, old)
        return sql.SQL("({}) accepted").format(statement_about("select_judged", attempt))

    def select_published(self, attempt: Attempt) -> sql.Composed:
        """Return the subquery of the rows that were no duplicates when the batch was published."""
        batch_id = sql.Literal(attempt.batch.batch_id)
        return sql.SQL("({}) accepted").format(statement_about("select_accepted", attempt, batch_id=batch_id))

    def recall(self, cursor: psycopg.Cursor[Any], replaced: Sequence[HeldRange], old: OldRows) -> None:
        """Keep what was decided about the records that the batch takes over, for ``accept`` in the same transaction."""
        know_secret(cursor, self.read_secret)
        cursor.execute(f"create temporary table batchledger_recalled ({_VERDICT}) on commit drop")
        rows, parameters = old
        accepted = read_sql(__package__, "recall_accepted").format(
            rows=sql.SQL("({}) old").format(rows), key=join_names(self.rules.key), key_hash=hash_of(self.rules.key)
        )
        cursor.execute(accepted, parameters)
        cursor.execute(read_statement(__package__, "recall_duplicates"), held_as_arrays(replaced))
        cursor.execute("analyze batchledger_recalled")

    def accept(self, cursor: psycopg.Cursor[Any], publishing: RowsToPublish) -> AcceptedRows:
        """Remember the keys of the batch and list its duplicates; return the rows without them.

        If the sink has withdrawn rows, and handed that on, what was decided about them is recalled.
        """
        attempt = publishing.attempt
        parameters = self._parameters(attempt)
        know_secret(cursor, self.read_secret)
        # The lookup costs nothing in a first publication.
        held = self._find_held(cursor, attempt) if publishing.has_rows else 0
        if attempt.batch.lane is Lane.LIVE:
            # Keys expire by the moment of a plan. By a replay's, open live batches would lose keys that they know.
            cursor.execute(
                "delete from batchledger.message_key "
                "where pipeline = %(pipeline)s and remembered_until <= %(planned_at)s",
                parameters,
            )
        # With at-least-once delivery, an earlier attempt may have listed its own already.
        cursor.execute("delete from batchledger.duplicate where batch_id = %(batch_id)s", parameters)
        if publishing.handed is not None:
            self._judge(cursor, attempt)
            self._forget(cursor, parameters)
            for change in ("take_over_keys", "remember_judged", "list_judged"):
                cursor.execute(read_statement(__package__, change), parameters)
        else:
            for change in ("remember_keys", "list_duplicates"):
                cursor.execute(read_sql(__package__, change).format(keyed=self._keyed(attempt)), parameters)
        dropped = cursor.rowcount
        rows = statement_about("select_accepted", attempt, batch_id=sql.Literal(attempt.batch.batch_id))
        if held:
            rows = read_sql(__package__, "select_missing").format(accepted=sql.SQL("({})").format(rows))
        return AcceptedRows(sql.SQL("({}) accepted").format(rows), held, dropped)

    def _judge_taken_over(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange], old: OldRows
    ) -> None:
        self.recall(cursor, replaced, old)
        self._judge(cursor, attempt)

    def _judge(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
        """Write down, for every row with a key, which record is the first one with it.

        In steps, because PostgreSQL knows nothing of what lies between the parts of one statement, and may choose to
        compare every row with every other one.
        """
        parameters = self._parameters(attempt)
        cursor.execute(
            sql.SQL("create temporary table batchledger_keyed on commit drop as {}").format(self._keyed(attempt))
        )
        cursor.execute("analyze batchledger_keyed")
        cursor.execute(f"create temporary table batchledger_judged ({_VERDICT}, is_settled boolean) on commit drop")
        for step in ("settle_rows", "unsettle_rows", "judge_rows"):
            cursor.execute(read_statement(__package__, step), parameters)
            cursor.execute("analyze batchledger_judged")

    def _forget(self, cursor: psycopg.Cursor[Any], parameters: dict[str, Any]) -> None:
        """Let nothing later be a duplicate of a record that is gone."""
        cursor.execute(
            "create temporary table batchledger_gone "
            "(pipeline text, key_hash bytea, _topic text, _partition int, _offset bigint) on commit drop"
        )
        cursor.execute(read_statement(__package__, "find_gone"), parameters)
        if cursor.rowcount == 0:
            return
        cursor.execute("analyze batchledger_gone")
        for change in ("forget_keys", "unlist_duplicates"):
            cursor.execute(read_statement(__package__, change))

    def _find_held(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> int:
        batch_id = sql.Literal(attempt.batch.batch_id)
        cursor.execute(read_sql(__package__, "find_held_rows").format(keyed=self._keyed(attempt), batch_id=batch_id))
        held = cursor.rowcount
        cursor.execute("analyze batchledger_held")
        return held

    def _keyed(self, attempt: Attempt) -> sql.Composed:
        return statement_about(
            "select_keyed",
            attempt,
            pipeline=sql.Literal(attempt.batch.pipeline),
            key=join_names(self.rules.key),
            key_hash=hash_of(self.rules.key),
        )

    def _parameters(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "pipeline": attempt.batch.pipeline,
            "batch_id": attempt.batch.batch_id,
            "planned_at": attempt.batch.planned_at,
            "remember": self.rules.remember,
            **ranges_as_arrays(attempt.batch.ranges),
        }
