"""The target on PostgreSQL: a table that the first publication creates, or one that was there before."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from batchledger.database.transactions import cause_of, handing_over, is_right_missing, read_sql
from batchledger.database.weather import Cause
from batchledger.model.batch import Attempt
from batchledger.model.claims import TargetClaim
from batchledger.model.errors import TargetChangedError
from batchledger.model.records.columns import BATCH_COLUMN, DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.rules import Evolution, Upsert
from batchledger.sinks.merging.key_equality import keys_too_long, require_equality_of_rows
from batchledger.sinks.merging.upsert import PostgresUpsert
from batchledger.sinks.staging.key_secret import ReadSecret, no_secret
from batchledger.sinks.staging.key_types import has_published
from batchledger.sinks.staging.tables import columns_of, open_table, postgres_type
from batchledger.sinks.table.column_comparison import compare_columns, read_base_types
from batchledger.sinks.table.evolution import (
    NOTHING_CHANGES,
    ColumnChanges,
    describe_changes,
    lock_table,
    plan_changes,
    require_changeable,
)
from batchledger.sinks.table.relation import require_table
from batchledger.sinks.table.silent_changes import changes_values, describe_type

_PLACES = (*PROVENANCE_COLUMNS, BATCH_COLUMN)
"""The columns that tell where a row comes from."""


@dataclass(frozen=True)
class TargetTable:
    """A table of this (schema, name), to which rows are appended, or applied as ``upsert`` says.

    ``evolution`` says whether it gets the columns that rows need.
    """

    table: tuple[str, str]
    upsert: Upsert | None = None
    evolution: Evolution = Evolution.NONE
    read_secret: ReadSecret = no_secret

    @property
    def name(self) -> str:
        """As people write it."""
        return ".".join(self.table)

    @property
    def identifier(self) -> sql.Identifier:
        """As statements write it."""
        return sql.Identifier(*self.table)

    @property
    def updates(self) -> PostgresUpsert | None:
        """Applies rows by key, if they are not appended."""
        return PostgresUpsert(self.upsert, self.identifier, self.read_secret) if self.upsert else None

    def read_columns(self, cursor: psycopg.Cursor[Any]) -> dict[str, str]:
        """Return type by column name, in order; empty when there is no such table."""
        return columns_of(cursor, *self.table)

    def read_identity(self, cursor: psycopg.Cursor[Any]) -> str:
        """Return what tells the table from another one of its name, and from a restored copy.

        An oid is unique within one database only: in a restored one another table may have it.
        """
        cursor.execute(read_sql(__package__, "identify_table"), [self.identifier.as_string(cursor)])
        return str(cursor.fetchall()[0][0])

    def claim(self, cursor: psycopg.Cursor[Any]) -> TargetClaim:
        """Return the claim to the table, which has to exist. In another database it would have another home.

        Raises TargetChangedError for what is no table that holds its rows itself (``relation``).
        """
        require_table(cursor, self.identifier, self.name, is_keyed=self.upsert is not None)
        identity = self.read_identity(cursor)
        return TargetClaim(self.name, identity, home=f"{identity.rpartition('/')[0]}/")

    def create(self, cursor: psycopg.Cursor[Any], columns: Mapping[str, str]) -> None:
        """Create the table for rows with these columns, type by name, unless there is one.

        A transaction that would create it at the same time waits for the end of the first one.
        """
        if self.read_columns(cursor):
            return
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"batchledger creates {self.name}"])
        if self.read_columns(cursor):
            return
        stored = {name: type_ for name, type_ in columns.items() if name != self._unstored_column}
        definitions = [sql.SQL(f"{{}} {type_}").format(sql.Identifier(name)) for name, type_ in stored.items()]
        definitions.append(sql.SQL("{} bigint not null").format(sql.Identifier(BATCH_COLUMN)))
        if self.updates is not None:
            definitions.append(self.updates.primary_key)
        schema = self.table[0]
        # "If not exists" asks for the right to create schemas, also if there is nothing to create.
        if cursor.execute("select 1 from pg_namespace where nspname = %s", [schema]).fetchone() is None:
            cursor.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        cursor.execute(sql.SQL("create table {} ({})").format(self.identifier, sql.SQL(", ").join(definitions)))
        if self.updates is not None:
            # Every update would have to maintain an index of the offsets, and a replay reads the whole table as fast.
            return
        # Batches arrive in offset order, so a BRIN index finds a range for a few kilobytes and no cost per row. Without
        # autosummarize every range would read all rows since the last vacuum.
        index = sql.SQL("create index on {} using brin (_partition, _offset) with (autosummarize = on)")
        cursor.execute(index.format(self.identifier))

    def compare_columns(self, cursor: psycopg.Cursor[Any], schema: pa.Schema) -> Sequence[TableColumn] | None:
        """See ``Sink.compare_columns``."""
        stored = pa.schema([each for each in schema if each.name != self._unstored_column])
        return compare_columns(cursor, self.table, stored, self.upsert.key if self.upsert else ())

    def evolve(self, cursor: psycopg.Cursor[Any], columns: Mapping[str, str]) -> None:
        """Give the table what rows with these columns, type by name, need and ``evolution`` allows."""
        if not self._find_changes(self.read_columns(cursor), columns):
            return
        lock_table(cursor, self.identifier, self.name)
        # Others may have changed it before the lock was there.
        changes = self.plan_changes(cursor, self.read_columns(cursor), columns)
        if changes:
            cursor.execute(changes.alter(self.identifier))

    def plan_changes(
        self, cursor: psycopg.Cursor[Any], known: Mapping[str, str], columns: Mapping[str, str]
    ) -> ColumnChanges:
        """Return what ``evolve`` would change in a table with the ``known`` columns.

        Raises TargetChangedError when it may not, or had better not.
        """
        changes = self._find_changes(known, columns)
        require_changeable(cursor, self.identifier, self.name, changes)
        return changes

    def _find_changes(self, known: Mapping[str, str], columns: Mapping[str, str]) -> ColumnChanges:
        if not self.evolution.adds:
            return NOTHING_CHANGES
        stored = {name: type_ for name, type_ in columns.items() if name != self._unstored_column}
        return plan_changes(self.evolution, known, stored, self.upsert.key if self.upsert else ())

    def require_fit(self, cursor: psycopg.Cursor[Any], attempt: Attempt, schema: pa.Schema) -> None:
        """Let PostgreSQL plan the later insert of the open staging, so that its own rules decide what fits.

        Besides, no column may change values in silence. Raises TargetChangedError.
        """
        known = self.read_columns(cursor)
        if not known:
            return
        if self.updates is not None:
            self.updates.require_unique_index(cursor, self.name)
        self._require_places(cursor, attempt, known, schema)
        changes = self.plan_changes(cursor, known, {each.name: postgres_type(each) for each in schema})
        left_out = (self._unstored_column, *changes.added, *changes.widened)
        stored = [each for each in schema.names if each not in left_out]
        self._require_columns(cursor, known, schema, stored)
        base_types = read_base_types(cursor, self.table)
        self._require_no_silent_change(base_types, schema, stored)
        if self.upsert is not None:
            require_equality_of_rows(self.name, [schema.field(each) for each in self.upsert.key], base_types)
        try:
            cursor.execute(sql.SQL("explain ") + self._insert(open_table(attempt), stored), [attempt.batch.batch_id])
        except psycopg.Error as error:
            if cause_of(error) is not Cause.REFUSAL or is_right_missing(error):
                raise
            raise TargetChangedError(
                f"Table {self.name} cannot take the rows of {attempt.batch.label}. Nothing was written.",
                why=f"It says: {error.diag.message_primary}.",
                advice="Alter the table, or correct source.schema or the transform.",
                subject=self.name,
            ) from error

    def _require_places(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, known: Mapping[str, str], schema: pa.Schema
    ) -> None:
        """Raise TargetChangedError if published rows have lost the columns that tell where they come from."""
        pipeline, types = attempt.batch.pipeline, {each.name: postgres_type(each) for each in schema}
        types[BATCH_COLUMN] = "bigint"
        lost = {name: types[name] for name in _PLACES if name not in known}
        if lost and has_published(cursor, pipeline):
            statement = describe_changes(cursor, self.identifier, ColumnChanges(lost, {}))
            raise TargetChangedError(
                f"Table {self.name} has lost {', '.join(lost)}. Nothing was written.",
                why=f"{pipeline} has published rows to it, and these columns tell where each comes from. Added anew "
                "they are empty in these rows: a replay would not find the rows, and would store them twice.",
                advice="Bring the columns back with their values, from a backup of the table.\n"
                f"Or read everything again: batchledger rewind {pipeline} --to earliest --truncate --reason WHY\n"
                f"Then add them to the empty table: {statement}",
                pipeline=pipeline,
                subject=self.name,
            )

    def _require_columns(
        self, cursor: psycopg.Cursor[Any], known: Mapping[str, str], schema: pa.Schema, stored: Sequence[str]
    ) -> None:
        absent = {name: postgres_type(schema.field(name)) for name in stored if name not in known}
        if BATCH_COLUMN not in known:
            absent[BATCH_COLUMN] = "bigint"
        if absent:
            statement = describe_changes(cursor, self.identifier, ColumnChanges(absent, {}))
            by_publications = "Let publications add new columns: sink.evolve: add\nOr add them yourself"
            may_be_added = not self.evolution.adds and not absent.keys() <= set(_PLACES)
            raise TargetChangedError(
                f"Table {self.name} lacks {', '.join(absent)}. Nothing was written.",
                advice=f"{by_publications if may_be_added else 'Add them'}: {statement}",
                subject=self.name,
            )

    def _require_no_silent_change(self, known: Mapping[str, str], schema: pa.Schema, stored: Sequence[str]) -> None:
        for name in stored:
            if name in known and changes_values(schema.field(name), known[name]):
                raise TargetChangedError(
                    f"Table {self.name} would change values of {name}, and say nothing. Nothing was written.",
                    why=f"Its column is {known[name]}, and the rows have {describe_type(schema.field(name))}. "
                    "PostgreSQL rounds or cuts a value that does not fit.",
                    advice="Give the column the type of the rows, or the rows the type of the column, in source.schema "
                    "or the transform.",
                    subject=self.name,
                )

    def apply(
        self,
        cursor: psycopg.Cursor[Any],
        attempt: Attempt,
        rows: sql.Composable,
        columns: Sequence[str],
        erased: int = 0,
        *,
        has_withdrawn: bool = False,
    ) -> int:
        """Append ``rows``, a table or subquery, or apply them by key; return how many rows these are.

        ``erased`` of these have erased keys (``tables.ERASED``), and none of those becomes a row. ``has_withdrawn``:
        other rows were withdrawn for them.
        """
        if self.updates is not None:
            base_types, key = read_base_types(cursor, self.table), self.updates.rules.key
            # PostgreSQL refuses rows for a column that is gone.
            too_long = keys_too_long({each: base_types[each] for each in key if each in base_types})
            return self.updates.apply(
                cursor, attempt, rows, columns, erased=erased, is_too_long=too_long, has_withdrawn=has_withdrawn
            )
        cursor.execute(self._insert(rows, columns), [attempt.batch.batch_id])
        return int(cursor.rowcount) + erased

    def taking(self, attempt: Attempt) -> AbstractContextManager[None]:
        """Raise RowsRefusedError in the block for what the database says against the rows."""
        return handing_over(f"table {self.name}", f"the rows of {attempt.batch.label}")

    @property
    def _unstored_column(self) -> str | None:
        """The column that rows carry for the sink only."""
        return DELETED_COLUMN if self.upsert else None

    def _insert(self, rows: sql.Composable, columns: Sequence[str]) -> sql.Composed:
        names = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
        return sql.SQL("insert into {} ({}, {}) select {}, %s::bigint from {} where _task >= 0").format(
            self.identifier, names, sql.Identifier(BATCH_COLUMN), names, rows
        )
