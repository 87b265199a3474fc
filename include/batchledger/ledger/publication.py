"""The publishing transaction of one attempt (I3): positions, quarantine and state in one connection with the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import psycopg
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import use_connection
from batchledger.database.transactions import commit, held_as_arrays, read_held, read_statement, translate_errors
from batchledger.ledger.evidence_tables import quarantine_table
from batchledger.ledger.rows import (
    await_publications,
    find_quarantined,
    insert_decision,
    load_batch,
    lock_pipeline,
    read_targets,
    require_none_committing,
    store_target,
)
from batchledger.ledger.totals import add_to_totals
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    DecisionRecord,
    HeldRange,
    Lane,
    QuarantinedRecord,
)
from batchledger.model.checks import IntegrityCheck
from batchledger.model.claims import TargetClaim
from batchledger.model.counting import describe_count
from batchledger.model.effects import discarding
from batchledger.model.errors import BatchBlockedError, PositionConflictError, StagingLostError
from batchledger.model.offsets import TopicPartition
from batchledger.model.refusals import (
    blocked_already,
    fenced_by,
    never_published,
    outcome_pending,
    position_conflict,
    stage_again,
    target_owned,
)
from batchledger.ports import Publication, RowsToPublish, TargetAccess


@dataclass(frozen=True)
class PostgresTargetAccess(TargetAccess):
    """The pipeline is locked until the transaction ends."""

    connection: psycopg.Connection[Any]
    pipeline: str

    @override
    def confirm_target(self, claim: TargetClaim) -> None:
        """The lock of the pipeline keeps its own target; the index knows about another pipeline's first one."""
        pipeline = self.pipeline
        with self.connection.cursor() as cursor:
            target = claim.require_there(pipeline, read_targets(cursor))
            try:
                store_target(cursor, pipeline, target)
            except psycopg.errors.UniqueViolation as error:
                raise target_owned(pipeline, target.name, None) from error

    @override
    def forget_target(self) -> None:
        with self.connection.cursor() as cursor:
            store_target(cursor, self.pipeline, None)


@dataclass(frozen=True)
class PostgresPublication(Publication):
    """The pipeline and the batch are locked until the transaction ends."""

    connection: psycopg.Connection[Any]
    attempt: Attempt

    @override
    def load(self) -> RowsToPublish:
        """The place of the ledger's own tables shows whether it has moved."""
        batch = self.attempt.batch
        with self.connection.cursor() as cursor:
            cursor.execute(read_statement(__package__, "load_rows_to_publish"), [batch.batch_id])
            ((accepted, duplicates, has_rows, holds_all_ranges),) = cursor.fetchall()
            cursor.execute(read_statement(__package__, "find_replaced"), {"batch_id": batch.batch_id})
            replaced = read_held(cursor)
            seen, found = self._read_mark(cursor)
        return RowsToPublish(
            self.connection,
            self.attempt,
            accepted,
            duplicates,
            replaced,
            has_rows=has_rows,
            holds_all_ranges=holds_all_ranges,
            is_ledger_moved=seen != found,
        )

    @contextmanager
    @override
    def rehearsal(self) -> Iterator[Self]:
        with self.connection.transaction(force_rollback=True):
            yield self

    @override
    def check_target(self, claim: TargetClaim) -> None:
        with self.connection.cursor() as cursor:
            claim.require_granted(self.attempt.batch.pipeline, read_targets(cursor))

    @override
    def confirm_target(self, claim: TargetClaim) -> None:
        PostgresTargetAccess(self.connection, self.attempt.batch.pipeline).confirm_target(claim)

    @override
    def mark_ledger(self) -> None:
        with self.connection.cursor() as cursor:
            _, found = self._read_mark(cursor)
            query = "update batchledger.pipeline set ledger_mark = %s where name = %s"
            cursor.execute(query, [found, self.attempt.batch.pipeline])

    @override
    def advance_positions(self) -> None:
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

    @override
    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        batch = self.attempt.batch
        with self.connection.cursor() as cursor:
            return find_quarantined(cursor, batch.pipeline, batch.ranges)

    @override
    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
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

    @override
    def publish_quarantine(self) -> None:
        batch = self.attempt.batch
        query = sql.SQL(read_statement(__package__, "publish_quarantine").decode()).format(
            quarantine=quarantine_table(self.attempt)
        )
        with self.connection.cursor() as cursor:
            cursor.execute(query, {"pipeline": batch.pipeline, "batch_id": batch.batch_id})
            ((staged, expected),) = cursor.fetchall()
            if staged != expected:
                raise StagingLostError(
                    f"The staged quarantine of {batch.label} has changed since its audit. Nothing was published.",
                    why=f"The audit accounted for {describe_count(expected, 'record')}, staging holds {staged:,}.",
                    advice=stage_again(batch),
                    batch_id=batch.batch_id,
                )

    @override
    def mark_rows(self) -> None:
        self.connection.execute(
            "update batchledger.batch set rows_published_at = clock_timestamp() where batch_id = %s",
            [self.attempt.batch.batch_id],
        )

    @override
    def announce(self, ends: Sequence[int] = ()) -> None:
        self.connection.execute(
            "update batchledger.batch set state = 'committing', "
            "announced_ends = coalesce(announced_ends, %s::bigint[]) where batch_id = %s",
            [list(ends) or None, self.attempt.batch.batch_id],
        )

    @override
    def revoke(self) -> None:
        attempt = self.attempt
        parameters = {"batch_id": attempt.batch.batch_id, "attempt": attempt.number, "run": attempt.run}
        with self.connection.cursor() as cursor:
            cursor.execute(read_statement(__package__, "revoke_commit"), parameters)
            if cursor.rowcount != 1:
                raise fenced_by(load_batch(cursor, attempt.batch.batch_id), attempt)

    @override
    def mark_published(self) -> None:
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
                    f"{batch.label} overlaps offsets that are published already. Nothing was changed.",
                    why=f"The database refused it: {error.diag.message_detail}",
                    batch_id=batch.batch_id,
                    ranges=batch.ranges,
                ) from error
            except psycopg.errors.CheckViolation as error:
                raise BatchBlockedError(
                    f"The balance of {batch.label} is not closed. Nothing was changed.",
                    why=f"The database refused it: {error.diag.message_detail}",
                    batch_id=batch.batch_id,
                    failed=(IntegrityCheck.BALANCE_CLOSES,),
                ) from error
            cursor.execute(
                "update batchledger.batch b set state = 'published', published_at = clock_timestamp(), "
                "published_rows = (select coalesce(sum(accepted), 0) from batchledger.batch_range r "
                "where r.batch_id = b.batch_id) where batch_id = %s",
                [batch.batch_id],
            )
            add_to_totals(cursor, batch.batch_id)
            end_attempt(cursor, self.attempt, "published")

    def _read_mark(self, cursor: psycopg.Cursor[Any]) -> tuple[str | None, str]:
        cursor.execute(read_statement(__package__, "read_ledger_mark"), [self.attempt.batch.pipeline])
        ((seen, found),) = cursor.fetchall()
        return seen, found


