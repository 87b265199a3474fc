"""The parts of a stored batch added up: its balance over all ranges, and the steps of an attempt. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from batchledger.books.history import AttemptRecord, RangeRecord
from batchledger.model.balance import BALANCE_LINES

# The outcomes of attempts whose last step was the audit.
ENDED_BY_AUDIT = ("blocked", "compared")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step of an attempt; ``seconds`` is None while it goes on, or if it was never reached."""

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
    # Ledgers from before the classes have only the sum of the holes: what is left is theirs.
    sums["holes"] -= sums["aborted"] + sums["markers"] + sums["compacted"]
    return {line: count for line, count in sums.items() if count or line in ("accepted", "unexplained")}


def list_steps(attempt: AttemptRecord) -> list[StepTime]:
    """Return the steps that an attempt has begun, in their order, each with its duration.

    An attempt that ended with its audit has no publish step: the batch was blocked, or the dry run was over. If a
    person has accepted the batch, the publish step begins at the audit.
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
