"""Batches as the ledger tells of them, for pages."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from batchledger.books.figures import BatchFigures
from batchledger.books.history import AttemptRecord, BatchHistory, RangeRecord
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.checks import CheckResult
from batchledger.model.offsets import OffsetRange, TopicPartition

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
FIGURES = BatchFigures(
    batch_id=17,
    lane=Lane.LIVE,
    state=BatchState.PUBLISHED,
    attempt=1,
    is_dry_run=False,
    planned_by="manual__17",
    planned_at=NOON,
    published_at=NOON,
    seconds=2.5,
    offsets=100,
    accepted=96,
    duplicates=0,
    quarantined=0,
    tombstones=0,
    filtered=0,
    holes=4,
    accepted_loss=0,
    unexplained=0,
    missing_numbers=None,
    passed=2,
    failed=0,
    not_run=0,
    empty=0,
    failing=(),
    runs=("manual__17",),
    attempts_ended=1,
    decisions=0,
    taken_over=0,
)


def figures(batch_id: int, **changes: Any) -> BatchFigures:
    """A published batch, but for the changes."""
    return dataclasses.replace(FIGURES, batch_id=batch_id, **changes)


def history(batch: BatchFigures, checks: Sequence[CheckResult] = (), error: str | None = None) -> BatchHistory:
    """What the ledger tells of it; ``error`` is what ended its attempt."""
    range_ = OffsetRange(TopicPartition("orders", 3), 0, batch.offsets)
    return BatchHistory(
        batch=Batch(batch.batch_id, "orders", batch.lane, batch.state, 1, "manual__17", (range_,), 0, NOON),
        decisions=(),
        attempts=[AttemptRecord(1, "manual__17", NOON, NOON, NOON, NOON, "published", error, error and "publish")],
        ranges=[RangeRecord("orders", 3, 0, batch.offsets, 96, 0, 0, 0, 0, 4, 4, 0, 0, 0, 0)],
        checks=checks,
    )
