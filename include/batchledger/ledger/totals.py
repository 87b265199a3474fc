"""What each pipeline has published in all, and what is open of it: what metrics say of the ledger.

The transaction that publishes or discards a batch adds to the totals. So a look costs as much as there are pipelines
and open batches, however long their history is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import psycopg

from batchledger.database.transactions import read_statement
from batchledger.ledger.schema import snapshot
from batchledger.model.batch import BatchState, Step

OFFSET_KINDS = ("accepted", "duplicates", "quarantined", "tombstones", "filtered", "holes", "accepted_loss")
"""The lines of a balance, with the holes of all classes in one."""


@dataclass(frozen=True, slots=True)
class PipelineTotals:
    """The totals of a pipeline since its first batch, and what is open now; dry runs count nowhere.

    ``offsets_by_kind`` and ``unexplained_published`` are offsets of published batches; what a replay has published
    again counts again. ``seconds_by_step`` are seconds of ``timed`` published batches: each step from the end of the
    step before, stage from the beginning of the attempt. ``unexplained_open`` are offsets of open batches that an audit
    could not account for. ``published_at`` is when a live batch was published last, ``known_since`` when the pipeline
    first planned. ``incidents_by_kind`` counts the open ones, and has no kind without any.
    """

    batches_by_end: Mapping[BatchState, int]
    offsets_by_kind: Mapping[str, int]
    timed: int
    seconds_by_step: Mapping[Step, float]
    unexplained_published: int = 0
    unexplained_open: int = 0
    open_batches_by_state: Mapping[BatchState, int] = field(default_factory=dict)
    known_since: datetime | None = None
    published_at: datetime | None = None
    incidents_by_kind: Mapping[str, int] = field(default_factory=dict)


NO_TOTALS = PipelineTotals(
    dict.fromkeys((BatchState.PUBLISHED, BatchState.DISCARDED), 0),
    dict.fromkeys(OFFSET_KINDS, 0),
    0,
    dict.fromkeys((Step.STAGE, Step.AUDIT, Step.PUBLISH), 0.0),
)
"""The totals of a pipeline that has not published yet."""


def add_to_totals(cursor: psycopg.Cursor[Any], batch_id: int) -> None:
    """Count a batch that this transaction has published or discarded; call it before its attempt is ended."""
    cursor.execute(read_statement(__package__, "add_to_totals"), {"batch_id": batch_id})


def load_totals(dsn: str, pipelines: Sequence[str]) -> dict[str, PipelineTotals]:
    """Return the totals of each of the pipelines, as of one moment; a pipeline that the ledger does not know has none.

    Raises ServiceUnavailableError.
    """
    asked = {"pipelines": list(pipelines)}
    found = dict.fromkeys(pipelines, NO_TOTALS)
    with snapshot(dsn, "load the totals of all pipelines") as cursor:
        cursor.execute(read_statement(__package__, "load_totals"), asked)
        found.update({row[0]: _read_totals(*row[1:]) for row in cursor})
        cursor.execute(read_statement(__package__, "count_open_batches"), asked)
        for name, state, count, unexplained in cursor:
            before = found[name]
            found[name] = replace(
                before,
                open_batches_by_state={**before.open_batches_by_state, BatchState(state): count},
                unexplained_open=before.unexplained_open + unexplained,
            )
        cursor.execute(read_statement(__package__, "count_open_incidents"), asked)
        for name, kind, count in cursor:
            found[name] = replace(found[name], incidents_by_kind={**found[name].incidents_by_kind, kind: count})
    return found


def _read_totals(
    known_since: datetime, published_at: datetime | None, published: int | None, discarded: int, *rest: Any
) -> PipelineTotals:
    """Return the totals of a row; ``published`` is None if no batch has ended yet."""
    if published is None:
        return replace(NO_TOTALS, known_since=known_since)
    *offsets, unexplained, timed, stage, audit, publish = rest
    return PipelineTotals(
        {BatchState.PUBLISHED: published, BatchState.DISCARDED: discarded},
        dict(zip(OFFSET_KINDS, offsets, strict=True)),
        timed,
        {Step.STAGE: stage, Step.AUDIT: audit, Step.PUBLISH: publish},
        unexplained,
        known_since=known_since,
        published_at=published_at,
    )
