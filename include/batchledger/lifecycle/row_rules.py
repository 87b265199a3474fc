"""Whether an attempt's rows are those that the pipeline file would make now: columns, ``protect``, the transform.

A run lives over hours and steps, each of which reads the file. Rows from before a change of ``protect`` hold what the
file protects by now, so no step judges or publishes them.
"""

import logging

from batchledger.lifecycle.platform import Platform, StageStep
from batchledger.model.batch import Attempt
from batchledger.model.errors import RowRulesChangedError
from batchledger.model.refusals import stage_again

logger = logging.getLogger(__name__)


def are_other_rules(platform: Platform, attempt: Attempt) -> bool:
    """Whether the attempt was staged by other rules. An attempt of an older version, which kept none, counts as not."""
    staged = platform.ledger.load_staged(attempt).row_rules
    return staged is not None and staged != platform.rules.row_rules


def require_same_rules(platform: Platform, attempt: Attempt) -> None:
    """Raise RowRulesChangedError if the attempt was staged by other rules. Nothing of it is visible then."""
    if are_other_rules(platform, attempt):
        batch = attempt.batch
        raise RowRulesChangedError(
            f"{batch.label} was staged by another version of the pipeline file. Nothing was published.",
            why="The columns of source, source.protect or the transform have changed since.",
            advice=stage_again(batch),
            batch_id=batch.batch_id,
            pipeline=batch.pipeline,
        )


def stage_by_present_rules(platform: Platform, attempt: Attempt, stage_step: StageStep | None) -> bool:
    """Stage the ranges of the attempt again if the rules have changed; return whether that was done."""
    if stage_step is None or not are_other_rules(platform, attempt):
        return False
    logger.warning("%s is staged again: the pipeline file makes other rows of its records now", attempt.batch.label)
    stage_step(platform, attempt.batch.batch_id, attempt.run)
    return True
