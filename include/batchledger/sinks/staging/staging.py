"""The staging of sinks whose rows wait in the ledger's database, wherever they go from there.

Rows wait in a table of their attempt, ``batchledger_staging.b17_a2_open``. Sealing renames it to ``b17_a2_rows``: the
rename waits for writers in flight and makes every later write of a zombie task fail (S75). The table is unlogged. But
if the ledger confirms by its rows what the sink has committed, they have to outlive a crash of the database.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import connect
from batchledger.database.transactions import (
    STAGING_SCHEMA,
    drop_staging_tables,
    ranges_as_arrays,
    transaction,
    translate_errors,
)
from batchledger.model.batch import Attempt, HeldRange, Lane
from batchledger.model.capabilities import Capabilities
from batchledger.model.checks import CHECKS_OF_NUMBERS, IntegrityCheck, Offender, Severity
from batchledger.model.claims import TargetClaim
from batchledger.model.errors import ConfigurationError, StagingError, StagingLostError
from batchledger.model.offsets import OffsetRange, single_offset
from batchledger.model.records.identifiers import TASK_COLUMN
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from batchledger.model.refusals import stage_again
from batchledger.ports import RowsToPublish, StagedRows, Staging, StagingWriter
from batchledger.settings.column_rules import require_row_columns
from batchledger.sinks.staging.deduplication import AcceptedRows, PostgresDeduplication, Repeated
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret
from batchledger.sinks.staging.key_types import keep_types
from batchledger.sinks.staging.sequences import PostgresSequence
from batchledger.sinks.staging.staged_rows import PostgresStagedRows
from batchledger.sinks.staging.tables import (
    PostgresStagingWriter,
    aside_table,
    columns_of,
    count_rows,
    define_column,
    find_aside,
    open_table,
    rows_table,
    statement_about,
    table_prefix,
)
from batchledger.sinks.staging.withdrawal import OldRows, find_replaced

_COORDINATE_CHECKS: Mapping[IntegrityCheck, str] = {
    IntegrityCheck.NO_DUPLICATE_OFFSETS: "find_duplicates",
    IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: "find_outside",
}


class PostgresStaging(Staging):
    """A sink builds on this, and says what is published and where."""

    dsn: str
    upsert: Upsert | None = None
    deduplication: Deduplication | None
    sequence: SequenceRule | None
    read_secret: ReadSecret

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """See ``Sink.capabilities``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The target's name as people write it."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that ``sink.key`` names."""
        return self.upsert.key if self.upsert else ()

    @property
    def judged_columns(self) -> tuple[str, ...]:
        """The columns by which messages and rows of the target are known."""
        return (*(self.deduplication.key if self.deduplication else ()), *self.key_columns)

    @property
    def confirms_by_rows(self) -> bool:
        """Whether the ledger needs the staged rows after the sink has committed them."""
        return not self.capabilities.shares_transaction

    @abstractmethod
    def find_old_rows(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange]
    ) -> OldRows | None:
        """Return the rows that other batches have published of the attempt's ranges; None without a target."""

    def require_fit(self, cursor: psycopg.Cursor[Any], attempt: Attempt, schema: pa.Schema) -> None:
        """Raise TargetRefusedError when the target cannot take the rows of the open staging, with this schema."""

    def select_unmatched(
        self,
        cursor: psycopg.Cursor[Any],  # noqa: ARG002
        attempt: Attempt,  # noqa: ARG002
        rows: sql.Composable,  # noqa: ARG002
    ) -> sql.Composable | None:
        """Return the query of such of the ``rows`` that delete a key of which nothing is known.

        None if the target cannot be asked, and without deletions.
        """
        return None

    @abstractmethod
    def find_claim(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> TargetClaim:
        """See ``Sink.claim_target``."""

    def claim_target(self, attempt: Attempt, connection: psycopg.Connection[Any] | None = None) -> TargetClaim:
        """See ``Sink.claim_target``."""
        if connection is not None:
            with connection.cursor() as cursor:
                return self.find_claim(cursor, attempt)
        with transaction(self.dsn, f"look for the target of {attempt.batch.label}") as cursor:
            return self.find_claim(cursor, attempt)

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> StagingWriter:
        self.require_columns(schema)
        with transaction(self.dsn, f"create the staging of {attempt.batch.label}") as cursor:
            # Sealing looks at the task of every row. In front of texts its place is the same in each.
            columns = [sql.SQL("_task bigint not null"), *(define_column(field) for field in schema)]
            # Rows outlive a crash of the server if a sink may have committed them already.
            kind = sql.SQL("table" if self.confirms_by_rows else "unlogged table")
            cursor.execute(sql.SQL("create {} {} ({})").format(kind, open_table(attempt), sql.SQL(", ").join(columns)))
            keep_types(cursor, attempt, self._remembered_keys, schema)
            if self._remembered_keys:
                # Before Spark reads anything. No key is hashed here.
                know_secret(cursor, self.read_secret)
            self.require_fit(cursor, attempt, schema)
        return PostgresStagingWriter(self.dsn, f"{table_prefix(attempt)}_open", attempt.batch.pipeline)

    @override
    def count_arriving(self, attempt: Attempt) -> int:
        with transaction(self.dsn, f"count the rows on their way to {attempt.batch.label}") as cursor:
            # A table of another database could have the same number.
            cursor.execute(
                "select coalesce(sum(tuples_processed), 0)::bigint from pg_stat_progress_copy "
                "where datname = current_database() and relid = to_regclass(%s)",
                [open_table(attempt).as_string()],
            )
            return int(cursor.fetchall()[0][0])

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        self.seal_table(attempt, "open", "rows", accepted_tasks)

    def seal_table(self, attempt: Attempt, kind: str, sealed: str, accepted_tasks: Sequence[int]) -> None:
        """Rename ``b17_a2_<kind>`` to ``b17_a2_<sealed>``, and keep what the accepted tasks have written."""
        with transaction(self.dsn, f"seal the staging of {attempt.batch.label}", attempt) as cursor:
            table, name = (f"{table_prefix(attempt)}_{each}" for each in (kind, sealed))
            try:
                cursor.execute(
                    sql.SQL("alter table {} rename to {}").format(
                        sql.Identifier(STAGING_SCHEMA, table), sql.Identifier(name)
                    )
                )
            except psycopg.errors.LockNotAvailable as error:
                raise StagingError(
                    f"{attempt.batch.label} attempt {attempt.number} is not sealed: a task still writes after the "
                    "job has ended.",
                    advice="The next attempt writes to a staging of its own.",
                    batch_id=attempt.batch.batch_id,
                ) from error
            delete = sql.SQL("delete from {} where _task <> all(%s)").format(sql.Identifier(STAGING_SCHEMA, name))
            cursor.execute(delete, [list(accepted_tasks)])

    @contextmanager
    @override
    def read_staged(self, attempt: Attempt) -> Iterator[StagedRows]:
        # No kept one: Great Expectations begins transactions in it by itself.
        with translate_errors(f"look at the rows of {attempt.batch.label}", attempt), connect(self.dsn) as connection:
            with connection.cursor() as cursor:
                cursor.execute("set transaction isolation level repeatable read")
                columns = list(self.staged_columns(cursor, attempt))
                repeated = self._list_repeated(cursor, attempt)
            connection.commit()
            connection.autocommit = True
            try:
                yield PostgresStagedRows(
                    connection,
                    attempt,
                    columns,
                    self.sequence,
                    repeated,
                    self.read_secret,
                    self.select_unmatched,
                    self.upsert.unmatched_deletions if self.upsert else Severity.WARNING,
                )
            finally:
                # If the connection was lost, no check is at fault, whatever a check made of it.
                connection.execute("select 1")

    @override
    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        with transaction(self.dsn, f"look for offending rows in {attempt.batch.label}", attempt) as cursor:
            found: dict[IntegrityCheck, Sequence[Offender]] = {}
            parameters = ranges_as_arrays(attempt.batch.ranges) | {"limit": limit}
            for check in _COORDINATE_CHECKS.keys() & checks:
                cursor.execute(statement_about(_COORDINATE_CHECKS[check], attempt), parameters)
                found[check] = [Offender(single_offset(*place)) for place in cursor]
            names_messages = self.message_keys is not None and IntegrityCheck.NO_DUPLICATE_MESSAGES in checks
            names_numbers = attempt.batch.lane is Lane.LIVE and not CHECKS_OF_NUMBERS.isdisjoint(checks)
            names_deletions = IntegrityCheck.DELETIONS_FIND_ROWS in checks
            if not names_messages and not names_numbers and not names_deletions:
                return found
            repeated = self._list_repeated(cursor, attempt)
            kept = repeated.select_kept(attempt)
            deletions = self.select_unmatched(cursor, attempt, kept) if names_deletions else None
            if deletions is not None:
                cursor.execute(sql.SQL("{} order by 1, 2, 3 limit {}").format(deletions, sql.Literal(limit)))
                found[IntegrityCheck.DELETIONS_FIND_ROWS] = [Offender(single_offset(*place)) for place in cursor]
            if names_messages:
                found[IntegrityCheck.NO_DUPLICATE_MESSAGES] = repeated.find_new(cursor, limit)
            if self.sequence is not None and names_numbers:
                sequence = PostgresSequence(self.sequence, self.read_secret, kept, find_aside(cursor, attempt))
                found |= sequence.find_offenders(cursor, attempt, limit)
        return found

    @override
    def remember_numbers(self, rows: RowsToPublish) -> int | None:
        attempt = rows.attempt
        if self.sequence is None or attempt.batch.lane is not Lane.LIVE:
            return None
        keys = self.message_keys
        published = rows_table(attempt) if keys is None else keys.select_published(attempt)
        with rows.connection.cursor() as cursor:
            aside = find_aside(cursor, attempt)
            PostgresSequence(self.sequence, self.read_secret, published, aside).remember(cursor, attempt)
            return count_rows(cursor, published)

    @override
    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        with transaction(self.dsn, f"set rows of {attempt.batch.label} aside", attempt) as cursor:
            aside = aside_table(attempt)
            # Otherwise a twin could create the table at the same time.
            cursor.execute(sql.SQL("lock table {} in share row exclusive mode").format(rows_table(attempt)))
            if find_aside(cursor, attempt) is None:
                # Logged, unlike the rows: after a crash of the database, lost numbers would count as missing.
                cursor.execute(sql.SQL("create table {} (like {})").format(aside, rows_table(attempt)))
            cursor.execute(statement_about("remove_staged", attempt, aside=aside), ranges_as_arrays(records))

    @override
    def drop_staging(self, attempt: Attempt) -> None:
        drop_staging_tables(self.dsn, attempt, ("open", "rows", "aside"))

    def _list_repeated(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> Repeated:
        """Let the session know the duplicates."""
        cursor.execute("set local work_mem = '256MB'")
        if self.message_keys is None:
            return Repeated()
        replaced = find_replaced(cursor, attempt)
        old = self.find_old_rows(cursor, attempt, replaced) if attempt.batch.takes_over(replaced) else None
        return self.message_keys.list_repeated(cursor, attempt, replaced, old)

    def select_replayed(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange], old: OldRows
    ) -> sql.Composable:
        """Return the table or subquery of the rows that a replay would accept in place of the ``old`` ones."""
        keys = self.message_keys
        return rows_table(attempt) if keys is None else keys.select_accepted(cursor, attempt, replaced, old)

    @property
    def _remembered_keys(self) -> dict[str, tuple[str, ...]]:
        """The columns of the keys whose hashes are kept, by rule."""
        rules = {"dedupe.key": self.deduplication, "sink.key": self.upsert, "sequence.key": self.sequence}
        return {name: rule.key for name, rule in rules.items() if rule is not None}

    @property
    def message_keys(self) -> PostgresDeduplication | None:
        """Knows the duplicates among the staged rows."""
        if self.deduplication is None:
            return None
        return PostgresDeduplication(self.deduplication, self.read_secret)

    def accept(self, cursor: psycopg.Cursor[Any], rows: RowsToPublish) -> AcceptedRows:
        """Return the staged rows without duplicates, and let later batches know their message keys."""
        if self.deduplication is not None or self.upsert is not None:
            # Keys are sorted and joined; with the default of 4 MB that happens on disk.
            cursor.execute("set local work_mem = '256MB'")
        keys = self.message_keys
        return AcceptedRows(rows_table(rows.attempt)) if keys is None else keys.accept(cursor, rows)

    def require_columns(self, schema: pa.Schema) -> None:
        """Raise ConfigurationError when no table can have the columns, a key lacks one, or rows cannot be numbered."""
        sequence = self.sequence
        named = {
            "dedupe.key": self.deduplication.key if self.deduplication else (),
            "sink.key": self.key_columns,
            "sequence.key": sequence.key if sequence else (),
            "sequence.number": (sequence.number,) if sequence else (),
        }
        require_row_columns(self.name, schema.names, named)
        if sequence and not pa.types.is_integer(schema.field(sequence.number).type):
            raise ConfigurationError(
                f"sequence.number names column {sequence.number!r}, which is no integer.",
                why=f"The rows for {self.name} have it as {schema.field(sequence.number).type}.",
                advice="Make it an integer, in source.schema or in the transform.",
                subject=sequence.number,
            )

    def staged_columns(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> dict[str, str]:
        """Return type by name of the sealed rows. Raises StagingLostError."""
        columns = columns_of(cursor, STAGING_SCHEMA, f"{table_prefix(attempt)}_rows")
        columns.pop(TASK_COLUMN, None)
        if not columns:
            raise StagingLostError(
                f"{attempt.batch.label} has nothing that attempt {attempt.number} has staged. Nothing was published.",
                why="Its rows have streamed, or the staging was lost.",
                advice=stage_again(attempt.batch),
                batch_id=attempt.batch.batch_id,
            )
        return columns
