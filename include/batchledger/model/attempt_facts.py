"""What an audit judges: all facts about one staged attempt, gathered once. Pure; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchledger.model.balance import Balance, RangeFacts
from batchledger.model.batch import HeldRange, Position
from batchledger.model.checks import IntegrityCheck, Offender, Severity
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.quarantine import NOTHING, QuarantineContent, QuarantineLimit
from batchledger.model.records.unknown_fields import UnknownFields


@dataclass(frozen=True, slots=True)
class UnmatchedDeletions:
    """How many records delete a key of which nothing is known, and how much that matters."""

    records: int
    severity: Severity


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """The facts of each range with its balance, in one order, and the facts of the batch as a whole.

    ``reported`` is how many rows the writing tasks say they wrote. ``set_aside`` of them failed a check, and are in
    quarantine instead. ``positions`` are stored for the partitions; None for a replay, which need not meet them.
    ``published`` is what live batches of the batch's epoch hold of its ranges. ``is_blocked_by_duplicates``: a record
    that repeats a message blocks the batch, instead of being dropped. ``numbers`` are judged, with their severity, if
    the pipeline has a sequence. ``unexplained_holes`` are offsets without a visible record that the pipeline does not
    allow. ``quarantine_limit`` bounds the quarantined records; None for a replay of quarantine. ``quarantine`` holds
    their kinds if they are too many. ``unknown_fields`` are judged, with their severity, unless they are ignored.
    ``unmatched`` is None unless the target holds one row for each key, and can be asked.
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
    unexplained_holes: tuple[OffsetRange, ...] = ()
    quarantine_limit: QuarantineLimit | None = None
    quarantine: QuarantineContent = NOTHING
    unknown_fields: UnknownFields | None = None
    severity_of_unknown_fields: Severity = Severity.WARNING
    unmatched: UnmatchedDeletions | None = None

    @property
    def quarantined(self) -> int:
        """How many records would be quarantined: they do not decode, or a check has set them aside."""
        return sum(each.quarantined for each in self.ranges)

    @property
    def records(self) -> int:
        """How many records could have become rows: all but skipped tombstones."""
        return sum(each.visible - each.tombstones for each in self.ranges)

    @property
    def drains(self) -> bool:
        """Whether too much would be quarantined for the batch to be published."""
        limit = self.quarantine_limit
        return limit is not None and limit.is_exceeded(self.quarantined, self.records)

    @property
    def lacks_numbers(self) -> bool:
        """Whether the pipeline has a sequence, and no row to be published has its key and its number."""
        accepted = sum(each.accepted for each in self.balances)
        return self.numbers is not None and 0 < accepted <= self.numbers.unnumbered

    @property
    def missing_numbers(self) -> int:
        """How many numbers are missing: in gaps, and one for each record if none has a number."""
        if self.numbers is None:
            return 0
        return self.numbers.missing + (self.numbers.unnumbered if self.lacks_numbers else 0)

    def name_offenders(self) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        """Return the offsets that fail each check about ranges of offsets. The sink names rows."""
        unknown = self.unknown_fields.by_name.items() if self.unknown_fields else ()
        unnumbered = [Offender(each.range, "no record has a number") for each in self.balances if each.accepted]
        return {
            **({IntegrityCheck.NO_MISSING_NUMBERS: unnumbered} if self.lacks_numbers else {}),
            IntegrityCheck.NO_UNKNOWN_FIELDS: [Offender(each.range, name) for name, each in unknown],
            IntegrityCheck.NO_UNEXPLAINED_HOLES: [Offender(each) for each in self.unexplained_holes],
            IntegrityCheck.NO_PUBLISHED_OFFSETS: [
                Offender(each.range, f"of batch {each.batch_id}") for each in self.published
            ],
            IntegrityCheck.QUARANTINE_WITHIN_LIMIT: [
                Offender(each.example, str(each)) for each in self.quarantine.most_frequent if each.example
            ],
            IntegrityCheck.BALANCE_CLOSES: [Offender(each.range) for each in self.balances if not each.is_closed],
        }
