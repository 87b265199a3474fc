"""What a person decides when the pipeline cannot: each decision is checked, then recorded with what it changes.

A decision says who, why and exactly what; the ledger keeps it for ever. It is stored together with its effect in one
transaction, under the locks of a publication and against what was looked at before: a position, an attempt, an epoch.
Every function here may be repeated. With the platform of ``rehearse`` it checks as always and changes nothing.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.delivery import require_taken
from batchledger.lifecycle.ownership import drop_discarded, load_batch
from batchledger.lifecycle.platform import Platform, load_positions
from batchledger.model import effects
from batchledger.model.balance import give_up_unexplained
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
    LogState,
    Position,
)
from batchledger.model.checks import CHECKS_NEVER_ACCEPTED, CheckResult
from batchledger.model.errors import (
    AuditOutdatedError,
    DecisionRefusedError,
    OutcomeUnknownError,
    StagingLostError,
    TargetRefusedError,
)
from batchledger.model.offsets import OffsetRange, describe_ranges, merge_ranges
from batchledger.model.refusals import (
    is_refused_by_target,
    never_published,
    nothing_to_adopt,
    published_already,
    ways_out,
)
from batchledger.planning.live import check_identity, check_topics, choose_first_positions, find_losses
from batchledger.planning.rewind import ResolvedRewind, Rewind, check_truncation, list_read_again, resolve_rewind
from batchledger.ports import TargetAccess
from batchledger.proof.adoption import require_proved

logger = logging.getLogger(__name__)


def rehearse(platform: Platform) -> Platform:
    """Return the platform for a dry run: decisions are checked and carried out as always, and none is kept."""
    return replace(platform, decisions=platform.decisions.rehearsal)


def accept_loss(
    platform: Platform, lost: Sequence[OffsetRange], decision: Decision, discard: int | None = None
) -> Decided:
    """Account for offsets that Kafka no longer holds, and move exactly their partitions past them.

    Each range has to start at the position of its partition and to lie below the log start: what can still be read is
    never given up by it, and what the open batch has staged only when ``discard`` is its id. Raises
    DecisionRefusedError, TopicChangedError, PositionConflictError.
    """
    return _give_up(platform, DecisionKind.ACCEPT_LOSS, lost, decision, discard)


def skip(platform: Platform, ranges: Sequence[OffsetRange], decision: Decision, discard: int | None = None) -> Decided:
    """Give up offsets that can be read, as ``accept_loss`` does it with those that are gone.

    Each range has to start at the position of its partition and to end at the readable end or before. Where records
    were lost, that is accepted first.
    """
    return _give_up(platform, DecisionKind.SKIP, ranges, decision, discard)


def accept(platform: Platform, batch_id: int, decision: Decision) -> Decided:
    """Publish a blocked batch as it is staged; offsets that nobody has explained become an accepted loss.

    Also an audited one whose rows are visible already (at_least_once), so that it needs no record of Kafka any more. It
    is published by the attempt that was blocked, so whoever opens a newer one fences it. Repeated after a crash it
    publishes what was accepted. Raises DecisionRefusedError when the rows themselves are wrong, or the target that has
    refused them still does; StagingLostError when they are gone; and what ``run_batch.publish`` raises.
    """
    require_reason(decision)
    batch = load_batch(platform, batch_id)
    standing = _find_acceptance(platform, batch)
    if batch.state is BatchState.PUBLISHED and standing is None:
        raise published_already(batch)
    if standing is not None and batch.state.is_permitted:
        decided = Decided(standing, is_new=False)
    else:
        attempt = Attempt(batch, batch.attempt, str(batch.attempt_run))
        _require_acceptable(platform, attempt)
        decided = platform.decisions.accept(attempt, decision)
        _log(platform, decided)
    if platform.decisions.is_kept:
        run_batch.publish(platform, batch_id, str(batch.attempt_run))
    return decided


def discard(platform: Platform, batch_id: int, decision: Decision) -> Decided:
    """Close a batch that is not published. The next run plans what it held of the live lane; a replay is over.

    Raises DecisionRefusedError when it is published, or its rows are visible already (at_least_once).
    """
    require_reason(decision)
    batch = load_batch(platform, batch_id)
    decided = platform.decisions.discard(batch_id, decision)
    _drop_discarded(platform, batch)
    return _log(platform, decided)


def rewind(platform: Platform, asked: Rewind, decision: Decision) -> Decided:
    """Open the pipeline's next epoch further back; what it publishes replaces what earlier epochs hold.

    Where the target cannot replace, readers see it once more: that is logged before it is decided, and told by the
    ``warning`` of what comes of it.

    Raises DecisionRefusedError where it does not go backwards or Kafka holds nothing any more, ExpiredError when rows
    would be removed that nobody can read again, TopicChangedError, and PositionConflictError when somebody else was
    faster: with another rewind, or with rows that this one would remove unseen.
    """
    require_reason(decision)
    rules = platform.rules
    if asked.truncate:
        _require_replaceable(platform)
    epoch = platform.decisions.load_epoch(rules.name)
    positions = tuple(load_positions(platform).values())
    log = platform.source.read_log(rules.topics)
    check_topics(rules.name, log, rules.topics)
    check_identity(positions, log)
    found_at = (
        platform.source.find_offsets(tuple(log.log_by_partition), asked.to) if isinstance(asked.to, datetime) else {}
    )
    offsets = resolve_rewind(rules.name, asked, positions, log, found_at)
    given_up: tuple[OffsetRange, ...] = ()
    if asked.truncate:
        given_up = check_truncation(rules.name, asked, offsets, platform.decisions.load_held(rules.name), log)
    once_more = plans.find_once_more(platform, list_read_again(offsets, positions))
    if once_more and platform.decisions.is_kept:
        logger.warning("rewind of %s: %s", rules.name, once_more)
    open_batch = platform.ledger.find_open_batch(rules.name)
    empty = platform.sink.truncate if platform.decisions.is_kept else _count_rows(platform)
    try:
        decided = platform.decisions.rewind(
            rules.name, ResolvedRewind(epoch, offsets, given_up), decision, empty if asked.truncate else None
        )
    except OutcomeUnknownError as error:
        raise (_emptied_perhaps(rules.name, error) if asked.truncate else error) from error
    _drop_discarded(platform, open_batch)
    return _log(platform, replace(decided, warning=once_more))


def adopt_target(platform: Platform, decision: Decision) -> Decided:
    """Let the pipeline go on with the target that its file names, which was restored or moved, once it is proved.

    What was proved is recorded; the ``warning`` says what the proof leaves open. The decision adopts the very target
    that was looked at: if another one takes its place, the next publication refuses it. Raises DecisionRefusedError
    when there is no target, when it differs from the ledger, or is another pipeline's; and UnsettledError.
    """
    require_reason(decision)
    name = platform.rules.name
    before, found = platform.ledger.list_targets().get(name), platform.sink.find_target()
    if before is None:
        raise nothing_to_adopt(name)
    if found is None:
        raise DecisionRefusedError(
            f"what the section sink of {name} names is not there, so {name} cannot adopt it; it published to "
            f"{before.name}. Restore it first, or correct the section sink.",
            pipeline=name,
        )
    if found == before:
        return Decided(None, is_new=False)
    proof = platform.prove()
    warning = require_proved(found, proof)
    if warning and platform.decisions.is_kept:
        logger.warning("adopt-target of %s: %s", name, warning)
    effect = effects.proving(proof.rows, proof.batches, proof.newest_found)
    decided = platform.decisions.adopt_target(name, found, decision, effect)
    return _log(platform, replace(decided, warning=warning))


def drop_quarantined(platform: Platform, ranges: Sequence[OffsetRange] | None, decision: Decision) -> Decided:
    """Remove records from quarantine for good: what it has of the ranges, or all."""
    require_reason(decision)
    name = platform.rules.name
    found = merge_ranges(each.range for each in platform.ledger.find_quarantined(name, ranges))
    return _log(platform, platform.decisions.drop_quarantined(name, found, decision))


def pause(platform: Platform, decision: Decision) -> Decided:
    """Plan nothing new until ``resume``; what is planned may be finished by the run that has planned it."""
    require_reason(decision)
    return _log(platform, platform.decisions.pause(platform.rules.name, decision))


def resume(platform: Platform, decision: Decision) -> Decided:
    """End a pause."""
    require_reason(decision)
    return _log(platform, platform.decisions.resume(platform.rules.name, decision))


def _give_up(
    platform: Platform, kind: DecisionKind, ranges: Sequence[OffsetRange], decision: Decision, discard: int | None
) -> Decided:
    rules, ledger = platform.rules, platform.ledger
    require_reason(decision)
    _require_distinct(ranges)
    standing = platform.decisions.find_given_up(rules.name, ranges, kind)
    if standing is not None:
        return Decided(standing, is_new=False)
    stored = load_positions(platform)
    log = platform.source.read_log(rules.topics)
    # A partition that was added and lost its beginning before it was ever planned has no position yet. Where a topic
    # starts that was never read is for the next plan to say.
    topics = {each.topic for each in stored}
    chosen = choose_first_positions(stored, log, rules.start, {})
    first = tuple(each for each in chosen if each.partition.topic in topics)
    positions = (*stored.values(), *first)
    check_identity(positions, log)
    _require_allowed(rules.name, kind, ranges, positions, log)
    concerned = {each.partition for each in ranges}
    open_batch = ledger.find_open_batch(rules.name)
    decided = platform.decisions.give_up(
        rules.name,
        ranges,
        kind,
        decision,
        first_positions=[each for each in first if each.partition in concerned],
        discard=discard,
    )
    _drop_discarded(platform, open_batch)
    return _log(platform, decided)


def _require_allowed(
    pipeline: str, kind: DecisionKind, ranges: Sequence[OffsetRange], positions: Sequence[Position], log: LogState
) -> None:
    if kind is DecisionKind.ACCEPT_LOSS:
        allowed = find_losses(positions, log)
        what = (
            f"lost are {describe_ranges(allowed)}" if allowed else f"{pipeline} has lost nothing that is not accepted"
        )
        rule = "accepted as lost is only what Kafka has removed before it was read, from the stored position on"
    else:
        _require_not_lost(pipeline, ranges, find_losses(positions, log))
        ends = {each: held.end for each, held in log.log_by_partition.items()}
        unread = [each for each in positions if each.next_offset < ends[each.partition]]
        allowed = [OffsetRange(each.partition, each.next_offset, ends[each.partition]) for each in unread]
        what = f"unread are {describe_ranges(allowed)}" if allowed else f"{pipeline} has read everything there is"
        rule = "a skip begins at the stored position and ends at the readable end or before"
    for each in ranges:
        if not any(
            each.start == one.start and each.until <= one.until and each.partition == one.partition for one in allowed
        ):
            raise DecisionRefusedError(f"{each} cannot be given up ({kind}): {what}; {rule}.", ranges=(each,))


def _require_not_lost(pipeline: str, ranges: Sequence[OffsetRange], losses: Sequence[OffsetRange]) -> None:
    """Raise when a skip would pass for something else than it is: it would hide that records were lost."""
    for lost in losses:
        if any(each.partition == lost.partition for each in ranges):
            raise DecisionRefusedError(
                f"{lost.partition} cannot be skipped yet: Kafka has removed {lost} before it was read, and a loss is "
                f'accepted by its name: batchledger accept-loss {pipeline} "{lost}" --reason WHY. Then skip what '
                "follows.",
                ranges=(lost,),
            )


def _require_acceptable(platform: Platform, attempt: Attempt) -> None:
    """Raise unless a person may take upon himself what holds the attempt up, and its rows are still there."""
    batch = attempt.batch
    again = f"Take it again: batchledger run {batch.pipeline} --batch {batch.batch_id}"
    if batch.is_dry_run:
        raise never_published(batch)
    is_between_commits = batch.state is BatchState.AUDITED and platform.ledger.has_rows(batch.batch_id)
    if batch.state is not BatchState.BLOCKED and not is_between_commits:
        raise DecisionRefusedError(
            f"{batch.label} is {batch.state}, and only a blocked batch can be accepted. See it with: batchledger batch "
            f"{batch.batch_id}.",
            batch_id=batch.batch_id,
        )
    checks = platform.ledger.load_checks(batch.batch_id)
    failed = [each for each in checks if each.blocks]
    wrong = [f"{each.name}: {each.detail}" for each in failed if each.name in CHECKS_NEVER_ACCEPTED]
    if wrong or not (failed or is_between_commits):
        raise DecisionRefusedError(
            f"{batch.label} cannot be accepted: {'; '.join(wrong) or 'no check has judged it'}. No decision makes "
            f"wrong rows right. {again}, or discard it.",
            batch_id=batch.batch_id,
        )
    balances = platform.decisions.load_balances(batch.batch_id)
    give_up_unexplained(balances)
    audited = sum(each.accepted + each.duplicates for each in balances)
    try:
        with platform.sink.read_staged(attempt) as rows:
            staged = sum(each.rows for each in rows.summarise())
    except StagingLostError as error:
        raise StagingLostError(f"the staging of {batch.label} is gone. {again}", batch_id=batch.batch_id) from error
    if staged != audited or {each.range for each in balances} != set(batch.ranges):
        raise StagingLostError(
            f"the audit of {batch.label} found {audited} rows, staging holds {staged}. {again}", batch_id=batch.batch_id
        )
    if is_refused_by_target(checks):
        _require_taken(platform, attempt, checks)


def _require_taken(platform: Platform, attempt: Attempt, checks: Sequence[CheckResult]) -> None:
    """Raise while the target refuses the rows: else a decision would be recorded, and the batch be blocked as before.

    Not once it was corrected: where Kafka has removed the records by then, what is staged is all there is.
    """
    try:
        # What is outdated is audited again when it is published.
        with suppress(AuditOutdatedError):
            require_taken(platform, attempt)
    except TargetRefusedError as error:
        raise DecisionRefusedError(
            f"{attempt.batch.label} cannot be accepted: {error} No decision lets the target take the rows; nothing was "
            f"changed. {ways_out(attempt.batch, checks)}",
            batch_id=attempt.batch.batch_id,
        ) from error


def _find_acceptance(platform: Platform, batch: Batch) -> DecisionRecord | None:
    """Return the decision that accepted the present attempt of the batch."""
    for each in platform.decisions.load_decisions(batch.batch_id):
        if each.kind == DecisionKind.ACCEPT and each.after is not None and each.after["attempt"] == batch.attempt:
            return each
    return None


def _emptied_perhaps(pipeline: str, error: OutcomeUnknownError) -> OutcomeUnknownError:
    """Repeated after a run has published in between, the rewind would empty the table once more."""
    return OutcomeUnknownError(
        f"{error} Before you repeat it, look whether the rewind is listed: batchledger batches {pipeline}. If it is, "
        "the table was emptied, and repeating it would remove what has been published since.",
        batch_id=error.batch_id,
    )


def _count_rows(platform: Platform) -> Callable[[TargetAccess], int]:
    """What stands for emptying the target in a dry run: nobody has to wait for it."""
    counts = platform.sink.count_target(platform.rules.name)
    return lambda _: sum(each.rows for each in counts.by_batch.values())


def _drop_discarded(platform: Platform, batch: Batch | None) -> None:
    """Clean up what a batch has staged, if it was discarded by a decision that is kept."""
    if batch is not None and platform.decisions.is_kept:
        drop_discarded(platform, batch)


def _require_replaceable(platform: Platform) -> None:
    """Raise where rows cannot be taken away: what readers of a topic have seen stays."""
    if not platform.rules.mode.can_replace:
        raise DecisionRefusedError(
            f"the topic of {platform.rules.name} cannot be emptied: its readers have seen the records. Rewind without "
            "emptying it; what is read again is produced again.",
            pipeline=platform.rules.name,
        )


def _log(platform: Platform, decided: Decided) -> Decided:
    """Log what has changed, which neither a rehearsal nor a repetition has."""
    record = decided.record
    if record is not None and decided.is_new and platform.decisions.is_kept:
        where = record.pipeline if record.batch_id is None else f"{record.pipeline}, batch {record.batch_id}"
        logger.warning("%s of %s by %s: %s", record.kind, where, record.decided_by, record.reason)
    return decided


def require_reason(decision: Decision) -> None:
    """Raise DecisionRefusedError without a reason."""
    if not decision.reason.strip():
        raise DecisionRefusedError("a decision is recorded for a reason that others can read later; give one.")


def _require_distinct(ranges: Sequence[OffsetRange]) -> None:
    partitions = [each.partition for each in ranges]
    if not ranges or not all(ranges) or len(set(partitions)) < len(partitions):
        raise DecisionRefusedError(
            f"{describe_ranges(ranges) or 'no range at all'}: name each partition once, with at least one offset, as "
            "the error of the run does."
        )