def end_attempt(cursor: psycopg.Cursor[Any], attempt: Attempt, outcome: str) -> None:
    """Record how an attempt ended, unless it had ended before; publishing ends it in any case.

    The error of a failed step stays only if the attempt was superseded.
    """
    cursor.execute(
        "update batchledger.attempt set ended_at = clock_timestamp(), outcome = %(outcome)s "
        "where batch_id = %(batch_id)s and number = %(number)s and (outcome is null or %(outcome)s = 'published')",
        {"outcome": outcome, "batch_id": attempt.batch.batch_id, "number": attempt.number},
    )
    if cursor.rowcount == 1 and outcome != "fenced":
        forget_failure(cursor, attempt)


def forget_failure(cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
    """Remove the error of a step from its attempt, which has gone on since."""
    cursor.execute(
        "update batchledger.attempt set error = null, failed_step = null, quoted = null, quoted_at = null "
        "where batch_id = %s and number = %s",
        [attempt.batch.batch_id, attempt.number],
    )


def keep_quoted(cursor: psycopg.Cursor[Any], attempt: Attempt, quoted: str) -> None:
    """Keep the whole text of a refusal beside its attempt, until housekeeping removes it."""
    # PostgreSQL knows no text with a NUL.
    text = quoted.replace("\0", "\\0") or None
    cursor.execute(
        "update batchledger.attempt "
        "set quoted = %(text)s, quoted_at = case when %(text)s::text is not null then now() end "
        "where batch_id = %(batch_id)s and number = %(number)s",
        {"text": text, "batch_id": attempt.batch.batch_id, "number": attempt.number},
    )


def discard_batch(cursor: psycopg.Cursor[Any], batch: Batch, decision: Decision) -> DecisionRecord:
    """Close a batch that is locked and open, end its attempt, and record who decided it and why.

    A request of another person is carried out by the decision that this one comes with, so only that one names it.
    Raises OutcomePendingError.
    """
    if batch.state is BatchState.COMMITTING:
        raise outcome_pending(batch)
    cursor.execute("update batchledger.batch set state = 'discarded' where batch_id = %s", [batch.batch_id])
    add_to_totals(cursor, batch.batch_id)
    end_attempt(cursor, Attempt(batch, batch.attempt, ""), "fenced")
    alone = replace(decision, request_id=None)
    return insert_decision(cursor, batch, DecisionKind.DISCARD, alone, discarding(batch))


@contextmanager
def open_publication(dsn: str, attempt: Attempt, expected: BatchState) -> Iterator[PostgresPublication]:
    """Open the publishing transaction of an attempt that is in the ``expected`` state; see the Ledger port."""
    with translate_errors(f"publish {attempt.batch.label}", attempt), use_connection(dsn) as connection:
        cursor = connection.cursor()
        _queue_for_publishing(cursor, attempt.batch)
        cursor.execute(
            "select attempt, state from batchledger.batch where batch_id = %s for update", [attempt.batch.batch_id]
        )
        # Its ranges never change, so they are not read again.
        if cursor.fetchone() != (attempt.number, expected):
            found = load_batch(cursor, attempt.batch.batch_id)
            if found.attempt == attempt.number and found.state is BatchState.BLOCKED:
                raise blocked_already(found)
            raise fenced_by(found, attempt)
        require_none_committing(cursor, attempt.batch.pipeline, attempt.batch.batch_id)
        yield PostgresPublication(connection, attempt)
        commit(connection, f"publish {attempt.batch.label}")


def _queue_for_publishing(cursor: psycopg.Cursor[Any], batch: Batch) -> None:
    """Wait for the publications before this one. Only one replay at a time gets in line with the live batches.

    Otherwise a live batch would wait for every replay that came before it. The lines are advisory locks, because these
    are handed on in the order of asking. The lock of a row goes to the first that asks once it is free.
    """
    await_publications(cursor)
    # The statement of a killed process would run to its end, and the run that takes over would wait for its locks.
    cursor.execute("select set_config('client_connection_check_interval', '1s', true) where version() ~* 'linux'")
    for line in ("replay", "publication") if batch.lane is Lane.REPLAY else ("publication",):
        name = f"batchledger {line} of {batch.pipeline}"
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
    lock_pipeline(cursor, batch.pipeline)
