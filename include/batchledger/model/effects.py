"""The effect of a decision, before and after, as a dry run shows it and the ledger keeps it. Pure.

The values are JSON: numbers and texts, or objects of them, keyed by the text form of a partition, a range or a batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchledger.model.balance import Balance
from batchledger.model.batch import Batch, BatchState, DecisionKind, DecisionRecord, Target
from batchledger.model.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Effect:
    """The same keys on both sides, with different values."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def __or__(self, other: "Effect") -> "Effect":
        return Effect({**self.before, **other.before}, {**self.after, **other.after})


def giving_up(ranges: Sequence[OffsetRange]) -> Effect:
    """The positions move past the ranges."""
    return moving({each.partition: each.start for each in ranges}, {each.partition: each.until for each in ranges})


def moving(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> Effect:
    """The positions of the partitions named in ``after`` move; those that stay are left out."""
    moved = sorted(each for each, offset in after.items() if before[each] != offset)
    return Effect(
        {"next_offset": {str(each): before[each] for each in moved}},
        {"next_offset": {str(each): after[each] for each in moved}},
    )


def opening_epoch(epoch: int) -> Effect:
    """The pipeline's next epoch begins."""
    return Effect({"epoch": epoch}, {"epoch": epoch + 1})


def emptying(rows: int, given_up: Sequence[OffsetRange]) -> Effect:
    """The target loses all of its rows. No run can read the rows of ``given_up`` again."""
    named = {"given_up": [str(each) for each in given_up]} if given_up else {}
    return Effect({"rows": rows}, {"rows": 0, **named})


def dropping(ranges: Sequence[OffsetRange]) -> Effect:
    """The records of the ranges leave quarantine for good."""
    return Effect(
        {"quarantined": {str(each): len(each) for each in ranges}}, {"quarantined": {str(each): 0 for each in ranges}}
    )


def erasing(rows: int, remembered_keys: int, quarantined: Sequence[OffsetRange], columns: Sequence[str]) -> Effect:
    """Rows, remembered keys and records of quarantine go for good. ``columns`` name the key, without its values."""
    before = {"rows": rows, "remembered_keys": remembered_keys}
    erased = Effect(before, {**dict.fromkeys(before, 0), "columns": list(columns)})
    return erased | dropping(quarantined) if quarantined else erased


def leaving_out(expired: Sequence[OffsetRange], request: str | None = None) -> Effect:
    """A replay leaves these ranges as they are; ``request`` is its key if no batch is stored under it."""
    named = {} if request is None else {"request": request}
    return Effect({}, {"expired": [str(each) for each in expired], **named})


def accepting(batch: Batch, before: Sequence[Balance], after: Sequence[Balance]) -> Effect:
    """The batch may be published. Unexplained offsets become an accepted loss."""
    open_ranges = {each.range for each in before if not each.is_closed}
    return Effect(
        {
            "attempt": batch.attempt,
            "state": batch.state,
            **_losses(each for each in before if each.range in open_ranges),
        },
        {
            "attempt": batch.attempt,
            "state": BatchState.AUDITED,
            **_losses(each for each in after if each.range in open_ranges),
        },
    )


def discarding(batch: Batch) -> Effect:
    """The batch is closed, whatever its attempts do. ``batch`` is its state before."""
    return Effect({"state": batch.state}, {"state": BatchState.DISCARDED})


def discarding_too(batch: Batch | None) -> Effect:
    """A decision about something else closes the open batch, if there is one."""
    if batch is None:
        return Effect({}, {})
    name = str(batch.batch_id)
    return Effect({"batch": {name: batch.state}}, {"batch": {name: BatchState.DISCARDED}})


def retaking(batch: Batch, run: str) -> Effect:
    """A run opens the next attempt, or finds the outcome of the present one."""
    before = {"state": batch.state, "attempt": batch.attempt, "run": batch.attempt_run}
    if batch.state is BatchState.COMMITTING:
        return Effect(before, {**before, "run": run})
    return Effect(before, {"state": BatchState.PLANNED, "attempt": batch.attempt + 1, "run": run})


def adopting(before: Target, after: Target) -> Effect:
    """The pipeline goes on with another target that holds the same rows."""
    return Effect(
        {"target": before.name, "identity": before.identity}, {"target": after.name, "identity": after.identity}
    )


def beginning(rows: int, given_up: int, ranges: Sequence[OffsetRange]) -> Effect:
    """Rows that others have written are the pipeline's first batch, and its positions are behind them."""
    losses = {"given_up": given_up} if given_up else {}
    after = {"rows": rows, **losses, "next_offset": {str(each.partition): each.until for each in ranges}}
    before = {
        **dict.fromkeys({"rows": rows, **losses}, 0),
        "next_offset": {str(each.partition): None for each in ranges},
    }
    return Effect(before, after)


def proving(rows: int, batches: int, newest_found: int) -> Effect:
    """The adopted target holds these rows and batches."""
    return Effect({}, {"rows_found": rows, "batches_proved": batches, "newest_batch_found": newest_found})


def pausing() -> Effect:
    """The pipeline is paused from now on."""
    return Effect({"paused": False}, {"paused": True})


def retiring(discarded: Sequence[Batch], freed: Target | None) -> Effect:
    """The pipeline is over, and with it the open batches. ``freed`` is the target that it gives up."""
    named = {} if freed is None else {"target": freed.name}
    states = {str(each.batch_id): each.state for each in discarded}
    batches = ({"batch": states}, {"batch": dict.fromkeys(states, BatchState.DISCARDED)}) if states else ({}, {})
    return Effect({"retired": False, **named, **batches[0]}, {"retired": True, **dict.fromkeys(named), **batches[1]})


def ending(pause: DecisionRecord) -> Effect:
    """The pause, or the retirement, is over: the pipeline goes on where it stood."""
    what = "retired" if pause.kind == DecisionKind.RETIRE else "paused"
    return Effect({what: True}, {what: False})


def _losses(balances: Iterable[Balance]) -> dict[str, Any]:
    chosen = list(balances)
    return {
        "unexplained": {str(each.range): each.unexplained for each in chosen},
        "accepted_loss": {str(each.range): each.accepted_loss for each in chosen},
    }
