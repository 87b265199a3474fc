"""Decisions of people, for cases that the pipeline cannot decide: each is checked, then recorded with its effect.

A decision says who, why and exactly what; the ledger keeps it for ever. It is stored together with its effect in one
transaction, under the locks of a publication and against what was looked at before: a position, an attempt, an epoch.
Every function here may be repeated. With the platform of ``rehearse`` it checks as always and changes nothing.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from batchledger.lifecycle import plans, row_rules, run_batch
from batchledger.lifecycle.delivery import name_refused, require_taken
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
from batchledger.model.capabilities import require_able
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
from batchledger.ports import Decisions, TargetAccess
from batchledger.proof.adoption import require_proved

logger = logging.getLogger(__name__)


def rehearse(platform: Platform) -> Platform:
    """Return the platform for a dry run: decisions are checked and carried out as always, and none is kept."""
    return replace(platform, decisions=platform.decisions.rehearsal)


def accept_loss(
    platform: Platform, lost: Sequence[OffsetRange], decision: Decision, discard: int | None = None
) -> Decided:
    """Account for offsets that Kafka no longer holds, and move exactly their partitions past them.

    Each range has to start at the position of its partition and to lie below the log start, so no readable record is
    given up. Staged records of the open batch are given up only if ``discard`` is its id. Raises DecisionRefusedError,
    TopicChangedError, PositionConflictError.
    """
    return _give_up(platform, DecisionKind.ACCEPT_LOSS, lost, decision, discard)


def skip(platform: Platform, ranges: Sequence[OffsetRange], decision: Decision, discard: int | None = None) -> Decided:
    """Give up offsets that can be read, as ``accept_loss`` gives up lost ones.

    Each range has to start at the position of its partition and to end at the readable end or before. If records were
    lost, accept the loss first.
    """
    return _give_up(platform, DecisionKind.SKIP, ranges, decision, discard)


def accept(platform: Platform, batch_id: int, decision: Decision) -> Decided:
    """Publish a blocked batch as it is staged. Unexplained offsets become an accepted loss.

    An audited batch whose rows are visible already (at_least_once) needs no record of Kafka any more. The blocked
    attempt publishes it, so a newer one fences it; repeated after a crash, it publishes the same. Raises
    DecisionRefusedError if rows are wrong or refused, StagingLostError, and what ``run_batch.publish`` raises.
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
        log_decided(platform.decisions, decided)
    if not platform.decisions.is_kept:
        return decided
    run_batch.publish(platform, batch_id, str(batch.attempt_run))
    return replace(decided, means=(f"Then {batch.label} was published.",)) if decided.is_new else decided


def discard(platform: Platform, batch_id: int, decision: Decision) -> Decided:
    """Close a batch that is not published. The next run plans the offsets of a live one; a replay is over.

    Raises DecisionRefusedError if it is published, or its rows are visible already (at_least_once).
    """
    require_reason(decision)
    batch = load_batch(platform, batch_id)
    decided = platform.decisions.discard(batch_id, decision)
    _drop_discarded(platform, batch)
    return log_decided(platform.decisions, decided)


def rewind(platform: Platform, asked: Rewind, decision: Decision) -> Decided:
    """Open the pipeline's next epoch further back. Its rows replace the rows of earlier epochs.

    If the target cannot replace rows, readers see them once more: a log line says so before the decision, and the
    ``warning`` of the result after it.

    Raises DecisionRefusedError if it does not go backwards or Kafka no longer holds the offsets, ExpiredError if it
    would remove rows that cannot be read again, TopicChangedError, and PositionConflictError if another rewind was
    faster, or new rows came that this one would remove unseen.
    """
    require_reason(decision)
    rules = platform.rules
    if asked.truncate:
        require_able(platform.sink.capabilities.no_emptying, platform.sink.name, rules.name)
    epoch = platform.decisions.load_epoch(rules.name)
    positions = tuple(load_positions(platform).values())
    log = platform.source.read_log(rules.topics)
    check_topics(rules.name, log, rules.topics, positions, is_json=rules.is_json)
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
    return log_decided(platform.decisions, replace(decided, warning=once_more))


