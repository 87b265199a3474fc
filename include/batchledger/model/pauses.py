"""What is refused while a person has paused a pipeline, or has retired it.

A retirement is a pause that is meant to last. The ledger keeps both as the one decision that stands, and ``resume``
ends it.
"""

from collections.abc import Collection, Sequence

from batchledger.model.batch import Batch, DecisionKind, DecisionRecord
from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError, PipelinePausedError, UnknownPipelineError


def is_retired(pause: DecisionRecord | None) -> bool:
    """Whether the decision that stands has retired the pipeline."""
    return pause is not None and pause.kind == DecisionKind.RETIRE


def paused_by(pause: DecisionRecord) -> PipelinePausedError:
    """Say who paused or retired the pipeline, and why."""
    done = "retired" if is_retired(pause) else "paused"
    go_on = f"batchledger resume {pause.pipeline} --reason WHY"
    advice = (
        f"To take it up again where it stood: {go_on}\n"
        "To read its topics anew, give its file another name, and another target.\nOtherwise remove its file."
        if is_retired(pause)
        else f"To go on: {go_on}"
    )
    return PipelinePausedError(
        f"{pause.pipeline} is {done}, so nothing new is planned.",
        why=f"{pause.actor} {done} it on {pause.decided_at:%Y-%m-%d %H:%M} UTC: {pause.reason}",
        advice=advice,
        pipeline=pause.pipeline,
    )


def never_planned(pipeline: str) -> UnknownPipelineError:
    """Say that the ledger has nothing of a pipeline that could be retired."""
    return UnknownPipelineError(
        f"The ledger has nothing of {pipeline}. Nothing was changed.",
        advice="See what it has: batchledger status\nIf its ledger is elsewhere: --connection CONNECTION",
        pipeline=pipeline,
    )


def require_settled(
    pipeline: str, batches: Sequence[Batch], discard: Collection[int], standing: DecisionRecord | None
) -> None:
    """Refuse to retire a pipeline unless ``discard`` names each of its open ``batches``, and no other one.

    A batch that the ``standing`` retirement gave up may be named again, so that the order can be repeated.
    """
    given_up = (standing.after or {}).get("batch", {}) if standing is not None else {}
    foreign = sorted(set(discard) - {each.batch_id for each in batches} - {int(each) for each in given_up})
    if foreign:
        named = ", ".join(f"batch {each}" for each in foreign)
        raise DecisionRefusedError(
            f"{pipeline} has no open {named}. Nothing was changed.",
            why=f"Open are {', '.join(each.subject for each in batches) or 'no batches'}.",
            advice="Name open batches of this pipeline only.",
            pipeline=pipeline,
        )
    kept = [each for each in batches if each.batch_id not in discard]
    if kept:
        raise _left_open(pipeline, kept)


def _left_open(pipeline: str, batches: Sequence[Batch]) -> DecisionRefusedError:
    """Say which batches keep a pipeline from being retired: their records are neither published nor given up."""
    named = ", ".join(f"{each.subject} ({each.state})" for each in batches)
    given_up = " ".join(f"--discard-batch {each.batch_id}" for each in batches)
    count = describe_count(len(batches), "batch is", "batches are")
    return DecisionRefusedError(
        f"{pipeline} is not retired: {count} open. Nothing was changed.",
        why=f"Open are {named}. Their records are neither published nor given up.",
        advice=f"Look at them: batchledger batch {batches[0].batch_id}\n"
        f"To publish them first, put the file of {pipeline} back.\n"
        f"To give up what they have staged: batchledger retire {pipeline} {given_up} --reason WHY",
        pipeline=pipeline,
        batch_id=batches[0].batch_id,
    )
