"""One batch as its page shows it. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchledger.adapters.postgres.ledger.history import (
    AttemptRecord,
    BatchHistory,
    QuarantineList,
    RangeRecord,
    list_quarantine,
    load_batch_history,
)
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.page.paging import Paging, turn_to
from batchledger.model.balance import BALANCE_LINES
from batchledger.wiring import ledger_dsn

RANGES_ON_PAGE = 50
QUARANTINE_ON_PAGE = 20
# How attempts end that came as far as their audit, and no further.
ENDED_BY_AUDIT = ("blocked", "compared")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step of an attempt; ``seconds`` is None while it goes on, or where it was never reached."""

    name: str
    began_at: datetime
    seconds: float | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """The page of a batch: a page of its ranges, and one of its quarantine."""

    config: PipelineConfig
    history: BatchHistory
    ranges: Sequence[RangeRecord]
    paging: Paging
    quarantine: QuarantineList
    quarantine_paging: Paging

    @property
    def offsets(self) -> int:
        """How many offsets all ranges have."""
        return sum(each.until - each.start for each in self.history.ranges)

    @property
    def totals(self) -> Mapping[str, int] | None:
        """The lines of the balance over all ranges, those that are 0 left out; None before the audit."""
        if any(each.unexplained is None for each in self.history.ranges) or not self.history.ranges:
            return None
        sums = {line: sum(getattr(each, line) or 0 for each in self.history.ranges) for line in BALANCE_LINES}
        # Ledgers from before the classes of holes have their sum only.
        unclassed = sum(each.holes or 0 for each in self.history.ranges) - sum(
            sums[line] for line in ("aborted", "markers", "compacted")
        )
        return {line: count for line, count in {**sums, "holes": unclassed}.items() if count or line == "accepted"}

    @property
    def unexplained(self) -> int | None:
        """What nobody has explained, over all ranges; None before the audit."""
        return None if self.totals is None else sum(each.unexplained or 0 for each in self.history.ranges)


def look_at_batch(config: PipelineConfig, batch_id: int, page: int = 1, quarantine_page: int = 1) -> BatchView | None:
    """Return a batch of this pipeline; None for one of another. Raises UnknownBatchError, ServiceUnavailableError."""
    dsn = ledger_dsn(config)
    history = load_batch_history(dsn, batch_id)
    if history.batch.pipeline != config.name:
        return None
    paging = turn_to(page, len(history.ranges), RANGES_ON_PAGE)
    total = list_quarantine(dsn, config.name, 0, batch_id).total
    quarantine_paging = turn_to(quarantine_page, total, QUARANTINE_ON_PAGE)
    skip = quarantine_paging.shown.start
    return BatchView(
        config=config,
        history=history,
        ranges=history.ranges[paging.shown],
        paging=paging,
        quarantine=list_quarantine(dsn, config.name, QUARANTINE_ON_PAGE, batch_id, skip),
        quarantine_paging=quarantine_paging,
    )


def list_steps(attempt: AttemptRecord) -> list[StepTime]:
    """Return the steps that an attempt has begun, in their order, each with how long it took.

    Whatever an audit has ended, as it blocks a batch or closes a dry run, was not published by that attempt. Of one
    that a person has accepted, publishing counts from its audit on.
    """
    names = ("stage", "audit", "publish")
    begins = (attempt.opened_at, attempt.staged_at, attempt.audited_at)
    ends = (attempt.staged_at, attempt.audited_at, attempt.ended_at)
    steps = []
    for name, began, done in zip(names, begins, ends, strict=True):
        if began is None or (name == "publish" and attempt.outcome in ENDED_BY_AUDIT):
            continue
        # An attempt that ended within a step has no end of the step itself.
        end = done or attempt.ended_at
        steps.append(StepTime(name, began, None if end is None else (end - began).total_seconds()))
    return steps
