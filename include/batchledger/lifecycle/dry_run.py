"""The dry run of a replay: it is staged, audited and compared with the target, and never published.

The dry run is a batch of its own in the ledger, because attempts, staging and the job of spark-submit need one. It ends
discarded, with who asked for it and its findings. The target, the positions and other batches stay as they are. A
process that is killed in the middle leaves an open batch, which no run can publish.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.at_work import begin_work
from batchledger.lifecycle.delivery_steps import Commit, describe_delivery, plan_delivery
from batchledger.lifecycle.ownership import drop_staging
from batchledger.lifecycle.platform import Platform, StageStep
from batchledger.model.balance import Balance, describe_balance
from batchledger.model.batch import Attempt, Batch, Decision
from batchledger.model.checks import ACCEPTED_BY_TARGET, CheckResult, Outcome
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchBlockedError, TargetRefusedError
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges
from batchledger.model.records.comparison import Comparison, DryRunOutcome, ReplacedRows, describe_replaced
from batchledger.planning.replay import Replay

CHANGED_ROWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DryRun:
    """The outcome: whose rows would be replaced, how they would differ, and why it would not be published at all.

    ``comparison`` is None if the target would refuse the rows. ``objections`` are the checks that would block it, if
    any. ``batch`` is the discarded one; its balance is in the ledger. ``notes`` come from the plan, and were logged
    before the dry run began. ``delivery`` is what its publication would do.
    """

    batch: Batch
    expired: tuple[OffsetRange, ...]
    replaced: tuple[ReplacedRows, ...]
    comparison: Comparison | None
    objections: tuple[CheckResult, ...]
    notes: tuple[str, ...] = ()
    delivery: tuple[Commit, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The objections to publishing, for the person who asked. A target that refuses rows may quote a record."""
        return tuple(f"{each.name}: {each.detail}" for each in self.objections)


def summarise_dry_run(found: DryRun) -> DryRunOutcome:
    """Return the part of the outcome that the ledger keeps: without words that may quote a record."""
    objections = tuple(f"{each.name}: {each.public_detail}" for each in found.objections)
    return DryRunOutcome(found.expired, found.replaced, found.comparison, objections, found.notes)


def dry_run_replay(
    platform: Platform, replay: Replay, run: str, decision: Decision, stage_step: StageStep | None = None
) -> DryRun | None:
    """Do everything of a replay but publish it; None if there is nothing to publish again.

    ``stage_step`` as for ``run_batch.run_once``. Raises what planning and staging a replay raise. A retry is a dry run
    of its own. The transaction that discards the batch stores the outcome; a dry run that fails midway has none.
    """
    planned = plans.preview_replay(platform, replay)
    plans.tell_notes(platform, planned)
    if planned.is_empty:
        return None
    planned = replace(planned, first_positions=(), is_dry_run=True)
    batch = plans.store_replay(platform, planned, run, decision, key=None)
    found: DryRun | None = None
    with begin_work(platform, batch.batch_id, run) as held:
        try:
            (stage_step or run_batch.stage)(held, batch.batch_id, run)
            shares = platform.sink.capabilities.shares_transaction
            delivery = plan_delivery(batch.delivery, takes_over=batch.takes_over(()), shares_transaction=shares)
            found = replace(_look(held, batch, planned.expired, run), notes=planned.notes, delivery=delivery)
        finally:
            _end(platform, batch, None if found is None else summarise_dry_run(found))
    return replace(found, batch=platform.ledger.load_batch(batch.batch_id))


def describe_dry_run(found: DryRun, balances: Sequence[Balance]) -> Iterator[str]:
    """Yield the outcome in lines for a log. ``balances`` belong to its batch.

    No line has a value of a record, unless a target that refuses the rows quotes one.
    """
    ranges = found.batch.ranges
    offsets = describe_count(count_offsets(ranges), "offset")
    yield f"dry run of {offsets} in {describe_ranges(ranges)}: nothing was changed"
    for each in balances:
        yield describe_balance(each)
    if not summarise_dry_run(found).repeats:
        yield f"would replace {describe_replaced(found.replaced)}"
    if found.expired:
        yield f"Kafka no longer has {describe_ranges(found.expired)}: their rows would stay"
    if found.comparison is not None:
        yield str(found.comparison)
        if found.comparison.absent_columns:
            yield f"not in the rows, so they would get their default: {', '.join(found.comparison.absent_columns)}"
        for row in found.comparison.examples:
            yield f"{row} would change in {', '.join(row.columns)}"
    if found.delivery:
        yield f"its publication would be: {describe_delivery(found.delivery)}"
    for objection in found.words:
        yield f"it would not be published: {objection}"


def _look(platform: Platform, batch: Batch, expired: tuple[OffsetRange, ...], run: str) -> DryRun:
    """Judge the staged rows, and compare them with the target."""
    objections = _audit(platform, batch.batch_id, run)
    comparison = None
    try:
        comparison = platform.sink.compare(_attempt(platform, batch.batch_id), CHANGED_ROWS_SHOWN)
    except TargetRefusedError as error:
        # Its publication would be blocked by the same check.
        refusal = CheckResult(ACCEPTED_BY_TARGET, Outcome.FAILED, str(error), error.where)
        objections = (*objections, refusal)
    return DryRun(batch, expired, plans.find_replaced_rows(platform, batch.ranges), comparison, objections)


def _audit(platform: Platform, batch_id: int, run: str) -> tuple[CheckResult, ...]:
    """Audit it like a replay, and return which checks would block it."""
    try:
        run_batch.audit(platform, batch_id, run)
    except BatchBlockedError:
        return tuple(each for each in platform.ledger.load_checks(batch_id) if each.blocks)
    return ()


def _end(platform: Platform, batch: Batch, found: DryRunOutcome | None) -> None:
    """Discard the batch and store its findings. Its staging goes even if the ledger does not answer."""
    try:
        platform.ledger.end_dry_run(batch.batch_id, found)
    finally:
        drop_staging(platform, _attempt(platform, batch.batch_id))


def _attempt(platform: Platform, batch_id: int) -> Attempt:
    batch = platform.ledger.load_batch(batch_id)
    return Attempt(batch, batch.attempt, batch.attempt_run or "")
