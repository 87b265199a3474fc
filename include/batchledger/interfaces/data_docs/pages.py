"""The pages as text: what the ledger holds about a batch or a pipeline, in templates that escape everything.

A page loads nothing, runs no script and forbids both, so it reads the same from a disk, behind a login and offline.
"""

from collections.abc import Sequence

from batchledger.books.figures import BatchFigures
from batchledger.books.history import BatchHistory
from batchledger.interfaces.batch_view import BatchView
from batchledger.interfaces.data_docs.charts import draw_history
from batchledger.interfaces.data_docs.expectations import render_results
from batchledger.interfaces.data_docs.index import find_template
from batchledger.ledger.audits import StoredAudit

BATCHES_DRAWN = 100


def write_batch(history: BatchHistory, figures: BatchFigures, stamp: str) -> str:
    """Return the page of a batch; ``stamp`` says what it was made from."""
    suites = dict.fromkeys(each.suite for each in history.checks)
    rendered = {
        suite: render_results([each for each in history.checks if each.suite is suite], suite.value) for suite in suites
    }
    return find_template("batch.html.j2").render(
        view=BatchView(history, history.ranges),
        root=None,
        now=None,
        can_see_payloads=False,
        figures=figures,
        stamp=stamp,
        suites={suite: table for suite, table in rendered.items() if table is not None},
    )


def write_history(pipeline: str, batches: Sequence[BatchFigures], audit: StoredAudit | None = None) -> str:
    """Return the history of a pipeline with the findings of its newest audit; ``batches`` has the oldest first."""
    drawn = batches[-BATCHES_DRAWN:]
    return find_template("history.html.j2").render(
        audit=audit,
        batches=batches,
        drawing=draw_history(drawn) if drawn else None,
        drawn=len(drawn),
        pipeline=pipeline,
        table=render_results(audit.checks, "audit") if audit else None,
    )
