"""The batches of a pipeline as its page lists them: the newest first, or sorted and filtered.

A list in another order is made of the newest ``BATCHES_ARRANGED`` batches, and the page says so if there are more: the
history of a pipeline may hold a million.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchledger.books.history import BatchSummary, list_batches
from batchledger.interfaces.batch_view import Paging, turn_to
from batchledger.interfaces.page.ordering import SortColumn, SortOrder, arrange

BATCHES_ON_PAGE = 20
BATCHES_ARRANGED = 1000
DRY_RUN = "dry run"
COMPARED = "compared"


class BatchColumn(SortColumn):
    """The columns of the list."""

    BATCH = "batch", True
    LANE = "lane"
    STATE = "state"
    OFFSETS = "offsets", True
    ROWS = "rows", True
    QUARANTINED = "quarantined", True
    ATTEMPTS = "attempts", True
    TOOK = "took", True
    PLANNED = "planned", True


NEWEST_FIRST = SortOrder(BatchColumn.BATCH, is_descending=True)


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which batches an address asks for; ``before`` is the batch that the page of the newest ended with."""

    order: SortOrder[BatchColumn] = NEWEST_FIRST
    state: str = ""
    page: int = 1
    before: int | None = None

    @property
    def is_arranged(self) -> bool:
        """Whether the list differs from the newest batches first."""
        return self.order != NEWEST_FIRST or bool(self.state)


@dataclass(frozen=True, slots=True)
class BatchList:
    """One page of batches. ``older_than`` leads to the next page of the newest; ``paging`` pages an arranged list.

    ``found`` is the number of batches on all pages of an arranged list, ``is_cut`` says that older batches exist.
    """

    lines: Sequence[BatchSummary]
    older_than: int | None = None
    paging: Paging | None = None
    found: int = 0
    is_cut: bool = False


def name_lane(batch: BatchSummary) -> str:
    """Return the lane in the word of the page."""
    return DRY_RUN if batch.is_dry_run else batch.lane


def name_state(batch: BatchSummary) -> str:
    """Return the state in the word of the page: a dry run that has ended was never to be published."""
    return COMPARED if batch.is_dry_run and batch.state == "discarded" else batch.state


def sort_batches(batches: Iterable[BatchSummary], order: SortOrder[BatchColumn]) -> list[BatchSummary]:
    """Return batches, which come the newest first, in another order. Pure."""
    values: Mapping[BatchColumn, Callable[[BatchSummary], Any]] = {
        BatchColumn.BATCH: lambda each: each.batch_id,
        BatchColumn.LANE: name_lane,
        BatchColumn.STATE: name_state,
        BatchColumn.OFFSETS: lambda each: each.offsets,
        BatchColumn.ROWS: lambda each: each.rows,
        BatchColumn.QUARANTINED: lambda each: each.quarantined,
        BatchColumn.ATTEMPTS: lambda each: each.attempt,
        BatchColumn.TOOK: lambda each: each.seconds,
        BatchColumn.PLANNED: lambda each: each.planned_at,
    }
    return arrange(batches, order, values, NEWEST_FIRST)


def arrange_batches(batches: Sequence[BatchSummary], query: BatchQuery) -> BatchList:
    """Return one page of batches that were asked for in another order. Pure.

    ``batches`` are the newest, one more than ``BATCHES_ARRANGED`` if there are older ones.
    """
    chosen = [each for each in batches[:BATCHES_ARRANGED] if query.state in ("", name_state(each))]
    paging = turn_to(query.page, len(chosen), BATCHES_ON_PAGE)
    return BatchList(
        lines=sort_batches(chosen, query.order)[paging.shown],
        paging=paging,
        found=len(chosen),
        is_cut=len(batches) > BATCHES_ARRANGED,
    )


def load_batches(dsn: str, pipeline: str, query: BatchQuery) -> BatchList:
    """Return the batches that an address asks for. Raises ServiceUnavailableError."""
    if query.is_arranged:
        return arrange_batches(list_batches(dsn, pipeline, BATCHES_ARRANGED + 1), query)
    found = list_batches(dsn, pipeline, BATCHES_ON_PAGE + 1, query.before)
    lines = found[:BATCHES_ON_PAGE]
    return BatchList(lines, older_than=lines[-1].batch_id if len(found) > BATCHES_ON_PAGE else None)
