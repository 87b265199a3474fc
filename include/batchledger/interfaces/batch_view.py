"""One batch as the page and Data Docs show it: what is on a page of it, its balance added up, the steps of an attempt.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from batchledger.books.history import AttemptRecord, BatchHistory, QuarantineList, RangeRecord
from batchledger.model.balance import BALANCE_LINES

# The outcomes of attempts whose last step was the audit.
ENDED_BY_AUDIT = ("blocked", "compared")
_NOTHING_SET_ASIDE = QuarantineList((), 0)


@dataclass(frozen=True, slots=True)
class Paging:
    """Page ``number`` of ``pages``, the first is 1; there is always one, and it shows ``size`` entries at most."""

    number: int = 1
    pages: int = 1
    size: int = 0

    @property
    def shown(self) -> slice:
        """The entries of the page."""
        return slice((self.number - 1) * self.size, self.number * self.size)


def turn_to(number: int, entries: int, size: int) -> Paging:
    """Return that page of so many entries, or the nearest one that there is."""
    pages = max(1, -(-entries // size))
    return Paging(min(max(number, 1), pages), pages, size)


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch with a page of its ranges, one of its quarantine, and the whole texts of errors by attempt.

    A file has all ranges, and nothing of what a record holds.
    """

    history: BatchHistory
    ranges: Sequence[RangeRecord]
    paging: Paging = Paging()
    quarantine: QuarantineList = _NOTHING_SET_ASIDE
    quarantine_paging: Paging = Paging()
    quoted: Mapping[int, str] = field(default_factory=dict)


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
