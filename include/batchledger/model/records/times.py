"""Timestamps of records: the times that are kept of a range, and the result of a search through it. Pure.

Kafka counts whole milliseconds, and so does everything here: the ledger, the search and the lookup of a moment agree
on which side of a bound a record lies. A record without a timestamp lies in no span of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from batchledger.model.offsets import OffsetRange

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(moment: datetime) -> int:
    """Return the first millisecond at or after the moment. A record is at or after it exactly if its timestamp is.

    The result is exact. A float of seconds is not, and would move a bound by one.
    """
    return -((EPOCH - moment) // MILLISECOND)


def describe_moment(milliseconds: int) -> str:
    """Return the text form of a timestamp, even beyond the years that Python knows."""
    try:
        return (EPOCH + milliseconds * MILLISECOND).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The timestamps ``since_ms <= t < until_ms``."""

    since_ms: int
    until_ms: int

    def __contains__(self, timestamp_ms: object) -> bool:
        return isinstance(timestamp_ms, int) and self.since_ms <= timestamp_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """The smallest and the largest timestamp of some records, both None if none has one; ``untimed`` have none."""

    first_ms: int | None = None
    last_ms: int | None = None
    untimed: int = 0

    @classmethod
    def of(cls, timestamps_ms: Iterable[int | None]) -> "RecordTimes":
        """Return the times of records with these timestamps."""
        stamps = list(timestamps_ms)
        timed = [each for each in stamps if each is not None]
        return cls(min(timed, default=None), max(timed, default=None), len(stamps) - len(timed))

    def __or__(self, other: "RecordTimes") -> "RecordTimes":
        """Return the times of both sets of records together."""
        bounds = (self.first_ms, self.last_ms, other.first_ms, other.last_ms)
        together = RecordTimes.of(each for each in bounds if each is not None)
        return RecordTimes(together.first_ms, together.last_ms, self.untimed + other.untimed)

    def meets(self, span: TimeSpan) -> bool:
        """Whether a record between the smallest and the largest timestamp may lie in the span."""
        if self.first_ms is None or self.last_ms is None:
            return False
        return self.first_ms < span.until_ms and span.since_ms <= self.last_ms

    def lies_within(self, span: TimeSpan) -> bool:
        """Whether every record lies in the span, and there is at least one."""
        return self.untimed == 0 and self.first_ms in span and self.last_ms in span


@dataclass(frozen=True, slots=True)
class TimedRange:
    """Offsets that a published batch holds, with the times of their records that the ledger keeps.

    They are a part of ``whole``, a range of the batch; the other fields are about it. ``records`` counts its records
    that became rows, duplicates or quarantined. ``times`` are their times, None if these have not been noted.
    ``unseen`` counts the other records, whose timestamps are unknown: a transform dropped them, or they are skipped
    tombstones.
    """

    range: OffsetRange
    whole: OffsetRange
    times: RecordTimes | None
    records: int
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search for a span of time in ``range``.

    ``stretch`` reaches from the first record of the span to the last one, and over offsets without a record behind it;
    None if no record lies in the span. ``along`` records of the stretch, with the times ``along_times``, lie outside of
    the span. ``times`` are the times of all records of the range.
    """

    range: OffsetRange
    stretch: OffsetRange | None
    records: int
    along: int
    along_times: RecordTimes
    times: RecordTimes


@dataclass(slots=True)
class _Tally:
    """Counts records and their times; numbers only, because a search meets millions of them."""

    records: int = 0
    untimed: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def count(self, timestamp_ms: int | None) -> None:
        self.records += 1
        if timestamp_ms is None:
            self.untimed += 1
        elif self.first_ms is None or self.last_ms is None:
            self.first_ms = self.last_ms = timestamp_ms
        elif timestamp_ms < self.first_ms:
            self.first_ms = timestamp_ms
        elif timestamp_ms > self.last_ms:
            self.last_ms = timestamp_ms

    @property
    def times(self) -> RecordTimes:
        return RecordTimes(self.first_ms, self.last_ms, self.untimed)


class TimeSearch:
    """Searches the records of one range, shown one after another in the order of offsets.

    Example: ``orders[0] 10..20`` shows the records 10, 12, 13, 15 and 17, and 12 and 15 lie in the span. The stretch is
    ``orders[0] 12..17``: offset 16 shows no record, 17 shows one of another time. Record 13 comes along.
    """

    def __init__(self, within: OffsetRange, span: TimeSpan) -> None:
        self._within, self._since_ms, self._until_ms = within, span.since_ms, span.until_ms
        self._stretch_start = -1
        self._stretch_until: int | None = None
        self._in_span, self._since_last = _Tally(), _Tally()
        self._along, self._along_times, self._times_before = 0, RecordTimes(), RecordTimes()

    def see(self, offset: int, timestamp_ms: int | None) -> None:
        """Take note of the next record."""
        if timestamp_ms is None or not self._since_ms <= timestamp_ms < self._until_ms:
            if self._stretch_until is None:
                self._stretch_until = offset
            self._since_last.count(timestamp_ms)
            return
        passed = self._since_last
        if not self._in_span.records:
            # Offsets without a record before the first one belong to the stretch, as in a whole range.
            self._stretch_start = offset if passed.records else self._within.start
            self._times_before = passed.times
        elif passed.records:
            self._along += passed.records
            self._along_times |= passed.times
        if passed.records:
            self._since_last = _Tally()
        self._stretch_until = None
        self._in_span.count(timestamp_ms)

    def result(self) -> Searched:
        """Return the result so far."""
        stretch = None
        if self._in_span.records:
            until = self._within.until if self._stretch_until is None else self._stretch_until
            stretch = OffsetRange(self._within.partition, self._stretch_start, until)
        times = self._times_before | self._in_span.times | self._along_times | self._since_last.times
        return Searched(self._within, stretch, self._in_span.records, self._along, self._along_times, times)
