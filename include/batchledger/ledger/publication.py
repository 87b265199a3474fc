"""The publishing transaction of one attempt (I3): positions, quarantine and state in one connection with the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from batchledger.batch import Attempt, Batch, Decision, DecisionKind, DecisionRecord, HeldRange, Lane, QuarantinedRecord
from batchledger.database import held_as_arrays, read_held, read_statement
from batchledger.effects import discarding
from batchledger.errors import BatchBlockedError, PositionConflictError, StagingLostError, TargetChangedError
from batchledger.ledger.evidence import quarantine_table
from batchledger.ledger.rows import find_quarantined, has_rows, insert_decision
from batchledger.offsets import TopicPartition
from batchledger.refusals import never_published, position_conflict, stage_again


@dataclass(frozen=True)
class PostgresTarget:
    """See the port. The pipeline is locked until the transaction ends."""

    connection: psycopg.Connection[Any]
    pipeline: str

    def confirm_target(self, name: str, identity: str) -> None:
        """See the port."""
        pipeline = self.pipeline
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(
                    "update batchledger.pipeline set target = %(name)s, target_oid = %(oid)s::oid "
                    "where name = %(pipeline)s and coalesce(target_oid, %(oid)s::oid) = %(oid)s::oid",
                    {"name": name, "oid": identity, "pipeline": pipeline},
                )
            except psycopg.errors.UniqueViolation as error:
                raise TargetChangedError(
                    f"table {name} belongs to another pipeline; {pipeline} published nothing. Name a table of its own "
                    "in sink.table.",
                    pipeline=pipeline,
                ) from error
            if cursor.rowcount == 1:
                return
            cursor.execute("select target, target_oid from batchledger.pipeline where name = %s", [pipeline])
            earlier, expected = cursor.fetchall()[0]
        raise TargetChangedError(
            f"pipeline {pipeline} published to table {earlier} (oid {expected}) before; {name} is another table (oid "
            f"{identity}). It was dropped and created again, or renamed. Nothing was published. Choices: bring the old "
            "table back, or read the topic again under a new pipeline name.",
            pipeline=pipeline,
            expected=str(expected),
            found=identity,
        )

    def forget_target(self) -> None:
        """See the port."""
        query = "update batchledger.pipeline set target = null, target_oid = null where name = %s"
        self.connection.execute(query, [self.pipeline])


@dataclass(frozen=True)
class PostgresPublication:
    """See the port. The pipeline and the batch are locked until the transaction ends."""

    connection: psycopg.Connection[Any]
    attempt: Attempt

    @property
    def accepted_rows(self) -> int:
        """See the port."""
        return self._sum("accepted")

    @property
    def duplicate_rows(self) -> int:
        """See the port."""
        return self._sum("duplicates")

    def confirm_target(self, name: str, identity: str) -> None:
        """See the port."""
        PostgresTarget(self.connection, self.attempt.batch.pipeline).confirm_target(name, identity)

    def advance_positions(self) -> None:
        """See the port."""
        batch = self.attempt.batch
        with self.connection.cursor() as cursor:
            with self.connection.transaction() as savepoint:
                cursor.execute(read_statement(__package__, "advance_positions"), {"batch_id": batch.batch_id})
                if cursor.rowcount == len(batch.ranges):
                    return
                raise psycopg.Rollback(savepoint)
            cursor.execute(read_statement(__package__, "find_moved_positions"), {"batch_id": batch.batch_id})
            found = {TopicPartition(topic, partition): next_offset for topic, partition, next_offset in cursor}
        raise position_conflict(batch, found)

    def find_replaced(self) -> Sequence[HeldRange]:
        """See the port."""
        with self.connection.cursor() as cursor:
            cursor.execute(read_statement(__package__, "find_replaced"), {"batch_id": self.attempt.batch.batch_id})
            return read_held(cursor)

    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        """See the port."""
        batch = self.attempt.batch
        with self.connection.cursor() as cursor:
            return find_quarantined(cursor, batch.pipeline, batch.ranges)

    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
        """See the port."""
        batch = self.attempt.batch
        parameters = {
            "pipeline": batch.pipeline,
            "batch_id": batch.batch_id,
            "rows": list(removed_rows),
            **held_as_arrays(replaced),
        }
        with self.connection.cursor() as cursor:
            cursor.execute(read_statement(__package__, "release_held"), parameters)
            cursor.execute(read_statement(__package__, "record_replacement"), parameters)
            cursor.execute(
                "update batchledger.batch set rows_published_at = null where batch_id = %s", [batch.batch_id]
            )

    @property
    def holds_all_ranges(self) -> bool:
        """See the port."""
        query = "select bool_and(held = int8multirange(offsets)) from batchledger.batch_range where batch_id = %s"
        with self.connection.cursor() as cursor:
            cursor.execute(query, [self.attempt.batch.batch_id])
            return bool(cursor.fetchall()[0][0])

    def publish_quarantine(self) -> None:
        """See the port."""
        batch = self.attempt.batch
        expected = self._sum("quarantined")
        query = sql.SQL(read_statement(__package__, "publish_quarantine").decode()).format(
            quarantine=quarantine_table(self.attempt)
        )
        with self.connection.cursor() as cursor:
            cursor.execute(query, {"pipeline": batch.pipeline, "batch_id": batch.batch_id})
            if cursor.rowcount != expected:
                raise StagingLostError(
                    f"{batch.label}: the audit accounted for {expected} quarantined records, staging holds "
                    f"{cursor.rowcount}. Nothing was published; {stage_again(batch)}.",
                    batch_id=batch.batch_id,
                )

    @property
    def has_rows(self) -> bool:
        """See the port."""
        with self.connection.cursor() as cursor:
            return has_rows(cursor, self.attempt.batch.batch_id)

    def mark_rows(self) -> None:
        """See the port."""
        self.connection.execute(
            "update batchledger.batch set rows_published_at = clock_timestamp() where batch_id = %s",
            [self.attempt.batch.batch_id],
        )

    def mark_published(self) -> None:
        """See the port."""
        batch = self.attempt.batch
        if batch.is_dry_run:
            raise never_published(batch)
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(
                    read_statement(__package__, "hold_ranges"),
                    {"is_live": batch.lane is Lane.LIVE, "batch_id": batch.batch_id},
                )
            except psycopg.errors.ExclusionViolation as error:
                raise PositionConflictError(
                    f"{batch.label} overlaps offsets that are published already: {error.diag.message_detail}. The "
                    "database refused it; nothing was changed.",
                    batch_id=batch.batch_id,
                ) from error
            except psycopg.errors.CheckViolation as error:
                raise BatchBlockedError(
                    f"the balance of {batch.label} is not closed: {error.diag.message_detail}. The "
                    "database refused it; nothing was changed.",
                    batch_id=batch.batch_id,
                ) from error
            cursor.execute(
                "update batchledger.batch set state = 'published', published_at = clock_timestamp(), "
                "published_rows = %s where batch_id = %s",
                [self.accepted_rows, batch.batch_id],
            )
            end_attempt(cursor, self.attempt, "published")

    def _sum(self, line: str) -> int:
        query = sql.SQL("select coalesce(sum({}), 0)::bigint from batchledger.batch_range where batch_id = %s")
        with self.connection.cursor() as cursor:
            cursor.execute(query.format(sql.Identifier(line)), [self.attempt.batch.batch_id])
            return int(cursor.fetchall()[0][0])


def end_attempt(cursor: psycopg.Cursor[Any], attempt: Attempt, outcome: str, error: str | None = None) -> None:
    """Record how an attempt ended, unless it had ended before; publishing ends it whatever came before."""
    cursor.execute(
        "update batchledger.attempt set ended_at = clock_timestamp(), outcome = %(outcome)s, error = %(error)s "
        "where batch_id = %(batch_id)s and number = %(number)s and (outcome is null or %(outcome)s = 'published')",
        {"outcome": outcome, "error": error, "batch_id": attempt.batch.batch_id, "number": attempt.number},
    )


def discard_batch(cursor: psycopg.Cursor[Any], batch: Batch, decision: Decision) -> DecisionRecord:
    """Close a batch that is locked and open, end its attempt, and record who decided it and why."""
    cursor.execute("update batchledger.batch set state = 'discarded' where batch_id = %s", [batch.batch_id])
    end_attempt(cursor, Attempt(batch, batch.attempt, ""), "fenced")
    return insert_decision(cursor, batch, DecisionKind.DISCARD, decision, discarding(batch))
