"""Why a batch is refused something, in the words that people read: who was faster, what blocks it, what to do now.

Each function returns the error for its caller to raise, or the words that several errors share. No I/O here.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from batchledger.model.batch import Attempt, Batch, BatchState, Lane, Target
from batchledger.model.checks import (
    ACCEPTED_BY_TARGET,
    CHECKS_NEVER_ACCEPTED,
    CheckResult,
    find_unjudged,
    sort_causes_first,
)
from batchledger.model.counting import describe_count
from batchledger.model.errors import (
    AtWorkError,
    BatchBlockedError,
    CheckNotRunError,
    DecisionRefusedError,
    FencedError,
    OutcomePendingError,
    PlanOvertakenError,
    PositionConflictError,
    PredecessorPendingError,
    ReplayRefusedError,
    TargetChangedError,
)
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets
from batchledger.model.presence import Patience, Presence


def fenced_by(found: Batch, attempt: Attempt) -> FencedError:
    """Say which attempt has superseded ``attempt``, given the batch as the ledger has it now."""
    if found.state is BatchState.DISCARDED:
        return closed(found, attempt.run)
    return FencedError(
        f"{found.label}: attempt {attempt.number} of run {attempt.run} is fenced. It changed nothing visible.",
        why=f"Attempt {found.attempt} of run {found.attempt_run} has taken the batch over and has it {found.state}.",
        batch_id=found.batch_id,
        attempt=found.attempt,
        run=found.attempt_run,
    )


def staging_may_hold(found: Batch) -> DecisionRefusedError:
    """Say that nothing can be erased while this batch is open."""
    name = found.pipeline
    return DecisionRefusedError(
        f"{found.label} is open. Nothing was erased.",
        why="Its staging may hold the key, and its rows may become visible later.",
        advice=f"Let nothing new be planned: batchledger pause {name} --reason WHY\n"
        f"Finish the batch: batchledger run {name} --batch {found.batch_id}\n"
        f"Or discard it: batchledger discard {found.batch_id} --reason WHY\nThen erase again.",
        batch_id=found.batch_id,
        pipeline=name,
    )


def staging_in_use(pipeline: str, table: str) -> DecisionRefusedError:
    """Say that nothing can be erased while a task of a batch that is over writes to its staging."""
    return DecisionRefusedError(
        f"Staging table {table} of {pipeline} is in use, although its batch is over. Nothing was erased.",
        why="A task of an earlier attempt still works there, and the table may hold the key.",
        advice="End the task, or wait for it. Then erase again.",
        pipeline=pipeline,
        subject=table,
    )


def too_much_staging(pipeline: str, tables: int) -> DecisionRefusedError:
    """Say that nothing can be erased while more staging is left than one transaction can drop."""
    return DecisionRefusedError(
        f"{pipeline} has left {tables:,} staging tables, and the database cannot lock them all. Nothing was erased.",
        why="An erasure drops them in one transaction.",
        advice="Let housekeeping drop each by itself, then erase again: batchledger housekeeping",
        pipeline=pipeline,
    )


def rows_not_written(pipeline: str, batch_id: int) -> DecisionRefusedError:
    """Say that nothing can be erased between the two commits of a batch that delivers at_most_once."""
    return DecisionRefusedError(
        f"Batch {batch_id} of {pipeline} is published, and its rows are not there yet. Nothing was erased.",
        why="Its delivery is at_most_once: its run may still write the rows from staging.",
        advice="Erase again when the run has ended. If it was killed, that is possible one hour after the publication.",
        batch_id=batch_id,
        pipeline=pipeline,
    )


def taken_over(found: Batch, run: str) -> FencedError:
    """Say that another run has taken the batch over from ``run``."""
    return FencedError(
        f"{found.label} belongs to another run. Run {run} changes nothing.",
        why=f"Attempt {found.attempt} of run {found.attempt_run} has taken it over and has it {found.state}.",
        advice="Nothing needs to be done: the other run finishes the batch.",
        batch_id=found.batch_id,
        attempt=found.attempt,
        run=found.attempt_run,
    )


def closed(found: Batch, run: str) -> FencedError:
    """Say why no attempt of ``run`` may be opened any more: the batch is published, or it was discarded."""
    unchanged = f"Run {run} changes nothing."
    fenced = partial(FencedError, batch_id=found.batch_id, attempt=found.attempt, run=found.attempt_run)
    if found.is_dry_run:
        return fenced(f"{found.label} was a dry run, which is over and discarded. {unchanged}")
    if found.state is BatchState.DISCARDED:
        what_next = (
            "The next run plans what is left of its offsets."
            if found.lane is Lane.LIVE
            else "The target stays as it is. If the replay is still wanted, ask for it again."
        )
        return fenced(
            f"{found.label} was discarded by a person's decision. {unchanged}",
            advice=f"{what_next}\nSee who decided, and why: batchledger batch {found.batch_id}",
        )
    return fenced(
        f"{found.label} cannot be attempted again. Nothing is left to do for run {run}.",
        why=f"Attempt {found.attempt} of run {found.attempt_run} has it {found.state}.",
    )


def outcome_pending(batch: Batch) -> OutcomePendingError:
    """Say that nothing may be changed, because the sink may already show the rows."""
    return OutcomePendingError(
        f"{batch.label} is being committed by its sink. Nothing was changed.",
        why=f"Attempt {batch.attempt} of run {batch.attempt_run} has begun to commit, and has not confirmed it yet.",
        advice=f"If that run is gone, find the outcome: batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )


def left_to(batch: Batch, other: Presence, patience: Patience) -> AtWorkError:
    """Say which run is at work on the batch, at which step, since when, and for how long others wait."""
    step, since = _STEP_OF_STATE.get(batch.state, str(batch.state)), f"{other.since:%Y-%m-%d %H:%M:%S} UTC"
    silence = f"{other.silent_seconds:,.0f} s ago"
    if other.is_handed_on:
        doing = f"It ended a step {silence}, and {step} comes next."
        bound = f"If {step} does not begin within {patience.handed_on_seconds:,.0f} s, any run takes the batch over."
    else:
        doing = f"It is at work since {since} ({step}), and gave its last sign of life {silence}."
        bound = (
            "If its process dies, the next run takes the batch over at once; if it stalls, after "
            f"{patience.stalled_seconds:,.0f} s without a sign of life."
        )
    return AtWorkError(
        f"{batch.label} is left to run {other.run} of {other.worker}. This run has changed nothing.",
        why=f"{doing} {bound}",
        advice=f"Nothing needs to be done.\nTo wait for that run: batchledger run {batch.pipeline} --until-caught-up",
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
    """Say that a dry run is never published."""
    return ReplayRefusedError(
        f"{batch.label} is a dry run, which is never published.",
        advice="Ask for the replay itself.",
        batch_id=batch.batch_id,
    )


def stage_again(batch: Batch) -> str:
    """Say who stages an open batch again: the next run, or a person if it is a replay."""
    if batch.lane is Lane.LIVE:
        return "The next run stages the batch again."
    return f"Stage it again: batchledger run {batch.pipeline} --batch {batch.batch_id}"


def still_held(batch: Batch) -> DecisionRefusedError:
    """Say that the batch has staged the records in question, so that it may still publish them."""
    return DecisionRefusedError(
        f"{batch.label} holds records of these offsets. Nothing was changed.",
        why=f"Attempt {batch.attempt} of run {batch.attempt_run} has the batch {batch.state}, and may publish them.",
        advice="Let that run go on.\n"
        f"If it is gone for good, give up what it has staged, too: --discard-batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )


def published_already(batch: Batch) -> DecisionRefusedError:
    """Say that nothing is left to decide about a batch."""
    ranges = " ".join(f'--range "{each}"' for each in batch.ranges)
    return DecisionRefusedError(
        f"{batch.label} is published, so nothing is left to decide.",
        why=f"Attempt {batch.attempt} of run {batch.attempt_run} has published it.",
        advice=f"To publish its offsets again: batchledger replay {batch.pipeline} {ranges} --reason WHY",
        batch_id=batch.batch_id,
    )


def rows_visible(batch: Batch) -> DecisionRefusedError:
    """Say that a batch cannot be given up between its two commits: no batch would account for its rows."""
    return DecisionRefusedError(
        f"{batch.label} is {batch.state}, and its rows are visible already. Nothing was changed.",
        why="at_least_once commits the rows first, then the position.",
        advice=f"Let it publish the position, too: batchledger run {batch.pipeline} --batch {batch.batch_id}\n"
        f"If Kafka has removed its records, publish what is staged: batchledger accept {batch.batch_id} --reason WHY\n"
        f"If its staging is gone as well, go on by skip or accept-loss with --discard-batch {batch.batch_id}: its rows "
        "stay, and verify names them.\n"
        f"Or empty the table: batchledger rewind {batch.pipeline} --to earliest --truncate --allow-expired "
        "--reason WHY",
        batch_id=batch.batch_id,
    )


def position_conflict(batch: Batch, found: Mapping[TopicPartition, int | None]) -> PositionConflictError:
    """Say which stored position is not the start of its range; ``found`` is the stored next offset by partition.

    If it is before the start everywhere, the batch before this one is not published yet: the step may succeed later.
    """
    moved = [each for each in batch.ranges if found.get(each.partition) != each.start]
    is_early = all((found.get(each.partition) or 0) < each.start for each in moved)
    kind = PredecessorPendingError if is_early else PositionConflictError
    return kind(
        f"{batch.label} cannot be published: the stored position is not at the start of its ranges. Nothing was "
        "changed.",
        why="\n".join(f"{each.partition}: expected {each.start}, found {found.get(each.partition)}" for each in moved),
        advice="An earlier batch is published first; this step waits, and is tried again."
        if is_early
        else f"See which run or decision has moved the position: batchledger batches {batch.pipeline}",
        batch_id=batch.batch_id,
        ranges=tuple(moved),
        found=found,
    )


def plan_overtaken(
    pipeline: str, ranges: Sequence[OffsetRange], found: Mapping[TopicPartition, int]
) -> PlanOvertakenError:
    """Say which ranges do not start at the stored position; ``found`` is the next offset by partition."""
    moved = [each for each in ranges if found.get(each.partition) != each.start]
    return PlanOvertakenError(
        f"The ranges for {pipeline} do not start at its stored position: another run has moved it.",
        why="\n".join(f"{each.partition}: expected {each.start}, found {found.get(each.partition)}" for each in moved),
        advice=f"Plan again: batchledger plan {pipeline}",
        pipeline=pipeline,
        ranges=tuple(moved),
        found=found,
    )


def not_judged(batch: Batch, checks: Sequence[CheckResult]) -> CheckNotRunError:
    """Say which checks could not run, and what a person can do. This says nothing about the data."""
    broken = find_unjudged(checks)
    return CheckNotRunError(
        f"{batch.label} is not judged: a check could not run. The batch stays staged, and nothing is visible.",
        why=f"{_name_all(broken)}\nThis says nothing about the data.",
        advice="Correct the check. Then clear the audit task of this run in Airflow with everything downstream, which "
        "judges what is staged.\n"
        f"Or stage and judge it anew: batchledger run {batch.pipeline} --batch {batch.batch_id}",
        batch_id=batch.batch_id,
        unjudged=tuple(each.name for each in broken),
    )


def blocked(batch: Batch, checks: Sequence[CheckResult]) -> BatchBlockedError:
    """Say which checks block a batch, and what a person can do."""
    failed = sort_causes_first(check for check in checks if check.blocks)
    # The log has just said that all checks have passed.
    refused = "Its rows may be published, but the target refuses them.\n" if is_refused_by_target(checks) else ""
    offsets = describe_count(count_offsets(batch.ranges), "offset")
    return BatchBlockedError(
        f"{batch.label} is blocked: the position stays before its {offsets}.",
        why=f"{refused}{_name_all(failed)}",
        advice=f"Look at it: batchledger batch {batch.batch_id}\n{ways_out(batch, checks)}",
        batch_id=batch.batch_id,
        failed=tuple(each.name for each in failed),
    )


def blocked_already(batch: Batch) -> BatchBlockedError:
    """Say that a batch waits for a person. The run that blocked it has said why."""
    return BatchBlockedError(
        f"{batch.label} is blocked.",
        advice=f"See why, and what to do: batchledger batch {batch.batch_id}",
        batch_id=batch.batch_id,
    )


def is_refused_by_target(checks: Sequence[CheckResult]) -> bool:
    """Whether the target has refused the rows that were judged: no person can overrule that."""
    return any(check.blocks and check.name == ACCEPTED_BY_TARGET for check in checks)


def may_be_accepted(checks: Sequence[CheckResult]) -> bool:
    """Whether a person may publish what these checks block: the rows are right, and the target takes them."""
    never = {ACCEPTED_BY_TARGET, *CHECKS_NEVER_ACCEPTED}
    return not any(check.blocks and check.name in never for check in checks)


def ways_out(batch: Batch, checks: Sequence[CheckResult]) -> str:
    """Say what a person can do with a blocked batch, given the checks that have judged it: a line for each way."""
    again = f"batchledger run {batch.pipeline} --batch {batch.batch_id}"
    discard = f"batchledger discard {batch.batch_id} --reason WHY"
    if not is_refused_by_target(checks):
        accept = f"Or publish what is staged: batchledger accept {batch.batch_id} --reason WHY\n"
        return (
            f"Remove the cause, then take it again: {again}\n"
            f"{accept if may_be_accepted(checks) else ''}"
            f"Or let the next run plan its offsets again: {discard}"
        )
    corrected = f"Correct the target, the pipeline file or the transform, then take it again: {again}"
    if batch.lane is Lane.REPLAY:
        return f"{corrected}\nOr close it, and keep the rows that are there: {discard}"
    ranges = " ".join(f'"{each}"' for each in batch.ranges)
    return (
        f"{corrected}\nOr let the next run plan its offsets again: {discard}\n"
        f"Or go on without them: batchledger skip {batch.pipeline} {ranges} --discard-batch {batch.batch_id} "
        "--reason WHY"
    )


def _name_all(checks: Sequence[CheckResult]) -> str:
    """Return each check with its detail, one a line."""
    return "\n".join(f"{check.name}: {check.detail}" for check in checks)


def target_changed(pipeline: str, earlier: Target, name: str, found: str | None) -> TargetChangedError:
    """Say that the target, whose identity is ``found`` now, is not the target of earlier batches."""
    before = f"Pipeline {pipeline} published to {earlier.name} (id {earlier.identity}) before"
    new_name = "Or read the source again under a new pipeline name."
    if found is None:
        return TargetChangedError(
            f"{name} is not there. Nothing was written.",
            why=f"{before}; it was dropped or renamed.",
            advice=f"Bring it back.\n{new_name}",
            pipeline=pipeline,
            expected=earlier.identity,
        )
    return TargetChangedError(
        f"{name} is not the target of earlier batches. Nothing was written.",
        why=f"{before}; {name} is another one (id {found}).",
        advice="If it was restored from a backup or moved to another server, let it be proved and adopted: "
        f"batchledger adopt-target {pipeline} --reason WHY\n"
        f"If it was dropped and created again, or renamed, bring the old one back.\n{new_name}",
        pipeline=pipeline,
        expected=earlier.identity,
        found=found,
    )


def target_owned(pipeline: str, name: str, owner: str | None) -> TargetChangedError:
    """Say that another pipeline, ``owner``, has published to the target. None: it did so at this very moment."""
    return TargetChangedError(
        f"{name} belongs to another pipeline. {pipeline} wrote nothing.",
        why=f"{owner} has published to it." if owner else "",
        advice=f"Name another target in the section sink of {pipeline}.yaml."
        + (f"\nIf {pipeline} was called {owner} before, call it so again: it goes on from there." if owner else ""),
        pipeline=pipeline,
        owner=owner,
    )


def nothing_to_adopt(pipeline: str) -> DecisionRefusedError:
    """Say that a pipeline takes its first target without being asked."""
    return DecisionRefusedError(
        f"{pipeline} has published nothing yet, so there is nothing to adopt.",
        why="Its first batch takes the target that the section sink names.",
        pipeline=pipeline,
    )


def adopted_by_another(pipeline: str, target: Target) -> DecisionRefusedError:
    """Say that two pipelines cannot share a target."""
    return DecisionRefusedError(
        f"{target.name} (id {target.identity}) belongs to another pipeline of the ledger. {pipeline} adopts nothing.",
        advice=f"Name a target of its own in the section sink of {pipeline}.yaml.",
        pipeline=pipeline,
        subject=target.identity,
    )
