"""Counts which offsets a table has rows for, 64 offsets in a word: exact, in any order, 3/16 of a byte an offset.

A database, a scan of files or Spark brings the words: for each partition and each 64 offsets which of them have a row,
and how many rows there are. More rows than bits means that an offset is there twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges, single_offset
from batchledger.proof.watching import TableCount

BITS = 64
MOST_OFFSETS = 2**33
"""A look holds the words of so many offsets, in 1.5 GB."""
BEYOND_KEPT = 100
_WORDS_AT_ONCE = 2**17

Integers = npt.NDArray[np.int64]


class Words(NamedTuple):
    """Words of one topic: partition, number of the word (the offset divided by 64), its bits, and its rows."""

    topic: str
    partitions: Integers
    words: Integers
    bits: Integers
    rows: Integers


@dataclass
class _SeenWords:
    """The words of a span of one partition, from ``first`` on."""

    first: int
    bits: npt.NDArray[np.uint64]
    rows: npt.NDArray[np.uint32]


@dataclass
class OffsetCounter:
    """Adds up what a table holds of some spans of offsets, in order; no two of them share a word."""

    spans: Sequence[OffsetRange]
    _seen: dict[TopicPartition, list[_SeenWords]] = field(default_factory=dict)
    _beyond: dict[TopicPartition, set[int]] = field(default_factory=dict)
    _stray: int = 0
    _foreign: Counter[TopicPartition] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Make room. Raises ConfigurationError if the spans need too much."""
        total = sum(map(len, self.spans))
        if total > MOST_OFFSETS:
            raise ConfigurationError(
                f"{total:,} offsets are too many for one look: {MOST_OFFSETS:,} is the most. Nothing was read.",
                advice="Let the watch begin later: since: 30d",
            )
        for each in self.spans:
            first = each.start // BITS
            size = -(-each.until // BITS) - first
            words = _SeenWords(first, np.zeros(size, np.uint64), np.zeros(size, np.uint32))
            self._seen.setdefault(each.partition, []).append(words)

    def add(self, batch: Words) -> None:
        """Add words; a word may come in several parts, with different bits and rows."""
        is_stray = (batch.words < 0) | (batch.partitions < 0)
        self._stray += int(batch.rows[is_stray].sum())
        for number in np.unique(batch.partitions[~is_stray]).tolist():
            chosen = (batch.partitions == number) & ~is_stray
            partition = TopicPartition(batch.topic, number)
            self._add_partition(partition, batch.words[chosen], batch.bits[chosen], batch.rows[chosen])

    def _add_partition(self, partition: TopicPartition, words: Integers, bits: Integers, rows: Integers) -> None:
        spans = self._seen.get(partition)
        if spans is None:
            self._foreign[partition] += int(rows.sum())
            return
        is_behind = words >= spans[-1].first + len(spans[-1].bits)
        self._keep_beyond(partition, words[is_behind], bits[is_behind])
        for seen in spans:
            places = words - seen.first
            within = (places >= 0) & (places < len(seen.bits))
            np.bitwise_or.at(seen.bits, places[within], bits[within].view(np.uint64))
            # What counts is whether there are more rows than bits.
            np.add.at(seen.rows, places[within], np.minimum(rows[within], 2**16).astype(np.uint32))

    def _keep_beyond(self, partition: TopicPartition, words: Integers, bits: Integers) -> None:
        """Keep the largest offsets behind the end of the log: more records may be there by now."""
        newest = np.argsort(words)[-BEYOND_KEPT:]
        for word, of_word in zip(words[newest].tolist(), bits[newest].tolist(), strict=True):
            found = self._beyond.setdefault(partition, set())
            found.update(word * BITS + bit for bit in range(BITS) if of_word >> bit & 1)
            if len(found) > BEYOND_KEPT * BITS:
                self._beyond[partition] = set(sorted(found)[-BEYOND_KEPT:])

    def find_doubtful(self) -> list[OffsetRange]:
        """Return the words that have more rows than offsets, as ranges."""
        found = []
        for partition, seen in self._list_seen():
            doubtful = np.flatnonzero(seen.rows > np.bitwise_count(seen.bits)) + seen.first
            found += [OffsetRange(partition, word * BITS, (word + 1) * BITS) for word in doubtful.tolist()]
        return merge_ranges(found)

    def finish(self, repeated: Sequence[OffsetRange], end_by_partition: Mapping[TopicPartition, int]) -> TableCount:
        """Return what was counted. ``end_by_partition`` are the ends of the logs after the table was read."""
        beyond = [
            single_offset(partition.topic, partition.partition, offset)
            for partition, offsets in self._beyond.items()
            for offset in offsets
            if offset >= end_by_partition.get(partition, 0)
        ]
        held, behind = [], []
        for partition, seen in self._list_seen():
            end = end_by_partition.get(partition, 0)
            for each in _list_ranges(partition, seen):
                held.append(each)
                if each.until > end:
                    behind.append(OffsetRange(partition, max(each.start, end), each.until))
        # A partition may have been added meanwhile.
        foreign = sum(rows for partition, rows in self._foreign.items() if partition not in end_by_partition)
        wrong = tuple(merge_ranges([*beyond, *behind]))
        return TableCount(tuple(held), tuple(repeated), wrong, self._stray, foreign)

    def _list_seen(self) -> Iterator[tuple[TopicPartition, _SeenWords]]:
        return ((partition, seen) for partition, spans in self._seen.items() for seen in spans)


@dataclass
class RepeatCounter:
    """Finds the offsets of some ranges that more than one row has, in a quarter of a byte an offset."""

    spans: Sequence[OffsetRange]
    _seen: dict[TopicPartition, tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        """Make room, from the first range of a partition to its last one."""
        for each in cover(self.spans):
            first = each.start // BITS
            size = -(-each.until // BITS) - first
            self._seen[each.partition] = first, np.zeros(size, np.uint64), np.zeros(size, np.uint64)

    def add(self, topic: str, partitions: Integers, offsets: Integers) -> None:
        """Add rows."""
        for number in np.unique(partitions[partitions >= 0]).tolist():
            if seen := self._seen.get(TopicPartition(topic, number)):
                first, once, again = seen
                here, times = np.unique(offsets[partitions == number], return_counts=True)
                for some in (here, here[times > 1]):
                    packed = pack(topic, np.full_like(some, number), some)
                    is_within = (packed.words >= first) & (packed.words < first + len(once))
                    places, bits = packed.words[is_within] - first, packed.bits[is_within].view(np.uint64)
                    again[places] |= once[places] & bits
                    once[places] |= bits

    def finish(self) -> Iterator[Words]:
        """Yield the words of the offsets that were there more than once."""
        for partition, (first, _, again) in sorted(self._seen.items(), key=lambda each: each[0]):
            places = np.flatnonzero(again)
            bits, words = again[places], places + first
            numbers, rows = np.full_like(words, partition.partition), 2 * np.bitwise_count(bits).astype(np.int64)
            yield Words(partition.topic, numbers, words, bits.view(np.int64), rows)


def _list_ranges(partition: TopicPartition, seen: _SeenWords) -> Iterator[OffsetRange]:
    """Yield the offsets that have a row, as the fewest ranges, in order."""
    start: int | None = None
    for at in range(0, len(seen.bits), _WORDS_AT_ONCE):
        bits = np.unpackbits(seen.bits[at : at + _WORDS_AT_ONCE].view(np.uint8), bitorder="little").view(np.int8)
        edges = np.flatnonzero(np.diff(bits, prepend=np.int8(start is not None)))
        base = (seen.first + at) * BITS
        for edge in (edges + base).tolist():
            if start is None:
                start = edge
            else:
                yield OffsetRange(partition, start, edge)
                start = None
    if start is not None:
        yield OffsetRange(partition, start, (seen.first + len(seen.bits)) * BITS)


def split_words(topics: Sequence[str], numbers: Integers, partitions: Integers, *of_words: Integers) -> Iterator[Words]:
    """Yield words by their topics, given as numbers. What has a negative one is of no topic, and so of no partition."""
    for number in np.unique(numbers).tolist():
        chosen = numbers == number
        named = partitions[chosen] if number >= 0 else np.full(chosen.sum(), -1)
        yield Words(topics[max(0, number)], named, *(each[chosen] for each in of_words))


def cover(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return for each partition one range from its first offset to its last."""
    found: dict[TopicPartition, OffsetRange] = {}
    for each in ranges:
        last = found.get(each.partition, each)
        found[each.partition] = OffsetRange(each.partition, min(last.start, each.start), max(last.until, each.until))
    return list(found.values())


def pack(topic: str, partitions: Any, offsets: Any) -> Words:
    """Return the words of rows, given as integers of any order; a coordinate that is missing is negative."""
    partitions, offsets = np.asarray(partitions, np.int64), np.asarray(offsets, np.int64)
    words = np.where((offsets < 0) | (partitions < 0), -1, offsets >> 6)
    order = np.lexsort((words, partitions))
    partitions, offsets, words = partitions[order], offsets[order], words[order]
    is_first = np.ones(len(words), bool)
    is_first[1:] = (words[1:] != words[:-1]) | (partitions[1:] != partitions[:-1])
    firsts = np.flatnonzero(is_first)
    if not len(firsts):
        return Words(topic, partitions, words, words, words)
    ones = np.left_shift(np.uint64(1), (offsets & 63).astype(np.uint64))
    bits = np.bitwise_or.reduceat(ones, firsts).view(np.int64)
    rows = np.diff(firsts, append=len(words)).astype(np.int64)
    return Words(topic, partitions[firsts], words[firsts], bits, rows)
