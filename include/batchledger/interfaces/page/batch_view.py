"""One batch as its page shows it. Reads only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchledger.books.history import (
    BatchHistory,
    QuarantineList,
    RangeRecord,
    list_quarantine,
    load_batch_history,
    load_quoted,
)
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.interfaces.page.paging import Paging, turn_to
from batchledger.looking import ledger_dsn

RANGES_ON_PAGE = 50
QUARANTINE_ON_PAGE = 20


@dataclass(frozen=True, slots=True)
class BatchView:
    """The page of a batch: a page of its ranges, one of its quarantine, and the whole texts of errors by attempt."""

    history: BatchHistory
    ranges: Sequence[RangeRecord]
    paging: Paging
    quarantine: QuarantineList
    quarantine_paging: Paging
    quoted: Mapping[int, str]


def look_at_batch(config: PipelineConfig, batch_id: int, page: int = 1, quarantine_page: int = 1) -> BatchView:
    """Return a batch of this pipeline, or its span. Raises UnknownBatchError, ServiceUnavailableError."""
    dsn = ledger_dsn(config)
    history = load_batch_history(dsn, batch_id, config.name)
    batch_id = history.batch.batch_id
    paging = turn_to(page, len(history.ranges), RANGES_ON_PAGE)
    total = list_quarantine(dsn, config.name, 0, batch_id).total
    quarantine_paging = turn_to(quarantine_page, total, QUARANTINE_ON_PAGE)
    skip = quarantine_paging.shown.start
    return BatchView(
        history=history,
        ranges=history.ranges[paging.shown],
        paging=paging,
        quarantine=list_quarantine(dsn, config.name, QUARANTINE_ON_PAGE, batch_id, skip),
        quarantine_paging=quarantine_paging,
        quoted=load_quoted(dsn, batch_id),
    )
