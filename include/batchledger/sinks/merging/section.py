"""The keys of a table in the pipeline file, whatever kind of table it is. Pure."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from batchledger.model.batch import DeliveryMode
from batchledger.model.records.columns import Column
from batchledger.model.records.rules import Evolution, SinkMode, Upsert, VersionBy
from batchledger.settings.values import KeyColumns
from batchledger.sinks.kind import SinkSection


class TableSinkConfig(SinkSection):
    """A table, to which rows are appended, or in which they replace each other."""

    mode: Literal["append", "upsert"] = "append"
    """`append`: a row for each record. `upsert`: a row for each key."""
    key: KeyColumns | None = None
    """With `upsert`: the columns that tell the rows apart."""
    version: Annotated[VersionBy, Field(strict=False)] | None = None
    """With `upsert`, which of two records is newer: by `offset` (if it is not set) or by `timestamp`."""
    evolve: Annotated[Evolution, Field(strict=False)] = Evolution.NONE
    """What a publication may change of a table that exists."""

    @model_validator(mode="after")
    def _mode_fits(self) -> "TableSinkConfig":
        if self.mode == "upsert" and self.key is None:
            raise ValueError("mode upsert needs key: the columns that tell the rows apart")
        if self.mode == "append" and (self.key or self.version):
            raise ValueError("key and version belong to mode: upsert")
        return self

    @property
    @override
    def sink_mode(self) -> SinkMode:
        return SinkMode(self.mode)

    @property
    @override
    def key_columns(self) -> tuple[str, ...]:
        return tuple(self.key or ())

    @property
    @override
    def takes_new_columns(self) -> bool:
        return self.evolve.adds

    @property
    def upsert(self) -> Upsert | None:
        """How rows replace each other, if the file asks for it."""
        return Upsert(self.key_columns, self.version or VersionBy.OFFSET) if self.key else None

    @override
    def require_fit(self, sources: Sequence[str], columns: Sequence[Column] | None, delivery: DeliveryMode) -> None:
        if self.evolve.adds and delivery is DeliveryMode.AT_MOST_ONCE:
            raise ValueError(
                "sink.evolve: with delivery: at_most_once the position moves first, and a table that others use just "
                "then would lose the rows; allowed: none"
            )
