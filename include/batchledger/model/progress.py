"""How far the reading of a batch is: records read, records a second, time left, in one line.

It is for people who wait, and decides nothing: evidence and accounting alone say what was read in the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from typing_extensions import override

from batchledger.model.counting import describe_count


@dataclass(frozen=True, slots=True)
class Reading:
    """How many records of an attempt one look during staging has found read.

    ``rows`` are on their way to staging. They are counted apart if they do not measure records: a transform may drop
    records, and make several rows of one.
    """

    records: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading of a batch is. ``seconds`` is the time since the last look that found nothing read.

    ``planned_records`` is the number of offsets of the batch's ranges. Transactions and compaction leave holes, so it
    is an upper bound: the reading may end before its share is 1, and the time left is an upper bound too.
    """

    read_records: int
    planned_records: int
    seconds: float
    rows: int = 0

    @property
    def rate(self) -> float | None:
        """Records a second; None before anything was read."""
        return self.read_records / self.seconds if self.read_records and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this rate; None before anything was read."""
        return (self.planned_records - self.read_records) / self.rate if self.rate else None

    @property
    def share(self) -> float:
        """The share of the planned records that was read, from 0 to 1."""
        return self.read_records / self.planned_records if self.planned_records else 1.0

    @property
    def percent(self) -> int:
        """The share in whole percent, rounded down: 100 means that nothing is left."""
        return self.read_records * 100 // self.planned_records if self.planned_records else 100

    def advance(self, reading: Reading, seconds: float) -> "Progress":
        """Return the progress after another look, ``seconds`` later. It never goes back, nor beyond the plan.

        A task that Spark repeats takes its rows back first. The clock starts with the first record: otherwise the start
        of a Spark session would count as slow reading.
        """
        found = min(reading.records, self.planned_records)
        begun = self.seconds if self.read_records else 0.0
        return replace(self, read_records=max(self.read_records, found), seconds=begun + seconds, rows=reading.rows)

    @override
    def __str__(self) -> str:
        """Example: ``1,240,000 of 2,000,000 records read (62%), 180,000 a second, about 5 s left``."""
        return ", ".join(self._describe())

    def _describe(self) -> Iterator[str]:
        yield f"{self.read_records:,} of {describe_count(self.planned_records, 'record')} read ({self.percent}%)"
        if self.rows:
            yield f"{describe_count(self.rows, 'row')} being written"
        if self.rate is not None:
            yield f"{round_rate(self.rate)} a second"
        if self.seconds_left:
            yield f"about {round_time(self.seconds_left)} left"


def round_rate(rate: float) -> str:
    """Return a rate with two digits that count: 183,456 becomes ``180,000``."""
    return f"{float(f'{rate:.2g}'):,.0f}" if rate >= 1 else "less than 1"


def round_time(seconds: float) -> str:
    """Return a time, rounded up, in the largest unit that fits twice or more: 130 s becomes ``3 min``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{ceil(seconds / size):,} {unit}"
    return f"{ceil(seconds)} s"
