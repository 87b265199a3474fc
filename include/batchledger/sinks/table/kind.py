"""The section ``sink`` of a table in the database that holds the ledger, and how it is built."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import override

from batchledger.model.batch import Batch
from batchledger.model.capabilities import Capabilities
from batchledger.model.checks import Severity
from batchledger.model.datasets import Dataset, split_table
from batchledger.model.records.identifiers import LONGEST_NAME_BYTES, SQL_NAME, explain_schema
from batchledger.model.records.rules import SinkMode, Upsert
from batchledger.settings.values import ConnectionId, written_as
from batchledger.sinks.kind import RowAdoption, SinkContext, StreamOpener
from batchledger.sinks.merging.section import TableSinkConfig
from batchledger.sinks.table.alias import CONNECTION, name_alias
from batchledger.sinks.table.capabilities import CAPABILITIES

if TYPE_CHECKING:
    from batchledger.sinks.table.sink import PostgresSink


def _check_schema(table: str) -> str:
    fault = explain_schema(table.rpartition(".")[0])
    if fault is not None:
        raise ValueError(fault)
    return table


class PostgresSinkConfig(TableSinkConfig):
    """A table of the database that holds the ledger, too."""

    unmatched_deletions: Annotated[Severity, Field(strict=False)] | None = None
    """With `upsert`, how much it matters if a record deletes a key that the table does not have; `warning` if it is not
    set.
    """
    type: Literal["postgres"] = "postgres"
    """A PostgreSQL table."""
    connection: ConnectionId = CONNECTION
    """An Airflow connection of type `postgres`; the ledger lies in the same database."""
    table: Annotated[
        str,
        written_as(
            rf"{SQL_NAME}(\.{SQL_NAME})?",
            f"table or schema.table, in small letters, digits, _, no digit first, {LONGEST_NAME_BYTES} in each at most",
        ),
        AfterValidator(_check_schema),
    ]
    """`table` (in `public`) or `schema.table`; the first publication creates it. It belongs to one pipeline."""

    @model_validator(mode="after")
    def _deletions_fit(self) -> "PostgresSinkConfig":
        if self.unmatched_deletions is not None and not self.key:
            raise ValueError("unmatched_deletions belongs to mode: upsert")
        return self

    @property
    @override
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    @override
    def upsert(self) -> Upsert | None:
        """How rows replace each other, if the file asks for it, and what a deletion without a row means."""
        rules = super().upsert
        return rules and replace(rules, unmatched_deletions=self.unmatched_deletions or Severity.WARNING)

    @property
    @override
    def proves_joined_batches(self) -> bool:
        return self.sink_mode is SinkMode.APPEND

    @property
    @override
    def target(self) -> str:
        return self.table

    @property
    @override
    def alias(self) -> str:
        return name_alias({"connection": self.connection, "table": self.table})

    @property
    @override
    def ledger_connection(self) -> str:
        return self.connection

    @property
    @override
    def ledger_table(self) -> tuple[str, str]:
        return split_table(self.table)

    @override
    def adoption(self, places: Mapping[str, str], topic: str) -> RowAdoption | None:
        from batchledger.sinks.table.adoption import TableAdoption
        from batchledger.sinks.table.target import TargetTable

        return TableAdoption(TargetTable(self.ledger_table), places, topic) if self.upsert is None else None

    @override
    def build(self, context: SinkContext) -> "PostgresSink":
        from batchledger.sinks.table.sink import PostgresSink

        return PostgresSink(
            context.dsn,
            self.ledger_table,
            context.deduplication,
            self.upsert,
            context.sequence,
            self.evolve,
            context.read_secret,
        )

    @override
    def find_stream(self, context: SinkContext) -> StreamOpener:
        from batchledger.sinks.table.streaming import open_stream

        return partial(open_stream, self.build(context))

    @override
    def find_published(self, context: SinkContext, batch: Batch) -> tuple[Dataset, None]:
        from batchledger.database.datasets import name_database_table

        return name_database_table(context.dsn, self.ledger_table), None
