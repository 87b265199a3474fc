"""What a table of a lake holds of a batch's ranges and keys, copied to the ledger's database for one transaction.

The statements for a table of that database decide here, too: they change ``batchledger_lake``, a temporary table. The
lake then has to do what has changed in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.database.transactions import read_sql
from batchledger.model.batch import Attempt, HeldRange
from batchledger.model.errors import TargetChangedError
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.sinks.iceberg.coordinates import AT_ONCE_ROWS, as_coordinates
from batchledger.sinks.iceberg.table import IcebergTable
from batchledger.sinks.merging.upsert import PostgresUpsert
from batchledger.sinks.staging.tables import copy_batches, join_names, rows_table

HELD_TABLE = sql.Identifier("pg_temp", "batchledger_lake")


@dataclass(frozen=True)
class HeldCopy:
    """What a transaction has laid out in ``HELD_TABLE``: ``columns``, type by name, of the state ``base``.

    ``base`` is None if no row was asked for: then it does not matter what others commit.
    """

    base: int | None
    columns: Mapping[str, str]

    def find_removed(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> pa.Table:
        """Return which of the rows that were there are not there any more."""
        cursor.execute(read_sql(__package__, "find_gone_from_lake"), [attempt.batch.batch_id])
        return as_coordinates(cursor)


def lay_out(
    cursor: psycopg.Cursor[Any],
    table: IcebergTable,
    updates: PostgresUpsert | None,
    attempt: Attempt,
    *,
    replaced: Sequence[HeldRange],
    types: Mapping[str, str],
) -> HeldCopy | None:
    """Copy what the table holds of the batch's ranges and keys to ``HELD_TABLE``, once in a transaction.

    ``types`` are the columns that are wanted, type by name; ``updates`` applies a batch to them by key. None without a
    table.
    """
    base = table.find_base(attempt)
    if base is None:
        return None
    within = attempt.batch.ranges if attempt.batch.takes_over(replaced) else ()
    keys = None if updates is None else _staged_keys(cursor, attempt, updates.rules.key)
    columns = {**types, BATCH_COLUMN: "bigint"}
    _create(cursor, attempt, columns, table.read_rows(attempt, base, list(columns), within, keys))
    _require_provenance(cursor, table.name, attempt)
    if updates is not None:
        _require_unique_keys(cursor, table.name, updates)
    cursor.execute("analyze pg_temp.batchledger_lake, pg_temp.batchledger_lake_before")
    return HeldCopy(base if within or keys is not None else None, columns)


def _create(
    cursor: psycopg.Cursor[Any], attempt: Attempt, columns: Mapping[str, str], found: Iterable[pa.RecordBatch]
) -> None:
    definitions = [sql.SQL(f"{{}} {type_}").format(sql.Identifier(each)) for each, type_ in columns.items()]
    cursor.execute(
        sql.SQL("create temporary table {} ({}) on commit drop").format(HELD_TABLE, sql.SQL(", ").join(definitions))
    )
    copy_batches(cursor, HELD_TABLE, found)
    # This publication has not written these rows: another ledger has a batch of the same number.
    cursor.execute("update batchledger_lake set _batch_id = null where _batch_id = %s", [attempt.batch.batch_id])
    cursor.execute(
        "create temporary table batchledger_lake_before on commit drop as "
        "select _topic, _partition, _offset from batchledger_lake"
    )


def _require_provenance(cursor: psycopg.Cursor[Any], name: str, attempt: Attempt) -> None:
    cursor.execute("select count(*) from batchledger_lake where num_nulls(_topic, _partition, _offset) > 0")
    ((unknown,),) = cursor.fetchall()
    if unknown:
        raise TargetChangedError(
            f"Table {name} holds {unknown} rows that cannot be replaced. Nothing was written.",
            why=f"They have a key of {attempt.batch.label}, and do not say which record they come from.",
            advice="Remove them, or fill the columns of their topic, partition and offset.",
            subject=name,
        )


def _require_unique_keys(cursor: psycopg.Cursor[Any], name: str, updates: PostgresUpsert) -> None:
    try:
        cursor.execute(sql.SQL("alter table {} add {}").format(HELD_TABLE, updates.primary_key))
    except psycopg.errors.UniqueViolation as error:
        raise TargetChangedError(
            f"Table {name} holds rows with the same {', '.join(updates.rules.key)}. Nothing was written.",
            why=f"sink.mode upsert needs one row for each key. {error.diag.message_detail}",
            advice="Remove one of them.",
            subject=name,
        ) from error


def _staged_keys(cursor: psycopg.Cursor[Any], attempt: Attempt, key: Sequence[str]) -> pa.Table:
    """Return the different keys of the staged rows."""
    cursor.execute(sql.SQL("select distinct {} from {}").format(join_names(key), rows_table(attempt)))
    return _fetch(cursor, key)


def _fetch(cursor: psycopg.Cursor[Any], names: Sequence[str]) -> pa.Table:
    """Return what a query has found, part by part: as Python's values it takes many times the memory."""
    parts = []
    while rows := cursor.fetchmany(AT_ONCE_ROWS):
        columns = zip(*rows, strict=True)
        parts.append(pa.table(dict(zip(names, map(pa.array, columns), strict=True))))
    # Parts may have numbers of different length.
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({each: [] for each in names})
