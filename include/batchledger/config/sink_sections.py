"""The section ``sink`` of a pipeline file: a table of PostgreSQL, a topic, or an Iceberg table. Pure; opens nothing."""

import re
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import override

from batchledger.config.sections import (
    ConnectionId,
    Duration,
    KeyColumns,
    Section,
    Topic,
    refuse_repeated,
    written_as,
)
from batchledger.model.checks import Severity
from batchledger.model.records.identifiers import LONGEST_NAME_BYTES, explain_schema
from batchledger.model.records.partitioning import PartitionField, parse_partition
from batchledger.model.records.rules import Evolution, HeaderForm, SinkMode, Upsert, VersionBy

_SQL_NAME = rf"[a-z_][a-z0-9_]{{0,{LONGEST_NAME_BYTES - 1}}}"
_LAKE_NAME = re.compile(_SQL_NAME, re.ASCII)
_LAKE_TABLE = re.compile(rf"{_LAKE_NAME.pattern}(\.{_LAKE_NAME.pattern}){{1,4}}", re.ASCII)
_DAY_SECONDS = 86_400


def _check_transaction_timeout(value: float) -> float:
    if not 1 <= value <= _DAY_SECONDS:
        raise ValueError("write how long a transaction may be open, from 1s to 24h")
    return value


def _check_partitions(value: list[str]) -> list[str]:
    refuse_repeated("partition", [parse_partition(each).name for each in value])
    return value


def _check_lake_table(value: str) -> str:
    if _LAKE_TABLE.fullmatch(value) is None:
        example = f"shop.{value}" if _LAKE_NAME.fullmatch(value) else "shop.orders"
        raise ValueError(f"write namespace.table, in small letters, digits and _, as {example}; 63 at most in each")
    return value


def _check_schema(table: str) -> str:
    fault = explain_schema(table.rpartition(".")[0])
    if fault is not None:
        raise ValueError(fault)
    return table


class TableSinkConfig(Section):
    """A table, to which rows are appended, or in which they replace each other."""

    mode: Literal["append", "upsert"] = "append"
    key: KeyColumns | None = None
    version: Annotated[VersionBy, Field(strict=False)] | None = None
    evolve: Annotated[Evolution, Field(strict=False)] = Evolution.NONE

    @model_validator(mode="after")
    def _mode_fits(self) -> "TableSinkConfig":
        if self.mode == "upsert" and self.key is None:
            raise ValueError("mode upsert needs key: the columns that tell the rows apart")
        if self.mode == "append" and (self.key or self.version):
            raise ValueError("key and version belong to mode: upsert")
        return self

    @property
    def sink_mode(self) -> SinkMode:
        """What becomes of a row."""
        return SinkMode(self.mode)

    @property
    def is_keyed(self) -> bool:
        """Whether a key tells the rows apart."""
        return self.mode == "upsert"

    @property
    def upsert(self) -> Upsert | None:
        """How rows replace each other, if the file asks for it."""
        return Upsert(tuple(self.key), self.version or VersionBy.OFFSET) if self.key else None


class PostgresSinkConfig(TableSinkConfig):
    """A table of the database that holds the ledger, too."""

    unmatched_deletions: Annotated[Severity, Field(strict=False)] | None = None

    can_be_emptied: ClassVar = True
    """Whether a rewind can empty the target in the ledger's transaction."""

    type: Literal["postgres"] = "postgres"
    connection: ConnectionId = "warehouse"
    table: Annotated[
        str,
        written_as(
            rf"{_SQL_NAME}(\.{_SQL_NAME})?",
            f"table or schema.table, in small letters, digits, _, no digit first, {LONGEST_NAME_BYTES} in each at most",
        ),
        AfterValidator(_check_schema),
    ]

    @model_validator(mode="after")
    def _deletions_fit(self) -> "PostgresSinkConfig":
        if self.unmatched_deletions is not None and not self.is_keyed:
            raise ValueError("unmatched_deletions belongs to mode: upsert")
        return self

    @property
    @override
    def upsert(self) -> Upsert | None:
        """How rows replace each other, if the file asks for it, and what a deletion without a row means."""
        rules = super().upsert
        return rules and replace(rules, unmatched_deletions=self.unmatched_deletions or Severity.WARNING)

    @property
    def target(self) -> str:
        """The target as people write it."""
        return self.table

    @property
    def qualified_table(self) -> tuple[str, str]:
        """Schema and table name; a bare name lives in ``public``."""
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table


class IcebergSinkConfig(TableSinkConfig):
    """A table of an Iceberg catalog; ``partition_by`` is how it is partitioned when it is created."""

    can_be_emptied: ClassVar = False

    type: Literal["iceberg"]
    catalog: ConnectionId = "lake"
    table: Annotated[str, AfterValidator(_check_lake_table)]
    partition_by: Annotated[list[str], AfterValidator(_check_partitions)] = Field(default=[])

    @property
    def target(self) -> str:
        """The target as people write it."""
        return f"{self.catalog}.{self.table}"

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and name of the table."""
        return tuple(self.table.split("."))

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """The declared partitions."""
        return tuple(map(parse_partition, self.partition_by))


class KafkaSinkConfig(Section):
    """A topic, to which each row is produced as a record."""

    can_be_emptied: ClassVar = False

    type: Literal["kafka"]
    connection: ConnectionId = "kafka_default"
    topic: Topic
    key: KeyColumns | None = None
    format: Literal["json", "avro"] = "json"
    registry: ConnectionId | None = None
    subject: Annotated[str, written_as(r"[^\s\x00-\x1f]{1,255}", "a subject without blanks")] | None = None
    headers: Annotated[HeaderForm, Field(strict=False)] = HeaderForm.SEPARATE
    transaction_timeout: Annotated[Duration, AfterValidator(_check_transaction_timeout)] = 60.0
    accept_older_transactions: bool = False

    @model_validator(mode="after")
    def _schema_is_registered(self) -> "KafkaSinkConfig":
        if self.format == "json":
            given = [each for each in ("registry", "subject") if each in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} is for format: avro; values in JSON have no schema that is registered")
        elif self.registry is None:
            raise ValueError("format: avro: each value names its schema, so write registry, which gives it an id")
        return self

    @property
    def avro_subject(self) -> str:
        """The subject that the schema of values in Avro is registered under."""
        return self.subject or f"{self.topic}-value"

    @property
    def sink_mode(self) -> SinkMode:
        """What becomes of a row."""
        return SinkMode.PRODUCE

    @property
    def is_keyed(self) -> bool:
        """Whether a key tells the records apart."""
        return self.key is not None

    @property
    def target(self) -> str:
        """The target as people write it."""
        return f"topic {self.topic}"


def _name_type(section: object) -> object:
    """Let a section without a type be one of a table, as it was before there were others."""
    return {"type": "postgres", **section} if isinstance(section, dict) else section


SinkConfig = Annotated[
    PostgresSinkConfig | KafkaSinkConfig | IcebergSinkConfig,
    Field(discriminator="type"),
    BeforeValidator(_name_type),
]
