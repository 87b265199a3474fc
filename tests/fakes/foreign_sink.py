"""The Sink port in memory for a sink outside of the ledger's database: it commits by itself, before the ledger does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from batchledger.model.batch import Attempt, BatchState, HeldRange
from batchledger.model.capabilities import Capabilities, Inability
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.errors import OutcomeUnknownError
from batchledger.ports import CommittingSink, RowsToPublish
from tests.fakes.crash import FOREIGN
from tests.fakes.database import Row, StoredTarget, Tables
from tests.fakes.sink import MemorySink, MemoryStagingWriter


@dataclass
class ForeignStore:
    """What the sink has committed, whatever becomes of the ledger's transaction.

    ``removed`` is, for each batch that was committed to be found, what it took away of others. ``is_forgotten``: it
    does not know at once what it has committed, and has to search for it. ``prepared_in`` and ``to_remove`` belong to
    the publication that is open.
    """

    target: StoredTarget | None = None
    removed: dict[int, Mapping[HeldRange, int]] = field(default_factory=dict)
    is_forgotten: bool = False
    prepared_in: Tables | None = None
    to_remove: Mapping[HeldRange, int] = field(default_factory=dict)


def store_of(sink: str) -> ForeignStore | None:
    """An empty store, for a sink that is a foreign one."""
    return ForeignStore() if sink == FOREIGN else None


@dataclass(frozen=True)
class MemoryForeignSink(MemorySink, CommittingSink):
    """The target is prepared in the tables of the ledger's transaction, and moved to the store."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        shares_transaction=False,
        no_emptying=Inability("the target of {pipeline} cannot be emptied together with the ledger."),
        no_erasing=Inability("rows of {pipeline} cannot be erased together with the ledger."),
    )
    store: ForeignStore = field(default_factory=ForeignStore)

    @property
    def committed(self) -> Tables:
        """The ledger's tables beside the sink's own target."""
        tables = self.database.committed.copy()
        self._show(tables)
        return tables

    @override
    def open_staging(self, attempt: Attempt, schema: pa.Schema) -> MemoryStagingWriter:
        """The first attempt creates the target."""
        writer = super().open_staging(attempt, schema)
        self.store.target = self.store.target or self.create(attempt, schema)
        return writer

    @override
    def claim_target(self, attempt: Attempt, connection: Tables | None = None) -> TargetClaim:
        if connection is not None:
            self._prepare(connection)
        return super().claim_target(attempt, connection)

    @override
    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """What the sink has removed already, its own commit tells."""
        self._prepare(rows.connection)
        removed = super().withdraw(rows)
        self.store.to_remove = dict(zip(rows.replaced, removed.rows, strict=True))
        done = self.store.removed.get(rows.attempt.batch.batch_id)
        if done is None:
            return removed
        # A loss that a person has accepted since the sink's commit holds no row.
        newer = {each: count for each, count in self.store.to_remove.items() if each not in done}
        assert not any(newer.values()), f"published since the sink's commit: {newer}"
        return Withdrawn([(newer | done)[each] for each in rows.replaced])

    @override
    def publish(self, rows: RowsToPublish) -> PreparedRows:
        self._prepare(rows.connection)
        return super().publish(rows)

    @override
    def commit(self, rows: RowsToPublish) -> None:
        tables: Tables = rows.connection
        batch = rows.attempt.batch
        if batch.state is BatchState.COMMITTING and self.find_commit(rows.attempt):
            raise OutcomeUnknownError(f"{batch.label} has been committed before.")
        self.store.target = tables.targets[self.table]
        if batch.state is BatchState.COMMITTING:
            self.store.removed[batch.batch_id] = self.store.to_remove

    @override
    def confirm(self, rows: RowsToPublish) -> PreparedRows:
        """The target is left as it is, whatever it is by now."""
        tables: Tables = rows.connection
        scratch = replace(rows, connection=tables.copy())
        self._prepare(scratch.connection)
        scratch.connection.targets.pop(self.table, None)
        return MemorySink.publish(self, scratch)

    @override
    def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
        self.store.is_forgotten = False
        return (len(self.store.removed),)

    @override
    def find_commit(self, attempt: Attempt) -> bool | None:
        return None if self.store.is_forgotten else attempt.batch.batch_id in self.store.removed

    @override
    def search_commit(self, attempt: Attempt) -> None:
        self.store.is_forgotten = False

    def read_target(self) -> Sequence[Row]:
        """See the other sink."""
        return () if self.store.target is None else self.store.target.rows

    def _prepare(self, tables: Tables) -> None:
        """Begin with what the sink holds, once in each transaction."""
        if self.store.prepared_in is not tables:
            self._show(tables)
            self.store.prepared_in = tables
            self.store.to_remove = {}

    def _show(self, tables: Tables) -> None:
        tables.targets.pop(self.table, None)
        if self.store.target is not None:
            tables.targets[self.table] = replace(self.store.target)
