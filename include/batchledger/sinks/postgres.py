"""The Sink port on PostgreSQL, in the ledger's own database, so that rows move inside the ledger's transaction (I3).

Rows wait in an unlogged table of their attempt, ``batchledger_staging.b17_a2_open``. Sealing renames it to
``b17_a2_rows``: the rename waits for writers in flight and makes every later write of a zombie task fail (S75). The
target is created by the first publication and carries ``_topic, _partition, _offset, _timestamp, _batch_id``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.accounting import IntegrityCheck, StagedRange, TargetCount
from batchledger.batch import Attempt
from batchledger.columns import BATCH_COLUMN, PROVENANCE_COLUMNS
from batchledger.database import STAGING_SCHEMA, drop_staging_tables, read_statement, transaction
from batchledger.errors import StagingError, StagingLostError, TargetChangedError
from batchledger.offsets import TopicPartition
from batchledger.ports import Publication

TASK_COLUMN = "_task"
_COORDINATE_CHECKS: Mapping[IntegrityCheck, str] = {
    IntegrityCheck.NO_DUPLICATE_OFFSETS: "find_duplicates",
    IntegrityCheck.NO_ROWS_OUTSIDE_RANGES: "find_outside",
}


@dataclass(frozen=True)
class PostgresStagingWriter:
    """See the port. Streams Arrow batches through binary COPY; holds only text, so that it can be pickled."""

    dsn: str = field(repr=False)
    table: str

    def write(self, task: int, batches: Iterator[pa.RecordBatch]) -> int:
        """See the port."""
        first = next(batches, None)
        if first is None:
            return 0
        rows = 0

        def tagged() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            batch: pa.RecordBatch | None = first
            while batch is not None:
                rows += batch.num_rows
                yield batch.append_column(TASK_COLUMN, pa.array([task] * batch.num_rows, pa.int64()))
                batch = next(batches, None)

        schema = first.schema.append(pa.field(TASK_COLUMN, pa.int64()))
        reader = pa.RecordBatchReader.from_batches(schema, tagged())
        with adbc.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(self.table, reader, mode="append", db_schema_name=STAGING_SCHEMA)
            connection.commit()
        return rows


@dataclass(frozen=True)
class PostgresSink:
    """See the port. ``table`` is (schema, name)."""

    dsn: str = field(repr=False)
    table: tuple[str, str]

    @property
    def name(self) -> str:
        """The target's name as people write it."""
        return ".".join(self.table)

    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> PostgresStagingWriter:
        """See the port."""
        with transaction(self.dsn, f"create the staging of {attempt.batch.label}") as cursor:
            columns = [_define(field) for field in schema] + [sql.SQL("_task bigint not null")]
            cursor.execute(
                sql.SQL("create unlogged table {} ({})").format(_open_table(attempt), sql.SQL(", ").join(columns))
            )
            self._check_target_fits(cursor, attempt, schema.names)
        return PostgresStagingWriter(self.dsn, f"{_prefix(attempt)}_open")

    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """See the port."""
        with transaction(self.dsn, f"seal the staging of {attempt.batch.label}") as cursor:
            try:
                cursor.execute(
                    sql.SQL("alter table {} rename to {}").format(
                        _open_table(attempt), sql.Identifier(f"{_prefix(attempt)}_rows")
                    )
                )
            except psycopg.errors.LockNotAvailable as error:
                raise StagingError(
                    f"{attempt.batch.label} attempt {attempt.number}: a task is still writing to its staging after the "
                    "job has ended. The next attempt writes to a staging of its own.",
                    batch_id=attempt.batch.batch_id,
                ) from error
            cursor.execute(
                sql.SQL("delete from {} where _task <> all(%s)").format(_rows_table(attempt)), [list(accepted_tasks)]
            )

    def summarise_staging(self, attempt: Attempt) -> Sequence[StagedRange]:
        """See the port."""
        with transaction(self.dsn, f"summarise the staging of {attempt.batch.label}") as cursor:
            cursor.execute("set local work_mem = '256MB'")
            cursor.execute(_about("summarise_staging", attempt), _planned(attempt))
            return [
                StagedRange(range_, rows, distinct, outside)
                for range_, (rows, distinct, outside) in zip(attempt.batch.ranges, cursor, strict=True)
            ]

    def find_offenders(self, attempt: Attempt, limit: int) -> Mapping[IntegrityCheck, Sequence[str]]:
        """See the port."""
        with transaction(self.dsn, f"look for offending rows in {attempt.batch.label}") as cursor:
            found = {}
            for check, query in _COORDINATE_CHECKS.items():
                cursor.execute(_about(query, attempt), _planned(attempt) | {"limit": limit})
                found[check] = [f"{topic}[{partition}]@{offset}" for topic, partition, offset in cursor]
            return found

    def publish(self, publication: Publication) -> int:
        """See the port."""
        attempt = publication.attempt
        with publication.connection.cursor() as cursor:
            columns = _columns_of(cursor, STAGING_SCHEMA, f"{_prefix(attempt)}_rows")
            columns.pop(TASK_COLUMN, None)
            if not columns:
                raise StagingLostError(
                    f"{attempt.batch.label}: the staging of attempt {attempt.number} is gone. Nothing was published; "
                    "stage the batch again.",
                    batch_id=attempt.batch.batch_id,
                )
            try:
                self._create_target(cursor, columns)
                publication.confirm_target(self.name, self._identity(cursor))
                cursor.execute(self._insert(_rows_table(attempt), list(columns)), [attempt.batch.batch_id])
            except (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError) as error:
                raise TargetChangedError(
                    f"table {self.name} refuses the rows of {attempt.batch.label}: {error.diag.message_primary}. "
                    "Nothing was published. Alter the table, or correct the records in a transform.",
                    batch_id=attempt.batch.batch_id,
                ) from error
            moved = int(cursor.rowcount)
        if moved != publication.accepted_rows:
            raise StagingLostError(
                f"{attempt.batch.label}: the audit accepted {publication.accepted_rows} rows, staging holds {moved}. "
                "The database lost its unlogged tables in a crash, or staging was changed by hand. Nothing was "
                "published; stage the batch again.",
                batch_id=attempt.batch.batch_id,
            )
        return moved

    def drop_staging(self, attempt: Attempt) -> None:
        """See the port."""
        drop_staging_tables(self.dsn, attempt, ("open", "rows"))

    def count_target(self, pipeline: str) -> Mapping[tuple[int, TopicPartition], TargetCount]:
        """See the port. Rows that carry the id of another pipeline's batch are returned too: they are findings."""
        with transaction(self.dsn, f"count the rows of {self.name} for {pipeline}") as cursor:
            if not _columns_of(cursor, *self.table):
                return {}
            cursor.execute(sql.SQL(_read("count_target")).format(target=self._target))
            return {
                (batch_id, TopicPartition(topic, partition)): TargetCount(rows, distinct, first, last)
                for batch_id, topic, partition, rows, distinct, first, last in cursor
            }

    @property
    def _target(self) -> sql.Identifier:
        return sql.Identifier(*self.table)

    def _create_target(self, cursor: psycopg.Cursor[Any], columns: Mapping[str, str]) -> None:
        if _columns_of(cursor, *self.table):
            return
        definitions = [sql.SQL(f"{{}} {type_}").format(sql.Identifier(name)) for name, type_ in columns.items()]
        not_null = [sql.SQL("{} bigint not null").format(sql.Identifier(BATCH_COLUMN))]
        cursor.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(self.table[0])))
        cursor.execute(sql.SQL("create table {} ({})").format(self._target, sql.SQL(", ").join(definitions + not_null)))
        # Batches arrive in offset order, so a BRIN index finds a range for a few kilobytes and no cost per row.
        cursor.execute(sql.SQL("create index on {} using brin (_partition, _offset)").format(self._target))

    def _identity(self, cursor: psycopg.Cursor[Any]) -> str:
        cursor.execute("select %s::regclass::oid::text", [self._target.as_string(cursor)])
        return str(cursor.fetchall()[0][0])

    def _check_target_fits(self, cursor: psycopg.Cursor[Any], attempt: Attempt, columns: Sequence[str]) -> None:
        """Let PostgreSQL plan the later insert, so that its own rules decide what fits."""
        if not _columns_of(cursor, *self.table):
            return
        try:
            cursor.execute(sql.SQL("explain ") + self._insert(_open_table(attempt), columns), [attempt.batch.batch_id])
        except psycopg.ProgrammingError as error:
            raise TargetChangedError(
                f"table {self.name} cannot take the rows of {attempt.batch.label}: {error.diag.message_primary}. "
                "Nothing was written. Alter the table, or correct source.schema or the transform.",
                table=self.name,
            ) from error

    def _insert(self, staging: sql.Identifier, columns: Sequence[str]) -> sql.Composed:
        names = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
        return sql.SQL("insert into {} ({}, {}) select {}, %s::bigint from {}").format(
            self._target, names, sql.Identifier(BATCH_COLUMN), names, staging
        )


