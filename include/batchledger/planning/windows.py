"""Decide which offsets hold the records of a window of time, whatever the order of timestamps in the log. Pure.

Kafka finds the first record at or after a moment. So a window becomes a part of the log, from the first record of its
time to the first record of a later time. Neighbouring parts tile the log (``replay.resolve_window``). If timestamps are
in order, that part is the window. If they are not, records of the window lie outside of that part. The ledger keeps the
smallest and the largest timestamp of each range. So published records are found all the same: a range inside the window
is taken, and a range that meets it is looked through. No timestamp is known of offsets that no batch holds, such as
unread ones: there the part of the log is taken.

A window takes from each range the offsets from its first record of the window to its last. A record between them that
lies outside of the window comes along. An interval of a backfill stays a part of the log, so that no two intervals take
the same record. A note names the records of its time that lie elsewhere.

Worked example, ``orders[0]``, published as 0..3 and 3..6, with the timestamps 10:05, 11:10, 11:20 and 10:10, 12:00,
10:20. The part of the log from 10:00 to 11:00 is 0..1. Both ranges meet the window; looked through, they give 0..1 and
3..6, where the record of 12:00 comes along.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import or_

from batchledger.model.batch import LogState
from batchledger.model.counting import describe_count
from batchledger.model.errors import ReplayRefusedError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_offsets,
    describe_ranges,
    find_gaps,
    intersect,
    merge_ranges,
)
from batchledger.model.records.times import RecordTimes, Searched, TimedRange, describe_moment
from batchledger.planning.replay import Interval, ResolvedReplay, Window


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where published records of a window lie, as far as the ledger knows.

    All of ``sure`` lies in the window; ``doubtful`` has to be looked through. Of ``unknown``, whole ranges among these,
    the ledger has no times. ``gone`` is no longer in Kafka. ``untimed`` records at most have no timestamp.
    """

    sure: tuple[OffsetRange, ...]
    doubtful: tuple[OffsetRange, ...]
    unknown: frozenset[OffsetRange]
    gone: tuple[OffsetRange, ...]
    untimed: int


@dataclass(frozen=True, slots=True)
class PlacedWindow:
    """What is known of a window before a record is read: its part of the log, what was published, and candidates."""

    part: ResolvedReplay
    published: Sequence[TimedRange]
    candidates: Candidates

    @property
    def gone(self) -> tuple[OffsetRange, ...]:
        """What may have belonged to the window, and is no longer in Kafka."""
        return tuple(merge_ranges([*self.part.expired, *self.candidates.gone]))


def find_candidates(
    window: Window,
    published: Sequence[TimedRange],
    part: ResolvedReplay,
    since_by_partition: Mapping[TopicPartition, int],
    log: LogState,
) -> Candidates:
    """Return where records of the window lie in what was ``published``; ``part`` is its part of the log.

    Every record before the first one of the window's time is older than the window, so nothing is looked for there.
    An interval of a backfill looks outside of its part of the log only. It looks at ranges without stored times only if
    that part is empty, because such a range has to be read as a whole.
    """
    span = window.span
    is_interval = isinstance(window, Interval)
    part_by_partition = {key: list(own) for key, own in groupby(sorted(part.ranges), key=lambda each: each.partition)}
    sure: list[OffsetRange] = []
    doubtful: list[OffsetRange] = []
    gone = []
    for each in published:
        if each.range.partition not in log.log_by_partition:
            continue
        readable = _cut(each.range, since_by_partition, log)
        if each.times is None and each.records:
            doubtful += [] if is_interval and part.ranges else readable
        elif each.times is not None and each.times.meets(span):
            is_sure = each.times.lies_within(span) and not each.unseen
            (sure if is_sure else doubtful).extend(readable)
            if each.whole.until <= log.log_by_partition[each.range.partition].log_start:
                gone.append(each.range)
        elif each.unseen:
            # What a transform dropped lies in the window's part of the log at least if timestamps are in order.
            doubtful += intersect(readable, part_by_partition.get(each.range.partition, ()))
    if is_interval:
        sure, doubtful = (find_gaps(part.ranges, within=each) for each in (sure, doubtful))
    unnoted = {each.range for each in published if each.times is None and each.range == each.whole}
    untimed = {each.whole: each.times.untimed for each in published if each.times is not None}
    unknown = frozenset(unnoted.intersection(doubtful))
    return Candidates(tuple(sure), tuple(doubtful), unknown, tuple(gone), sum(untimed.values()))


