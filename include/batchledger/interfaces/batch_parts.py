"""What the parts of a stored batch come to: its balance over ranges, and the steps of an attempt. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchledger.adapters.postgres.ledger.history import AttemptRecord, RangeRecord
from batchledger.model.balance import BALANCE_LINES

# How attempts end that came as far as their audit, and no further.
ENDED_BY_AUDIT = ("blocked", "compared")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step of an attempt; ``seconds`` is None while it goes on, or where it was never reached."""

    name: str
    began_at: datetime
    seconds: float | None


def sum_balance(ranges: Sequence[RangeRecord]) -> Mapping[str, int] | None:
    """Return the lines of the balance over all ranges, which add up to their offsets; None before the audit.

    Lines that are 0 are left out, but for ``accepted`` and, at the end, ``unexplained``.
    """
    if not ranges or any(each.unexplained is None for each in ranges):
        return None
    lines = (*BALANCE_LINES, "holes", "unexplained")
    sums = {line: sum(getattr(each, line) or 0 for each in ranges) for line in lines}
    # What is left are the holes of ledgers from before the classes, which have their sum only.
    sums["holes"] -= sums["aborted"] + sums["markers"] + sums["compacted"]
    return {line: count for line, count in sums.items() if count or line in ("accepted", "unexplained")}


def list_steps(attempt: AttemptRecord) -> list[StepTime]:
    """Return the steps that an attempt has begun, in their order, each with how long it took.

    Whatever an audit has ended, as it blocks a batch or closes a dry run, was not published by that attempt. Of one
    that a person has accepted, publishing counts from its audit on.
    """
    names = ("stage", "audit", "publish")
    begins = (attempt.opened_at, attempt.staged_at, attempt.audited_at)
    ends = (attempt.staged_at, attempt.audited_at, attempt.ended_at)
    steps = []
    for name, began, done in zip(names, begins, ends, strict=True):
        if began is None or (name == "publish" and attempt.outcome in ENDED_BY_AUDIT):
            continue
        # An attempt that ended within a step has no end of the step itself.
        end = done or attempt.ended_at
        steps.append(StepTime(name, began, None if end is None else (end - began).total_seconds()))
    return steps
