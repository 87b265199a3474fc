"""Housekeeping on PostgreSQL: removes what is left behind, in short transactions that never wait for long.

It skips locked rows, and leaves a table or a pipeline that is in use to the next run. ``batchledger.housekeeping``
decides what may go.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import (
    STAGING_SCHEMA,
    WRITERS_LEAVE_WITHIN,
    ranges_as_arrays,
    read_ranges,
    read_statement,
)
from batchledger.ledger.rows import Cursor, insert_decision, require_none_committing
from batchledger.ledger.schema import snapshot, transaction
from batchledger.model.batch import BatchState, Decision, DecisionKind
from batchledger.model.effects import dropping
from batchledger.model.errors import OutcomePendingError
from batchledger.model.housekeeping import BOUNDS, Bounds, Leftover, Removal, StagingOwner, StagingTable
from batchledger.model.offsets import count_offsets, merge_ranges
from batchledger.proof.joining import OldBatch, choose_spans

logger = logging.getLogger(__name__)

# Housekeeping waits no longer for a pipeline: a publication that comes meanwhile has to wait behind it.
PIPELINE_IS_FREE_WITHIN = "2s"

TABLES_TO_JOIN = (
    "batchledger.attempt",
    "batchledger.attempt_writer_schema",
    "batchledger.batch",
    "batchledger.batch_range",
)
"""Where housekeeping deletes when it joins batches."""
RIGHTS_TO_JOIN = f"delete on {', '.join(TABLES_TO_JOIN)}"
"""What housekeeping needs besides, to join batches. No run deletes one, so no role gets it with the others."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What there is at ``now``, by the database's own clock.

    ``open_planned_at`` says for each known pipeline when its open batches were planned. A watch has none.
    """

    now: datetime
    tables: Sequence[StagingTable]
    open_planned_at: Mapping[str, Sequence[datetime]]


@dataclass(frozen=True)
class PostgresHousekeeping:
    """Removes from the ledger that ``dsn`` names, never more of a kind than its bound; a dry run only counts."""

    dsn: str = field(repr=False)
    is_dry_run: bool = False
    bounds: Mapping[Leftover, Bounds] = field(default_factory=lambda: BOUNDS)

    def look(self) -> LeftBehind:
        """Return what there is at one moment."""
        with snapshot(self.dsn, "look for what is left behind") as cursor:
            cursor.execute("select now()")
            ((now,),) = cursor.fetchall()
            tables = list_staging(cursor)
            # By lane, so that the index of open batches answers each, whatever the length of the history.
            cursor.execute(
                "select p.name, array(select b.planned_at from batchledger.batch b where b.pipeline = p.name "
                "and b.lane = 'live' and b.state not in ('published', 'discarded')) || "
                "array(select b.planned_at from batchledger.batch b where b.pipeline = p.name "
                "and b.lane = 'replay' and b.state not in ('published', 'discarded')) "
                "from batchledger.pipeline p "
                "union all select w.watch, '{}' from batchledger.watch w "
                "where not exists (select from batchledger.pipeline p where p.name = w.watch) order by 1"
            )
            return LeftBehind(now, tables, dict(cursor.fetchall()))

    def drop_staging(self, tables: Sequence[StagingTable]) -> list[Removal]:
        """Drop tables whose attempts are over, each in a transaction of its own; one that is in use is left."""
        most = self.bounds[Leftover.STAGING].per_run
        left = [Removal(Leftover.STAGING, each.name, 0, is_complete=False) for each in tables[most:]]
        return [self._drop_table(each) for each in tables[:most]] + left

    def forget_keys(self, pipeline: str, until: datetime) -> Removal:
        """Remove the message keys that expired at ``until`` or before."""
        return self._remove_rows(
            Leftover.MESSAGE_KEY, pipeline, "find_expired_keys", "delete from batchledger.message_key", {"until": until}
        )

    def strip_validations(self, pipeline: str, kept: int) -> Removal:
        """Remove the validations of all but the ``kept`` newest batches; what the checks found stays."""
        change = "update batchledger.check_result set validation = null"
        return self._remove_rows(Leftover.VALIDATION, pipeline, "find_old_validations", change, {"kept": kept})

    def forget_audits(self, pipeline: str, before: datetime, passed_before: datetime) -> Removal:
        """Remove old results of audits, but never the newest audit.

        They are from before ``before`` if they failed or could not run, else from before ``passed_before``.
        """
        change, moments = "delete from batchledger.audit_result", {"before": before, "passed_before": passed_before}
        return self._remove_rows(Leftover.AUDIT, pipeline, "find_old_audits", change, moments)

    def forget_incidents(self, pipeline: str, before: datetime) -> Removal:
        """Remove the incidents that ended before that moment, and their messages."""
        change = "delete from batchledger.incident"
        return self._remove_rows(Leftover.INCIDENT, pipeline, "find_old_incidents", change, {"before": before})

    def forget_texts(self, pipeline: str, before: datetime) -> Removal:
        """Remove the whole texts of errors from before that moment; the errors themselves stay."""
        change = "update batchledger.attempt set quoted = null, quoted_at = null"
        return self._remove_rows(Leftover.TEXT, pipeline, "find_old_texts", change, {"before": before})

    def find_login_without_right(self) -> str | None:
        """Return the login if it may not join batches."""
        with snapshot(self.dsn, "look for the right to join batches") as cursor:
            cursor.execute(
                "select current_user where not (select bool_and(has_table_privilege(name, 'delete')) "
                "from unnest(%s::text[]) name)",
                [list(TABLES_TO_JOIN)],
            )
            return next((str(login) for (login,) in cursor), None)

    def find_spans(self, pipeline: str, keep: timedelta, kept: int, first: int = 0) -> list[tuple[int, ...]]:
        """Return the batches of each span that may be made from batch ``first`` on, up to the bound of a run.

        Their day ended ``keep`` ago or earlier, and they are not among the ``kept`` newest.
        """
        with (
            snapshot(self.dsn, f"look for old batches of {pipeline}") as cursor,
            # A cursor of the server: a long history is read as far as spans need it.
            cursor.connection.cursor(name="old_batches") as old,
        ):
            parameters = {"pipeline": pipeline, "keep": keep, "kept": kept, "first": first, "last": None}
            old.execute(read_statement(__package__, "list_old_batches"), parameters)
            return choose_spans((OldBatch(*row) for row in old), self.bounds[Leftover.BATCH])

    def join(self, pipeline: str, keep: timedelta, span: tuple[int, ...]) -> bool:
        """Let the last of proved batches answer for all of them, or change nothing.

        False if the pipeline is in use, or if something has happened to one of the batches since. What a publication,
        an erasure or a person's decision changes in the target shows there, and waits for the pipeline's lock. So the
        proof holds until the end of this transaction.
        """
        named = {"pipeline": pipeline, "keep": keep, "kept": 0, "first": span[0], "last": span[-1], "ids": list(span)}
        try:
            with transaction(self.dsn, f"join batches {span[0]} to {span[-1]} of {pipeline}") as cursor:
                _lock_briefly(cursor, pipeline)
                cursor.execute(read_statement(__package__, "list_old_batches"), named)
                if choose_spans((OldBatch(*row) for row in cursor), Bounds(len(span), len(span))) != [span]:
                    return False
                for name in ("join_ranges", "keep_writer_schemas", "keep_record_schemas"):
                    cursor.execute(read_statement(__package__, name), named)
                cursor.execute("delete from batchledger.check_result where batch_id = any(%(ids)s)", named)
                for table in ("attempt_writer_schema", "attempt"):
                    gone = sql.SQL(
                        "delete from {} where batch_id = any(%(ids)s) and (batch_id, number) not in "
                        "(select batch_id, attempt from batchledger.batch where batch_id = %(last)s)"
                    )
                    cursor.execute(gone.format(sql.Identifier("batchledger", table)), named)
                try:
                    cursor.execute(read_statement(__package__, "join_batches"), named)
                except (psycopg.errors.ForeignKeyViolation, psycopg.errors.LockNotAvailable) as error:
                    # What names a batch, such as an incident, may come without the pipeline's lock.
                    raise _Busy from error
                return True
        except _Busy as busy:
            logger.info("batches %d to %d of %s wait: %s", span[0], span[-1], pipeline, busy.__cause__)
            return False

    def drop_quarantined(self, pipeline: str, before: datetime, decision: Decision) -> Removal:
        """Remove the records that were set aside before that moment; the balances note how many, and by which decision.

        Takes the pipeline's lock for each part, as a person's decision does, so that no publication is between
        looking at quarantine and publishing it again. Removes nothing while a batch is committing.
        """
        parameters = {"pipeline": pipeline, "before": before}
        if self.is_dry_run:
            return self._count(Leftover.QUARANTINE, pipeline, "find_expired_quarantine", parameters)

        def drop(limit: int) -> int:
            with transaction(self.dsn, f"remove expired records from the quarantine of {pipeline}") as cursor:
                _lock_briefly(cursor, pipeline)
                _leave_committing(cursor, pipeline)
                cursor.execute(read_statement(__package__, "find_expired_quarantine"), {**parameters, "limit": limit})
                found = merge_ranges(read_ranges(cursor))
                cursor.execute(
                    read_statement(__package__, "drop_quarantined"), {"pipeline": pipeline, **ranges_as_arrays(found)}
                )
                if cursor.rowcount > 0:
                    insert_decision(cursor, pipeline, DecisionKind.QUARANTINE_DROP, decision, dropping(found))
                return count_offsets(found)

        return self._repeat(Leftover.QUARANTINE, pipeline, drop)

    def _drop_table(self, table: StagingTable) -> Removal:
        if self.is_dry_run:
            return Removal(Leftover.STAGING, table.name, 1)
        name = sql.Identifier(STAGING_SCHEMA, table.name)
        with transaction(self.dsn, f"drop staging table {table.name}") as cursor:
            try:
                with cursor.connection.transaction():
                    cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(WRITERS_LEAVE_WITHIN)))
                    cursor.execute(sql.SQL("lock table {} in access exclusive mode").format(name))
                    cursor.execute("select pg_total_relation_size(%s::regclass)", [name.as_string(cursor)])
                    ((size_bytes,),) = cursor.fetchall()
                    cursor.execute(sql.SQL("drop table {}").format(name))
            except psycopg.errors.LockNotAvailable:
                logger.info("staging table %s is in use; left to the next run", table.name)
                return Removal(Leftover.STAGING, table.name, 0, is_complete=False)
            except psycopg.errors.UndefinedTable:
                return Removal(Leftover.STAGING, table.name, 0)
        return Removal(Leftover.STAGING, table.name, 1, size_bytes=int(size_bytes))

    def _remove_rows(
        self, kind: Leftover, pipeline: str, victims: str, change: str, parameters: Mapping[str, Any]
    ) -> Removal:
        """Apply the change to the rows that the statement ``victims`` finds, except locked ones."""
        parameters = {"pipeline": pipeline, **parameters}
        if self.is_dry_run:
            return self._count(kind, pipeline, victims, parameters)
        found = read_statement(__package__, victims)
        statement = b"%b where ctid = any(array(%b for update skip locked))" % (change.encode(), found)

        def remove(limit: int) -> int:
            with transaction(self.dsn, f"remove each old {kind} of {pipeline}") as cursor:
                cursor.execute(statement, {**parameters, "limit": limit})
                return cursor.rowcount

        return self._repeat(kind, pipeline, remove)

    def _count(self, kind: Leftover, pipeline: str, victims: str, parameters: Mapping[str, Any]) -> Removal:
        """Say how much a run would remove."""
        most = self.bounds[kind].per_run
        with snapshot(self.dsn, f"count each old {kind} of {pipeline}") as cursor:
            statement = b"select count(*) from (%b) found" % read_statement(__package__, victims)
            cursor.execute(statement, {**parameters, "limit": most})
            count = int(cursor.fetchall()[0][0])
        return Removal(kind, pipeline, count, is_complete=count < most)

    def _repeat(self, kind: Leftover, pipeline: str, remove: Callable[[int], int]) -> Removal:
        """Remove one transaction's worth after the other, until nothing is left or the bound of the run is reached."""
        bounds, done = self.bounds[kind], 0
        while done < bounds.per_run:
            asked = min(bounds.per_transaction, bounds.per_run - done)
            try:
                removed = remove(asked)
            except _Busy:
                logger.info("%s is in use; the rest of each old %s is left to the next run", pipeline, kind)
                return Removal(kind, pipeline, done, is_complete=False)
            done += removed
            if removed < asked:
                return Removal(kind, pipeline, done)
        return Removal(kind, pipeline, done, is_complete=False)


class _Busy(Exception):  # noqa: N818 (it never leaves this module)
    """The pipeline is locked by a publication or a decision, a batch of it is committing or is named meanwhile."""


def list_staging(cursor: Cursor, *, is_own: bool = True) -> list[StagingTable]:
    """Return the staging tables that the login may drop, or the others, with what the ledger knows of them."""
    cursor.execute(read_statement(__package__, "list_staging"), {"schema": STAGING_SCHEMA, "is_own": is_own})
    return [
        StagingTable(
            name, batch_id, attempt, None if pipeline is None else StagingOwner(pipeline, BatchState(state), *known)
        )
        for name, batch_id, attempt, pipeline, state, *known in cursor
    ]


def _leave_committing(cursor: Cursor, pipeline: str) -> None:
    try:
        require_none_committing(cursor, pipeline)
    except OutcomePendingError as error:
        raise _Busy from error


def _lock_briefly(cursor: Cursor, pipeline: str) -> None:
    try:
        cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(PIPELINE_IS_FREE_WITHIN)))
        cursor.execute("select 1 from batchledger.pipeline where name = %s for update", [pipeline])
    except psycopg.errors.LockNotAvailable as error:
        raise _Busy from error
