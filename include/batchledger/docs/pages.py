"""The pages as text: what the ledger holds of a batch and of a pipeline, put into templates that escape everything.

A page loads nothing, runs no script and forbids both, so it reads the same from a disk, behind a login and offline.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from batchledger.checking import Outcome
from batchledger.docs.charts import draw_history
from batchledger.docs.expectations import render_results
from batchledger.docs.folder import POLICY
from batchledger.ledger.figures import BatchFigures
from batchledger.ledger.history import BatchHistory

BATCHES_DRAWN = 100
_BALANCE = (
    "accepted",
    "duplicates",
    "quarantined",
    "tombstones",
    "filtered",
    "holes",
    "aborted",
    "markers",
    "compacted",
    "accepted_loss",
    "unexplained",
)
_OUTCOMES = {
    Outcome.PASSED: "✔ passed",
    Outcome.FAILED: "✘ failed",
    Outcome.NOT_RUN: "⚠ could not run",
    Outcome.EMPTY: "○ nothing to judge",
}


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("batchledger.docs"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["policy"] = POLICY
    return templates


def write_batch(history: BatchHistory, figures: BatchFigures, stamp: str) -> str:
    """Return the page of a batch; ``stamp`` says what it was made from."""
    suites = dict.fromkeys(each.suite for each in history.checks)
    rendered = {
        suite: render_results([each for each in history.checks if each.suite is suite], suite.value) for suite in suites
    }
    return (
        _templates()
        .get_template("batch.html.j2")
        .render(
            batch=history.batch,
            figures=figures,
            history=history,
            lines=_BALANCE,
            outcomes=_OUTCOMES,
            stamp=stamp,
            tables={suite: table for suite, table in rendered.items() if table is not None},
        )
    )


def write_history(pipeline: str, batches: Sequence[BatchFigures]) -> str:
    """Return the history of a pipeline, ``batches`` the oldest first."""
    drawn = batches[-BATCHES_DRAWN:]
    return (
        _templates()
        .get_template("history.html.j2")
        .render(pipeline=pipeline, batches=batches, drawn=len(drawn), drawing=draw_history(drawn) if drawn else None)
    )


def write_index(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return the page over all pipelines."""
    return _templates().get_template("index.html.j2").render(pipelines=summaries)
