"""What each delivery mode commits together, and in which order: the only difference between the modes.

A batch may take offsets over from another one, as every replay may. It does so in one commit, in every mode: old rows
go when the new ones come (I8).

A sink that commits by itself does so last, just before the ledger's own commit, so the ledger refuses everything that
it refuses before. A single commit is announced first: from then on, the run that goes on asks the sink whether it has
committed (I9). If the sink has to search for the answer, no transaction of the ledger is open meanwhile. The sink is
asked once more within a transaction, and that answer counts. The sink is never asked for a batch with two commits: its
mode allows a crash between sink and ledger.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import Enum, auto

from batchledger.lifecycle.at_work import wait_until_left
from batchledger.lifecycle.outcome import ask_sink, has_committed, let_sink_tell
from batchledger.lifecycle.platform import Platform
from batchledger.lifecycle.requirement import check_rows, confirm_rows, confirm_target, publish_rows, remember_numbers
from batchledger.lifecycle.row_rules import require_same_rules
from batchledger.lifecycle.tracing import StepPart
from batchledger.model.batch import Attempt, BatchState, DeliveryMode, HeldRange, Lane, RecordOrigin
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
from batchledger.ports import CommittingSink, Publication

logger = logging.getLogger(__name__)

SETTLED_WHILE_PUBLISHING = 5
REFUSED_ROWS_SHOWN = 10
# A publication may take this long, and others wait for it.
COMMITS_WITHIN_SECONDS = 600.0


class _Part(Enum):
    """What a publication makes visible."""

    POSITIONS = auto()
    ROWS = auto()


_COMMITS: Mapping[DeliveryMode, tuple[frozenset[_Part], ...]] = {
    DeliveryMode.EXACTLY_ONCE: (frozenset({_Part.POSITIONS, _Part.ROWS}),),
    DeliveryMode.AT_LEAST_ONCE: (frozenset({_Part.ROWS}), frozenset({_Part.POSITIONS})),
    DeliveryMode.AT_MOST_ONCE: (frozenset({_Part.POSITIONS}), frozenset({_Part.ROWS})),
}


_EVERYTHING = frozenset(_Part)


def deliver(platform: Platform, attempt: Attempt) -> None:
    """Make the rows and the positions of an audited attempt visible, as the delivery mode says.

    An attempt that is committing is finished: the sink is asked, and commits now if it has not yet.

    Raises what the ledger and the sink refuse, with nothing committed by this call: RowRulesChangedError if other rules
    have staged it, ReplayRefusedError if records of a quarantine replay have left quarantine since they were staged.
    After a first commit that moved the positions (at_most_once), it raises RowsLostError.
    """
    if attempt.batch.state is BatchState.COMMITTING:
        _commit_announced(platform, attempt, may_be_there=True)
        return
    require_same_rules(platform, attempt)
    parts, *rest = _COMMITS[attempt.batch.delivery]
    sink = platform.sink
    with _publication(platform, attempt) as publication:
        replaced = publication.find_replaced()
        if attempt.batch.takes_over(replaced):
            parts = _EVERYTHING
        is_announced = False
        if parts == _EVERYTHING and isinstance(sink, CommittingSink):
            is_announced = True
            # A later question for the commit has to go to this target.
            confirm_target(sink, publication)
            publication.announce(sink.prepare_commit(attempt))
        else:
            if _Part.ROWS not in parts:
                # Otherwise at_most_once would pass over every batch that the target refuses.
                check_rows(sink, publication)
            _apply(parts, replaced, platform, publication)
            _finish(parts, platform, publication, is_last=parts == _EVERYTHING)
    if is_announced:
        platform.crash("announced")
        announced = replace(attempt, batch=replace(attempt.batch, state=BatchState.COMMITTING))
        _commit_announced(platform, announced, may_be_there=False)
    elif parts != _EVERYTHING:
        platform.crash("between_commits")
        _deliver_rest(platform, attempt, *rest)


def require_taken(platform: Platform, attempt: Attempt) -> None:
    """Raise the target's objection to the rows of a blocked attempt, as ``check_rows`` finds it. Changes nothing.

    TargetRefusedError is for a person. An objection that only the commit of a committing sink would raise is not found,
    for example a batch that is too slow for a transaction.
    """
    with _rehearsal(platform, attempt, BatchState.BLOCKED) as rehearsed:
        check_rows(platform.sink, rehearsed)


def name_refused(
    platform: Platform, attempt: Attempt, error: TargetRefusedError, expected: BatchState = BatchState.AUDITED
) -> TargetRefusedError:
    """Return the target's objection to the rows of an attempt, with the rows that it is about. Changes nothing.

    The objection is what counts: it is returned as it is if the rows cannot be found. ``expected`` is the state of the
    batch.
    """
    if not isinstance(error, RowsRefusedError) or isinstance(platform.sink, CommittingSink):
        return error
    try:
        with _rehearsal(platform, attempt, expected) as rehearsed:
            refused = platform.sink.find_refused(rehearsed, REFUSED_ROWS_SHOWN)
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


@contextmanager
def _rehearsal(platform: Platform, attempt: Attempt, expected: BatchState) -> Iterator[Publication]:
    """Open a publication of which nothing stays, in which offsets that it takes over are free already."""
    with platform.ledger.publication(attempt, expected) as publication, publication.rehearsal() as rehearsed:
        replaced = rehearsed.find_replaced()
        if attempt.batch.takes_over(replaced):
            rehearsed.take_over(replaced, platform.sink.withdraw(rehearsed, replaced))
        yield rehearsed


def _commit_announced(platform: Platform, attempt: Attempt, *, may_be_there: bool) -> None:
    """Commit everything at once, in the sink and then in the ledger. If the sink has committed already, confirm it."""
    if may_be_there:
        let_sink_tell(platform, attempt)
    is_there = False
    try:
        with _transaction(platform, attempt, BatchState.COMMITTING) as publication:
            # Within the transaction others wait, so no run commits it between the answer and its consequence.
            is_there = may_be_there and has_committed(platform, publication)
            if not is_there:
                require_same_rules(platform, attempt)
            _finish_announced(platform, publication, is_there=is_there)
    except (OutcomeUnknownError, FencedError):
        # Fenced: another run goes on with it.
        raise
    except Exception as error:
        if is_there:
            raise
        # The ledger may have been lost after the sink's commit, and a twin of this step may have made one.
        with suppress(BatchledgerError), ask_sink(platform, attempt) as (publication, is_there):
            if not is_there:
                publication.revoke()
        if is_there:
            raise OutcomeUnknownError(
                f"The sink has committed {attempt.batch.label}, and the ledger could not confirm it.",
                why=str(error),
                advice="Run it again: that commits nothing twice.",
                batch_id=attempt.batch.batch_id,
            ) from error
        raise


@contextmanager
def _publication(
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
        with suppress(FencedError, OutcomeUnknownError), ask_sink(platform, attempt) as (publication, is_there):
            if is_there:
                _finish_announced(platform, publication, is_there=True)
            else:
                publication.revoke()
    except (TargetRefusedError, AuditOutdatedError, StagingLostError) as error:
        # Another type of error would count as an error of the batch that waits for this one.
        raise OutcomePendingError(
            f"The outcome of {batch.label} is needed first, and could not be found.", why=str(error), batch_id=batch_id
        ) from error


def _finish_announced(platform: Platform, publication: Publication, *, is_there: bool) -> None:
    """Do the ledger's part of an announced commit, and let the sink commit if it has not yet."""
    _apply(_EVERYTHING, publication.find_replaced(), platform, publication, is_there=is_there)
    _finish(frozenset() if is_there else _EVERYTHING, platform, publication, is_last=True)