def find_records(placed: PlacedWindow, searched: Sequence[Searched]) -> ResolvedReplay:
    """Return the ranges that hold every published record of the window, with what people should know of them before."""
    part, candidates = placed.part, placed.candidates
    held = [each.range for each in placed.published if each.records or each.unseen]
    stretches = [each.stretch for each in searched if each.stretch is not None]
    unpublished = find_gaps(held, within=part.ranges)
    ranges = merge_ranges([*unpublished, *candidates.sure, *stretches])
    notes = (*_tell_along(searched), *_tell_unpublished(unpublished), *_tell_untimed(candidates, searched))
    return replace(part, ranges=tuple(ranges), expired=placed.gone, notes=notes)


def keep_part(pipeline: str, interval: Interval, placed: PlacedWindow, searched: Sequence[Searched]) -> ResolvedReplay:
    """Return the interval's part of the log, and say which published records of its time lie elsewhere.

    Raises ReplayRefusedError when they all do: the run would do nothing and look like a success.
    """
    part, stretches = placed.part, [each.stretch for each in searched if each.stretch is not None]
    elsewhere = merge_ranges([*placed.candidates.sure, *stretches])
    if not elsewhere:
        return part
    out_of_order = (
        f"Timestamps of {pipeline} are out of order: published records of {interval} lie outside the interval's part "
        f"of the log, in {describe_ranges(elsewhere)}. Each run of a backfill takes a part of its own, so these "
        "belong to other intervals."
    )
    whole_window = (
        f"To publish all of this time again: batchledger replay {pipeline} --from {interval.since.isoformat()} "
        f"--until {interval.until.isoformat()} --reason WHY (action replay_window in the form)"
    )
    if not part.ranges:
        raise ReplayRefusedError(
            f"Nothing of {interval} was published again: its part of the log is empty.",
            why=out_of_order,
            advice=whole_window,
            ranges=tuple(elsewhere),
        )
    return replace(part, notes=(f"{out_of_order} {whole_window}",))


def _cut(piece: OffsetRange, since_by_partition: Mapping[TopicPartition, int], log: LogState) -> list[OffsetRange]:
    """Return what of the piece can be read and may be as young as the window."""
    held = log.log_by_partition[piece.partition]
    start = max(piece.start, since_by_partition.get(piece.partition, held.end), held.log_start)
    until = min(piece.until, held.end)
    return [OffsetRange(piece.partition, start, until)] if start < until else []


def _tell_along(searched: Sequence[Searched]) -> list[str]:
    along = sum(each.along for each in searched)
    if not along:
        return []
    times = reduce(or_, (each.along_times for each in searched))
    told = []
    if times.first_ms is not None and times.last_ms is not None:
        told.append(f"written from {describe_moment(times.first_ms)} to {describe_moment(times.last_ms)}")
    if times.untimed:
        told.append(f"{times.untimed:,} without a timestamp")
    when = " and ".join(told)
    come = describe_count(along, "record from outside of the window comes", "records from outside of the window come")
    lie = "it lies" if along == 1 else "they lie"
    return [f"{come} along, {when}: {lie} between records of the window"]


def _tell_unpublished(ranges: Sequence[OffsetRange]) -> list[str]:
    if not ranges:
        return []
    held_by_none = f"{count_offsets(ranges):,} of the offsets are held by no batch, {describe_ranges(ranges)}"
    return [f"{held_by_none}: what Kafka has from the first record of the window's time to the first of a later one"]


def _tell_untimed(candidates: Candidates, searched: Sequence[Searched]) -> list[str]:
    untimed = candidates.untimed + sum(each.times.untimed for each in searched if each.range in candidates.unknown)
    if not untimed:
        return []
    return [f"up to {untimed:,} published records have no timestamp, and belong to no window"]


def note_unknown(candidates: Candidates, searched: Sequence[Searched]) -> Mapping[OffsetRange, RecordTimes]:
    """Return the times of the ranges that were looked through as a whole and of which the ledger has none."""
    return {each.range: each.times for each in searched if each.range in candidates.unknown}
