"""The Sink port on PostgreSQL, in the ledger's own database, so that rows move inside the ledger's transaction (I3).

Rows wait in an unlogged table of their attempt, ``batchledger_staging.b17_a2_open``. Sealing renames it to
``b17_a2_rows``: the rename waits for writers in flight and makes every later write of a zombie task fail (S75). The
target is created by the first publication and carries ``_topic, _partition, _offset, _timestamp, _batch_id``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.accounting import CHECKS_OF_NUMBERS, IntegrityCheck, TargetCount
from batchledger.batch import Attempt, HeldRange, Lane
from batchledger.checking import Offender
from batchledger.comparison import Comparison
from batchledger.database import (
    STAGING_SCHEMA,
    connect,
    drop_staging_tables,
    held_as_arrays,
    ranges_as_arrays,
    transaction,
    translate_errors,
)
from batchledger.errors import AuditOutdatedError, ConfigurationError, StagingError, StagingLostError
from batchledger.offsets import OffsetRange, TopicPartition, single_offset
from batchledger.ports import Publication, TargetAccess
from batchledger.record_rules import Deduplication, SequenceRule, Upsert
from batchledger.refusals import stage_again
from batchledger.sinks.compare import Shadow
from batchledger.sinks.deduplication import AcceptedRows, PostgresDeduplication
from batchledger.sinks.sequences import PostgresSequence
from batchledger.sinks.staged_rows import PostgresStagedRows
from batchledger.sinks.staging import (
    TASK_COLUMN,
    PostgresStagingWriter,
    aside_table,
    columns_of,
    define_column,
    find_aside,
    join_names,
    open_table,
    read_sql,
    rows_table,
    select_kept,
    statement_about,
    table_prefix,
)
from batchledger.sinks.target import PostgresTarget
from batchledger.sinks.withdrawal import count_withdrawn, withdraw_rows

_COORDINATE_CHECKS: Mapping[IntegrityCheck, str] = {
    IntegrityCheck.NO_DUPLICATE_OFFSETS: "find_duplicates",
    IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: "find_outside",
}


@dataclass(frozen=True)
class PostgresSink:
    """See the port. ``table`` is (schema, name).

    Without ``deduplication`` every staged row is accepted; without ``upsert`` accepted rows are appended. With
    ``sequence`` the numbers of live batches are judged and remembered.
    """

    dsn: str = field(repr=False)
    table: tuple[str, str]
    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None

    @property
    def name(self) -> str:
        """The target's name as people write it."""
        return self._target.name

    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> PostgresStagingWriter:
        """See the port."""
        self._require_key_columns(schema)
        with transaction(self.dsn, f"create the staging of {attempt.batch.label}") as cursor:
            columns = [define_column(field) for field in schema] + [sql.SQL("_task bigint not null")]
            cursor.execute(
                sql.SQL("create unlogged table {} ({})").format(open_table(attempt), sql.SQL(", ").join(columns))
            )
            self._target.require_fit(cursor, attempt, schema.names)
        return PostgresStagingWriter(self.dsn, f"{table_prefix(attempt)}_open")

    def count_arriving(self, attempt: Attempt) -> int:
        """See the port."""
        with transaction(self.dsn, f"count the rows on their way to {attempt.batch.label}") as cursor:
            # Of another database a table could have the same number.
            cursor.execute(
                "select coalesce(sum(tuples_processed), 0)::bigint from pg_stat_progress_copy "
                "where datname = current_database() and relid = to_regclass(%s)",
                [open_table(attempt).as_string()],
            )
            return int(cursor.fetchall()[0][0])

    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """See the port."""
        with transaction(self.dsn, f"seal the staging of {attempt.batch.label}") as cursor:
            try:
                cursor.execute(
                    sql.SQL("alter table {} rename to {}").format(
                        open_table(attempt), sql.Identifier(f"{table_prefix(attempt)}_rows")
                    )
                )
            except psycopg.errors.LockNotAvailable as error:
                raise StagingError(
                    f"{attempt.batch.label} attempt {attempt.number}: a task is still writing to its staging after the "
                    "job has ended. The next attempt writes to a staging of its own.",
                    batch_id=attempt.batch.batch_id,
                ) from error
            cursor.execute(
                sql.SQL("delete from {} where _task <> all(%s)").format(rows_table(attempt)), [list(accepted_tasks)]
            )

    @contextmanager
    def read_staged(self, attempt: Attempt) -> Iterator[PostgresStagedRows]:
        """See the port."""
        with translate_errors(f"look at the rows of {attempt.batch.label}"), connect(self.dsn) as connection:
            with connection.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read")
                columns = list(self._staged_columns(cursor, attempt))
                repeated = self._list_repeated(cursor, attempt)
            connection.commit()
            connection.autocommit = True
            try:
                yield PostgresStagedRows(connection, attempt, columns, self.sequence, repeated)
            finally:
                # What failed because the connection was lost is no fault of a check, whatever a check made of it.
                connection.execute("select 1")

    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        """See the port."""
        with transaction(self.dsn, f"look for offending rows in {attempt.batch.label}") as cursor:
            found: dict[IntegrityCheck, Sequence[Offender]] = {}
            parameters = ranges_as_arrays(attempt.batch.ranges) | {"limit": limit}
            for check in _COORDINATE_CHECKS.keys() & checks:
                cursor.execute(statement_about(_COORDINATE_CHECKS[check], attempt), parameters)
                found[check] = [Offender(single_offset(*place)) for place in cursor]
            names_messages = self._deduplication is not None and IntegrityCheck.NO_DUPLICATE_MESSAGES in checks
            names_numbers = attempt.batch.lane is Lane.LIVE and not CHECKS_OF_NUMBERS.isdisjoint(checks)
            if not names_messages and not names_numbers:
                return found
            repeated = self._list_repeated(cursor, attempt)
            if self._deduplication is not None and names_messages:
                found[IntegrityCheck.NO_DUPLICATE_MESSAGES] = self._deduplication.find_repeated(cursor, limit)
            if self.sequence is not None and names_numbers:
                kept, aside = select_kept(attempt, repeated), find_aside(cursor, attempt)
                found |= PostgresSequence(self.sequence, kept, aside).find_offenders(cursor, attempt, limit)
        return found

    def remember_numbers(self, publication: Publication) -> None:
        """See the port."""
        attempt = publication.attempt
        if self.sequence is None or attempt.batch.lane is not Lane.LIVE:
            return
        rows: sql.Composable = rows_table(attempt)
        if self._deduplication is not None:
            rows = self._deduplication.select_published(attempt)
        with publication.connection.cursor() as cursor:
            cursor.execute(sql.SQL("select count(*) from {}").format(rows))
            found = int(cursor.fetchall()[0][0])
            # The rows may have become visible in an earlier commit, and staging may be lost since.
            _require_audited(publication, found, publication.duplicate_rows)
            PostgresSequence(self.sequence, rows, find_aside(cursor, attempt)).remember(cursor, attempt)

    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        """See the port."""
        with transaction(self.dsn, f"set rows of {attempt.batch.label} aside") as cursor:
            aside = aside_table(attempt)
            # Otherwise a twin could create the table at the same time.
            cursor.execute(sql.SQL("lock table {} in share row exclusive mode").format(rows_table(attempt)))
            # Logged, unlike the rows: numbers that a crash of the database takes away would be missing.
            cursor.execute(
                sql.SQL("create table if not exists {} (like {})").format(aside, rows_table(attempt)),
            )
            cursor.execute(statement_about("remove_staged", attempt, aside=aside), ranges_as_arrays(records))

    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        """See the port."""
        with transaction(self.dsn, f"count rows of {self.name}") as cursor:
            if not held or not self._target.read_columns(cursor):
                return [0] * len(held)
            cursor.execute(read_sql("count_held").format(target=self._target.identifier), held_as_arrays(held))
            return [count for (count,) in cursor]

    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """See the port."""
        with transaction(self.dsn, f"compare {attempt.batch.label} with {self.name}") as cursor:
            cursor.execute("set local work_mem = '256MB'")
            row_columns = list(self._staged_columns(cursor, attempt))
            columns = self._target.read_columns(cursor)
            if not columns:
                # Rolled back below: the rows are compared with the empty table that they would create.
                self._target.create(cursor, self._staged_columns(cursor, attempt))
                columns = self._target.read_columns(cursor)
            rows: sql.Composable = rows_table(attempt)
            if self._deduplication is not None:
                rows = self._deduplication.select_accepted(cursor, attempt)
            try:
                shadow = Shadow(self._target.identifier, columns, rows, row_columns, self._target.updates)
                comparison = shadow.compare(cursor, attempt, limit)
            except psycopg.DataError as error:
                raise self._target.refused(attempt, error) from error
            cursor.connection.rollback()
            return comparison

    def check(self, publication: Publication) -> None:
        """See the port."""
        with publication.connection.transaction(force_rollback=True):
            self.publish(publication)
            try:
                publication.connection.execute("set constraints all immediate")
            except psycopg.IntegrityError as error:
                raise self._target.refused(publication.attempt, error) from error

    def withdraw(self, publication: Publication, replaced: Sequence[HeldRange]) -> Sequence[int]:
        """See the port. A tombstone of the ranges goes with the rows, so that its key may come back."""
        attempt = publication.attempt
        with publication.connection.cursor() as cursor:
            if not self._target.read_columns(cursor):
                return [0] * len(replaced)
            rules = [each for each in (self.deduplication, self.upsert) if each is not None]
            try:
                key_columns = [column for each in rules for column in each.key]
                withdraw_rows(cursor, self._target.identifier, attempt, key_columns)
            except psycopg.ProgrammingError as error:
                raise self._target.refused(attempt, error) from error
            if self._deduplication is not None:
                self._deduplication.recall(cursor, attempt, replaced)
            if self._target.updates is not None:
                self._target.updates.withdraw(cursor, attempt)
            return count_withdrawn(cursor, replaced)

    def publish(self, publication: Publication) -> int:
        """See the port."""
        attempt = publication.attempt
        with publication.connection.cursor() as cursor:
            columns = self._staged_columns(cursor, attempt)
            if self.deduplication is not None or self.upsert is not None:
                # Keys are sorted and joined; with the default of 4 MB that happens on disk.
                cursor.execute("set local work_mem = '256MB'")
            rows = AcceptedRows(rows_table(attempt))
            if self._deduplication is not None:
                rows = self._deduplication.accept(cursor, publication)
            try:
                self._target.create(cursor, columns)
                publication.confirm_target(self.name, self._target.read_identity(cursor))
                moved = self._target.apply(cursor, attempt, rows.missing, list(columns))
            except (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError) as error:
                raise self._target.refused(attempt, error) from error
        visible = rows.held + moved
        _require_audited(publication, visible, rows.dropped)
        return visible

    def truncate(self, access: TargetAccess) -> int:
        """See the port. A table that is gone may be created anew by the next publication."""
        with access.connection.cursor() as cursor:
            for table in ("message_key", "deleted_key"):
                forget = sql.SQL("delete from batchledger.{} where pipeline = %s").format(sql.Identifier(table))
                cursor.execute(forget, [access.pipeline])
            if not self._target.read_columns(cursor):
                access.forget_target()
                return 0
            access.confirm_target(self.name, self._target.read_identity(cursor))
            # A reader who stays for long keeps everybody else waiting behind this.
            cursor.execute("set local lock_timeout = '20s'")
            cursor.execute(sql.SQL("lock table {} in access exclusive mode").format(self._target.identifier))
            cursor.execute(sql.SQL("select count(*) from {}").format(self._target.identifier))
            ((rows,),) = cursor.fetchall()
            cursor.execute(sql.SQL("truncate {}").format(self._target.identifier))
            return int(rows)

    def drop_staging(self, attempt: Attempt) -> None:
        """See the port."""
        drop_staging_tables(self.dsn, attempt, ("open", "rows", "aside"))

    def count_target(
        self, pipeline: str, within: Sequence[OffsetRange] | None = None
    ) -> Mapping[tuple[int, TopicPartition], TargetCount]:
        """See the port. Rows that carry the id of another pipeline's batch are returned too: they are findings."""
        with transaction(self.dsn, f"count the rows of {self.name} for {pipeline}") as cursor:
            if not self._target.read_columns(cursor):
                return {}
            if within is not None:
                statement = read_sql("count_target_within").format(target=self._target.identifier)
                bounds = {
                    "first": min((each.start for each in within), default=0),
                    "last": max((each.until for each in within), default=0),
                }
                cursor.execute(statement, ranges_as_arrays(within) | bounds)
            elif self.upsert is None:
                cursor.execute(read_sql("count_target").format(target=self._target.identifier))
            else:
                key = join_names(self.upsert.key)
                cursor.execute(read_sql("count_keyed_target").format(target=self._target.identifier, key=key))
            return {
                (batch_id, TopicPartition(topic, partition)): TargetCount(*counts)
                for batch_id, topic, partition, *counts in cursor
            }

    def _list_repeated(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> int:
        """Let the session know the duplicates; return how many there are."""
        cursor.execute("set local work_mem = '256MB'")
        return self._deduplication.list_repeated(cursor, attempt) if self._deduplication else 0

    @property
    def _deduplication(self) -> PostgresDeduplication | None:
        return PostgresDeduplication(self.deduplication, self.table) if self.deduplication else None

    @property
    def _target(self) -> PostgresTarget:
        return PostgresTarget(self.table, self.upsert)

    def _require_key_columns(self, schema: pa.Schema) -> None:
        columns, sequence = schema.names, self.sequence
        named = {
            "dedupe.key": self.deduplication.key if self.deduplication else (),
            "sink.key": self.upsert.key if self.upsert else (),
            "sequence.key": sequence.key if sequence else (),
            "sequence.number": (sequence.number,) if sequence else (),
        }
        for option, names in named.items():
            for column in names:
                if column not in columns:
                    raise ConfigurationError(
                        f"{option} names column {column!r}, which the rows for {self.name} do not have; they have "
                        f"{', '.join(columns)}. Correct the key, or keep the column in the transform.",
                        column=column,
                    )
        if sequence and not pa.types.is_integer(schema.field(sequence.number).type):
            raise ConfigurationError(
                f"sequence.number names column {sequence.number!r}, which the rows for {self.name} have as "
                f"{schema.field(sequence.number).type}. Let it be an integer, in source.schema or in the transform.",
                column=sequence.number,
            )

    def _staged_columns(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> dict[str, str]:
        columns = columns_of(cursor, STAGING_SCHEMA, f"{table_prefix(attempt)}_rows")
        columns.pop(TASK_COLUMN, None)
        if not columns:
            raise StagingLostError(
                f"{attempt.batch.label}: the staging of attempt {attempt.number} is gone. Nothing was published; "
                f"{stage_again(attempt.batch)}.",
                batch_id=attempt.batch.batch_id,
            )
        return columns


def _require_audited(publication: Publication, visible: int, dropped: int) -> None:
    """Refuse to publish anything but what the audit has accepted."""
    batch, accepted, duplicates = publication.attempt.batch, publication.accepted_rows, publication.duplicate_rows
    if visible + dropped != accepted + duplicates:
        raise StagingLostError(
            f"{batch.label}: the audit found {accepted + duplicates} rows, staging holds {visible + dropped}. The "
            "database lost its unlogged tables in a crash, or staging was changed by hand. Nothing was published; "
            f"{stage_again(batch)}.",
            batch_id=batch.batch_id,
        )
    if dropped != duplicates:
        raise AuditOutdatedError(
            f"{batch.label}: the audit counted {duplicates} duplicates, now there are {dropped}: another batch of "
            f"{batch.pipeline} has changed which message keys are remembered. Nothing was published by this try.",
            batch_id=batch.batch_id,
        )
