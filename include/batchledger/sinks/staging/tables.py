"""Staging on PostgreSQL: the tables in which the rows of one attempt wait, and how Arrow columns become theirs.

An attempt writes to the unlogged ``batchledger_staging.b17_a2_open``; sealed it is ``b17_a2_rows``. Rows that a check
sets aside move to ``b17_a2_aside``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, assert_never

import numpy as np
import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb
from psycopg import sql
from typing_extensions import override

from batchledger.database.sessions import write_and_commit
from batchledger.database.transactions import STAGING_SCHEMA, handing_over, read_sql, without_values
from batchledger.formats.arrow_types import find_type, is_array, is_json, is_uuid, pack_uuids
from batchledger.formats.encoding.blocks import write_tokens
from batchledger.model.batch import Attempt
from batchledger.model.checks import Offender
from batchledger.model.errors import TargetChangedError
from batchledger.model.offsets import single_offset
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.model.records.identifiers import TASK_COLUMN
from batchledger.model.records.types import DecimalOf, Epoch, Floating, Integer, Json, Scalar
from batchledger.ports import StagingWriter

ERASED, ERASED_WITHOUT_VERSION = -1, -2
"""In the place of the task of a sealed row whose key was erased. It is counted, and neither judged nor published.

The first one still counts as the newest record of its key: in a target that is updated by key, no older one comes back.
"""

# Where COPY was, in the server's language. Example: COPY b17_a2_open, line 7, column message_id
_REFUSED = re.compile(r"^COPY \w+, \D+(?P<line>\d+)(?:, \S+ (?P<column>.+))?$", re.MULTILINE)

COPY_HEADER, COPY_TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"

PADS = sql.Identifier("pg_temp", "batchledger_pad")
"""The padded blocks of the secret that keys are hashed with (``key_secret``)."""


@dataclass(frozen=True)
class PostgresStagingWriter(StagingWriter):
    """Streams Arrow batches through binary COPY; holds only text, so that it can be pickled."""

    dsn: str = field(repr=False)
    table: str
    pipeline: str = "PIPELINE"

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
        places: list[pa.RecordBatch] = []
        # A piece of records for a topic has no place of its own.
        is_of_rows = set(COORDINATE_COLUMNS) <= set(schema.names)
        with (
            handing_over(f"staging table {self.table}", "a row", partial(_find_row, places), self.pipeline),
            write_and_commit(self.dsn) as connection,
            connection.cursor() as cursor,
            _copying(cursor, table, schema) as write,
        ):

            def write_known(batch: pa.RecordBatch) -> None:
                if is_of_rows:
                    # A row may be refused long after it was sent, and PostgreSQL knows it by its number alone.
                    # Copies: a column of a batch from Spark keeps the whole message that it came in.
                    places.append(batch.select(COORDINATE_COLUMNS).take(np.arange(batch.num_rows)))
                write(batch)

            yield write_known


def _find_row(places: Iterable[pa.RecordBatch], error: psycopg.Error) -> Offender | None:
    """Return the row that COPY has refused, with its column; ``places`` are the coordinates of all that was sent."""
    found = _REFUSED.search(error.diag.context or "")
    if found is None:
        return None
    place = int(found["line"]) - 1
    for each in places:
        if place < each.num_rows:
            topic, partition, offset = each.slice(place, 1).to_pylist()[0].values()
            said = without_values(error)
            return Offender(
                single_offset(topic, partition, offset), f"{found['column']}: {said}" if found["column"] else said
            )
        place -= each.num_rows
    return None


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
    encoder = CopyEncoder(schema)
    with cursor.copy(copy_to(table, schema.names)) as copy:
        copy.write(COPY_HEADER)
        yield lambda batch: copy.write(encoder.encode(batch))
        copy.write(encoder.finish())
        copy.write(COPY_TRAILER)


def copy_to(table: sql.Composable, columns: Sequence[str]) -> sql.Composed:
    """Return the statement that takes binary COPY data: ``COPY_HEADER``, rows, ``COPY_TRAILER``."""
    return sql.SQL("copy {} ({}) from stdin (format binary)").format(table, join_names(columns))


class CopyEncoder:
    """Makes binary COPY data of rows of one schema, without header and trailer.

    What a call returns holds whole rows, also of earlier calls: the encoder keeps up to 1 MiB back.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._copied = pa.schema([_copied_field(each) for each in schema])
        encoders = {each.name: ArrowToPostgresBinaryEncoder.infer_encoder(each) for each in self._copied}
        for each in schema:
            if _is_jsonb(each):
                encoders[each.name] = StringEncoderBuilder.new_with_output(self._copied.field(each.name), Jsonb())
        self._encoder = ArrowToPostgresBinaryEncoder.new_with_encoders(self._copied, encoders)
        self._encoder.write_header()

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return data of rows, perhaps none yet."""
        return bytes(self._encoder.write_batch(_write_known(batch, self._copied)))

    def finish(self) -> bytes:
        """Return the data of the rows that were kept back."""
        return bytes(self._encoder.finish().removesuffix(COPY_TRAILER))


def _copied_field(field: pa.Field) -> pa.Field:
    if _is_jsonb(field):
        return pa.field(field.name, pa.string())
    # The encoder has no UUIDs. They are copied as their bytes.
    return pa.field(field.name, pa.binary()) if is_uuid(field) else field


def _write_known(batch: pa.RecordBatch, copied: pa.Schema) -> pa.RecordBatch:
    """Return the batch with values that the encoder knows: JSON texts, and the bytes of UUIDs."""
    columns = [_write_known_values(*each) for each in zip(batch.schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=copied)


def _write_known_values(field: pa.Field, values: pa.Array) -> pa.Array:
    if _is_jsonb(field) and not is_json(field):
        return write_tokens(values)
    return pack_uuids(values) if is_uuid(field) else values


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


def count_rows(cursor: psycopg.Cursor[Any], rows: sql.Composable) -> int:
    """Return how many rows a table or subquery has."""
    cursor.execute(sql.SQL("select count(*) from {}").format(rows))
    return int(cursor.fetchall()[0][0])


def join_names(columns: Sequence[str]) -> sql.Composed:
    """Return the quoted names with commas between them."""
    return sql.SQL(", ").join(sql.Identifier(each) for each in columns)


def hash_of(columns: Sequence[str]) -> sql.Composed:
    """Return the expression of a key's hash: of the JSON array of its values, as PostgreSQL writes it.

    It is the array's sha256, ``under_secret``.
    """
    return hash_of_values(join_names(columns))


def hash_of_values(values: sql.Composable) -> sql.Composed:
    """Return the expression of the same hash, of expressions with commas between them."""
    return under_secret(sql.SQL("sha256(convert_to(jsonb_build_array({})::text, 'UTF8'))").format(values))


def under_secret(digest: sql.Composable) -> sql.Composed:
    """Return the expression of HMAC-SHA-256 of a digest, or of the digest itself in a ledger without a secret.

    The transaction has to know the secret (``key_secret.know_secret``); otherwise PostgreSQL refuses the statement. As
    the hash is made of the digest, keys that are hashed already can be hashed with a secret later.
    """
    return sql.SQL(
        "case when exists (select from {pads}) then sha256((select outer_pad from {pads}) || "
        "sha256((select inner_pad from {pads}) || {digest})) else {digest} end"
    ).format(pads=PADS, digest=digest)


def short_hash_of(columns: Sequence[str]) -> sql.Composed:
    """Return the expression of a hash of 64 bits. It is equal if ``hash_of`` is, and hardly ever otherwise."""
    return sql.SQL("hash_record_extended(row({}), 0)").format(join_names(columns))


def find_aside(cursor: psycopg.Cursor[Any], attempt: Attempt) -> sql.Identifier | None:
    """Return the table of the rows that a check has set aside, if there is one.

    Every pipeline's role may create tables in the schema. Another role's table of this name does not count.
    """
    table = aside_table(attempt)
    cursor.execute(
        "select from pg_class where oid = to_regclass(%s) and pg_has_role(relowner, 'usage')", [table.as_string(cursor)]
    )
    return table if cursor.fetchall() else None


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
    not_null = " not null" if field.name in COORDINATE_COLUMNS else ""
    return sql.SQL(f"{{}} {postgres_type(field)}{not_null}").format(sql.Identifier(field.name))


def postgres_type(field: pa.Field) -> str:
    """Return the PostgreSQL type that binary COPY makes of an Arrow field. Raises TargetChangedError.

    An array of scalars is an array; whatever else has values within is ``jsonb``, and so are texts that are JSON.
    """
    if _is_jsonb(field):
        _require_json(field.name, field.type)
        return "jsonb"
    if is_array(field.type):
        return f"{_name_scalar(field.type.value_field)}[]"
    return _name_scalar(field)


def _is_jsonb(field: pa.Field) -> bool:
    type_ = field.type
    if is_array(type_):
        # The encoder does not know an array of moments with a zone.
        within = type_.value_type
        return bool(pa.types.is_nested(within) or (pa.types.is_timestamp(within) and within.tz is not None))
    return bool(pa.types.is_nested(type_)) or is_json(field)


def _require_json(name: str, type_: pa.DataType) -> None:
    """Raise TargetChangedError unless values of a type, as a transform has made them, have one text in JSON."""
    if pa.types.is_struct(type_):
        names = [each.name for each in type_]
        if len(set(names)) < len(names):
            raise TargetChangedError(
                f"Column {name} has two fields of one name, which an object in PostgreSQL cannot have.",
                advice="Give one of them another name in the transform.",
            )
        for each in type_:
            _require_json(f"{name}.{each.name}", each.type)
    elif pa.types.is_map(type_):
        if not (pa.types.is_string(type_.key_type) or pa.types.is_large_string(type_.key_type)):
            raise TargetChangedError(
                f"Column {name} is a map with names of type {type_.key_type}. Names in PostgreSQL's JSON are texts.",
                advice="Let the transform make texts of them, for example with transform_keys.",
            )
        _require_json(f"{name}[]", type_.item_type)
    elif is_array(type_):
        _require_json(f"{name}[]", type_.value_type)
    else:
        _name_scalar(pa.field(name, type_))


def _name_scalar(field: pa.Field) -> str:  # noqa: C901, PLR0911, PLR0912 -- one a type
    match type_ := find_type(field):
        case Scalar.STRING:
            return "text"
        case Scalar.BOOLEAN:
            return "boolean"
        case Scalar.DATE:
            return "date"
        case Scalar.TIMESTAMP | Epoch():
            return "timestamp with time zone"
        case Scalar.BINARY:
            return "bytea"
        case Scalar.UUID:
            return "uuid"
        case Json():
            return "jsonb"
        case Integer():
            return {64: "bigint", 32: "integer"}.get(type_.bits, "smallint")
        case Floating():
            return "double precision" if type_ is Floating.DOUBLE else "real"
        case DecimalOf():
            return "numeric"
        case None if pa.types.is_timestamp(field.type):
            return "timestamp without time zone"
        case None:
            raise TargetChangedError(
                f"A column of type {field.type} cannot be stored in PostgreSQL.",
                advice="Let the transform make another type of it, for example with cast.",
            )
        case _:
            assert_never(type_)
