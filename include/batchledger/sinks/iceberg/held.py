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
from batchledger.model.records.rules import Upsert
from batchledger.sinks.iceberg.coordinates import AT_ONCE_ROWS, as_coordinates
from batchledger.sinks.iceberg.table import IcebergTable
from batchledger.sinks.merging.upsert import PostgresUpsert
from batchledger.sinks.staging.key_secret import ReadSecret
from batchledger.sinks.staging.tables import copy_batches, join_names, rows_table
from batchledger.sinks.staging.withdrawal import exists_here

_NAME = "batchledger_lake"
HELD_TABLE = sql.Identifier("pg_temp", _NAME)


@dataclass(frozen=True)
class HeldRows:
    """The rows of ``table`` that a batch may replace, as they were when the transaction first asked for them."""

    table: IcebergTable
    upsert: Upsert | None
    read_secret: ReadSecret

    @property
    def updates(self) -> PostgresUpsert | None:
        """What applies a batch to them by key."""
        return PostgresUpsert(self.upsert, HELD_TABLE, self.read_secret) if self.upsert else None

    def lay_out(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange], types: Mapping[str, str]
    ) -> dict[str, str] | None:
        """Copy what the table holds of the batch's ranges and keys to the temporary table, once in a transaction.

        ``types`` are the columns that are wanted, type by name. Returns those that were laid out; None without a table.
        """
        if not exists_here(cursor, _NAME):
            base = self.table.find_base(attempt)
            if base is None:
                return None
            within = attempt.batch.ranges if attempt.batch.takes_over(replaced) else ()
            keys = self._staged_keys(cursor, attempt)
            found = self.table.read_rows(attempt, base, [*types, BATCH_COLUMN], within, keys)
            # If nothing was found, that is true of this state only.
            looked_at = base if within or keys is not None else None
            self._create(cursor, attempt, looked_at, types, found)
        cursor.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass "
            "and attnum > 0 and not attisdropped order by attnum",
            [f"pg_temp.{_NAME}"],
        )
        return dict(cursor.fetchall())

    def find_removed(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> tuple[int | None, pa.Table]:
        """Return the state that was looked at, if any, and which of its rows are not there any more."""
        if not exists_here(cursor, _NAME):
            return None, as_coordinates([])
        cursor.execute(read_sql(__package__, "find_gone_from_lake"), [attempt.batch.batch_id])
        gone = as_coordinates(cursor)
        cursor.execute("select base from batchledger_lake_base")
        ((base,),) = cursor.fetchall()
        return base, gone

    def _create(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        base: int | None,
        types: Mapping[str, str],
        found: Iterable[pa.RecordBatch],
    ) -> None:
        columns = {**types, BATCH_COLUMN: "bigint"}
        definitions = [sql.SQL(f"{{}} {type_}").format(sql.Identifier(each)) for each, type_ in columns.items()]
        cursor.execute(
            sql.SQL("create temporary table {} ({}) on commit drop").format(
                sql.Identifier(_NAME), sql.SQL(", ").join(definitions)
            )
        )
        copy_batches(cursor, HELD_TABLE, found)
        # This publication has not written these rows: another ledger has a batch of the same number.
        cursor.execute("update batchledger_lake set _batch_id = null where _batch_id = %s", [attempt.batch.batch_id])
        cursor.execute(
            "create temporary table batchledger_lake_before on commit drop as "
            "select _topic, _partition, _offset from batchledger_lake"
        )
        cursor.execute(
            "create temporary table batchledger_lake_base on commit drop as select %s::bigint as base", [base]
        )
        self._require_provenance(cursor, attempt)
        if self.updates is not None:
            try:
                cursor.execute(sql.SQL("alter table {} add {}").format(HELD_TABLE, self.updates.primary_key))
            except psycopg.errors.UniqueViolation as error:
                raise TargetChangedError(
                    f"Table {self.table.name} holds rows with the same {', '.join(self.updates.rules.key)}. Nothing "
                    "was written.",
                    why=f"sink.mode upsert needs one row for each key. {error.diag.message_detail}",
                    advice="Remove one of them.",
                    subject=self.table.name,
                ) from error
        cursor.execute("analyze pg_temp.batchledger_lake, pg_temp.batchledger_lake_before")

    def _require_provenance(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> None:
        cursor.execute("select count(*) from batchledger_lake where num_nulls(_topic, _partition, _offset) > 0")
        ((unknown,),) = cursor.fetchall()
        if unknown:
            raise TargetChangedError(
                f"Table {self.table.name} holds {unknown} rows that cannot be replaced. Nothing was written.",
                why=f"They have a key of {attempt.batch.label}, and do not say which record they come from.",
                advice="Remove them, or fill the columns of their topic, partition and offset.",
                subject=self.table.name,
            )

    def _staged_keys(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> pa.Table | None:
        """Return the different keys of the staged rows."""
        if self.upsert is None:
            return None
        names = join_names(self.upsert.key)
        cursor.execute(sql.SQL("select distinct {} from {}").format(names, rows_table(attempt)))
        return _fetch(cursor, self.upsert.key)


def _fetch(cursor: psycopg.Cursor[Any], names: Sequence[str]) -> pa.Table:
    """Return what a query has found, part by part: as Python's values it takes many times the memory."""
    parts = []
    while rows := cursor.fetchmany(AT_ONCE_ROWS):
        columns = zip(*rows, strict=True)
        parts.append(pa.table(dict(zip(names, map(pa.array, columns), strict=True))))
    # Parts may have numbers of different length.
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({each: [] for each in names})
