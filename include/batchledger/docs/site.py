"""Bring the pages of a pipeline up to date: those whose batch has changed since, its history, and the way in.

What is already there and still true is left alone, so that it costs little after each run. Nothing is changed but the
folder of the pages, and a run is as it was whatever becomes of them.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from batchledger.checks.requested import build_checks
from batchledger.config import PipelineConfig
from batchledger.docs.folder import DocsFolder, write_page
from batchledger.docs.pages import write_batch, write_history, write_index
from batchledger.errors import BatchledgerError
from batchledger.ledger.figures import BatchFigures, load_figures
from batchledger.ledger.history import BatchHistory, load_batch_history
from batchledger.wiring import ledger_dsn

logger = logging.getLogger(__name__)

BATCHES_KEPT = 200
# Part of each stamp: another look of the pages makes all of them anew.
_LOOK = 2


@dataclass(frozen=True, slots=True)
class Built:
    """What became of the pages of batches: written, current already, removed. ``page`` is the file of the history."""

    pipeline: str
    written: int
    current: int
    removed: int
    page: str


def build_docs(pipeline: PipelineConfig) -> Built:
    """Bring the pages of a pipeline up to date. Raises ServiceUnavailableError, ConfigurationError, OSError."""
    dsn = ledger_dsn(pipeline)
    _load_own_expectations(pipeline)
    batches = load_figures(dsn, pipeline.name, BATCHES_KEPT)
    return write_docs(DocsFolder.of_environment(), pipeline.name, batches, partial(load_batch_history, dsn))


def write_docs(
    folder: DocsFolder, pipeline: str, batches: Sequence[BatchFigures], load: Callable[[int], BatchHistory]
) -> Built:
    """Write what is missing or outdated for the ``batches`` that are kept, the oldest first; remove older pages.

    Raises what ``load`` does, and OSError. May be repeated, also by several processes at once: what one that began
    later has written of newer batches stays.
    """
    written = 0
    stamps = {each.batch_id: make_stamp(each) for each in batches}
    for figures in reversed(batches):
        stamp = stamps[figures.batch_id]
        if folder.read_stamp(pipeline, figures.batch_id) != stamp:
            page = write_batch(load(figures.batch_id), figures, stamp)
            write_page(folder.page_of(pipeline, figures.batch_id), page)
            written += 1
    removed = folder.prune(pipeline, batches[0].batch_id) if batches else 0
    summary, there = _summarise(pipeline, batches, stamps.values()), folder.read_summary(pipeline)
    if summary != there and _newest(summary) >= _newest(there):
        write_page(folder.history_of(pipeline), write_history(pipeline, batches))
        # Last of the pipeline's, because it says that the others are there.
        folder.write_summary(pipeline, summary)
    write_page(folder.index, write_index(folder.list_summaries()))
    built = Built(pipeline, written, len(batches) - written, removed, str(folder.history_of(pipeline)))
    logger.info("%s: %d pages written, %d were current, %d removed", pipeline, written, built.current, removed)
    return built


def make_stamp(figures: BatchFigures) -> str:
    """Return what differs as soon as the page of the batch would."""
    return hashlib.sha256(f"{_LOOK} {figures!r}".encode()).hexdigest()[:24]


def _load_own_expectations(pipeline: PipelineConfig) -> None:
    """Let Great Expectations know the classes of the pipeline file, which say how their results are told."""
    try:
        build_checks(pipeline.requested_checks, pipeline.folder)
    except BatchledgerError as error:
        logger.warning("%s: results of some checks are told without their own words: %s", pipeline.name, error)


def _newest(summary: Mapping[str, Any] | None) -> int:
    """Return the number of the newest batch that a summary tells of, 0 for none."""
    newest = (summary or {}).get("newest")
    return int(newest["batch_id"]) if newest else 0


def _summarise(pipeline: str, batches: Sequence[BatchFigures], stamps: Iterable[str]) -> dict[str, Any]:
    newest = batches[-1] if batches else None
    return {
        "pipeline": pipeline,
        "stamp": hashlib.sha256("".join(stamps).encode()).hexdigest()[:24],
        "newest": newest
        and {
            "batch_id": newest.batch_id,
            "state": newest.state.value,
            "planned_at": f"{newest.planned_at:%Y-%m-%d %H:%M:%S} UTC",
            "failing": list(newest.failing),
        },
        # A later batch of the same run is what became of it.
        "batch_by_run": {run: each.batch_id for each in batches for run in (each.planned_by, *each.runs)},
    }
