"""The section ``history`` of a pipeline file: how long the ledger keeps each batch. Pure; opens nothing."""

from typing import Annotated

from pydantic import AfterValidator

from batchledger.model.records.rules import SinkMode
from batchledger.settings.values import Duration, Section
from batchledger.sinks.kind import SinkKind

_DAY_SECONDS = 86_400


def _check_history(value: float) -> float:
    if value < _DAY_SECONDS:
        raise ValueError("write how long each batch is kept: 1d or more")
    return value


class HistoryConfig(Section):
    """How long the ledger keeps each batch; older ones are joined. Without it, for good."""

    keep: Annotated[Duration, AfterValidator(_check_history)] | None = None

    def require_joinable(self, sink: SinkKind) -> None:
        """Raise ValueError if the batches of the sink cannot be joined."""
        can_join = sink.capabilities.joins_batches and sink.sink_mode is SinkMode.APPEND
        if self.keep is not None and not can_join:
            raise ValueError(
                "history.keep: of this sink, joined batches would prove less than each of them does; allowed for a "
                "PostgreSQL table with sink.mode: append"
            )
