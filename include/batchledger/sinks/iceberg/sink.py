"""The Sink port on a table of a data lake: rows are staged in its files, on a branch, and published by one commit.

The ledger's database judges rows by the same statements as for a table there. For that it has an index of the staged
rows, which each task reads back from its files: coordinates and key columns, or all columns if checks look at them or a
replay is compared. The publication copies what the table holds of the batch's ranges and keys to the database, applies
the batch to the copy, and repeats in the lake what has changed.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import STAGING_SCHEMA, drop_staging_tables, read_sql, snapshot, transaction
from batchledger.model.balance import TargetCounts
from batchledger.model.batch import Attempt, BatchState, HeldRange, Lane, Target
from batchledger.model.capabilities import Capabilities
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.housekeeping import Housekeeping, Leftover, Removal
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import BATCH_COLUMN, DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from batchledger.ports import CommittingSink, RowsToPublish, Sink
from batchledger.sinks.iceberg.capabilities import CAPABILITIES
from batchledger.sinks.iceberg.commits import StagedBranch
from batchledger.sinks.iceberg.coordinates import Change, as_coordinates
from batchledger.sinks.iceberg.held import HELD_TABLE, HeldCopy, lay_out
from batchledger.sinks.iceberg.left_behind import look_for_left
from batchledger.sinks.iceberg.table import IcebergTable
from batchledger.sinks.iceberg.writer import LakeStagingWriter
from batchledger.sinks.merging.compare import Shadow
from batchledger.sinks.merging.upsert import PostgresUpsert
from batchledger.sinks.staging.key_secret import ReadSecret, no_secret
from batchledger.sinks.staging.staging import PostgresStaging
from batchledger.sinks.staging.strangers import is_own_batch
from batchledger.sinks.staging.tables import count_rows, find_aside, rows_table, table_prefix
from batchledger.sinks.staging.withdrawal import OldRows, find_replaced, rows_to_withdraw, withdraw_rows

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LakeSink(PostgresStaging, CommittingSink, Sink):
    """``has_checks``: checks look at all columns of the rows."""

    capabilities: ClassVar[Capabilities] = CAPABILITIES

    dsn: str = field(repr=False)
    table: IcebergTable
    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None
    has_checks: bool = False
    read_secret: ReadSecret = field(default=no_secret, repr=False)

    @property
    @override
    def name(self) -> str:
        """The table as people write it."""
        return f"table {self.table.name}"

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> LakeStagingWriter:
        """The first attempt creates the table."""
        self.require_columns(schema)
        files = self.table.prepare(attempt, self._stored(schema))
        index_schema = self._index_schema(attempt, schema, files.schema)
        index = super().open_staging(attempt, index_schema)
        listed = f"{table_prefix(attempt)}_files"
        with transaction(self.dsn, f"create the staging of {attempt.batch.label}") as cursor:
            table = sql.Identifier(STAGING_SCHEMA, listed)
            cursor.execute(sql.SQL("create table {} (_task bigint not null, manifest text not null)").format(table))
        return LakeStagingWriter(self.dsn, listed, files, index, index_schema)

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        super().seal_staging(attempt, accepted_tasks)
        self.table.stage(attempt, self._seal_list(attempt, accepted_tasks))

    @override
    def drop_staging(self, attempt: Attempt) -> None:
        super().drop_staging(attempt)
        drop_staging_tables(self.dsn, attempt, ("files", "listed"))
        batch = attempt.batch
        self.table.drop_branches(
            {StagedBranch(batch.batch_id, number, batch.planned_at) for number in range(1, attempt.number + 1)}
        )

    @override
    def tidy(self, *, is_dry_run: bool = False) -> Housekeeping:
        """A dry run counts branches only: what maintenance would do to the files is not known before.

        If no pipeline of the ledger has published to a table, its owner maintains it.
        """
        branches = self.table.list_branches()
        with snapshot(self.dsn, f"look for what is left behind in {self.name}") as cursor:
            left = look_for_left(cursor, branches)
            is_own = self._is_published_to(cursor)
        removals = [Removal(Leftover.BRANCH, self.name, len(left.over))]
        left_out = []
        if not is_dry_run:
            self.table.drop_branches(left.over)
        if is_dry_run and is_own:
            left_out.append(
                f"What Spark would write together and remove in {self.name} is not known before it does so."
            )
        elif is_own:
            done = self.table.maintain(left.unlisted_since)
            if done is None:
                left_out.append(
                    f"{self.name} is not maintained: its pipeline has no Spark Connect server. Let a Spark with "
                    "Iceberg call rewrite_data_files, expire_snapshots and remove_orphan_files."
                )
            removals += [Removal(kind, self.name, count) for kind, count in (done or {}).items()]
        unknown = [f"b{each.batch_id}_a{each.attempt} of {self.name}" for each in left.unknown]
        return Housekeeping((), removals, unknown, left_out)

    @override
    def find_old_rows(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange]
    ) -> OldRows | None:
        copy = self._lay_out(cursor, attempt, replaced)
        return None if copy is None else rows_to_withdraw(HELD_TABLE, attempt)

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        attempt = rows.attempt
        with rows.connection.cursor() as cursor:
            copy = self._lay_out(cursor, attempt, rows.replaced)
            if copy is None:
                return Withdrawn([0] * len(rows.replaced))
            withdrawn = withdraw_rows(cursor, HELD_TABLE, attempt, self.judged_columns)
            if self.message_keys is not None:
                self.message_keys.recall(cursor, rows.replaced, withdrawn.old)
            if self._updates is not None:
                self._updates.withdraw(cursor, attempt, withdrawn)
            return Withdrawn(withdrawn.count(cursor, attempt.batch.pipeline, rows.replaced), copy)

    @override
    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        return self.table.count_held(held)

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        with transaction(self.dsn, f"compare {attempt.batch.label} with {self.name}", attempt) as cursor:
            cursor.execute("set local work_mem = '256MB'")
            types = self.staged_columns(cursor, attempt)
            row_columns = list(types)
            types.pop(DELETED_COLUMN, None)
            replaced = find_replaced(cursor, attempt)
            copy = lay_out(cursor, self.table, self._updates, attempt, replaced=replaced, types=types)
            rows = self.select_replayed(cursor, attempt, replaced, rows_to_withdraw(HELD_TABLE, attempt))
            columns = copy.columns if copy else {}
            shadow = Shadow(HELD_TABLE, columns, columns, rows, row_columns, self._updates)
            comparison = shadow.compare(cursor, attempt, limit)
            cursor.connection.rollback()
        absent = [each for each in self.table.list_columns() if each not in (*row_columns, BATCH_COLUMN)]
        return replace(comparison, absent_columns=tuple(absent))

    @override
    def compare_columns(self, schema: pa.Schema) -> Sequence[TableColumn] | None:
        return self.table.compare_columns(self._stored(schema))

    @override
    def find_claim(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> TargetClaim:
        """A table that was renamed counts as dropped: another one in its place would hide that."""
        knows = partial(is_own_batch, cursor, attempt.batch.pipeline)
        return TargetClaim(self.name, self.table.require_own(attempt, knows))

    @override
    def find_target(self) -> Target | None:
        identity = self.table.identify()
        return None if identity is None else Target(self.name, identity)

    @override
    def check(self, rows: RowsToPublish) -> None:
        """Nothing is known before."""

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """Apply the batch to the copy, and let later batches know its keys. The commit repeats it in the lake.

        It hands on the copy, if there is one, and the table of the rows that are added, None for all.
        """
        attempt, copy = rows.attempt, rows.handed
        create = sql.SQL("create temporary table {} on commit drop as select _topic, _partition, _offset from {}")
        added = sql.Identifier("pg_temp", "batchledger_added")
        with rows.connection.cursor() as cursor:
            columns = self.staged_columns(cursor, attempt)
            accepted = self.accept(cursor, rows)
            if self.message_keys is None and self._updates is None:
                # Without duplicates and keys no list of the rows is needed.
                moved = count_rows(cursor, rows_table(attempt))
                return PreparedRows(moved, handed=(copy, None))
            if self._updates is None:
                cursor.execute(create.format(added, accepted.missing))
                moved = int(cursor.rowcount)
            else:
                copy = copy or self._lay_out(cursor, attempt, ())
                known = [each for each in columns if each in (*self._kept, DELETED_COLUMN)]
                moved = self._updates.apply(
                    cursor, attempt, accepted.missing, known, has_withdrawn=rows.handed is not None
                )
                own = sql.SQL("{} where _batch_id = {}").format(HELD_TABLE, sql.Literal(attempt.batch.batch_id))
                cursor.execute(create.format(added, own))
        return PreparedRows(accepted.held + moved, accepted.dropped, handed=(copy, added))

    @override
    def confirm(self, rows: RowsToPublish) -> PreparedRows:
        return self.publish(rows)

    @override
    def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
        """Nothing: the table's own snapshots tell."""
        return ()

    @override
    def commit(self, rows: RowsToPublish) -> None:
        attempt = rows.attempt
        copy, listed = rows.handed
        with rows.connection.cursor() as cursor:
            base, removed = (copy.base, copy.find_removed(cursor, attempt)) if copy else (None, as_coordinates([]))
            dropped, added = self._find_left_out(cursor, attempt, listed)

            def read_epoch() -> int:
                cursor.execute("select epoch from batchledger.pipeline where name = %s", [attempt.batch.pipeline])
                return int(cursor.fetchall()[0][0])

            is_found = attempt.batch.state is BatchState.COMMITTING
            change = Change(removed, dropped, added)
            self.table.commit(attempt, base, change, read_epoch=read_epoch, is_found=is_found)

    @override
    def find_commit(self, attempt: Attempt) -> bool:
        """The table's metadata tell: none of its files is read."""
        return self.table.find_commit(attempt)

    @override
    def search_commit(self, attempt: Attempt) -> None:
        """There is nothing to search for."""

    @override
    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        """Rows that carry the id of another pipeline's batch are returned too: they are findings."""
        key = self.key_columns if within is None else ()
        return TargetCounts(self.table.count(within, key))

    @property
    def _updates(self) -> PostgresUpsert | None:
        """What applies a batch to the copy by key."""
        return PostgresUpsert(self.upsert, HELD_TABLE, self.read_secret) if self.upsert else None

    @property
    def _kept(self) -> list[str]:
        """The columns that every decision needs."""
        numbers = (*self.sequence.key, self.sequence.number) if self.sequence else ()
        return list(dict.fromkeys([*PROVENANCE_COLUMNS, *self.judged_columns, *numbers]))

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of rows that the table has: not the mark that a row deletes its key."""
        return pa.schema([each for each in schema if self.upsert is None or each.name != DELETED_COLUMN])

    def _index_schema(self, attempt: Attempt, schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
        """Return the columns of the index: keys and where records come from, or all of them."""
        # A comparison with the table is of all columns, too.
        is_whole = self.has_checks or attempt.batch.is_dry_run or attempt.batch.lane is Lane.REPLAY
        written = [each for each in schema.names if each in (*stored.names, DELETED_COLUMN)]
        names = [each for each in written if is_whole or each in (*self._kept, DELETED_COLUMN)]
        return pa.schema([stored.field(each) if each != DELETED_COLUMN else schema.field(each) for each in names])

    def _seal_list(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> list[str]:
        """Return the lists of the accepted tasks; no task can add one any more (S75)."""
        self.seal_table(attempt, "files", "listed", accepted_tasks)
        listed = sql.Identifier(STAGING_SCHEMA, f"{table_prefix(attempt)}_listed")
        with transaction(self.dsn, f"seal the staging of {attempt.batch.label}", attempt) as cursor:
            cursor.execute(sql.SQL("select manifest from {} order by manifest").format(listed))
            return [manifest for (manifest,) in cursor]

    def _find_left_out(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, listed: sql.Identifier | None
    ) -> tuple[pa.Table, int]:
        """Return which rows of the files are not added, and how many are. All that are added are in the files."""
        added = listed or rows_table(attempt)
        # The files still hold the rows that a check has set aside.
        aside = find_aside(cursor, attempt)
        staged = sql.SQL("select * from {}").format(rows_table(attempt))
        every = sql.SQL("({} union all select * from {})").format(staged, aside) if aside else rows_table(attempt)
        parts = {"added": added, "staged": every, "is_row": self._is_row(cursor, attempt)}
        cursor.execute(read_sql(__package__, "count_added").format(**parts))
        ((count, staged_count),) = cursor.fetchall()
        if count == staged_count:
            return as_coordinates([]), count
        # With the default, hundreds of thousands of rows are sorted on disk.
        cursor.execute("set local work_mem = '256MB'")
        if listed is not None:
            cursor.execute(sql.SQL("analyze {}").format(added))
        cursor.execute(read_sql(__package__, "find_left_out").format(**parts))
        return as_coordinates(cursor), count

    def _is_published_to(self, cursor: psycopg.Cursor[Any]) -> bool:
        """Whether a pipeline of this ledger has published to the table."""
        cursor.execute("select 1 from batchledger.pipeline where target_identity = %s", [self.table.identify()])
        return cursor.fetchone() is not None

    def _lay_out(self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange]) -> HeldCopy | None:
        """Lay out the columns that decisions need."""
        types = self.staged_columns(cursor, attempt)
        wanted = {each: types[each] for each in self._kept}
        return lay_out(cursor, self.table, self._updates, attempt, replaced=replaced, types=wanted)

    def _is_row(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> sql.Composable:
        """Tell rows from records that only delete a key."""
        if DELETED_COLUMN not in self.staged_columns(cursor, attempt):
            return sql.SQL("true")
        return sql.SQL("{} is not true").format(sql.Identifier("s", DELETED_COLUMN))
