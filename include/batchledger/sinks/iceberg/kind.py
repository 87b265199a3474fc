"""The section ``sink`` of a table in an Iceberg catalog, and how it is built."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from typing_extensions import override

from batchledger.model.batch import Batch, DeliveryMode
from batchledger.model.capabilities import Capabilities
from batchledger.model.datasets import Dataset, name_location
from batchledger.model.records.columns import PROVENANCE_COLUMNS, Column
from batchledger.model.records.identifiers import SQL_NAME
from batchledger.model.records.partitioning import PartitionField, parse_partition
from batchledger.ports import Sink
from batchledger.settings.column_rules import require_scalar
from batchledger.settings.values import ConnectionId, NamedConnection, refuse_repeated
from batchledger.sinks.iceberg.alias import CATALOG, name_alias
from batchledger.sinks.iceberg.capabilities import CAPABILITIES
from batchledger.sinks.kind import SinkContext
from batchledger.sinks.merging.section import TableSinkConfig

if TYPE_CHECKING:
    from batchledger.settings.connections import Connection
    from batchledger.sinks.iceberg.catalog import LakeCatalog

_NAME = re.compile(SQL_NAME, re.ASCII)
_TABLE = re.compile(rf"{SQL_NAME}(\.{SQL_NAME}){{1,4}}", re.ASCII)


def _check_partitions(value: list[str]) -> list[str]:
    refuse_repeated("partition", [parse_partition(each).name for each in value])
    return value


def _check_table(value: str) -> str:
    if _TABLE.fullmatch(value) is None:
        example = f"shop.{value}" if _NAME.fullmatch(value) else "shop.orders"
        raise ValueError(f"write namespace.table, in small letters, digits and _, as {example}; 63 at most in each")
    return value


class IcebergSinkConfig(TableSinkConfig):
    """A table of an Iceberg catalog; ``partition_by`` is how it is partitioned when it is created."""

    extra: ClassVar[str] = "iceberg"
    worker_modules: ClassVar[tuple[str, ...]] = (
        "batchledger.sinks.iceberg.files",
        "batchledger.sinks.iceberg.writer",
    )

    type: Literal["iceberg"]
    """An Iceberg table."""
    catalog: ConnectionId = CATALOG
    """The Airflow connection of the catalog, type `iceberg`."""
    table: Annotated[str, AfterValidator(_check_table), Field(json_schema_extra={"pattern": f"^{_TABLE.pattern}$"})]
    """`namespace.table`; the first batch creates it."""
    partition_by: Annotated[list[str], AfterValidator(_check_partitions)] = Field(default=[])
    """How the table is partitioned when it is created: `carrier`, `year(c)`, `month(c)`, `day(c)`, `hour(c)`,
    `bucket(16, c)`, `truncate(4, c)`.
    """

    @property
    @override
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    @override
    def target(self) -> str:
        return f"{self.catalog}.{self.table}"

    @property
    @override
    def alias(self) -> str:
        return name_alias({"catalog": self.catalog, "table": self.table})

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and name of the table."""
        return tuple(self.table.split("."))

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """The declared partitions."""
        return tuple(map(parse_partition, self.partition_by))

    @override
    def list_connections(self) -> Iterable[NamedConnection]:
        return (NamedConnection("sink.catalog", self.catalog, ("iceberg",)),)

    @override
    def require_fit(self, sources: Sequence[str], columns: Sequence[Column] | None, delivery: DeliveryMode) -> None:
        named = [each.column for each in self.partitions if each.column not in PROVENANCE_COLUMNS]
        if columns is not None:
            require_scalar("sink.partition_by", named, columns)
        super().require_fit(sources, columns, delivery)

    @override
    def build(self, context: SinkContext) -> Sink:
        # Imported here because it takes a second, and other pipelines do without it.
        from batchledger.sinks.iceberg.sink import LakeSink
        from batchledger.sinks.iceberg.table import IcebergTable

        catalog, lend = self._open_catalog(context), partial(context.lend_spark, self.catalog)
        table = IcebergTable(catalog, self.identifier, self.partitions, self.evolve, self.key_columns, lend)
        return LakeSink(
            context.dsn,
            table,
            context.deduplication,
            self.upsert,
            context.sequence,
            has_checks=context.has_checks,
            read_secret=context.read_secret,
        )

    @override
    def find_published(self, context: SinkContext, batch: Batch) -> tuple[Dataset, int | None]:
        """Raises ServiceUnavailableError and TargetChangedError."""
        from batchledger.sinks.iceberg.table import IcebergTable

        location, snapshot_id = IcebergTable(self._open_catalog(context), self.identifier).find_published(batch)
        return name_location(location), snapshot_id

    def _open_catalog(self, context: SinkContext) -> "LakeCatalog":
        from batchledger.sinks.iceberg.catalog import open_catalog

        return open_catalog(context.load("sink.catalog", self.catalog, "iceberg"))

    @classmethod
    @override
    def list_unencrypted(cls, connection: "Connection") -> Iterable[tuple[str, str]]:
        if connection.type != "iceberg":
            return ()
        from batchledger.sinks.iceberg.connection import list_unencrypted

        return list_unencrypted(connection)

    @classmethod
    @override
    def prepare_question(cls, connection: "Connection") -> Callable[[], str] | None:
        if connection.type != "iceberg":
            return None
        from batchledger.sinks.iceberg.catalog import describe_catalog, open_catalog

        return partial(describe_catalog, open_catalog(connection), connection.connection_id)
