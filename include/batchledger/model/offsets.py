"""Offset ranges of Kafka topic partitions and the interval algebra over them.

Every range is half-open, ``[start, until)``, always. This module holds the arithmetic behind I1 (contiguous) and
I2 (disjoint) and nothing else: no I/O, no clock, standard library only.

Worked example, partition ``orders[3]``::

    0        1200     1500      1800
    |--------|=========|.........|
             [1200,1500)          "orders[3] 1200..1500", 300 offsets, 1500 is the next offset to read
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from typing_extensions import override

LARGEST_PARTITION, LARGEST_OFFSET = 2**31 - 1, 2**63 - 1

_RANGE_TEXT = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>\d+)\] (?P<start>\d+)\.\.(?P<until>\d+)", re.ASCII)


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One partition of one topic; its text form is ``orders[3]``."""

    topic: str
    partition: int

    @override
    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """The offsets ``start <= offset < until`` of one partition.

    Raises ValueError for a negative start or an ``until`` below ``start``: Spark would drop such a range silently.
    """

    partition: TopicPartition
    start: int
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            raise ValueError(f"{self.partition} {self.start}..{self.until} is not a range: 0 <= start <= until fails")

    @override
    def __str__(self) -> str:
        return f"{self.partition} {self.start}..{self.until}"

    def __len__(self) -> int:
        """The number of offsets in the range; at most as many records are visible in it."""
        return self.until - self.start

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.until

    @classmethod
    def parse(cls, text: str) -> "OffsetRange":
        """Read the text form back: ``OffsetRange.parse("orders[3] 1200..1500")``. Raises ValueError.

        Numbers that Kafka cannot have raise it too: partitions are 32 bits wide, offsets 64.
        """
        match = _RANGE_TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an offset range; write it as topic[partition] start..until")
        partition, until = int(match["partition"]), int(match["until"])
        if partition > LARGEST_PARTITION or until > LARGEST_OFFSET:
            raise ValueError(f"{text!r} is not an offset range: Kafka has no partition or offset of such a number")
        return cls(TopicPartition(match["topic"], partition), int(match["start"]), until)


def find_gaps(ranges: Iterable[OffsetRange], within: Iterable[OffsetRange] | None = None) -> list[OffsetRange]:
    """Return the maximal ranges that ``ranges`` leave uncovered, in order.

    Without ``within`` the gaps lie between the lowest start and the highest until of each partition. With it, they lie
    inside the given frames, one frame at a time; no frame means no gap. Overlapping and empty ranges are allowed and
    leave no gap.

    Example: ``orders[0] 0..10`` and ``orders[0] 15..20`` leave ``orders[0] 10..15``; within ``orders[0] 0..25`` they
    also leave ``orders[0] 20..25``.
    """
    covered = dict(_by_partition(merge_ranges(ranges)))
    if within is None:
        within = [OffsetRange(each, group[0].start, group[-1].until) for each, group in covered.items()]
    gaps = []
    for frame in sorted(within):
        reached = frame.start
        for each in _meeting(covered.get(frame.partition, []), frame):
            if each.start > reached:
                gaps.append(OffsetRange(frame.partition, reached, each.start))
            reached = each.until
        if reached < frame.until:
            gaps.append(OffsetRange(frame.partition, reached, frame.until))
    return gaps


def count_covered(ranges: Iterable[OffsetRange], frames: Sequence[OffsetRange]) -> list[int]:
    """Return how many offsets of each frame ``ranges`` hold. An offset in several ranges counts once.

    Example: ``orders[0] 0..10`` and ``orders[0] 8..12`` hold 4 offsets of ``orders[0] 8..20``.
    """
    covered = dict(_by_partition(merge_ranges(ranges)))
    return [
        sum(
            min(each.until, frame.until) - max(each.start, frame.start)
            for each in _meeting(covered.get(frame.partition, []), frame)
        )
        for frame in frames
    ]


def find_overlaps(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the fewest ranges of offsets that more than one of ``ranges`` holds, in order; empty means disjoint (I2).

    Example: ``orders[0] 0..10`` and ``orders[0] 8..12`` overlap in ``orders[0] 8..10``.
    """
    overlaps = []
    for partition, group in _by_partition(ranges):
        reached = 0
        for each in group:
            if each.start < min(reached, each.until):
                overlaps.append(OffsetRange(partition, each.start, min(reached, each.until)))
            reached = max(reached, each.until)
    return merge_ranges(overlaps)


def intersect(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the fewest ranges of the offsets that lie in both, in order.

    Example: ``orders[0] 0..10`` and ``orders[0] 8..12`` have ``orders[0] 8..10`` in common.
    """
    frames = merge_ranges(ranges)
    return find_gaps(find_gaps(others, within=frames), within=frames)


def merge_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the fewest ranges that hold the same offsets, in order; empty ranges vanish.

    Example: ``orders[0] 0..10`` and ``orders[0] 10..12`` merge into ``orders[0] 0..12``.
    """
    merged: list[OffsetRange] = []
    for each in sorted(r for r in ranges if r):
        last = merged[-1] if merged else None
        if last is not None and last.partition == each.partition and each.start <= last.until:
            merged[-1] = OffsetRange(last.partition, last.start, max(last.until, each.until))
        else:
            merged.append(each)
    return merged


def single_offset(topic: str, partition: int, offset: int) -> OffsetRange:
    """Return the range of one offset."""
    return OffsetRange(TopicPartition(topic, partition), offset, offset + 1)


def count_offsets(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets in all ``ranges`` together."""
    return sum(len(each) for each in ranges)


def split_ranges(ranges: Iterable[OffsetRange], offsets: int) -> Iterator[list[OffsetRange]]:
    """Yield the ranges, in order, in portions of at most so many offsets. A larger range is a portion of its own."""
    portion: list[OffsetRange] = []
    taken = 0
    for each in ranges:
        if portion and taken + len(each) > offsets:
            yield portion
            portion, taken = [], 0
        portion.append(each)
        taken += len(each)
    if portion:
        yield portion


def describe_ranges(ranges: Iterable[OffsetRange], limit: int = 8) -> str:
    """Return the text form of up to ``limit`` ranges, and how many more there are."""
    texts = [str(each) for each in ranges]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def _meeting(merged: list[OffsetRange], frame: OffsetRange) -> Iterator[OffsetRange]:
    """Yield the merged ranges of one partition that share an offset with the frame, in order."""
    for index in range(bisect_right(merged, frame.start, key=lambda each: each.until), len(merged)):
        if merged[index].start >= frame.until:
            return
        yield merged[index]


def _by_partition(ranges: Iterable[OffsetRange]) -> Iterator[tuple[TopicPartition, list[OffsetRange]]]:
    for partition, group in groupby(sorted(r for r in ranges if r), key=lambda r: r.partition):
        yield partition, list(group)
