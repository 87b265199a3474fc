"""One write: the rows of a batch go into the target while they are read, and are judged before they can be seen.

All of it is one transaction of the sink. In it the steps do what they do with staged rows, in the same order. If
anything is not clean, it is rolled back, and the same attempt stages the rows, so that a person can look at them. A
sink that commits by itself has a transaction of its own: once its commit is announced, the next attempt goes on.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from batchledger.lifecycle.added_columns import find_new_columns
from batchledger.lifecycle.audit import judge_attempt, look_into_holes
from batchledger.lifecycle.delivery import begin_delivery, open_publication
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

NO_WAY = "its sink takes no stream, or Spark's tasks have no way to the step"
TAKES_OVER = "it takes over what other batches have published"
MOST_RANGES = 100
LOOKED_BACK, MOST_GIVEN_UP = 10, 2
"""If so many of the newest batches of schedules gave up a stream, the pipeline stages until they are fewer."""
MOST_ATTEMPTS = 2
"""A batch that was tried more often is staged: whatever ends its stream must not end it for ever."""

Fill = Callable[[Platform, Attempt], Staged]
"""Reads the records of an attempt into the sink."""

OpenRowStream = Callable[[Attempt], AbstractContextManager[RowStream]]

# Staged rows must not become visible then either.
_EITHER_WAY = (FencedError, LossError, OutcomeUnknownError, TopicChangedError)


def choose_way(platform: Platform, batch: Batch | Plan, number: int) -> tuple[str, OpenRowStream | None]:
    """Return why the rows of an attempt are written twice, and else what opens their stream. The target may object.

    ``number`` counts the attempts, with this one. Only a batch that would stream costs questions.
    """
    rules = platform.rules
    reason = find_reason_to_stage(rules, batch, number)
    open_stream = None if reason else platform.find_stream()
    if open_stream is None:
        return reason or NO_WAY, None
    given_up = sum(each.gave_up for each in platform.ledger.load_recent(rules.name, LOOKED_BACK))
    takes_over = bool(platform.ledger.find_held(rules.name, batch.ranges))
    reason = find_reason_to_stage(rules, batch, number, given_up, takes_over=takes_over)
    return reason, None if reason else open_stream


def find_reason_to_stage(
    rules: PipelineRules, batch: Batch | Plan, number: int = 1, given_up: int = 0, *, takes_over: bool = False
) -> str:
    """Return why rows are written twice, or nothing; ``given_up`` counts the newest batches that gave up a stream."""
    state = batch.state if isinstance(batch, Batch) else BatchState.PLANNED
    reasons = {
        f"it is {state}": state is not BatchState.PLANNED,
        "it is a replay": batch.lane is not Lane.LIVE or batch.origin is not RecordOrigin.KAFKA,
        f"{batch.delivery} has two commits": batch.delivery is not DeliveryMode.EXACTLY_ONCE,
        "dedupe compares its rows with each other": rules.deduplication is not None,
        "sequence compares its rows with each other": rules.sequence is not None,
        f"{rules.mode} compares its rows with each other": rules.mode is SinkMode.UPSERT,
        "its checks look at rows, and a topic has none": rules.has_checks and rules.mode is SinkMode.PRODUCE,
        "a transform may change the order of records": rules.has_transform and rules.mode is SinkMode.PRODUCE,
        f"it has more than {MOST_RANGES} ranges": len(batch.ranges) > MOST_RANGES and rules.mode is SinkMode.APPEND,
        f"{MOST_ATTEMPTS} attempts have failed": number > MOST_ATTEMPTS,
        "batches before it gave up their streams": given_up >= MOST_GIVEN_UP,
        TAKES_OVER: takes_over,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def stream(platform: Platform, attempt: Attempt, fill: Fill) -> str | None:
    """Take an attempt from its plan to its publication in one write, and return None; else return why it did not.

    The text is empty if nothing was tried. After None a batch may also be committing, or audited with nothing staged:
    its commit was announced. Raises FencedError, LossError, TopicChangedError and OutcomeUnknownError, and what keeps
    a sink from a commit that was announced. Whatever else happens, the rows can be staged, or staging says why not.
    """
    batch, label = attempt.batch, attempt.batch.label
    reason, open_stream = choose_way(platform, batch, attempt.number)
    if open_stream is None:
        logger.debug("%s attempt %d is staged, because %s", label, attempt.number, reason)
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
        if chosen is Next.GO_ON:
            logger.warning("%s attempt %d has announced its commit, and is looked up: %s", label, attempt.number, error)
            return None
        if chosen is not Next.TAKE_RESULT:
            if isinstance(error, _EITHER_WAY) or found.state is not BatchState.PLANNED:
                raise
            logger.info("%s attempt %d is staged, for nothing of its stream stays: %s", label, attempt.number, error)
            platform.evidence.drop(attempt)
            return " ".join(f"{error.message} {error.why}".replace("\0", "").split())
    platform.crash("committed")
    return None


def _stream(platform: Platform, opened: AbstractContextManager[RowStream], attempt: Attempt, fill: Fill) -> None:
    with ExitStack() as stack:
        stream = _open(platform, opened, attempt, stack)
        make_stager = platform.make_stager
        held = replace(platform, sink=stream.sink, make_stager=lambda: make_stager().into(stream))
        staged = fill(held, attempt)
        if new := find_new_columns(held, attempt):
            raise StagingError(f"The records of {attempt.batch.label} have brought columns: {', '.join(new)}.")
        # Kafka is asked before anything of the ledger is locked.
        holes = look_into_holes(held, attempt)
        with stream.joined():
            # A publication locks the pipeline before the batch, also here.
            with held.ledger.publication(attempt, BatchState.PLANNED):
                held.ledger.mark_staged(attempt, staged)
            platform.crash("staged")
            batch = judge_attempt(held, attempt, BatchState.STAGED, holes)
            if gate := platform.find_gate():
                raise StagingError(f"The rows of {attempt.batch.label} must not be visible yet: {gate}.")
            finish = begin_delivery(held, replace(attempt, batch=batch))
        finish()
    rows = f"{staged.reported_rows:,} rows"
    logger.info("%s attempt %d has streamed into its target: %s", attempt.batch.label, attempt.number, rows)


def _open(
    platform: Platform, opened: AbstractContextManager[RowStream], attempt: Attempt, stack: ExitStack
) -> RowStream:
    if platform.sink.capabilities.shares_transaction:
        return stack.enter_context(opened)
    # To open it ends what the pipeline has open in its sink. So no publication of a replay may be under way.
    with open_publication(platform, attempt, BatchState.PLANNED):
        return stack.enter_context(opened)
