"""The Sink port on PostgreSQL, in the ledger's own database, so that rows move inside the ledger's transaction (I3).

The target is created by the first publication and carries ``_topic, _partition, _offset, _timestamp, _batch_id``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from typing_extensions import override

from batchledger.database.transactions import held_as_arrays, ranges_as_arrays, read_sql, transaction
from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Attempt, HeldRange, Target
from batchledger.model.capabilities import Capabilities
from batchledger.model.checks import Offender
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.rules import Deduplication, Evolution, SequenceRule, Upsert
from batchledger.ports import RowsToPublish, Sink, TargetAccess
from batchledger.sinks.merging.compare import Shadow
from batchledger.sinks.merging.swallowing import require_withdrawn, rows_ignored
from batchledger.sinks.staging.key_secret import ReadSecret, know_secret, no_secret
from batchledger.sinks.staging.spans import holder_of, read_spans
from batchledger.sinks.staging.staging import PostgresStaging
from batchledger.sinks.staging.strangers import require_no_strangers
from batchledger.sinks.staging.tables import count_rows, join_names, rows_table
from batchledger.sinks.staging.withdrawal import OldRows, find_replaced, rows_to_withdraw, withdraw_rows
from batchledger.sinks.table.capabilities import CAPABILITIES
from batchledger.sinks.table.erasing import PostgresErasure
from batchledger.sinks.table.refused_rows import RefusedRows
from batchledger.sinks.table.target import TargetTable

_HOLDER = holder_of("t._batch_id")


@dataclass(frozen=True)
class PostgresSink(PostgresStaging, Sink):
    """``table`` is (schema, name).

    Without ``deduplication`` every staged row is accepted; without ``upsert`` accepted rows are appended. With
    ``sequence`` the numbers of live batches are judged and remembered. ``evolution`` says what a publication may change
    in the table.
    """

    capabilities: ClassVar[Capabilities] = CAPABILITIES

    dsn: str = field(repr=False)
    table: tuple[str, str]
    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    sequence: SequenceRule | None = None
    evolution: Evolution = Evolution.NONE
    read_secret: ReadSecret = field(default=no_secret, repr=False)

    @property
    @override
    def name(self) -> str:
        """The target's name as people write it."""
        return self.target_table.name

    @override
    def find_old_rows(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, replaced: Sequence[HeldRange]
    ) -> OldRows | None:
        has_target = self.target_table.read_columns(cursor)
        return rows_to_withdraw(self.target_table.identifier, attempt) if has_target else None

    @override
    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """Before anything is judged, rows of erased keys are marked as such."""
        super().seal_staging(attempt, accepted_tasks)
        with (
            transaction(self.dsn, f"look for erased keys in {attempt.batch.label}", attempt) as cursor,
            self.target_table.taking(attempt),
        ):
            self.erasure.mark(cursor, attempt, self.staged_columns(cursor, attempt))

    @override
    def select_unmatched(
        self, cursor: psycopg.Cursor[Any], attempt: Attempt, rows: sql.Composable
    ) -> sql.Composable | None:
        if self.target_table.updates is None or DELETED_COLUMN not in self.staged_columns(cursor, attempt):
            return None
        know_secret(cursor, self.read_secret)
        has_target = bool(self.target_table.read_columns(cursor))
        return self.target_table.updates.select_unmatched(attempt, rows, has_target=has_target)

    @override
    def require_fit(self, cursor: psycopg.Cursor[Any], attempt: Attempt, schema: pa.Schema) -> None:
        self.target_table.require_fit(cursor, attempt, schema)

    @override
    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        with transaction(self.dsn, f"count rows of {self.name}") as cursor:
            if not held or not self.target_table.read_columns(cursor):
                return [0] * len(held)
            # Since the ledger was asked who holds the ranges, it may have joined some of the batches.
            names = {"target": self.target_table.identifier, "holder": _HOLDER, "asked": holder_of("piece.batch_id")}
            statement = read_sql(__package__, "count_held").format(**names)
            cursor.execute(statement, held_as_arrays(held) | read_spans(cursor, pipeline))
            return [count for (count,) in cursor]

    @override
    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        with transaction(self.dsn, f"compare {attempt.batch.label} with {self.name}", attempt) as cursor:
            cursor.execute("set local work_mem = '256MB'")
            row_columns = list(self.staged_columns(cursor, attempt))
            columns = self.target_table.read_columns(cursor)
            if not columns:
                # Rolled back below: the rows are compared with the empty table that they would create.
                self.target_table.create(cursor, self.staged_columns(cursor, attempt))
                columns = self.target_table.read_columns(cursor)
            changes = self.target_table.plan_changes(cursor, columns, self.staged_columns(cursor, attempt))
            old = rows_to_withdraw(self.target_table.identifier, attempt)
            rows = self.select_replayed(cursor, attempt, find_replaced(cursor, attempt), old)
            with self.target_table.taking(attempt):
                target, updates = self.target_table.identifier, self.target_table.updates
                after = {**columns, **changes.widened, **changes.added}
                shadow = Shadow(target, columns, after, rows, row_columns, updates)
                self.erasure.require_columns(cursor, attempt, after)
                erased = self.erasure.count_marked(cursor, attempt, rows)
                comparison = replace(shadow.compare(cursor, attempt, limit), erased_again=erased)
            cursor.connection.rollback()
            return comparison

    @override
    def compare_columns(self, schema: pa.Schema) -> Sequence[TableColumn] | None:
        with transaction(self.dsn, f"look at the columns of {self.name}") as cursor:
            return self.target_table.compare_columns(cursor, schema)

    @override
    def find_claim(self, cursor: psycopg.Cursor[Any], attempt: Attempt) -> TargetClaim:
        return (
            self.target_table.claim(cursor) if self.target_table.read_columns(cursor) else TargetClaim(self.name, None)
        )

    @override
    def find_target(self) -> Target | None:
        with transaction(self.dsn, f"look for {self.name}") as cursor:
            if not self.target_table.read_columns(cursor):
                return None
            claim = self.target_table.claim(cursor)
            return Target(claim.name, str(claim.identity))

    @override
    def check(self, rows: RowsToPublish) -> None:
        with self.target_table.taking(rows.attempt):
            rows.connection.execute("set constraints all immediate")

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """Tombstones of the ranges go with the rows, so that their keys may come back; erased ones stay."""
        attempt = rows.attempt
        with rows.connection.cursor() as cursor:
            if not self.target_table.read_columns(cursor):
                return Withdrawn([0] * len(rows.replaced))
            with self.target_table.taking(attempt):
                # A hidden row would stay: with this, PostgreSQL says so.
                cursor.execute("set local row_security = off")
                withdrawn = withdraw_rows(cursor, self.target_table.identifier, attempt, self.judged_columns)
                cursor.execute("set local row_security = on")
                require_withdrawn(cursor, self.target_table.identifier, self.name, attempt)
            if self.message_keys is not None:
                self.message_keys.recall(cursor, rows.replaced, withdrawn.old)
            if self.target_table.updates is not None:
                self.target_table.updates.withdraw(cursor, attempt, withdrawn)
            return Withdrawn(withdrawn.count(cursor, attempt.batch.pipeline, rows.replaced), withdrawn)

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        attempt = rows.attempt
        with rows.connection.cursor() as cursor:
            columns = self.staged_columns(cursor, attempt)
            accepted = self.accept(cursor, rows)
            looks_for_strangers = self.upsert is None and rows.is_ledger_moved
            with self.target_table.taking(attempt):
                self.target_table.create(cursor, columns)
                self.target_table.evolve(cursor, columns)
                if looks_for_strangers:
                    require_no_strangers(cursor, attempt.batch, self.target_table.identifier, self.name)
                erased = self.erasure.count_marked(cursor, attempt, accepted.missing)
                moved = self.target_table.apply(
                    cursor, attempt, accepted.missing, list(columns), erased, has_withdrawn=rows.handed is not None
                )
            visible = accepted.held + moved
            self._require_taken(cursor, rows, visible + accepted.dropped)
            self.erasure.settle(cursor, attempt, accepted.missing, columns)
        return PreparedRows(visible, accepted.dropped, is_ledger_known=looks_for_strangers)

    @override
    def find_refused(self, rows: RowsToPublish, limit: int) -> Sequence[Offender]:
        attempt = rows.attempt
        with rows.connection.cursor() as cursor, self.target_table.taking(attempt):
            columns = self.staged_columns(cursor, attempt)
            accepted = self.accept(cursor, rows)
            self.target_table.create(cursor, columns)
            self.target_table.evolve(cursor, columns)
            return RefusedRows(cursor, self.target_table, attempt, list(columns)).find(accepted.missing, limit)

    def _require_taken(self, cursor: psycopg.Cursor[Any], rows: RowsToPublish, found: int) -> None:
        """Raise RowsRefusedError when staging holds what its audit has found, and the target did not take all of it."""
        audited = rows.accepted + rows.duplicates
        if found < audited and count_rows(cursor, rows_table(rows.attempt)) == audited:
            attempt, ignored = rows.attempt, audited - found
            what = f"ignores {ignored:,} of the {rows.accepted:,} rows of {attempt.batch.label}"
            raise rows_ignored(cursor, self.target_table.identifier, self.name, attempt, what)

    @override
    def truncate(self, access: TargetAccess) -> int:
        """A table that is gone may be created anew by the next publication."""
        with access.connection.cursor() as cursor:
            cursor.execute("delete from batchledger.message_key where pipeline = %s", [access.pipeline])
            cursor.execute(
                "delete from batchledger.deleted_key where pipeline = %s and not is_erased", [access.pipeline]
            )
            if not self.target_table.read_columns(cursor):
                access.forget_target()
                return 0
            access.confirm_target(self.target_table.claim(cursor))
            # Behind a long reader this would wait, and every other reader behind it.
            cursor.execute("set local lock_timeout = '20s'")
            cursor.execute(sql.SQL("lock table {} in access exclusive mode").format(self.target_table.identifier))
            rows = count_rows(cursor, self.target_table.identifier)
            cursor.execute(sql.SQL("truncate {}").format(self.target_table.identifier))
            return rows

    @override
    def erase(self, access: TargetAccess, key: ErasureKey) -> Erased:
        with access.connection.cursor() as cursor:
            if not self.target_table.read_columns(cursor):
                raise DecisionRefusedError(
                    f"Table {self.name} of {access.pipeline} is not there. Nothing was erased.",
                    advice="Correct the section sink, or wait until the pipeline has published.",
                    pipeline=access.pipeline,
                    subject=self.name,
                )
            access.confirm_target(self.target_table.claim(cursor))
            return self.erasure.erase(cursor, access.pipeline, key)

    @override
    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        """Rows that carry the id of another pipeline's batch are returned too: they are findings."""
        with transaction(self.dsn, f"count the rows of {self.name} for {pipeline}") as cursor:
            if not self.target_table.read_columns(cursor):
                return TargetCounts({})
            name, parts = "count_target", {}
            parameters: dict[str, Any] = {**read_spans(cursor, pipeline)}
            if within is not None:
                name = "count_target_within"
                parameters |= ranges_as_arrays(within) | {
                    "first": min((each.start for each in within), default=0),
                    "last": max((each.until for each in within), default=0),
                }
            elif self.upsert is not None:
                name, parts = "count_keyed_target", {"key": join_names(self.upsert.key)}
            statement = read_sql(__package__, name).format(target=self.target_table.identifier, holder=_HOLDER, **parts)
            cursor.execute(statement, parameters)
            return TargetCounts(
                {
                    (batch_id, TopicPartition(topic, partition)): TargetCount(*counts)
                    for batch_id, topic, partition, *counts in cursor
                }
            )

    @property
    def erasure(self) -> PostgresErasure:
        """What keeps erased rows away."""
        return PostgresErasure(self.target_table, self.deduplication, self.read_secret)

    @property
    def target_table(self) -> TargetTable:
        """The table itself."""
        return TargetTable(self.table, self.upsert, self.evolution, self.read_secret)
