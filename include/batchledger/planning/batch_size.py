"""Choose how many records the next live batch takes, so that batches hold a target duration. Pure; no I/O.

A batch takes a fixed time and some time for each record, so the size is read off a straight line through what the
newest batches took. The line is the one that most of them lie on, the newest above all: one batch that waited for
something does not move it, batches that were small because little had arrived say what the fixed time is, and when
everything becomes slower or faster, two batches move it there. No size is ever far from one that was tried.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from batchledger.model.counting import describe_count

PACES_CONSIDERED = 20
"""How many of the newest batches are looked at; with ``_FADING`` the oldest of them hardly count."""

FEWEST_RECORDS = 10_000
"""The size of a batch that nothing is known about, and the smallest one that is chosen.

So many records take hardly longer than none: 2.5 s, and 100,000 take 4 s. A first batch that is too large holds the
pipeline for an unknown time; one that is too small costs seconds, and doubling leads to a million in seven. Still
smaller ones would do little but fixed work, most of all on a day on which everything is slow and no size holds the
target. If so many records do take longer than the target, ``max_records`` is for a person to set.
"""

_FADING = 0.7
"""What a batch counts for, compared with the one after it. Two batches outweigh all the older ones."""

_DOUBT = 1.0
"""What it counts against a line that it explains batches by a fixed time rather than by their records."""

_APART = 2.0
"""Two batches tell fixed time and time per record apart when one is at least this many times as large."""

_LARGEST_STEP = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What one batch took: ``seconds`` from the opening of the attempt that published it until it was published.

    Waiting between these two counts, for the scheduler's next step or for its turn to publish; an earlier attempt does
    not. Both are positive.
    """

    offsets: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a batch takes: a fixed time, and a time for each record."""

    fixed_seconds: float
    seconds_per_record: float

    def seconds_for(self, records: float) -> float:
        """How long a batch of that many records takes."""
        return self.fixed_seconds + self.seconds_per_record * records

    def records_within(self, seconds: float) -> float:
        """How many records fit; ``seconds`` are more than the fixed ones."""
        return (seconds - self.fixed_seconds) / self.seconds_per_record

    @override
    def __str__(self) -> str:
        return f"{self.fixed_seconds:.1f} s and {self.seconds_per_record * 1e6:,.1f} s a million records"


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many records the next batch takes at most, and why, ready to be read by a person."""

    records: int
    target_seconds: float
    reason: str

    @override
    def __str__(self) -> str:
        most = describe_count(self.records, "record")
        return f"up to {most} for a target of {self.target_seconds:g} s: {self.reason}"


def choose_size(paces: Sequence[Pace], target_seconds: float, min_records: int, max_records: int) -> BatchSize:
    """Return the size with which a batch takes ``target_seconds``, given the newest batches, the newest first.

    Between ``min_records`` and ``max_records``; within them at least FEWEST_RECORDS, at least half of the newest batch,
    and at most twice the largest (or FEWEST_RECORDS, if that is more). If the batches show that the target is
    shorter than twice the fixed time, twice the fixed time is aimed at, so that half of the time is spent on records:
    else a slow day would shrink the batches, and a backlog would grow.

    Example: 10,000 records in 2.5 s and 100,000 in 4.0 s are 2.3 s and 16.7 s a million; 30 s are enough for
    1,660,000, and the next batch takes 200,000 at most, twice the largest.
    """
    if not paces:
        reason = "no batch has been timed yet, so the first one is small"
        return _within_limits(FEWEST_RECORDS, reason, target_seconds, min_records, max_records)
    cost = fit_cost(paces)
    aim = max(target_seconds, 2 * cost.fixed_seconds)
    wanted = cost.records_within(aim)
    highest = max(FEWEST_RECORDS, _LARGEST_STEP * max(pace.offsets for pace in paces))
    lowest = max(FEWEST_RECORDS, paces[0].offsets / _LARGEST_STEP)
    records = max(min(wanted, highest), lowest)
    reason = f"recent batches took about {cost}"
    if aim > target_seconds:
        reason += f", so {aim:.1f} s are aimed at, twice the fixed time"
    if records < wanted:
        reason += f"; no batch is more than twice the largest of them, or {FEWEST_RECORDS:,}"
    elif records > wanted:
        reason += f"; no batch is less than half of the one before it, or {FEWEST_RECORDS:,}"
    return _within_limits(records, reason, target_seconds, min_records, max_records)


def fit_cost(paces: Sequence[Pace]) -> Cost:
    """Return the line that most of the batches lie on, the newest first and counting most; there is at least one.

    The candidates are the lines through one batch and zero, and through two batches of different sizes. The line with
    the smallest sum of weighted relative errors is taken. That is a median: a batch that is far off counts no more than
    a batch on the other side. If all batches have one size, the fixed part is unknown. Then all time counts as time per
    record, which is on the safe side: a larger batch is expected to take longer than it will.
    """
    return min(_candidates(paces), key=lambda cost: _misfit(cost, paces))


def _candidates(paces: Sequence[Pace]) -> Iterator[Cost]:
    for index, pace in enumerate(paces):
        yield Cost(0.0, pace.seconds / pace.offsets)
        for older in paces[index + 1 :]:
            smaller, larger = sorted((pace, older), key=lambda each: each.offsets)
            if larger.offsets >= _APART * smaller.offsets and larger.seconds > smaller.seconds:
                slope = (larger.seconds - smaller.seconds) / (larger.offsets - smaller.offsets)
                fixed = smaller.seconds - slope * smaller.offsets
                if fixed > 0:
                    yield Cost(fixed, slope)


def _misfit(cost: Cost, paces: Sequence[Pace]) -> float:
    errors = (abs(math.log(pace.seconds / cost.seconds_for(pace.offsets))) for pace in paces)
    largest = max(pace.offsets for pace in paces)
    fixed_share = cost.fixed_seconds / cost.seconds_for(largest)
    return sum(error * _FADING**age for age, error in enumerate(errors)) + _DOUBT * fixed_share


def _within_limits(records: float, reason: str, target_seconds: float, min_records: int, max_records: int) -> BatchSize:
    allowed = max(min(int(records), max_records), min_records)
    if allowed < int(records):
        reason += f"; limits.max_records is {max_records:,}"
    elif allowed > int(records):
        reason += f"; limits.min_records is {min_records:,}"
    return BatchSize(allowed, target_seconds, reason)