def _deliver_rest(platform: Platform, attempt: Attempt, parts: frozenset[_Part]) -> None:
    """Make the second of two commits."""
    has_moved = _Part.POSITIONS not in parts
    try:
        with _publication(platform, attempt, BatchState.PUBLISHED if has_moved else BatchState.AUDITED) as publication:
            if has_moved and not publication.holds_all_ranges:
                raise FencedError(
                    f"{attempt.batch.label} stays as it is: a replay has published some of its offsets again.",
                    batch_id=attempt.batch.batch_id,
                )
            # If the position has moved, the batch holds its ranges already.
            done = _apply(parts, () if has_moved else publication.find_replaced(), platform, publication)
            _finish(done, platform, publication, is_last=True)
    except BatchledgerError as error:
        if has_moved:
            raise rows_lost(attempt, error) from error
        raise


def _finish(parts: frozenset[_Part], platform: Platform, publication: Publication, *, is_last: bool) -> None:
    """End a publication; the ledger commits next. ``parts``: the sink still has to commit these."""
    if is_last:
        # Not before both rows and position are visible: a repetition of the batch judges its numbers once more.
        remember_numbers(platform.sink, publication)
        platform.crash("before_commit")
    if _Part.ROWS in parts and isinstance(platform.sink, CommittingSink):
        with platform.trace(StepPart.COMMIT_SINK, publication.attempt):
            platform.sink.commit(publication)
        platform.crash("sink_committed")


def rows_lost(attempt: Attempt, error: BatchledgerError) -> RowsLostError:
    """Say that the position has moved and that the rows may not have been written, because of ``error``."""
    label = attempt.batch.label
    return RowsLostError(
        f"{label} has moved the position, and its rows may be lost, as at_most_once allows.",
        why=str(error),
        advice=f"See what is there: batchledger verify {attempt.batch.pipeline}",
        batch_id=attempt.batch.batch_id,
    )


def _apply(
    parts: frozenset[_Part],
    replaced: Sequence[HeldRange],
    platform: Platform,
    publication: Publication,
    *,
    is_there: bool = False,
) -> frozenset[_Part]:
    """Make the parts visible, or all of them if offsets are taken over; return which.

    ``is_there``: the sink shows the rows already.
    """
    batch = publication.attempt.batch
    if batch.origin is RecordOrigin.QUARANTINE:
        # A record that a person has dropped since must not come back.
        check_quarantined(batch, publication.find_quarantined())
    if batch.takes_over(replaced):
        # All rows of its ranges go, even from an earlier commit of its own (at_least_once): all are written here.
        parts = _EVERYTHING
        publication.take_over(replaced, platform.sink.withdraw(publication, replaced))
        platform.crash("rows_withdrawn")
    if _Part.POSITIONS in parts:
        if batch.lane is Lane.LIVE:
            publication.advance_positions()
        publication.publish_quarantine()
        publication.mark_published()
        platform.crash("positions_moved")
    if _Part.ROWS in parts:
        if is_there and isinstance(platform.sink, CommittingSink):
            confirm_rows(platform.sink, publication)
        else:
            with platform.trace(StepPart.PUBLISH_ROWS, publication.attempt):
                publish_rows(platform.sink, publication)
        publication.mark_rows()
        platform.crash("rows_moved")
    return parts
