"""Records in quarantine, counted by kind, without looking at a record. Pure; no I/O.

A kind is the text of the error that stands beside a record. It names columns and checks, never a value of a record, so
messages may quote it. Columns and faults combine to many kinds: the most frequent are shown, and the others counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange

KINDS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How many records have the same error. ``example`` is the place of one of them, if it was asked for."""

    error: str
    records: int
    example: OffsetRange | None = None

    @override
    def __str__(self) -> str:
        return f"{self.records:,} {'record' if self.records == 1 else 'records'}: {self.error}"


@dataclass(frozen=True, slots=True)
class QuarantineContent:
    """The number of ``records`` and of ``kinds``, and the ``most_frequent`` kinds, ``KINDS_SHOWN`` at most."""

    records: int = 0
    kinds: int = 0
    most_frequent: tuple[ErrorKind, ...] = ()

    @property
    def title(self) -> str:
        """The number of records: ``3 records in quarantine``."""
        return f"{describe_count(self.records, 'record')} in quarantine"

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each shown kind, and one for the number of the others."""
        left = self.kinds - len(self.most_frequent)
        more = (f"and {describe_count(left, 'more kind')} of error",) if left else ()
        return (*map(str, self.most_frequent), *more)


NOTHING = QuarantineContent()


def summarise(kinds: Sequence[ErrorKind]) -> QuarantineContent:
    """Return the content of all these kinds. Equally frequent kinds are in the order of their text."""
    ordered = sorted(kinds, key=lambda each: (-each.records, each.error))
    return QuarantineContent(sum(each.records for each in kinds), len(kinds), tuple(ordered[:KINDS_SHOWN]))


@dataclass(frozen=True, slots=True)
class QuarantineLimit:
    """How much of a batch may be quarantined: a share of its records, judged if there are ``min_records`` of them.

    The default is one half of at least 20 records. If more records fail, the schema does not fit the topic, and the
    batch would drain the topic into quarantine. A share from the pipeline file counts from the first record on.
    """

    max_share: float = 0.5
    min_records: int = 20

    def is_exceeded(self, quarantined: int, records: int) -> bool:
        """Whether this many quarantined records are too many.

        >>> QuarantineLimit().is_exceeded(10, 20), QuarantineLimit().is_exceeded(11, 20)
        (False, True)
        """
        # A quotient: the product of 0.29 and 100 is less than 29.
        return quarantined > 0 and records >= self.min_records and quarantined / records > self.max_share
