"""Carries out the steps of a delivery, commit by commit, and says what an error between the commits means.

If a sink has to search for the answer whether it has committed, no transaction of the ledger is open meanwhile. The
sink is asked once more within a transaction, and that answer counts.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from batchledger.lifecycle.at_work import wait_until_left
from batchledger.lifecycle.delivery_steps import Commit, DeliveryStep, confirm, plan_delivery
from batchledger.lifecycle.outcome import ask_sink, has_committed, let_sink_tell
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.requirement import (
    check_rows,
    confirm_rows,
    confirm_target,
    publish_rows,
    rehearsing,
    remember_numbers,
    withdraw_rows,
)
from batchledger.lifecycle.row_rules import require_same_rules
from batchledger.lifecycle.tracing import StepPart
from batchledger.model.batch import Attempt, BatchState, DeliveryMode, Lane, RecordOrigin
from batchledger.model.checks import show_records
from batchledger.model.errors import (
    AuditOutdatedError,
    BatchledgerError,
    FencedError,
    OutcomePendingError,
    OutcomeUnknownError,
    RowsLostError,
    RowsRefusedError,
    StagingLostError,
    TargetRefusedError,
)
from batchledger.model.refusals import outcome_pending
from batchledger.planning.replay import check_quarantined
from batchledger.ports import Publication, RowsToPublish, committing

logger = logging.getLogger(__name__)

SETTLED_WHILE_PUBLISHING = 5
REFUSED_ROWS_SHOWN = 10
# A publication may take this long, and others wait for it.
COMMITS_WITHIN_SECONDS = 600.0

_CRASH_POINTS: Mapping[DeliveryStep, str] = {
    DeliveryStep.WITHDRAW: "rows_withdrawn",
    DeliveryStep.POSITIONS: "positions_moved",
    DeliveryStep.ROWS: "rows_moved",
    DeliveryStep.CONFIRM: "rows_moved",
    DeliveryStep.NUMBERS: "before_commit",
    DeliveryStep.COMMIT_SINK: "sink_committed",
}


def deliver(platform: Platform, attempt: Attempt) -> None:
    """Make the rows and the positions of an audited attempt visible, as the delivery mode says.

    Raises what ``begin_delivery`` does; RowsLostError after a first commit that moved the positions (at_most_once).
    """
    begin_delivery(platform, attempt)()


def begin_delivery(platform: Platform, attempt: Attempt) -> Callable[[], None]:
    """Make the first commit of a delivery, if one is left to make, and return what does the rest.

    An attempt that is committing is finished: the sink is asked, and commits now if it has not yet.

    Raises what the ledger and the sink refuse, with nothing committed by this call: RowRulesChangedError if other rules
    have staged it, ReplayRefusedError if records of a quarantine replay have left quarantine since they were staged.
    """
    if attempt.batch.state is BatchState.COMMITTING:
        return partial(_go_on_committing, platform, attempt)
    require_same_rules(platform, attempt)
    with open_publication(platform, attempt) as publication:
        rows = publication.load()
        first, *rest = _plan(platform, rows)
        _carry_out(platform, publication, rows, first)
    if DeliveryStep.ANNOUNCE in first:
        return partial(_commit_first, platform, attempt)
    if rest:
        return partial(_deliver_rows if DeliveryStep.POSITIONS in first else _deliver_positions, platform, attempt)
    return lambda: None


def _go_on_committing(platform: Platform, attempt: Attempt) -> None:
    let_sink_tell(platform, attempt)
    _commit_announced(platform, attempt, has_committed)


def _commit_first(platform: Platform, attempt: Attempt) -> None:
    platform.crash("announced")
    announced = replace(attempt, batch=replace(attempt.batch, state=BatchState.COMMITTING))
    _commit_announced(platform, announced, lambda *_: False)


def require_taken(platform: Platform, attempt: Attempt) -> None:
    """Raise the target's objection to the rows of a blocked attempt, as ``check_rows`` finds it. Changes nothing.

    TargetRefusedError is for a person. An objection that only the commit of a committing sink would raise is not found,
    for example a batch that is too slow for a transaction.
    """
    with platform.ledger.publication(attempt, BatchState.BLOCKED) as publication:
        check_rows(platform.sink, publication)


def name_refused(
    platform: Platform, attempt: Attempt, error: TargetRefusedError, expected: BatchState = BatchState.AUDITED
) -> TargetRefusedError:
    """Return the target's objection to the rows of an attempt, with the rows that it is about. Changes nothing.

    The objection is what counts: it is returned as it is if the rows cannot be found. ``expected`` is the state of the
    batch.
    """
    if not isinstance(error, RowsRefusedError) or not platform.sink.capabilities.shares_transaction:
        return error
    try:
        with (
            platform.ledger.publication(attempt, expected) as publication,
            rehearsing(platform.sink, publication) as (_, rows),
        ):
            refused = platform.sink.find_refused(rows, REFUSED_ROWS_SHOWN)
    except BatchledgerError as lost:
        logger.warning("the rows of %s that the target refuses were not found: %s", attempt.batch.label, lost)
        return error
    if not refused:
        return error
    first = f"The first {len(refused)}" if len(refused) == REFUSED_ROWS_SHOWN else "They"
    command = show_records(attempt.batch.pipeline, [each.offsets for each in refused])
    return replace(
        error,
        why=f"{error.why}\nIt refuses rows. {first} are: {', '.join(map(str, refused))}.",
        advice=f"See the records: {command}\n{error.advice}",
        coordinates=tuple(map(str, refused)),
    )


def _commit_announced(
    platform: Platform, attempt: Attempt, find_answer: Callable[[Platform, Publication], bool]
) -> None:
    """Commit everything at once, in the sink and then in the ledger; what the sink has committed is confirmed.

    ``find_answer`` says whether it has. It is asked within the transaction: others wait, so no run commits the batch
    between the answer and its consequence.
    """
    answer = False
    try:
        with _transaction(platform, attempt, BatchState.COMMITTING) as publication:
            answer = find_answer(platform, publication)
            if not answer:
                require_same_rules(platform, attempt)
            rows = publication.load()
            last = _plan(platform, rows)[-1]
            _carry_out(platform, publication, rows, confirm(last) if answer else last)
    except (OutcomeUnknownError, FencedError):
        # Fenced: another run goes on with it.
        raise
    except Exception as error:
        if not answer:
            _revoke(platform, attempt, error)
        raise


def _revoke(platform: Platform, attempt: Attempt, error: Exception) -> None:
    """Let a batch be audited again whose commit failed. Raises OutcomeUnknownError if the sink has committed it.

    The ledger may have been lost after the sink's commit, and a twin of this step may have made one.
    """
    has_answered_yes = False
    with suppress(BatchledgerError), ask_sink(platform, attempt) as (publication, answer):
        has_answered_yes = answer
        if not answer:
            publication.revoke()
    if has_answered_yes:
        raise OutcomeUnknownError(
            f"The sink has committed {attempt.batch.label}, and the ledger could not confirm it.",
            why=str(error),
            advice="Run it again: that commits nothing twice.",
            batch_id=attempt.batch.batch_id,
        ) from error


@contextmanager
def open_publication(
    platform: Platform, attempt: Attempt, expected: BatchState = BatchState.AUDITED
) -> Iterator[Publication]:
    """Open a publication. If another batch of the pipeline is committing, find its outcome first.

    Its run may be gone, and no run takes the replay of another run again by itself.
    """
    with ExitStack() as stack:
        publication = None
        for _ in range(SETTLED_WHILE_PUBLISHING):
            try:
                publication = stack.enter_context(_transaction(platform, attempt, expected))
                break
            except OutcomePendingError as error:
                _settle(platform, error.batch_id)
        yield publication or stack.enter_context(_transaction(platform, attempt, expected))


@contextmanager
def _transaction(platform: Platform, attempt: Attempt, expected: BatchState) -> Iterator[Publication]:
    """Open a publication; the trace shows how long it waits, works and commits."""
    with (
        platform.trace(StepPart.TRANSACTION, attempt),
        platform.ledger.publication(attempt, expected) as publication,
    ):
        yield publication


def _settle(platform: Platform, batch_id: int) -> None:
    """Find out whether the sink has committed a batch that is committing. Confirm it, or let it be audited again.

    If a run is at work on it, wait: asking the sink would fence that run. This commits nothing. Raises
    ServiceUnavailableError, and OutcomePendingError if the outcome cannot be found.
    """
    if not wait_until_left(platform, batch_id, seconds=COMMITS_WITHIN_SECONDS):
        raise outcome_pending(platform.ledger.load_batch(batch_id))
    batch = platform.ledger.load_batch(batch_id)
    if batch.state is not BatchState.COMMITTING:
        return
    logger.warning("%s attempt %d is committing; its sink is asked first", batch.label, batch.attempt)
    attempt = Attempt(batch, batch.attempt, str(batch.attempt_run))
    try:
        # Its own run may be faster. If the ledger's answer is lost, the run that goes on looks again.
        with suppress(FencedError, OutcomeUnknownError), ask_sink(platform, attempt) as (publication, answer):
            if answer:
                rows = publication.load()
                _carry_out(platform, publication, rows, confirm(_plan(platform, rows)[-1]))
            else:
                publication.revoke()
    except (TargetRefusedError, AuditOutdatedError, StagingLostError) as error:
        # Another type of error would count as an error of the batch that waits for this one.
        raise OutcomePendingError(
            f"The outcome of {batch.label} is needed first, and could not be found.", why=str(error), batch_id=batch_id
        ) from error


def _deliver_positions(platform: Platform, attempt: Attempt) -> None:
    """Make the second commit of at_least_once."""
    platform.crash("between_commits")
    with open_publication(platform, attempt) as publication:
        rows = publication.load()
        _carry_out(platform, publication, rows, _plan(platform, rows)[-1])


def _deliver_rows(platform: Platform, attempt: Attempt) -> None:
    """Make the second commit of at_most_once. Raises RowsLostError."""
    platform.crash("between_commits")
    try:
        with open_publication(platform, attempt, BatchState.PUBLISHED) as publication:
            rows = publication.load()
            if not rows.holds_all_ranges:
                raise FencedError(
                    f"{attempt.batch.label} stays as it is: a replay has published some of its offsets again.",
                    batch_id=attempt.batch.batch_id,
                )
            _carry_out(platform, publication, rows, _plan(platform, rows)[-1])
    except BatchledgerError as error:
        raise rows_lost(attempt, error) from error


def rows_lost(attempt: Attempt, error: BatchledgerError) -> RowsLostError:
    """Say that the position has moved and that the rows may not have been written, because of ``error``."""
    label = attempt.batch.label
    return RowsLostError(
        f"{label} has moved the position, and its rows may be lost, as at_most_once allows.",
        why=str(error),
        advice=f"See what is there: batchledger verify {attempt.batch.pipeline}",
        batch_id=attempt.batch.batch_id,
    )


def _plan(platform: Platform, rows: RowsToPublish) -> tuple[Commit, ...]:
    """Return the commits of a delivery, by what other batches hold of its ranges now."""
    batch = rows.attempt.batch
    return plan_delivery(
        # Only a single commit is announced.
        DeliveryMode.EXACTLY_ONCE if batch.state is BatchState.COMMITTING else batch.delivery,
        takes_over=rows.takes_over,
        shares_transaction=platform.sink.capabilities.shares_transaction,
    )


def _carry_out(platform: Platform, publication: Publication, rows: RowsToPublish, commit: Commit) -> None:
    """Do the steps within the publication, each with what the one before hands on; the ledger commits next."""
    for step in commit:
        rows = _do(step, platform, publication, rows)
        if step in _CRASH_POINTS:
            platform.crash(_CRASH_POINTS[step])


def _do(step: DeliveryStep, platform: Platform, publication: Publication, rows: RowsToPublish) -> RowsToPublish:
    sink, attempt = platform.sink, rows.attempt
    match step:
        case DeliveryStep.TRY_ROWS:
            check_rows(sink, publication)
        case DeliveryStep.ANNOUNCE:
            # A later question for the commit has to go to this target.
            confirm_target(sink, publication)
            publication.announce(committing(sink).prepare_commit(attempt))
        case DeliveryStep.WITHDRAW:
            if attempt.batch.origin is RecordOrigin.QUARANTINE:
                # A record that a person has dropped since must not come back.
                check_quarantined(attempt.batch, publication.find_quarantined())
            rows = withdraw_rows(sink, publication, rows)
        case DeliveryStep.POSITIONS:
            _move_positions(publication)
        case DeliveryStep.ROWS:
            with platform.trace(StepPart.PUBLISH_ROWS, attempt):
                rows = publish_rows(sink, publication, rows)
            publication.mark_rows()
        case DeliveryStep.CONFIRM:
            confirm_rows(committing(sink), rows)
            publication.mark_rows()
        case DeliveryStep.NUMBERS:
            remember_numbers(sink, rows)
        case DeliveryStep.COMMIT_SINK:
            with platform.trace(StepPart.COMMIT_SINK, attempt):
                committing(sink).commit(rows)
    return rows


def _move_positions(publication: Publication) -> None:
    if publication.attempt.batch.lane is Lane.LIVE:
        publication.advance_positions()
    publication.publish_quarantine()
    publication.mark_published()
