"""Orders that are done at once: explain what one would change, or carry it out."""

from dataclasses import replace

from batchledger.lifecycle import decisions, erasing
from batchledger.lifecycle.orders import (
    Accept,
    AcceptLoss,
    AdoptTarget,
    AtOnce,
    Discard,
    DropQuarantined,
    Erase,
    Pause,
    Resume,
    Retake,
    Skip,
)
from batchledger.lifecycle.ownership import load_batch
from batchledger.lifecycle.platform import Platform
from batchledger.model.batch import Decided, Decision, Lane
from batchledger.model.counting import describe_count
from batchledger.model.offsets import count_offsets
from batchledger.model.refusals import never_published
from batchledger.planning.rewind import Rewind


def carry_out(platform: Platform, order: AtOnce, decision: Decision) -> Decided:  # noqa: C901, PLR0911 -- one an order
    """Do what a person has ordered. Raises what the order's own function raises."""
    match order:
        case Accept(batch_id):
            return decisions.accept(platform, batch_id, decision)
        case Discard(batch_id):
            return decisions.discard(platform, batch_id, decision)
        case AcceptLoss(ranges, discarded):
            return decisions.accept_loss(platform, ranges, decision, discarded)
        case Skip(ranges, discarded):
            return decisions.skip(platform, ranges, decision, discarded)
        case Rewind():
            return decisions.rewind(platform, order, decision)
        case AdoptTarget():
            return decisions.adopt_target(platform, decision)
        case Pause():
            return decisions.pause(platform, decision)
        case Resume():
            return decisions.resume(platform, decision)
        case DropQuarantined(ranges):
            return decisions.drop_quarantined(platform, ranges, decision)
        case Erase(key):
            return erasing.erase(platform, key, decision)


def explain(platform: Platform, order: AtOnce | Retake, decision: Decision) -> Decided:
    """Return what an order would change, and change nothing. Refuses what ``carry_out`` would refuse.

    A run that takes a batch again may also find another run at work on it.
    """
    rehearsal = decisions.rehearse(platform)
    if isinstance(order, Retake):
        decided = _retake(rehearsal, order, decision)
    else:
        decided = carry_out(rehearsal, order, decision)
    if isinstance(order, Accept | Discard | Retake) and decided.is_new and decided.record:
        return replace(decided, means=(_describe(platform, order),))
    return decided


def _retake(platform: Platform, order: Retake, decision: Decision) -> Decided:
    decisions.require_reason(decision)
    batch = load_batch(platform, order.batch_id)
    if batch.is_dry_run:
        raise never_published(batch)
    return platform.decisions.retake(batch.batch_id, "a run of its own", decision)


def _describe(platform: Platform, order: Accept | Discard | Retake) -> str:
    """Say in a sentence what an order about a batch would do."""
    batch = load_batch(platform, order.batch_id)
    offsets = describe_count(count_offsets(batch.ranges), "offset")
    match order:
        case Accept():
            rows = sum(each.accepted for each in platform.decisions.load_balances(batch.batch_id))
            moves = f", and the position moves past {offsets}" if batch.lane is Lane.LIVE else ""
            failed = ", ".join(each.name for each in platform.ledger.load_checks(batch.batch_id) if each.blocks)
            told = f" Checks that have failed: {failed}." if failed else ""
            visible = describe_count(rows, "row becomes visible", "rows become visible")
            return f"{visible}{_where(platform)}{moves}.{told}"
        case Discard() if batch.lane is Lane.LIVE:
            return f"Nothing of it becomes visible; the next run plans its {offsets} again."
        case Discard():
            return "Nothing of it becomes visible; the target stays as it is."
        case Retake():
            return f"A run reads its {offsets} again, and publishes them if no check fails."


def _where(platform: Platform) -> str:
    """Name the target. Before the first publication only the pipeline file knows it."""
    target = platform.ledger.list_targets().get(platform.rules.name)
    return "" if target is None else f" in {target.name}"
