"""What an audit judges: everything that is known of one staged attempt, gathered once. Pure; no I/O."""

from dataclasses import dataclass

from batchledger.accounting import Balance, RangeFacts
from batchledger.batch import HeldRange, Position
from batchledger.checking import Severity
from batchledger.numbering import NumberFacts


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The facts of each range with its balance, in one order, and what concerns the batch as a whole.

    ``reported`` is how many rows the writing tasks say they wrote; ``set_aside`` of them were removed because a check
    failed them, and are in quarantine. ``positions`` are those of the partitions, None for
    a replay, which need not meet them. ``published`` is what live batches of the batch's epoch hold of its ranges.
    ``is_blocked_by_duplicates``: the pipeline lets no record repeat a message, instead of dropping those that do.
    ``numbers`` are judged, with their severity, where the pipeline has a sequence.
    """

    ranges: tuple[RangeFacts, ...]
    balances: tuple[Balance, ...]
    reported: int
    positions: tuple[Position, ...] | None = None
    published: tuple[HeldRange, ...] = ()
    is_blocked_by_duplicates: bool = False
    numbers: NumberFacts | None = None
    severity_of_numbers: Severity = Severity.CRITICAL
    set_aside: int = 0
