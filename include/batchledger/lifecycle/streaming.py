"""One write: the rows of a batch go into the target while they are read, and are judged before they can be seen.

All of it is one transaction of the sink. In it the steps do what they do with staged rows, in the same order. If
anything is not clean, it is rolled back, and the same attempt stages the rows, so that a person can look at them.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from batchledger.lifecycle.added_columns import find_new_columns
from batchledger.lifecycle.audit import judge_attempt
from batchledger.lifecycle.delivery import deliver
from batchledger.lifecycle.outcome import Next, find_next
from batchledger.lifecycle.platform import PipelineRules, Platform
from batchledger.model.batch import Attempt, Batch, BatchState, DeliveryMode, Lane, RecordOrigin, Staged
from batchledger.model.errors import (
    BatchledgerError,
    FencedError,
    LossError,
    OutcomeUnknownError,
    StagingError,
    TopicChangedError,
)
from batchledger.model.records.rules import SinkMode
from batchledger.model.refusals import fenced_by
from batchledger.planning.live import Plan
from batchledger.ports import RowStream

logger = logging.getLogger(__name__)

NO_WAY = "its sink commits by itself, or Spark's tasks have no way to the step"
MOST_RANGES = 100
MOST_GIVEN_UP = 2
"""If so many of the newest ten batches gave up a stream, the pipeline stages until they are fewer."""
MOST_ATTEMPTS = 2
"""A batch that was tried more often is staged: whatever ends its stream must not end it for ever."""

Fill = Callable[[Platform, Attempt], Staged]
"""Reads the records of an attempt into the sink."""

# Staged rows must not become visible then either.
_EITHER_WAY = (FencedError, LossError, OutcomeUnknownError, TopicChangedError)


def find_reason_to_stage(rules: PipelineRules, batch: Batch | Plan, number: int = 1, given_up_lately: int = 0) -> str:
    """Return why the rows of an attempt are written twice; empty if nothing is known. The table itself may object.

    ``number`` counts the attempts, with this one; ``given_up_lately`` as for Attempt.
    """
    state = batch.state if isinstance(batch, Batch) else BatchState.PLANNED
    reasons = {
        f"it is {state}": state is not BatchState.PLANNED,
        "it is a replay": batch.lane is not Lane.LIVE or batch.origin is not RecordOrigin.KAFKA,
        f"{batch.delivery} has two commits": batch.delivery is not DeliveryMode.EXACTLY_ONCE,
        "dedupe compares its rows with each other": rules.deduplication is not None,
        "sequence compares its rows with each other": rules.sequence is not None,
        f"{rules.mode} compares its rows with each other": rules.mode is not SinkMode.APPEND,
        f"it has more than {MOST_RANGES} ranges": len(batch.ranges) > MOST_RANGES,
        f"{MOST_ATTEMPTS} attempts have failed": number > MOST_ATTEMPTS,
        "batches before it gave up their streams": given_up_lately >= MOST_GIVEN_UP,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def stream(platform: Platform, attempt: Attempt, fill: Fill) -> str | None:
    """Take an attempt from its plan to its publication in one write, and return None; else return why it did not.

    The text is empty if nothing was tried. Raises FencedError, LossError, TopicChangedError and OutcomeUnknownError;
    whatever else happens, the rows can be staged, or staging says why not.
    """
    label = attempt.batch.label
    reason = find_reason_to_stage(platform.rules, attempt.batch, attempt.number, attempt.given_up_lately)
    if reason or (open_stream := platform.find_stream()) is None:
        logger.debug("%s attempt %d is staged, because %s", label, attempt.number, reason or NO_WAY)
        return ""
    if gate := platform.find_gate():
        logger.info("%s attempt %d is staged, because of what comes before publish: %s", label, attempt.number, gate)
        return ""
    try:
        _stream(platform, open_stream(attempt), attempt, fill)
    except BatchledgerError as error:
        chosen, found = find_next(platform, attempt, error, {BatchState.PUBLISHED})
        if chosen is Next.LEAVE:
            raise fenced_by(found, attempt) from error
        if chosen is not Next.TAKE_RESULT:
            if isinstance(error, _EITHER_WAY):
                raise
            logger.info("%s attempt %d is staged, for nothing of its stream stays: %s", label, attempt.number, error)
            platform.evidence.drop(attempt)
            return " ".join(f"{error.message} {error.why}".replace("\0", "").split())
    platform.crash("committed")
    return None


def _stream(platform: Platform, opened: AbstractContextManager[RowStream], attempt: Attempt, fill: Fill) -> None:
    with opened as stream:
        make_stager = platform.make_stager
        held = replace(platform, sink=stream.sink, make_stager=lambda: make_stager().into(stream.sink))
        staged = fill(held, attempt)
        if new := find_new_columns(held, attempt):
            raise StagingError(f"The records of {attempt.batch.label} have brought columns: {', '.join(new)}.")
        with stream.joined():
            # A publication locks the pipeline before the batch, also here.
            with held.ledger.publication(attempt, BatchState.PLANNED):
                held.ledger.mark_staged(attempt, staged)
            platform.crash("staged")
            batch = judge_attempt(held, attempt, BatchState.STAGED)
            if gate := platform.find_gate():
                raise StagingError(f"The rows of {attempt.batch.label} must not be visible yet: {gate}.")
            deliver(held, replace(attempt, batch=batch))
    rows = f"{staged.reported_rows:,} rows"
    logger.info("%s attempt %d has streamed into its target: %s", attempt.batch.label, attempt.number, rows)