def adopt_target(platform: Platform, decision: Decision) -> Decided:
    """Let the pipeline go on with a restored or moved target, the one that its file names, once it is proved.

    The decision records the proof; the ``warning`` says what it leaves open. It adopts the very target that was proved:
    if another one takes its place, the next publication refuses it. Raises DecisionRefusedError if there is no target,
    or it differs from the ledger, or belongs to another pipeline; and UnsettledError.
    """
    require_reason(decision)
    name = platform.rules.name
    before, found = platform.ledger.list_targets().get(name), platform.sink.find_target()
    if before is None:
        raise nothing_to_adopt(name)
    if found is None:
        raise DecisionRefusedError(
            f"The target that the section sink of {name} names is not there. Nothing was adopted.",
            why=f"{name} published to {before.name} before.",
            advice="Restore it first, or correct the section sink.",
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
    return log_decided(platform.decisions, replace(decided, warning=warning))


def drop_quarantined(platform: Platform, ranges: Sequence[OffsetRange] | None, decision: Decision) -> Decided:
    """Remove records from quarantine for good: those in the ranges, or all."""
    require_reason(decision)
    name = platform.rules.name
    found = merge_ranges(each.range for each in platform.ledger.find_quarantined(name, ranges))
    return log_decided(platform.decisions, platform.decisions.drop_quarantined(name, found, decision))


def pause(platform: Platform, decision: Decision) -> Decided:
    """Plan nothing new until ``resume``. A run may finish the batch that it has planned."""
    require_reason(decision)
    return log_decided(platform.decisions, platform.decisions.pause(platform.rules.name, decision))


def resume(platform: Platform, decision: Decision) -> Decided:
    """End a pause."""
    require_reason(decision)
    return log_decided(platform.decisions, platform.decisions.resume(platform.rules.name, decision))


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
    # A new partition may have lost its beginning before it was ever planned: it has no position yet. The next plan
    # decides where a topic starts that was never read.
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
    return log_decided(platform.decisions, decided)


def _require_allowed(
    pipeline: str, kind: DecisionKind, ranges: Sequence[OffsetRange], positions: Sequence[Position], log: LogState
) -> None:
    if kind is DecisionKind.ACCEPT_LOSS:
        allowed = find_losses(positions, log)
        what = f"Lost: {describe_ranges(allowed)}." if allowed else f"{pipeline} has no loss that is not accepted."
        rule = "Name what Kafka has removed before it was read, from the stored position on."
    else:
        _require_not_lost(pipeline, ranges, find_losses(positions, log))
        ends = {each: held.end for each, held in log.log_by_partition.items()}
        unread = [each for each in positions if each.next_offset < ends[each.partition]]
        allowed = [OffsetRange(each.partition, each.next_offset, ends[each.partition]) for each in unread]
        what = f"Unread: {describe_ranges(allowed)}." if allowed else f"{pipeline} has read everything there is."
        rule = "Begin a skip at the stored position, and end it at the readable end or before."
    for each in ranges:
        if not any(
            each.start == one.start and each.until <= one.until and each.partition == one.partition for one in allowed
        ):
            raise DecisionRefusedError(
                f"{each} cannot be given up ({kind}). Nothing was changed.", why=what, advice=rule, ranges=(each,)
            )


def _require_not_lost(pipeline: str, ranges: Sequence[OffsetRange], losses: Sequence[OffsetRange]) -> None:
    """Raise if a skip would hide that records were lost."""
    for lost in losses:
        if any(each.partition == lost.partition for each in ranges):
            raise DecisionRefusedError(
                f"{lost.partition} cannot be skipped yet. Nothing was changed.",
                why=f"Kafka has removed {lost} before it was read. A skip would hide this loss.",
                advice=f'Accept the loss first: batchledger accept-loss {pipeline} "{lost}" --reason WHY',
                ranges=(lost,),
            )


def _require_acceptable(platform: Platform, attempt: Attempt) -> None:
    """Raise unless a person may accept what blocks the attempt, and its rows are still there."""
    batch = attempt.batch
    again = f"Take it again: batchledger run {batch.pipeline} --batch {batch.batch_id}"
    if batch.is_dry_run:
        raise never_published(batch)
    is_between_commits = batch.state is BatchState.AUDITED and platform.ledger.has_rows(batch.batch_id)
    if batch.state is not BatchState.BLOCKED and not is_between_commits:
        raise DecisionRefusedError(
            f"{batch.label} is {batch.state}. Only a blocked batch can be accepted.",
            advice=f"Look at it: batchledger batch {batch.batch_id}",
            batch_id=batch.batch_id,
        )
    checks = platform.ledger.load_checks(batch.batch_id)
    failed = [each for each in checks if each.blocks]
    wrong = [f"{each.name}: {each.detail}" for each in failed if each.name in CHECKS_NEVER_ACCEPTED]
    if wrong or not (failed or is_between_commits):
        raise DecisionRefusedError(
            f"{batch.label} cannot be accepted: no decision makes wrong rows right. Nothing was changed.",
            why="\n".join(wrong) or "No check has judged it.",
            advice=f"{again}\nOr discard it: batchledger discard {batch.batch_id} --reason WHY",
            batch_id=batch.batch_id,
        )
    balances = platform.decisions.load_balances(batch.batch_id)
    give_up_unexplained(balances)
    audited = sum(each.accepted + each.duplicates for each in balances)
    try:
        with platform.sink.read_staged(attempt) as rows:
            staged = sum(each.rows for each in rows.summarise())
    except StagingLostError as error:
        raise StagingLostError(f"Staging of {batch.label} is gone.", advice=again, batch_id=batch.batch_id) from error
    if staged != audited or {each.range for each in balances} != set(batch.ranges):
        raise StagingLostError(
            f"The staging of {batch.label} has changed since its audit.",
            why=f"The audit found {audited} rows, staging holds {staged}.",
            advice=again,
            batch_id=batch.batch_id,
        )
    row_rules.require_same_rules(platform, attempt)
    if is_refused_by_target(checks):
        _require_taken(platform, attempt, checks)


def _require_taken(platform: Platform, attempt: Attempt, checks: Sequence[CheckResult]) -> None:
    """Raise while the target refuses the rows: else the decision would be recorded, and the batch blocked as before.

    A corrected target passes. Kafka may have removed the records by then, so the staged rows are the only ones.
    """
    try:
        # The publication repeats an outdated audit.
        with suppress(AuditOutdatedError):
            require_taken(platform, attempt)
    except TargetRefusedError as error:
        raise DecisionRefusedError(
            f"{attempt.batch.label} cannot be accepted: no decision makes the target take the rows.",
            why=str(name_refused(platform, attempt, error, BatchState.BLOCKED)),
            advice=ways_out(attempt.batch, checks),
            batch_id=attempt.batch.batch_id,
        ) from error


def _find_acceptance(platform: Platform, batch: Batch) -> DecisionRecord | None:
    """Return the decision that accepted the present attempt of the batch."""
    for each in platform.decisions.load_decisions(batch.batch_id):
        if each.kind == DecisionKind.ACCEPT and each.after is not None and each.after["attempt"] == batch.attempt:
            return each
    return None


def _emptied_perhaps(pipeline: str, error: OutcomeUnknownError) -> OutcomeUnknownError:
    """Warn of a repetition: if a run has published in between, the rewind would empty the table once more."""
    return OutcomeUnknownError(
        str(error),
        advice=f"Before you repeat it, look whether the rewind is listed: batchledger batches {pipeline}\n"
        "If it is, the table was emptied, and repeating it would remove what has been published since.",
        batch_id=error.batch_id,
    )


def _count_rows(platform: Platform) -> Callable[[TargetAccess], int]:
    """Return what replaces emptying the target in a dry run: it counts rows, and readers need not wait."""
    counts = platform.sink.count_target(platform.rules.name)
    return lambda _: sum(each.rows for each in counts.by_batch.values())


def _drop_discarded(platform: Platform, batch: Batch | None) -> None:
    """Remove the staging of a batch if a decision that is kept has discarded it."""
    if batch is not None and platform.decisions.is_kept:
        drop_discarded(platform, batch)


def log_decided(decisions: Decisions, decided: Decided) -> Decided:
    """Log a change. A rehearsal or a repetition changes nothing."""
    record = decided.record
    if record is not None and decided.is_new and decisions.is_kept:
        where = record.pipeline if record.batch_id is None else f"{record.pipeline}, batch {record.batch_id}"
        logger.warning("%s of %s by %s: %s", record.subject, where, record.people, record.reason)
    return decided


def require_reason(decision: Decision) -> None:
    """Raise DecisionRefusedError without a reason."""
    if not decision.reason.strip():
        raise DecisionRefusedError("A decision needs a reason, which others can read later.", advice="Give one.")


def _require_distinct(ranges: Sequence[OffsetRange]) -> None:
    partitions = [each.partition for each in ranges]
    if not ranges or not all(ranges) or len(set(partitions)) < len(partitions):
        raise DecisionRefusedError(
            f"These ranges cannot be given up: {describe_ranges(ranges) or 'no range at all'}.",
            advice="Name each partition once, with at least one offset, as the error of the run does.",
        )
