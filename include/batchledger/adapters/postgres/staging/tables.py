"""Staging on PostgreSQL: the tables in which the rows of one attempt wait, and how Arrow columns become theirs.

An attempt writes to the unlogged ``batchledger_staging.b17_a2_open``; sealed it is ``b17_a2_rows``. Rows that a check
sets aside move to ``b17_a2_aside``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import sql
from typing_extensions import override

from batchledger.adapters.postgres.database import STAGING_SCHEMA, handing_over, read_sql
from batchledger.model.batch import Attempt
from batchledger.model.errors import TargetChangedError
from batchledger.model.records.columns import PROVENANCE_COLUMNS
from batchledger.model.records.identifiers import TASK_COLUMN
from batchledger.ports import StagingWriter


@dataclass(frozen=True)
class PostgresStagingWriter(StagingWriter):
    """Streams Arrow batches through binary COPY; holds only text, so that it can be pickled."""

    dsn: str = field(repr=False)
    table: str

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """A task that writes nothing opens no connection."""
        with ExitStack() as stack:
            stream: Callable[[pa.RecordBatch], None] | None = None

            def write(batch: pa.RecordBatch) -> None:
                nonlocal stream
                tagged = batch.append_column(TASK_COLUMN, pa.repeat(pa.scalar(task, pa.int64()), batch.num_rows))
                stream = stream or stack.enter_context(self._copy(tagged.schema))
                stream(tagged)

            yield write

    @contextmanager
    def _copy(self, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
        table = sql.Identifier(STAGING_SCHEMA, self.table)
        with (
            handing_over(f"staging table {self.table}", "a row"),
            psycopg.connect(self.dsn) as connection,
            connection.cursor() as cursor,
            _copying(cursor, table, schema) as write,
        ):
            yield write


def copy_batches(cursor: psycopg.Cursor[Any], table: sql.Composable, batches: Iterable[pa.RecordBatch]) -> None:
    """Copy batches of one schema to a table."""
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        return
    with _copying(cursor, table, first.schema) as write:
        for batch in chain([first], iterator):
            write(batch)


@contextmanager
def _copying(
    cursor: psycopg.Cursor[Any], table: sql.Composable, schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    encoder = ArrowToPostgresBinaryEncoder(schema)
    statement = sql.SQL("copy {} ({}) from stdin (format binary)").format(table, join_names(schema.names))
    with cursor.copy(statement) as copy:
        copy.write(encoder.write_header())
        yield lambda batch: copy.write(encoder.write_batch(batch))
        copy.write(encoder.finish())


def table_prefix(attempt: Attempt) -> str:
    """The beginning of the names of an attempt's tables: ``b17_a2``."""
    return f"b{attempt.batch.batch_id}_a{attempt.number}"


def open_table(attempt: Attempt) -> sql.Identifier:
    """The table that tasks write to."""
    return sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_open")


def rows_table(attempt: Attempt) -> sql.Identifier:
    """The sealed table, which takes no more rows."""
    return sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_rows")


def aside_table(attempt: Attempt) -> sql.Identifier:
    """The rows that a check has set aside; there is no such table without them."""
    return sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_aside")


def statement_about(name: str, attempt: Attempt, **parts: sql.Composable) -> sql.Composed:
    """Return the statement of that name with the sealed rows of the attempt as ``{staging}``."""
    return read_sql(__package__, name).format(staging=rows_table(attempt), **parts)


def join_names(columns: Sequence[str]) -> sql.Composed:
    """Return the quoted names with commas between them."""
    return sql.SQL(", ").join(sql.Identifier(each) for each in columns)


def hash_of(columns: Sequence[str]) -> sql.Composed:
    """Return the expression of a key's hash: sha256 of the JSON array of its values, as PostgreSQL writes it."""
    return sql.SQL("sha256(convert_to(jsonb_build_array({})::text, 'UTF8'))").format(join_names(columns))


def short_hash_of(columns: Sequence[str]) -> sql.Composed:
    """Return the expression of a hash of 64 bits. It is equal if ``hash_of`` is, and hardly ever otherwise."""
    return sql.SQL("hash_record_extended(row({}), 0)").format(join_names(columns))


def select_kept(attempt: Attempt, repeated: int) -> sql.Composable:
    """Return the table or subquery of the sealed rows without the ``repeated`` ones of ``batchledger_repeated``."""
    if not repeated:
        return rows_table(attempt)
    return sql.SQL("({}) kept").format(statement_about("select_unrepeated", attempt))


def find_aside(cursor: psycopg.Cursor[Any], attempt: Attempt) -> sql.Identifier | None:
    """Return the table of the rows that a check has set aside, if there is one."""
    is_there = columns_of(cursor, STAGING_SCHEMA, f"{table_prefix(attempt)}_aside")
    return aside_table(attempt) if is_there else None


def columns_of(cursor: psycopg.Cursor[Any], schema: str, table: str) -> dict[str, str]:
    """Return type by column name, in order; empty when there is no such table."""
    cursor.execute(
        "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
        "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped order by a.attnum",
        [schema, table],
    )
    return dict(cursor.fetchall())


def define_column(field: pa.Field) -> sql.Composed:
    """Return the column definition that takes an Arrow column. Raises TargetChangedError."""
    not_null = " not null" if field.name in PROVENANCE_COLUMNS[:3] else ""
    return sql.SQL(f"{{}} {postgres_type(field.type)}{not_null}").format(sql.Identifier(field.name))


def postgres_type(type_: pa.DataType) -> str:
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
            f"A column of type {type_} cannot be stored in PostgreSQL.",
            advice="Let the transform make a scalar of it, for example with to_json.",
        )
    return name_by_type[type_]
