"""The idempotent consumer on PostgreSQL: message keys are remembered in the transaction that publishes their rows.

Counting for the audit changes nothing (I6); dropping happens within the publication and finds the same duplicates,
because what is remembered depends on the moments at which batches were planned and not on the clock.

At least once, an earlier attempt may have committed the rows of a batch with their keys, and died. The keys tell which
rows these are, and they are not inserted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.batch import Attempt
from batchledger.ports import Publication
from batchledger.record_rules import Deduplication
from batchledger.sinks.staging import hash_of, join_names, read_sql, statement_about


@dataclass(frozen=True)
class AcceptedRows:
    """What a publication makes of the sealed rows of its attempt.

    ``missing``, a table or subquery, are the rows to insert; ``held`` counts those that the target holds already, of an
    earlier attempt; ``dropped`` counts the duplicates.
    """

    missing: sql.Composable
    held: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class PostgresDeduplication:
    """Knows the duplicates among the sealed rows of an attempt."""

    rules: Deduplication

    def count(self, cursor: psycopg.Cursor[Any], attempt: Attempt, planned: dict[str, Any]) -> Sequence[int]:
        """Return the number of duplicates in each range of the batch, in their order. Changes nothing."""
        cursor.execute(read_sql("count_duplicates").format(duplicates=self._duplicates(attempt)), planned)
        return [count for (count,) in cursor]

    def select_accepted(self, attempt: Attempt) -> sql.Composed:
        """Return the subquery of the sealed rows that are no duplicates. It changes nothing and needs no parameter."""
        return sql.SQL("({}) accepted").format(
            statement_about("select_unrepeated", attempt, duplicates=self._duplicates(attempt))
        )

    def accept(self, cursor: psycopg.Cursor[Any], publication: Publication) -> AcceptedRows:
        """Remember the keys of the batch and list its duplicates; return the rows without them."""
        attempt = publication.attempt
        parameters, keyed = self._parameters(attempt), self._keyed(attempt)
        # The lookup costs nothing in a first publication.
        held = self._find_held(cursor, attempt) if publication.has_rows else 0
        cursor.execute(
            "delete from batchledger.message_key where pipeline = %(pipeline)s and remembered_until <= %(planned_at)s",
            parameters,
        )
        cursor.execute(read_sql("remember_keys").format(keyed=keyed), parameters)
        # At least once, an earlier attempt may have listed its own already.
        cursor.execute("delete from batchledger.duplicate where batch_id = %(batch_id)s", parameters)
        cursor.execute(read_sql("list_duplicates").format(keyed=keyed), parameters)
        dropped = cursor.rowcount
        rows = statement_about("select_accepted", attempt, batch_id=sql.Literal(attempt.batch.batch_id))
        if held:
            rows = read_sql("select_missing").format(accepted=sql.SQL("({})").format(rows))
        return AcceptedRows(sql.SQL("({}) accepted").format(rows), held, dropped)

    def _find_held(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> int:
        batch = attempt.batch
        statement = read_sql("find_held_rows").format(
            keyed=self._keyed(attempt), pipeline=sql.Literal(batch.pipeline), batch_id=sql.Literal(batch.batch_id)
        )
        cursor.execute(statement)
        held = cursor.rowcount
        cursor.execute("analyze batchledger_held")
        return held

    def _duplicates(self, attempt: Attempt) -> sql.Composed:
        batch = attempt.batch
        return read_sql("select_duplicates").format(
            keyed=self._keyed(attempt), pipeline=sql.Literal(batch.pipeline), planned_at=sql.Literal(batch.planned_at)
        )

    def _keyed(self, attempt: Attempt) -> sql.Composed:
        return statement_about(
            "select_keyed", attempt, key=join_names(self.rules.key), key_hash=hash_of(self.rules.key)
        )

    def _parameters(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "pipeline": attempt.batch.pipeline,
            "batch_id": attempt.batch.batch_id,
            "planned_at": attempt.batch.planned_at,
            "remember": self.rules.remember,
        }
