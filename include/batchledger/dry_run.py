"""What a replay would do: it is staged and audited as it would be, compared with the target, and never published.

The dry run is a batch of its own in the ledger, because attempts, staging and the job of spark-submit hang on one. It
ends discarded, with who asked for it; the target, the positions and what others hold stay as they are. A process that
is killed in the middle leaves an open batch, which nothing can publish.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from batchledger import plans, run_batch
from batchledger.accounting import Balance, describe_balance
from batchledger.batch import Attempt, Batch, Decision
from batchledger.comparison import Comparison, ReplacedRows, describe_replaced
from batchledger.errors import BatchBlockedError, TargetRefusedError
from batchledger.offsets import OffsetRange, count_offsets, describe_ranges
from batchledger.ownership import drop_staging
from batchledger.pipeline import Platform, StageStep
from batchledger.replay import Replay

CHANGED_ROWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DryRun:
    """The outcome: whose rows would be replaced, how they would differ, and why it would not be published at all.

    ``comparison`` is None when the target would refuse the rows; ``objections`` is empty when nothing speaks against
    publishing. ``batch`` is the discarded one; its balance is in the ledger.
    """

    batch: Batch
    expired: tuple[OffsetRange, ...]
    replaced: tuple[ReplacedRows, ...]
    comparison: Comparison | None
    objections: tuple[str, ...]


def dry_run_replay(
    platform: Platform, replay: Replay, run: str, decision: Decision, stage_step: StageStep | None = None
) -> DryRun | None:
    """Do everything of a replay but publish it; None when there is nothing to publish again.

    ``stage_step`` as for ``run_batch.run_once``. Raises what planning and staging a replay raise. Asking again, as a
    retry does, is a dry run of its own.
    """
    planned = plans.preview_replay(platform, replay)
    if planned.is_empty:
        return None
    planned = replace(planned, first_positions=(), is_dry_run=True)
    batch = plans.store_replay(platform, planned, run, decision, key=None)
    try:
        (stage_step or run_batch.stage)(platform, batch.batch_id, run)
        objections = _audit(platform, batch.batch_id, run)
        comparison = None
        try:
            comparison = platform.sink.compare(_attempt(platform, batch.batch_id), CHANGED_ROWS_SHOWN)
        except TargetRefusedError as error:
            objections = (*objections, str(error))
        replaced = plans.find_replaced_rows(platform, batch.ranges)
    finally:
        platform.ledger.end_dry_run(batch.batch_id)
        drop_staging(platform, _attempt(platform, batch.batch_id))
    batch = platform.ledger.load_batch(batch.batch_id)
    return DryRun(batch, planned.expired, replaced, comparison, objections)


def describe_dry_run(found: DryRun, balances: Sequence[Balance]) -> Iterator[str]:
    """Yield the outcome in lines for a log; ``balances`` are those of its batch. Never a value of a record."""
    ranges = found.batch.ranges
    yield f"dry run of {count_offsets(ranges):,} offsets in {describe_ranges(ranges)}: nothing was changed"
    for each in balances:
        yield describe_balance(each)
    yield f"would replace {describe_replaced(found.replaced)}"
    if found.expired:
        yield f"Kafka no longer has {describe_ranges(found.expired)}: their rows would stay"
    if found.comparison is not None:
        yield str(found.comparison)
        if found.comparison.absent_columns:
            yield f"not in the rows, so they would get their default: {', '.join(found.comparison.absent_columns)}"
        for row in found.comparison.examples:
            yield f"{row} would change in {', '.join(row.columns)}"
    for objection in found.objections:
        yield f"it would not be published: {objection}"


def _audit(platform: Platform, batch_id: int, run: str) -> tuple[str, ...]:
    """Audit as a replay is, and return which checks would block it."""
    try:
        run_batch.audit(platform, batch_id, run)
    except BatchBlockedError:
        checks = platform.ledger.load_checks(batch_id)
        return tuple(f"{each.name}: {each.detail}" for each in checks if each.blocks)
    return ()


def _attempt(platform: Platform, batch_id: int) -> Attempt:
    batch = platform.ledger.load_batch(batch_id)
    return Attempt(batch, batch.attempt, batch.attempt_run or "")
