"""Who may go on with a batch: its present attempt, if it is this run's own. Everybody else is told who has it (I4)."""

import logging

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch, BatchState
from batchledger.model.errors import (
    ConfigurationError,
    DatabaseRefusedError,
    FencedError,
    ServiceUnavailableError,
    TargetRefusedError,
    UnknownBatchError,
)
from batchledger.model.refusals import blocked_already, closed

logger = logging.getLogger(__name__)


def load_batch(platform: Platform, batch_id: int) -> Batch:
    """Load a batch of this pipeline; another pipeline's rows would go into the wrong table."""
    batch = platform.ledger.load_batch(batch_id)
    if batch.pipeline != platform.rules.name:
        raise UnknownBatchError(
            f"{platform.rules.name} has no batch {batch_id}: pipeline {batch.pipeline} has it; nothing was changed.",
            batch_id=batch_id,
            pipeline=platform.rules.name,
        )
    return batch


def own_attempt(platform: Platform, batch: Batch, run: str, expected: BatchState) -> Attempt:
    """Return the present attempt if it belongs to ``run`` and is in the expected state.

    A run that is refused for good removes what superseded attempts, its own among them, have left in staging.
    """
    if batch.state is BatchState.DISCARDED:
        drop_staging(platform, Attempt(batch, batch.attempt, run))
        raise closed(batch, run)
    if batch.attempt_run is None:
        raise FencedError(
            f"{batch.label} should be {expected} but nobody has staged it yet; run its stage step first.",
            batch_id=batch.batch_id,
        )
    if batch.attempt_run != run:
        drop_staging(platform, Attempt(batch, batch.attempt - 1, run))
        raise FencedError(
            f"{batch.label} is fenced by attempt {batch.attempt} of run {batch.attempt_run}, which has it in state "
            f"{batch.state}; run {run} changes nothing. No action is needed: the other run finishes the batch.",
            batch_id=batch.batch_id,
            attempt=batch.attempt,
            run=batch.attempt_run,
        )
    if batch.state is BatchState.BLOCKED:
        raise blocked_already(batch)
    if batch.state is not expected:
        raise FencedError(
            f"{batch.label} should be {expected} but is {batch.state}: attempt {batch.attempt} of the same run is at "
            "work on it. This duplicate of the step changes nothing.",
            batch_id=batch.batch_id,
            attempt=batch.attempt,
            run=batch.attempt_run,
        )
    return Attempt(batch, batch.attempt, run)


def is_of(batch: Batch, attempt: Attempt) -> bool:
    """Whether the batch is still this attempt's."""
    return (batch.attempt, batch.attempt_run) == (attempt.number, attempt.run)


def is_published_by(batch: Batch, run: str) -> bool:
    """Whether the run has done all there is to do."""
    return batch.state is BatchState.PUBLISHED and batch.attempt_run == run


def drop_discarded(platform: Platform, batch: Batch) -> None:
    """Clean up what a batch has staged, if it was discarded."""
    found = platform.ledger.load_batch(batch.batch_id)
    if found.state is BatchState.DISCARDED:
        drop_staging(platform, Attempt(found, found.attempt, str(found.attempt_run)))


def drop_staging(platform: Platform, attempt: Attempt) -> None:
    """Clean up; a database that cannot be reached for it, or refuses it, must not hide what came before."""
    try:
        platform.sink.drop_staging(attempt)
        platform.evidence.drop(attempt)
    except (ServiceUnavailableError, ConfigurationError, DatabaseRefusedError, TargetRefusedError) as error:
        logger.warning("the staging of %s attempt %d stays: %s", attempt.batch.label, attempt.number, error)
