"""The figures of a pipeline's newest batches, for charts. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from batchledger.database.transactions import read_statement
from batchledger.ledger.schema import transaction
from batchledger.model.batch import BatchState, Lane


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """One batch in numbers; the lines of its balance are None before the audit.

    ``missing_numbers`` counts numbers of producers whose records did not arrive, None if no check asked. ``seconds``
    from planned to published. ``passed`` and the other three count the checks of the newest attempt that was judged;
    ``failing`` names the checks that failed or could not run. ``runs`` are the runs of its attempts, ``attempts_ended``
    says how many are over, ``taken_over`` in how many ranges other batches took its offsets over.
    """

    batch_id: int
    lane: Lane
    state: BatchState
    attempt: int
    is_dry_run: bool
    planned_by: str
    planned_at: datetime
    published_at: datetime | None
    seconds: float | None
    offsets: int
    accepted: int | None
    duplicates: int | None
    quarantined: int | None
    tombstones: int | None
    filtered: int | None
    holes: int | None
    accepted_loss: int | None
    unexplained: int | None
    missing_numbers: int | None
    passed: int
    failed: int
    not_run: int
    empty: int
    failing: tuple[str, ...]
    runs: tuple[str, ...]
    attempts_ended: int
    decisions: int
    taken_over: int

    @property
    def checks(self) -> int:
        """How many checks were asked for."""
        return self.passed + self.failed + self.not_run + self.empty


def load_figures(dsn: str, pipeline: str, newest: int) -> Sequence[BatchFigures]:
    """Return the ``newest`` batches of a pipeline, the oldest first."""
    with transaction(dsn, f"load the figures of {pipeline}") as cursor:
        rows = cursor.connection.cursor(row_factory=dict_row)
        rows.execute(read_statement(__package__, "load_figures"), {"pipeline": pipeline, "limit": newest})
        return [_read(row) for row in rows]


def _read(row: dict[str, Any]) -> BatchFigures:
    typed = {"lane": Lane(row["lane"]), "state": BatchState(row["state"])}
    return BatchFigures(**{**row, **typed, "failing": tuple(row["failing"]), "runs": tuple(row["runs"])})
