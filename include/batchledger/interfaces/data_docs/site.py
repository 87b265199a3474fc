"""Bring the pages up to date: batches that have changed, the histories, and the page over all pipelines.

Pages that are still true stay. Great Expectations takes seconds to import, so it is imported only if
there is a page to write: if nothing has happened, a pipeline costs one query. Nothing is changed but the folder of the
pages.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Any

from batchledger.books.figures import BatchFigures, load_figures
from batchledger.books.history import BatchHistory, load_batch_history
from batchledger.config.pipeline_file import PipelineConfig, find_files, is_watch, load_pipeline
from batchledger.config.watch_file import load_watch
from batchledger.interfaces.data_docs.folder import DocsFolder, write_page
from batchledger.interfaces.data_docs.index import write_index
from batchledger.interfaces.data_docs.watches import write_watch
from batchledger.ledger.audits import StoredAudit, load_newest_audit
from batchledger.looking import ledger_dsn
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchledgerError

logger = logging.getLogger(__name__)

BATCHES_KEPT = 200
# Part of each stamp: another number makes all pages anew, because they look different.
_LOOK = 8
MOMENT = "%Y-%m-%d %H:%M:%S UTC"


@dataclass(frozen=True, slots=True)
class Built:
    """How many pages of batches were written, current or removed; ``page`` is the file of the history."""

    pipeline: str
    written: int
    current: int
    removed: int
    page: str


def build_all_docs() -> tuple[Sequence[Built], Mapping[str, Exception]]:
    """Bring the pages of all pipelines and watches up to date; return the results, and the errors by pipeline.

    An error in one pipeline, or in its own expectations, does not harm another. If the file of a pipeline is gone,
    its pages are removed. If there is no file at all, they stay: the folder may only be missing.
    """
    built: list[Built] = []
    failures: dict[str, Exception] = {}
    folder, names = DocsFolder.of_environment(), [path.stem for path in find_files()]
    if names and (gone := folder.drop_others(names)):
        logger.info("removed the pages of %s: no pipeline file has this name", ", ".join(gone))
        write_page(folder.index, write_index(folder.list_summaries()))
    for name in names:
        try:
            built.append(build_named(name))
        except BatchledgerError as error:
            logger.warning("%s: %s", name, error)
            failures[name] = error
        except Exception as error:
            logger.exception("the pages of %s could not be written", name)
            failures[name] = error
    return built, failures


def build_named(name: str) -> Built:
    """Bring the pages of a pipeline or of a watch up to date. Raises as ``build_docs``, and UnknownPipelineError."""
    if not is_watch(name):
        return build_docs(load_pipeline(name))
    folder = DocsFolder.of_environment()
    is_written = write_watch(folder, load_watch(name))
    return Built(name, int(is_written), int(not is_written), 0, str(folder.history_of(name)))


def build_docs(pipeline: PipelineConfig) -> Built:
    """Bring the pages of a pipeline up to date. Raises ServiceUnavailableError, ConfigurationError, OSError."""
    dsn, folder = ledger_dsn(pipeline), DocsFolder.of_environment()
    batches, audit = load_figures(dsn, pipeline.name, BATCHES_KEPT), load_newest_audit(dsn, pipeline.name)
    if find_outdated(folder, pipeline.name, batches):
        _load_own_expectations(pipeline)
    return write_docs(folder, pipeline.name, batches, partial(load_batch_history, dsn), audit)


def find_outdated(folder: DocsFolder, pipeline: str, batches: Sequence[BatchFigures]) -> Sequence[BatchFigures]:
    """Return the batches whose page is missing or was made from other figures, the newest first."""
    return [each for each in reversed(batches) if folder.read_stamp(pipeline, each.batch_id) != make_stamp(each)]


def write_docs(
    folder: DocsFolder,
    pipeline: str,
    batches: Sequence[BatchFigures],
    load: Callable[[int], BatchHistory],
    audit: StoredAudit | None = None,
) -> Built:
    """Write the missing and outdated pages of ``batches``, which has the oldest first; remove older pages.

    Raises what ``load`` raises, and OSError. May be repeated, also by several processes at once: pages of newer batches
    stay, whichever process has written them.
    """
    outdated = find_outdated(folder, pipeline, batches)
    for figures in outdated:
        from batchledger.interfaces.data_docs.pages import write_batch

        page = write_batch(load(figures.batch_id), figures, make_stamp(figures))
        write_page(folder.page_of(pipeline, figures.batch_id), page)
    removed = folder.prune(pipeline, batches[0].batch_id) if batches else 0
    summary, there = _summarise(pipeline, batches, audit), folder.read_summary(pipeline)
    if summary != there and _age(summary) >= _age(there):
        from batchledger.interfaces.data_docs.pages import write_history

        write_page(folder.history_of(pipeline), write_history(pipeline, batches, audit))
        # The last file of the pipeline, because it says that the others are there.
        folder.write_summary(pipeline, summary)
    write_page(folder.index, write_index(folder.list_summaries()))
    built = Built(pipeline, len(outdated), len(batches) - len(outdated), removed, str(folder.history_of(pipeline)))
    written = describe_count(built.written, "page")
    logger.info("%s: %s written, %d current, %d removed", pipeline, written, built.current, removed)
    return built


def make_stamp(figures: BatchFigures) -> str:
    """Return a text that changes whenever the page of the batch would."""
    return hashlib.sha256(f"{_LOOK} {figures!r}".encode()).hexdigest()[:24]


def _load_own_expectations(pipeline: PipelineConfig) -> None:
    """Let Great Expectations know the classes of the pipeline file, which have the words for their results."""
    from batchledger.checks.requested import build_checks

    try:
        build_checks(pipeline.requested_checks, pipeline.folder)
    except BatchledgerError as error:
        logger.warning("%s: results of some checks are shown without their own words: %s", pipeline.name, error)


def _age(summary: Mapping[str, Any] | None) -> tuple[int, str]:
    """Return the number of the newest batch in a summary, and when the pipeline was audited."""
    newest, audit = (summary or {}).get("newest"), (summary or {}).get("audit")
    return (int(newest["batch_id"]) if newest else 0, audit["audited_at"] if audit else "")


def _summarise(pipeline: str, batches: Sequence[BatchFigures], audit: StoredAudit | None) -> dict[str, Any]:
    stamps = "".join(map(make_stamp, batches))
    newest = batches[-1] if batches else None
    return {
        "pipeline": pipeline,
        "stamp": hashlib.sha256(stamps.encode()).hexdigest()[:24],
        "audit": audit and {"audited_at": f"{audit.audited_at.astimezone(UTC):{MOMENT}}", "failing": audit.failing},
        "newest": newest
        and {
            "batch_id": newest.batch_id,
            "state": newest.state.value,
            "planned_at": f"{newest.planned_at.astimezone(UTC):{MOMENT}}",
            "failing": list(newest.failing),
        },
        # If a run has several batches, the latest one counts.
        "batch_by_run": {run: each.batch_id for each in batches for run in (each.planned_by, *each.runs)},
    }