def _prefix(attempt: Attempt) -> str:
    return f"b{attempt.batch.batch_id}_a{attempt.number}"


def _open_table(attempt: Attempt) -> sql.Identifier:
    return sql.Identifier(STAGING_SCHEMA, f"{_prefix(attempt)}_open")


def _rows_table(attempt: Attempt) -> sql.Identifier:
    return sql.Identifier(STAGING_SCHEMA, f"{_prefix(attempt)}_rows")


def _read(name: str) -> LiteralString:
    return read_statement(__package__, name).decode()


def _about(name: str, attempt: Attempt) -> sql.Composed:
    return sql.SQL(_read(name)).format(staging=_rows_table(attempt))


def _planned(attempt: Attempt) -> dict[str, Any]:
    ranges = attempt.batch.ranges
    return {
        "topics": [each.partition.topic for each in ranges],
        "partitions": [each.partition.partition for each in ranges],
        "starts": [each.start for each in ranges],
        "untils": [each.until for each in ranges],
    }


def _columns_of(cursor: psycopg.Cursor[Any], schema: str, table: str) -> dict[str, str]:
    """Return type by column name, in order; empty when there is no such table."""
    cursor.execute(
        "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
        "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped order by a.attnum",
        [schema, table],
    )
    return dict(cursor.fetchall())


def _define(field: pa.Field) -> sql.Composed:
    not_null = " not null" if field.name in PROVENANCE_COLUMNS[:3] else ""
    return sql.SQL(f"{{}} {_postgres_type(field.type)}{not_null}").format(sql.Identifier(field.name))


def _postgres_type(type_: pa.DataType) -> str:
    """Return the PostgreSQL type that binary COPY makes of an Arrow type. Raises TargetChangedError."""
    if pa.types.is_decimal(type_):
        return "numeric"
    if pa.types.is_timestamp(type_):
        return "timestamp with time zone" if type_.tz else "timestamp without time zone"
    name_by_type = {
        pa.string(): "text",
        pa.large_string(): "text",
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.date32(): "date",
        pa.binary(): "bytea",
        pa.large_binary(): "bytea",
    }
    if type_ not in name_by_type:
        raise TargetChangedError(
            f"a column of type {type_} cannot be stored in PostgreSQL; let the transform turn it into a scalar, for "
            "example with to_json."
        )
    return name_by_type[type_]
