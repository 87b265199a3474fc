"""The Iceberg table that is written to, in a catalog of the same PostgreSQL, files in a local folder.

It is neither partitioned nor sorted, so that no writer has to shuffle.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError

from batchledger.local.stack.home import Home
from batchledger.settings.connections import load_connection
from batchledger.sinks.iceberg.catalog import LakeCatalog, open_catalog
from bench.arrow_schema import RECORD_SCHEMA
from bench.orders import CATALOG, NAMESPACE
from bench.targets.target import digest

# Iceberg keeps the name _partition for itself.
SCHEMA = pa.schema(
    {
        **dict(zip(RECORD_SCHEMA.names, RECORD_SCHEMA.types, strict=True)),
        "_topic": pa.string(),
        "_kafka_partition": pa.int32(),
        "_offset": pa.int64(),
        "_timestamp": pa.timestamp("us", "UTC"),
        "_batch_id": pa.int64(),
    }
)
CONTENT = tuple(each for each in SCHEMA.names if each != "_batch_id")


@dataclass(frozen=True)
class LakeTables:
    """See the role."""

    catalog: LakeCatalog

    @contextmanager
    def fresh(self, name: str) -> Iterator[None]:
        """See the role."""
        with suppress(NamespaceAlreadyExistsError):
            self.catalog.opened.create_namespace(NAMESPACE)
        self.catalog.opened.create_table((NAMESPACE, name), SCHEMA)
        try:
            yield
        finally:
            self.catalog.opened.purge_table((NAMESPACE, name))
            self.catalog.rest()

    def count_rows(self, name: str) -> int:
        """See the role. Counts the rows of the files, not the counts in their metadata."""
        return int(self._read(name, ("_offset",)).num_rows)

    def read_digest(self, name: str) -> str:
        """See the role."""
        rows = self._read(name, CONTENT)
        return digest(zip(*(rows[each].to_pylist() for each in CONTENT), strict=True))

    def _read(self, name: str, columns: tuple[str, ...]) -> pa.Table:
        return self.catalog.opened.load_table((NAMESPACE, name)).scan(selected_fields=columns).to_arrow()


@dataclass(frozen=True)
class PlainTable:
    """A table of a catalog."""

    catalog: SqlCatalog
    name: tuple[str, str]

    def read_offsets(self) -> list[tuple[int, int]]:
        """Read partition and offset of all rows of its newest snapshot."""
        rows = self._read()
        return list(zip(rows["_kafka_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))

    def read_ends(self) -> dict[int, int]:
        """Return the next offset of every partition that has rows."""
        newest = self._read().group_by("_kafka_partition").aggregate([("_offset", "max")])
        return {row["_kafka_partition"]: row["_offset_max"] + 1 for row in newest.to_pylist()}

    def _read(self) -> pa.Table:
        return self.catalog.load_table(self.name).scan(selected_fields=("_kafka_partition", "_offset")).to_arrow()


@contextmanager
def plain_table(home: Home, name: str) -> Iterator[PlainTable]:
    """Lend a table, opened by PyIceberg alone, with the address and the login of the connection."""
    lake = json.loads(home.connections_file.read_text())[CATALOG]
    address = f"{lake['login']}:{lake['password']}@{lake['host']}:{lake['port']}/{lake['schema']}"
    settings = {"uri": f"postgresql+psycopg://{address}", "warehouse": lake["extra"]["warehouse"]}
    with closing(SqlCatalog(CATALOG, **settings)) as catalog:
        yield PlainTable(catalog, (NAMESPACE, name))


def find_catalog() -> LakeCatalog:
    """Return the catalog of the services, found like Batchledger does."""
    return open_catalog(load_connection(CATALOG))
