"""The life of a batch: the only place where the order of its steps is written.

Each step can be run again at any time, by any process: it loads what the ledger holds and either continues, does
nothing because the work is done, or raises who fenced it. ``run`` names the execution (an Airflow run, a command
line) and is what later steps are compared with. A call of ``crash`` names a crash point.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from batchledger.lifecycle.added_columns import find_new_columns
from batchledger.lifecycle.at_work import begin_work, go_on_with_work
from batchledger.lifecycle.audit import judge_attempt
from batchledger.lifecycle.delivery import deliver, name_refused, rows_lost
from batchledger.lifecycle.outcome import Next, find_next
from batchledger.lifecycle.ownership import drop_staging, is_of, is_published_by, load_batch, open_attempt, own_attempt
from batchledger.lifecycle.plans import plan
from batchledger.lifecycle.platform import Platform, StageStep, look_at_reading
from batchledger.lifecycle.requirement import require_own_target
from batchledger.lifecycle.row_audit import require_usable_checks
from batchledger.lifecycle.row_rules import require_same_rules, stage_by_present_rules
from batchledger.lifecycle.source_identity import look_at_source, require_same_topics, topics_of
from batchledger.lifecycle.streaming import stream
from batchledger.lifecycle.tracing import StepPart
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    DeliveryMode,
    Lane,
    RecordOrigin,
    Staged,
    Step,
    StepFailure,
)
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, Outcome
from batchledger.model.errors import (
    AuditOutdatedError,
    BatchBlockedError,
    BatchledgerError,
    FencedError,
    OutcomeUnknownError,
    RowsRefusedError,
    ServiceUnavailableError,
    StagingLostError,
    TargetRefusedError,
)
from batchledger.model.offsets import describe_ranges
from batchledger.model.refusals import blocked, fenced_by, never_published
from batchledger.planning.live import check_identity, check_source
from batchledger.planning.replay import check_quarantined, check_readable

logger = logging.getLogger(__name__)

AUDITS_WHILE_PUBLISHING = 5
STAGED_AGAIN_FOR_COLUMNS = 3
"""So often a batch is staged again for columns that its records have brought; what is left after that is named."""


def stage(platform: Platform, batch_id: int, run: str, *, may_stream: bool = False) -> Batch:
    """Open an attempt and fill its staging, or, if it ``may_stream`` and that can be had, publish it in one write.

    A batch that this run has published already is left alone. If the batch is committing, its outcome is found first.
    If it was not committed, its staged rows are committed now, and the run has published it. Raises AtWorkError while
    another run is at work on the batch.
    """
    with begin_work(platform, batch_id, run) as held:
        return _stage(held, batch_id, run, may_stream=may_stream)


stream_or_stage = partial(stage, may_stream=True)


def _stage(
    platform: Platform, batch_id: int, run: str, again: int = STAGED_AGAIN_FOR_COLUMNS, may_stream: bool = False
) -> Batch:
    batch = load_batch(platform, batch_id)
    if batch.state is BatchState.COMMITTING:
        batch = _resume_commit(platform, batch, run)
    if is_published_by(batch, run):
        return batch
    _check_before_reading(platform, batch)
    # Another attempt would take from a blocked batch what a person may accept, and from a staged one what its run may
    # publish. A planned batch has nothing to lose: a refusal counts as a failed attempt, and people get a message.
    is_empty = batch.state is BatchState.PLANNED
    if not is_empty:
        _require_readable(platform, batch)
    attempt = open_attempt(platform, batch, run)
    try:
        if is_empty:
            _require_readable(platform, batch)
        require_own_target(platform, attempt)
        given_up = stream(platform, attempt, _fill_staging) if is_empty and may_stream else ""
        new = () if given_up is None else _stage_rows(platform, attempt, given_up, again)
    except BatchledgerError as error:
        ended_by = _end_attempt(platform, attempt, error)
        if ended_by is error:
            raise
        raise ended_by from error
    if given_up is None:
        found = platform.ledger.load_batch(batch_id)
        is_announced = found.state in (BatchState.COMMITTING, BatchState.AUDITED)
        return _stage(platform, batch_id, run, again) if is_announced else found
    if new:
        logger.info("%s is staged again: its records have new fields, %s", batch.label, ", ".join(new))
        return _stage(platform, batch_id, run, again - 1)
    platform.crash("staged")
    return platform.ledger.load_batch(batch_id)


def _stage_rows(platform: Platform, attempt: Attempt, given_up: str, again: int) -> Sequence[str]:
    """Fill the staging, and return the columns for which that has to be done ``again``; without any it is done."""
    staged = replace(_fill_staging(platform, attempt), given_up=given_up or None)
    new = find_new_columns(platform, attempt) if again else ()
    if not new:
        platform.ledger.mark_staged(attempt, staged)
        rows = f"{staged.reported_rows:,} rows"
        logger.info("%s attempt %d staged: %s", attempt.batch.label, attempt.number, rows)
    return new


def _require_readable(platform: Platform, batch: Batch) -> None:
    """Raise ConfigurationError if a check cannot be judged, or if a hash would not be known again."""
    require_usable_checks(platform)
    platform.require_secret()
    platform.require_known_erasures(batch)


def _fill_staging(platform: Platform, attempt: Attempt) -> Staged:
    follow = platform.follow(attempt, partial(look_at_reading, platform, attempt))
    with platform.trace(StepPart.READ, attempt), follow:
        staged = platform.make_stager().stage(attempt)
    if attempt.batch.origin is RecordOrigin.KAFKA:
        # A topic that was created anew while it was being read would have given other records for the same offsets.
        require_same_topics(platform, attempt.batch)
    platform.crash("staging_sealed")
    return replace(staged, row_rules=platform.rules.row_rules)


def _end_attempt(platform: Platform, attempt: Attempt, error: BatchledgerError) -> BatchledgerError:
    """Clean up after a stage step that failed, and return what to raise for it."""
    chosen, found = find_next(platform, attempt, error, ())
    if chosen is Next.LEAVE:
        return fenced_by(found, attempt)
    if found.state is not BatchState.COMMITTING:
        # The next attempt has a staging of its own. What a sink may have committed is confirmed by this one's.
        drop_staging(platform, attempt)
    if isinstance(error, RowsRefusedError):
        # The next attempt would read the same row.
        return _block(platform, attempt, error)
    platform.ledger.mark_failed(attempt, StepFailure(Step.STAGE, str(error), error.quoted))
    return error


def audit(platform: Platform, batch_id: int, run: str, stage_step: StageStep | None = None) -> Batch:
    """Judge the staged attempt and store the result.

    If the pipeline file makes other rows of the records by now, ``stage_step`` stages them again first. Raises
    RowRulesChangedError without one, BatchBlockedError when a check fails that blocks, and CheckNotRunError when a
    critical one could not run.
    """
    with go_on_with_work(platform, batch_id, run) as held:
        return _audit(held, batch_id, run, stage_step)


def _audit(platform: Platform, batch_id: int, run: str, stage_step: StageStep | None) -> Batch:
    batch = load_batch(platform, batch_id)
    is_audited = batch.state in (BatchState.AUDITED, BatchState.COMMITTING)
    if is_published_by(batch, run) or (is_audited and batch.attempt_run == run):
        return batch
    attempt = own_attempt(platform, batch, run, BatchState.STAGED)
    if stage_by_present_rules(platform, attempt, stage_step):
        attempt = own_attempt(platform, load_batch(platform, batch_id), run, BatchState.STAGED)
    with _noting_failure(platform, attempt, Step.AUDIT):
        require_same_rules(platform, attempt)
        try:
            batch = judge_attempt(platform, attempt, BatchState.STAGED)
        except TargetRefusedError as error:
            raise _block(platform, attempt, error) from error
    if batch.state is BatchState.AUDITED and batch.lane is Lane.REPLAY and not batch.is_dry_run:
        _tell_what_would_differ(platform, attempt)
    return batch


def publish(platform: Platform, batch_id: int, run: str, stage_step: StageStep | None = None) -> Batch:
    """Make rows, quarantine and positions visible as the delivery mode says, then clean up.

    exactly_once: in one transaction (I3). A lost connection during COMMIT is resolved by looking the batch up again on
    a new connection (I9). Publishing a batch that this run has published already only repeats the cleaning up. If
    another batch has changed what a duplicate is since the audit, the staged rows are audited again. If the pipeline
    file makes other rows of the records by now, they are staged and audited again, as ``audit`` does.
    """
    with go_on_with_work(platform, batch_id, run) as held:
        return _publish(held, batch_id, run, stage_step)


def _publish(platform: Platform, batch_id: int, run: str, stage_step: StageStep | None) -> Batch:
    batch = load_batch(platform, batch_id)
    if batch.is_dry_run:
        raise never_published(batch)
    if not is_published_by(batch, run):
        expected = BatchState.COMMITTING if batch.state is BatchState.COMMITTING else BatchState.AUDITED
        attempt = own_attempt(platform, batch, run, expected)
        if expected is BatchState.AUDITED and stage_by_present_rules(platform, attempt, stage_step):
            attempt = own_attempt(platform, _audit(platform, batch_id, run, None), run, expected)
        with _noting_failure(platform, attempt, Step.PUBLISH):
            return _publish_attempt(platform, attempt)
    if batch.delivery is DeliveryMode.AT_MOST_ONCE and not platform.ledger.has_rows(batch_id):
        # The process that committed the position may be about to write the rows from this staging.
        logger.warning(
            "%s was published by an earlier try of this run; if that was killed between its two commits, the rows are "
            "lost, as at_most_once allows. See with: batchledger verify %s",
            batch.label,
            batch.pipeline,
        )
        return batch
    return _clean_up(platform, batch, run)


def run_once(
    platform: Platform, run: str, batch_id: int | None = None, stage_step: StageStep | None = None
) -> Batch | None:
    """Take one batch through its whole life; ``batch_id`` takes that one again, a blocked one included.

    ``stage_step`` as for ``take_through``. Raises AtWorkError while another run is at work on the batch.
    """
    if batch_id is not None:
        return take_through(platform, batch_id, run, stage_step)
    while batch := plan(platform, run):
        with begin_work(platform, batch.batch_id, run) as held:
            found = load_batch(held, batch.batch_id)
            if not found.state.is_final or is_published_by(found, run):
                return take_through(held, batch.batch_id, run, stage_step)
        # Another run has ended it between the two looks; what it left is planned on top of it.
    return None


def take_through(platform: Platform, batch_id: int, run: str, stage_step: StageStep | None = None) -> Batch:
    """Stage, audit and publish a batch of either lane that is planned; ``stage_step`` is ``stream_or_stage`` without.

    One process does all of it: if it dies, at any step, the next run takes the batch over at once.
    """
    stage_step = stage_step or stream_or_stage
    with begin_work(platform, batch_id, run) as held:
        stage_step(held, batch_id, run)
        audit(held, batch_id, run, stage_step)
        return publish(held, batch_id, run, stage_step)


def _resume_commit(platform: Platform, batch: Batch, run: str) -> Batch:
    """Find out whether the sink has committed a batch, and finish it; return it audited when its staging is gone."""
    attempt = platform.ledger.resume_commit(batch.batch_id, run)
    logger.warning("%s attempt %d was committing; its sink is asked first", batch.label, attempt.number)
    try:
        with _noting_failure(platform, attempt, Step.PUBLISH):
            return _publish_attempt(platform, attempt)
    except StagingLostError as error:
        found = platform.ledger.load_batch(batch.batch_id)
        if not (is_of(found, attempt) and found.state is BatchState.AUDITED):
            raise
        logger.warning("%s was not committed, and is read again: %s", batch.label, error)
        return found


def _publish_attempt(platform: Platform, attempt: Attempt, *, is_last_try: bool = False) -> Batch:
    """Deliver an attempt that is audited or committing, and clean up; return the batch as it is then."""
    batch = attempt.batch
    try:
        _deliver(platform, attempt)
    except TargetRefusedError as error:
        # Tried again it would be refused again: a person has to change the table, the transform or the records.
        raise _block(platform, attempt, name_refused(platform, attempt, error)) from error
    except (OutcomeUnknownError, FencedError) as error:
        # Unknown: ask for the batch id (I9). Fenced: perhaps by a twin of this very step, with the same attempt.
        chosen, found = find_next(platform, attempt, error, {BatchState.PUBLISHED})
        if chosen is Next.GO_ON and not is_last_try:
            return _publish_attempt(platform, replace(attempt, batch=found), is_last_try=True)
        if chosen is not Next.TAKE_RESULT:
            raise
        # With its rows there nothing is left to do: it took offsets over, in one commit, or a twin wrote them.
        if batch.delivery is DeliveryMode.AT_MOST_ONCE and not platform.ledger.has_rows(batch.batch_id):
            return _leave_to_twin(attempt, found, error)
    platform.crash("committed")
    found = platform.ledger.load_batch(batch.batch_id)
    if found.state is not BatchState.PUBLISHED:
        raise OutcomeUnknownError(
            f"{batch.label} was committed, and the ledger has it {found.state}.", advice="Run it again."
        )
    return _clean_up(platform, found, attempt.run)


@contextmanager
def _noting_failure(platform: Platform, attempt: Attempt, step: Step) -> Iterator[None]:
    """Leave the error with which a step ends on its attempt, for people to find; the step may be repeated.

    A run that was fenced has nothing to do with the attempt any more, and a blocked batch says why by its checks.
    """
    try:
        yield
    except (FencedError, BatchBlockedError):
        raise
    except BatchledgerError as error:
        try:
            platform.ledger.mark_failed(attempt, StepFailure(step, str(error), error.quoted))
        except BatchledgerError as lost:
            logger.warning("the error of %s is not in the ledger: %s", attempt.batch.label, lost)
        raise


def _clean_up(platform: Platform, batch: Batch, run: str) -> Batch:
    """Say that a batch is published, remove what it has staged, and let lag tools know of it."""
    logger.info("%s attempt %d published: %s", batch.label, batch.attempt, describe_ranges(batch.ranges))
    attempt = Attempt(batch, batch.attempt, run)
    with platform.trace(StepPart.CLEAN_UP, attempt):
        drop_staging(platform, attempt)
        _commit_courtesy(platform, batch)
    return batch


def _deliver(platform: Platform, attempt: Attempt) -> None:
    """Deliver what the audit has accepted; if that is not the same any more, audit what is staged again first.

    With ``dedupe`` every batch that is published in between may change which rows are duplicates. The staging is as it
    was, and the new result takes the old one's place in one transaction: the batch is audited all the time, so a
    crash leaves nothing to repair. Raises AuditOutdatedError, with which the step may be repeated, when others were
    faster each time.
    """
    for _ in range(AUDITS_WHILE_PUBLISHING):
        try:
            deliver(platform, attempt)
        except AuditOutdatedError as error:
            logger.warning("%s It is audited again.", error)
            attempt = replace(attempt, batch=judge_attempt(platform, attempt, BatchState.AUDITED))
        else:
            return
    deliver(platform, attempt)


def _tell_what_would_differ(platform: Platform, attempt: Attempt) -> None:
    """Compare a replay with the target, so that its log says what is about to change."""
    try:
        logger.info("%s compared with the target: %s", attempt.batch.label, platform.sink.compare(attempt, 0))
    except (TargetRefusedError, StagingLostError) as error:
        # Its publication says so again, and acts on it.
        logger.warning("%s cannot be compared with the target: %s", attempt.batch.label, error)


def _leave_to_twin(attempt: Attempt, found: Batch, error: BatchledgerError) -> Batch:
    """End an at-most-once publication whose position is committed: by a twin, or by this run, which lost the reply.

    Only a process that knows that it committed the position may write the rows. Otherwise two could write them.
    """
    if isinstance(error, OutcomeUnknownError):
        raise rows_lost(attempt, error) from error
    return found


def _check_before_reading(platform: Platform, batch: Batch) -> None:
    if batch.origin is RecordOrigin.QUARANTINE:
        check_quarantined(batch, platform.ledger.find_quarantined(batch.pipeline, batch.ranges))
        return
    positions, log = look_at_source(platform, batch)
    if batch.lane is Lane.LIVE:
        check_source(batch.pipeline, positions, log, topics_of(batch))
    else:
        check_identity(positions, log)
        check_readable(batch, log)


def _block(platform: Platform, attempt: Attempt, error: TargetRefusedError) -> BatchledgerError:
    """Block the batch, and return what to raise; a twin of this very step may have been faster.

    A batch whose outcome is unknown stays committing: its sink says why.
    """
    refusal = CheckResult(ACCEPTED_BY_TARGET, Outcome.FAILED, str(error), error.where)
    try:
        return blocked(platform.ledger.block(attempt, refusal, error.quoted), [refusal])
    except FencedError as fenced:
        chosen, found = find_next(platform, attempt, fenced, {BatchState.BLOCKED})
        if chosen is Next.TAKE_RESULT:
            return blocked(found, [refusal])
        return error if found.state is BatchState.COMMITTING and chosen is Next.GO_ON else fenced


def _commit_courtesy(platform: Platform, batch: Batch) -> None:
    if batch.lane is Lane.REPLAY:
        return
    next_offsets = {each.partition: each.until for each in batch.ranges}
    try:
        platform.source.commit_courtesy(f"batchledger.{batch.pipeline}", next_offsets)
    except ServiceUnavailableError as error:
        logger.warning(
            "%s is published; only the courtesy offsets for lag tools were not committed: %s", batch.label, error
        )
