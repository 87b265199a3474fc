"""A ledger in a real PostgreSQL whose sink is an Iceberg table, in a catalog of that database and a local folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate

from batchledger.local.stack.defaults import DATABASE_USER
from batchledger.model.offsets import TopicPartition
from batchledger.settings.connections import Connection
from batchledger.sinks.iceberg import commits
from batchledger.sinks.iceberg.catalog import LakeCatalog, open_catalog
from batchledger.sinks.iceberg.sink import LakeSink
from batchledger.sinks.iceberg.table import IcebergTable
from tests.conftest import SERVICES
from tests.contract.warehouses import PostgresWarehouse, prove_with
from tests.lakes import read_lake

CATALOG = "lake"
EVERY_CATALOG = pytest.mark.parametrize("lake", ["sql", "rest"], indirect=True)
OpenSession = Callable[[], AbstractContextManager[Any]]


@cache
def catalog_in(dsn: str, folder: Path) -> LakeCatalog:
    """The catalog in a database, whose tables lie in a folder, for the login of the local connection."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    connection = Connection(
        CATALOG,
        "iceberg",
        host=parts["host"],
        port=int(parts["port"]),
        login=DATABASE_USER,
        password=SERVICES.credentials.database_password,
        schema=parts["dbname"],
        extra={"type": "sql", "warehouse": folder.as_uri()},
    )
    return open_catalog(connection)


@dataclass
class LakeWarehouse(PostgresWarehouse):
    """See the protocol. All tests share the ledger; pipeline and namespace belong to this one.

    The catalog is that in the database, or ``other``.
    """

    folder: Path = Path()
    other: LakeCatalog | None = None
    open_session: OpenSession = nullcontext

    @property
    def lake_catalog(self) -> LakeCatalog:
        return self.other or catalog_in(self.dsn, self.folder)

    @property
    def catalog(self) -> Catalog:
        return self.lake_catalog.opened

    @property
    def table(self) -> Table:
        return self.catalog.load_table((self.schema, "orders"))

    @property
    def lake_table(self) -> IcebergTable:
        return IcebergTable(
            self.lake_catalog,
            (self.schema, "orders"),
            evolution=self.evolution,
            key=self.upsert.key if self.upsert else (),
            open_session=self.open_session,
        )

    @property
    def sink(self) -> LakeSink:  # type: ignore[override]  # One over the same database.
        return LakeSink(
            self.dsn,
            self.lake_table,
            self.deduplication,
            self.upsert,
            self.sequence,
            read_secret=self.read_secret,
        )

    def read_target(self) -> Sequence[Mapping[str, Any]]:
        return read_lake(self.lake_catalog, (self.schema, "orders"))

    def widen_target(self, column: str) -> None:
        from pyiceberg.types import StringType

        with self.table.update_schema() as update:
            update.add_column(column, StringType())

    def replace_target(self) -> None:
        schema = self.table.schema()
        self.catalog.rename_table((self.schema, "orders"), (self.schema, "orders_before"))
        self.catalog.create_table((self.schema, "orders"), schema, properties={"format-version": "2"})

    def lose_row(self, partition: TopicPartition, offset: int) -> None:
        is_partition = And(EqualTo("_topic", partition.topic), EqualTo("_kafka_partition", partition.partition))
        self.table.delete(And(is_partition, EqualTo("_offset", offset)))

    def prove(self) -> Any:
        return prove_with(self, partial(self.sink.count_target, self.pipeline))

    def drop(self) -> None:
        """See the base class."""
        super().drop()
        for name in self.catalog.list_tables(self.schema) if self.catalog.namespace_exists(self.schema) else ():
            self.catalog.drop_table(name)
        if self.catalog.namespace_exists(self.schema):
            self.catalog.drop_namespace(self.schema)
        self.lake_catalog.rest()


def open_lake(
    dsn: str, folder: Path, other: LakeCatalog | None = None, open_session: OpenSession = nullcontext
) -> Iterator[LakeWarehouse]:
    """Lend a warehouse whose sink is a table in that folder, or of another catalog.

    It is maintained by a session of Spark if there is one.
    """
    warehouse = LakeWarehouse(dsn, folder=folder, other=other, open_session=open_session)
    yield warehouse
    warehouse.drop()


def before_the_next_commit(
    lake: LakeWarehouse, monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any], change: Callable[[Any], Any] = tuple
) -> None:
    """Do something when the next commit is made up and not sent yet; and change what it consists of."""
    catalog = lake.lake_catalog.opened
    real = catalog.commit_table

    def commit_late(table: Any, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        do()
        return real(table, change(requirements), change(updates))

    monkeypatch.setattr(catalog, "commit_table", commit_late)


def unguarded(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """A commit as PyIceberg makes it up for a new branch: its snapshot has no parent, and no number is asserted."""

    def orphaned(part: Any) -> Any:
        if not isinstance(part, AddSnapshotUpdate):
            return part
        return part.model_copy(update={"snapshot": part.snapshot.model_copy(update={"parent_snapshot_id": None})})

    return tuple(orphaned(each) for each in parts if not isinstance(each, commits._AssertLastSequenceNumber))
