"""Who may go on with a batch: its present attempt, if it is this run's own. An error names the owner to others (I4)."""

import logging

from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Attempt, Batch, BatchState, Step
from batchledger.model.errors import (
    ConfigurationError,
    DatabaseRefusedError,
    FencedError,
    ServiceUnavailableError,
    TargetRefusedError,
)
from batchledger.model.offsets import describe_ranges
from batchledger.model.refusals import blocked_already, closed, taken_over

logger = logging.getLogger(__name__)


def load_batch(platform: Platform, batch_id: int) -> Batch:
    """Load a batch of this pipeline. Rows of another pipeline would go into the wrong table.

    Raises UnknownBatchError, also then and in the same words: who may see this pipeline need not see others.
    """
    return platform.ledger.load_batch(batch_id, platform.rules.name)


def open_attempt(platform: Platform, batch: Batch, run: str) -> Attempt:
    """Open the next attempt of a batch, which fences the one before."""
    attempt = platform.ledger.open_attempt(batch.batch_id, run)
    platform.crash("attempt_opened")
    if attempt.number > 1:
        # An attempt that was killed could not clean up; each would leave a copy of the rows.
        drop_staging(platform, Attempt(batch, attempt.number - 1, run))
    logger.info("%s attempt %d reads: %s", batch.label, attempt.number, describe_ranges(batch.ranges))
    return attempt


def own_attempt(platform: Platform, batch: Batch, run: str, expected: BatchState) -> Attempt:
    """Return the present attempt if it belongs to ``run`` and is in the expected state.

    A run that is refused for good removes the staging of superseded attempts, its own among them.
    """
    if batch.state is BatchState.DISCARDED:
        drop_staging(platform, Attempt(batch, batch.attempt, run))
        raise closed(batch, run)
    if batch.attempt_run is None:
        raise _not_ready(batch, expected)
    if batch.attempt_run != run:
        drop_staging(platform, Attempt(batch, batch.attempt - 1, run))
        raise taken_over(batch, run)
    if batch.state is BatchState.BLOCKED:
        raise blocked_already(batch)
    if batch.state is not expected:
        raise _not_ready(batch, expected)
    return Attempt(batch, batch.attempt, run)


def _not_ready(batch: Batch, expected: BatchState) -> FencedError:
    """Say that an earlier step has not done its part: a twin is still at work, or a person has forced the order."""
    missing = Step.AUDIT if batch.state is BatchState.STAGED else Step.STAGE
    return FencedError(
        f"{batch.label} is {batch.state}, and this step needs it {expected}. It changes nothing.",
        why=f"Its {missing} step has not come to an end. Another process of this run is at work on it, or a person has "
        "marked or cleared a single task.",
        advice=f"If no process is at work on it, clear the {missing} task of this run in Airflow with everything "
        f"downstream.\nOr begin another attempt: batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
        attempt=batch.attempt or None,
        run=batch.attempt_run,
    )


def is_of(batch: Batch, attempt: Attempt) -> bool:
    """Whether the batch is still this attempt's."""
    return (batch.attempt, batch.attempt_run) == (attempt.number, attempt.run)


def is_published_by(batch: Batch, run: str) -> bool:
    """Whether the run has published the batch, so that it has nothing left to do."""
    return batch.state is BatchState.PUBLISHED and batch.attempt_run == run


def drop_discarded(platform: Platform, batch: Batch) -> None:
    """Remove what a batch has staged, if it was discarded."""
    found = platform.ledger.load_batch(batch.batch_id)
    if found.state is BatchState.DISCARDED:
        drop_staging(platform, Attempt(found, found.attempt, str(found.attempt_run)))


def drop_staging(platform: Platform, attempt: Attempt) -> None:
    """Remove staging. If the database does not answer or refuses, log it: the error before it counts."""
    try:
        platform.sink.drop_staging(attempt)
        platform.evidence.drop(attempt)
    except (ServiceUnavailableError, ConfigurationError, DatabaseRefusedError, TargetRefusedError) as error:
        logger.warning("the staging of %s attempt %d stays: %s", attempt.batch.label, attempt.number, error)
