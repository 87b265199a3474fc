"""Why something is not done to a batch, in the words that people read: who was faster, what blocks it, what to do now.

Each function returns the error for its caller to raise, or the words that several errors share. No I/O here.
"""

from collections.abc import Mapping, Sequence

from batchledger.model.batch import Attempt, Batch, BatchState, DecisionRecord, Lane, Target
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, find_unjudged
from batchledger.model.counting import describe_count
from batchledger.model.errors import (
    AtWorkError,
    BatchBlockedError,
    CheckNotRunError,
    DecisionRefusedError,
    FencedError,
    OutcomePendingError,
    PipelinePausedError,
    PlanOvertakenError,
    PositionConflictError,
    PredecessorPendingError,
    ReplayRefusedError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets
from batchledger.model.presence import Patience, Presence


def fenced_by(found: Batch, attempt: Attempt) -> FencedError:
    """Say by whom ``attempt`` was superseded, given the batch as the ledger has it now."""
    if found.state is BatchState.DISCARDED:
        return closed(found, attempt.run)
    return FencedError(
        f"{found.label}: attempt {attempt.number} of run {attempt.run} is fenced by attempt {found.attempt} of run "
        f"{found.attempt_run}, which has the batch {found.state}. This attempt changed nothing visible.",
        batch_id=found.batch_id,
        attempt=found.attempt,
        run=found.attempt_run,
    )


def closed(found: Batch, run: str) -> FencedError:
    """Say why no attempt of ``run`` may be opened any more: the batch is published, or it was discarded."""
    if found.is_dry_run:
        message = f"{found.label} was a dry run, which is over and discarded; run {run} changes nothing."
    elif found.state is BatchState.DISCARDED:
        what_next = (
            "What is left of its offsets is planned again."
            if found.lane is Lane.LIVE
            else "The target stays as it is; ask for the replay again where it is still wanted."
        )
        message = (
            f"{found.label} was discarded by a person's decision, run {run} changes nothing. See who and why: "
            f"batchledger batch {found.batch_id}. {what_next}"
        )
    else:
        message = (
            f"{found.label} cannot be attempted again: attempt {found.attempt} of run {found.attempt_run} has it "
            f"{found.state}. Nothing is left to do for run {run}."
        )
    return FencedError(message, batch_id=found.batch_id, attempt=found.attempt, run=found.attempt_run)


def outcome_pending(batch: Batch) -> OutcomePendingError:
    """Say that nothing may change what the sink is perhaps showing already."""
    return OutcomePendingError(
        f"attempt {batch.attempt} of {batch.label}, by run {batch.attempt_run}, has begun to commit to its sink, and "
        "nobody has confirmed yet whether it has. Nothing was changed. When that run is gone, let its outcome be found "
        f"with: batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )


def left_to(batch: Batch, other: Presence, patience: Patience) -> AtWorkError:
    """Say which run is at work on the batch, at which step and since when, and what becomes of it."""
    step, since = _STEP_OF_STATE.get(batch.state, str(batch.state)), f"{other.since:%Y-%m-%d %H:%M:%S} UTC"
    silence = f"{other.silent_seconds:,.0f} s ago"
    if other.is_handed_on:
        doing = f"has ended a step {silence}, and {step} comes next"
        bound = f"If that does not begin within {patience.handed_on_seconds:,.0f} s, any run takes the batch over."
    else:
        doing = f"is at work on it since {since} ({step}), and gave its last sign of life {silence}"
        bound = (
            "If its process dies, the next run takes the batch over at once; if it stalls, after "
            f"{patience.stalled_seconds:,.0f} s without a sign of life."
        )
    return AtWorkError(
        f"{batch.label} is left to run {other.run} of {other.worker}, which {doing}. This run has changed nothing, and "
        f"nothing needs to be done. {bound} To wait for it: batchledger run {batch.pipeline} --until-caught-up",
        batch_id=batch.batch_id,
        state=str(batch.state),
        attempt=batch.attempt,
        step=step,
        other=other,
    )


_STEP_OF_STATE = {
    BatchState.PLANNED: "stage",
    BatchState.STAGED: "audit",
    BatchState.AUDITED: "publish",
    BatchState.COMMITTING: "publish",
    BatchState.BLOCKED: "stage",
}


def never_published(batch: Batch) -> ReplayRefusedError:
    """Say that a dry run changes nothing, whoever asks for it."""
    return ReplayRefusedError(
        f"{batch.label} is a dry run, which is never published; ask for the replay itself.", batch_id=batch.batch_id
    )


def stage_again(batch: Batch) -> str:
    """Say who stages an open batch again: of a replay nobody does so by himself."""
    if batch.lane is Lane.LIVE:
        return "the next run stages the batch again"
    return f"stage it again with: batchledger run {batch.pipeline} --batch {batch.batch_id}"


def still_held(batch: Batch) -> DecisionRefusedError:
    """Say that what is to be given up is staged, so that the batch may still publish it."""
    return DecisionRefusedError(
        f"{batch.label} holds records of these offsets: attempt {batch.attempt} of run {batch.attempt_run} has it "
        f"{batch.state}. Let that run go on. When it is gone for good, give up what it has staged too: "
        f"--discard-batch {batch.batch_id}.",
        batch_id=batch.batch_id,
    )


def published_already(batch: Batch) -> DecisionRefusedError:
    """Say that nothing is left to decide about a batch."""
    ranges = " ".join(f'--range "{each}"' for each in batch.ranges)
    return DecisionRefusedError(
        f"{batch.label} is published, by attempt {batch.attempt} of run {batch.attempt_run}: nothing is left to "
        f"decide. To publish its offsets again: batchledger replay {batch.pipeline} {ranges} --reason WHY",
        batch_id=batch.batch_id,
    )


def rows_visible(batch: Batch) -> DecisionRefusedError:
    """Say that a batch cannot be given up between its two commits: nobody would account for its rows."""
    return DecisionRefusedError(
        f"{batch.label} is {batch.state}, and its rows are visible already, as at_least_once commits them first. "
        f"Nothing was changed. Let it publish the position too: batchledger run {batch.pipeline} --batch "
        f"{batch.batch_id}. Where Kafka has removed its records, publish what is staged: batchledger accept "
        f"{batch.batch_id}. Where its staging is gone as well: skip or accept-loss with --discard-batch "
        f"{batch.batch_id} leave its rows, which verify names from then on; or empty the table: batchledger rewind "
        f"{batch.pipeline} --to earliest --truncate --allow-expired.",
        batch_id=batch.batch_id,
    )


def position_conflict(batch: Batch, found: Mapping[TopicPartition, int | None]) -> PositionConflictError:
    """Say where the stored position is not the start of its range; ``found`` is the stored next offset by partition.

    Behind the start everywhere: the batch before this one is not published yet, so the same step may succeed later.
    """
    moved = [each for each in batch.ranges if found.get(each.partition) != each.start]
    is_early = all((found.get(each.partition) or 0) < each.start for each in moved)
    both = "; ".join(f"{each.partition} expected {each.start}, found {found.get(each.partition)}" for each in moved)
    what_next = (
        "An earlier batch has to be published first; this one waits and is tried again"
        if is_early
        else f"Somebody else moved it; nothing was changed. See who: batchledger batches {batch.pipeline}"
    )
    kind = PredecessorPendingError if is_early else PositionConflictError
    return kind(
        f"{batch.label} cannot be published: the stored position is not where its ranges start: {both}. {what_next}.",
        batch_id=batch.batch_id,
        ranges=tuple(moved),
        found=found,
    )


def plan_overtaken(
    pipeline: str, ranges: Sequence[OffsetRange], found: Mapping[TopicPartition, int]
) -> PlanOvertakenError:
    """Say which ranges do not start at the stored position; ``found`` is the next offset by partition."""
    moved = [each for each in ranges if found.get(each.partition) != each.start]
    both = "; ".join(f"{each.partition} expected {each.start}, found {found.get(each.partition)}" for each in moved)
    return PlanOvertakenError(
        f"ranges for {pipeline} do not start at its stored position: {both}. Another run moved it in the meantime; "
        f"look again with: batchledger plan {pipeline}.",
        pipeline=pipeline,
        ranges=tuple(moved),
        found=found,
    )


def paused_by(pause: DecisionRecord) -> PipelinePausedError:
    """Say who paused the pipeline, and why."""
    return PipelinePausedError(
        f"{pause.pipeline} is paused by {pause.decided_by} since {pause.decided_at:%Y-%m-%d %H:%M} UTC: {pause.reason}"
        f". Nothing new is planned until: batchledger resume {pause.pipeline} --reason WHY",
        pipeline=pause.pipeline,
    )


def not_judged(batch: Batch, checks: Sequence[CheckResult]) -> CheckNotRunError:
    """Say which checks could not run, and what a person can do; it says nothing about the data."""
    broken = find_unjudged(checks)
    return CheckNotRunError(
        f"{batch.label} is not judged: {_name_all(broken)}. This says nothing about the data. The batch stays staged, "
        "nothing is visible. Correct the check, then clear the audit task of this run in Airflow with everything "
        "downstream, which judges what is staged; or stage and judge it anew: "
        f"batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
        unjudged=tuple(each.name for each in broken),
    )


def blocked(batch: Batch, checks: Sequence[CheckResult]) -> BatchBlockedError:
    """Say which checks block a batch, and what a person can do."""
    failed = [check for check in checks if check.blocks]
    # The log has just said that all checks have passed.
    refused = "Its rows may be published, but the target refuses them. " if is_refused_by_target(checks) else ""
    offsets = describe_count(count_offsets(batch.ranges), "offset")
    return BatchBlockedError(
        f"{batch.label} is blocked: the position stays before its {offsets}. {refused}"
        f"Failed: {_name_all(failed)}. See it with: batchledger batch {batch.batch_id}. {ways_out(batch, checks)}",
        batch_id=batch.batch_id,
        failed=tuple(each.name for each in failed),
    )


def blocked_already(batch: Batch) -> BatchBlockedError:
    """Say that a batch waits for a person, who has been told why."""
    return BatchBlockedError(
        f"{batch.label} is blocked; see: batchledger batch {batch.batch_id}", batch_id=batch.batch_id
    )


def is_refused_by_target(checks: Sequence[CheckResult]) -> bool:
    """Whether the target has refused the rows that were judged: that is nothing which a person could overrule."""
    return any(check.blocks and check.name == ACCEPTED_BY_TARGET for check in checks)


def ways_out(batch: Batch, checks: Sequence[CheckResult]) -> str:
    """Say what a person can do with a blocked batch, given the checks that it was judged by."""
    again = f"batchledger run {batch.pipeline} --batch {batch.batch_id}"
    discard = f"batchledger discard {batch.batch_id} --reason WHY"
    if not is_refused_by_target(checks):
        return (
            f"When the cause is removed, take it again with: {again}. When it cannot be, publish what is staged with: "
            f"batchledger accept {batch.batch_id} --reason WHY, or let the next run plan its offsets again with: "
            f"{discard}"
        )
    corrected = f"Correct the target, the pipeline file or the transform, then take it again with: {again}"
    if batch.lane is Lane.REPLAY:
        return f"{corrected}. When that cannot be, close it with: {discard}; the rows that are there stay"
    ranges = " ".join(f'"{each}"' for each in batch.ranges)
    return (
        f"{corrected}, or let the next run plan its offsets again with: {discard}. When that cannot be, go on without "
        f"them: batchledger skip {batch.pipeline} {ranges} --discard-batch {batch.batch_id} --reason WHY"
    )


def _name_all(checks: Sequence[CheckResult]) -> str:
    """The checks with what they say, to be followed by a full stop."""
    return "; ".join(f"{check.name}: {check.detail.removesuffix('.')}" for check in checks)


def target_changed(pipeline: str, earlier: Target, name: str, found: str | None) -> TargetChangedError:
    """Say that the target, whose identity is ``found`` now, is not the one that was published to before."""
    before = f"pipeline {pipeline} published to {earlier.name} (id {earlier.identity}) before; {name}"
    if found is None:
        said = f"{before} is not there. It was dropped or renamed. Nothing was written. Bring it back"
    else:
        said = (
            f"{before} is another one (id {found}). Nothing was written. When it was restored from a backup or moved "
            f"to another server: batchledger adopt-target {pipeline} --reason WHY, which proves it first. When it was "
            "dropped and created again, or renamed: bring the old one back"
        )
    return TargetChangedError(
        f"{said}, or read the source again under a new pipeline name.",
        pipeline=pipeline,
        expected=earlier.identity,
        found=found,
    )


def target_owned(pipeline: str, name: str, owner: str | None) -> TargetChangedError:
    """Say that another pipeline of the ledger has published to the target; None if it did so this very moment."""
    if owner is None:
        return TargetChangedError(
            f"{name} belongs to another pipeline; {pipeline} published nothing. Name a target of its own in the "
            "section sink of its file.",
            pipeline=pipeline,
        )
    return TargetChangedError(
        f"{name} belongs to another pipeline, {owner}, which has published to it; {pipeline} wrote nothing. Name "
        f"another target in the section sink of {pipeline}.yaml; or, if {owner} is what {pipeline} was called before, "
        "call it so again: it goes on where it was.",
        pipeline=pipeline,
        owner=owner,
    )


def nothing_to_adopt(pipeline: str) -> DecisionRefusedError:
    """Say that a pipeline takes its first target without being asked."""
    return DecisionRefusedError(
        f"{pipeline} has published nothing yet: its first batch takes the target that the section sink names.",
        pipeline=pipeline,
    )


def adopted_by_another(pipeline: str, target: Target) -> DecisionRefusedError:
    """Say that a target cannot be two pipelines'."""
    return DecisionRefusedError(
        f"{target.name} (id {target.identity}) belongs to another pipeline of the ledger; {pipeline} adopts nothing. "
        f"Name a target of its own in the section sink of {pipeline}.yaml.",
        pipeline=pipeline,
        subject=target.identity,
    )
