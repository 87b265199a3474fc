"""Many Avro values read side by side: each is a lane with a place of its own, and one step reads a field of all lanes.

A lane whose bytes are not surely right becomes *doubtful*; its place is then the end of its value. No lane ever reads
beyond the bytes at hand, and what a lane takes is never longer than its value.

What lanes have read is ``Scanned``, before it becomes a column: numbers, and where texts and bytes lie. The values of
all lanes stand side by side. In place of a null there are zeros, which fit every column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

PADDING_BYTES = 16
"""Zeros behind the last value, so that a step may look at whole words."""

MOST_STEPS_OF_ALL = 4_096

_WORD = 8
_MOST_BYTES = 10


def _u64(number: int) -> np.uint64:
    return np.uint64(number)


_ONE = _u64(1)
_LOW_BITS = _u64(0x7F)
_STOPS = _u64(0x8080808080808080)
# Moves groups of 7 bits together: two bytes, four, eight.
_STEPS = (
    (_u64(0x007F007F007F007F), _u64(0x7F007F007F007F00), _u64(1)),
    (_u64(0x00003FFF00003FFF), _u64(0x3FFF00003FFF0000), _u64(2)),
    (_u64(0x000000000FFFFFFF), _u64(0x0FFFFFFF00000000), _u64(4)),
)


class Bytes:
    """The bytes of all values, one behind the other, and the word that begins at each place.

    ``steps_left`` bounds how often their lanes step from item to item: arrays within arrays multiply.
    """

    def __init__(self, content: np.ndarray) -> None:
        self.steps_left = MOST_STEPS_OF_ALL
        self.content = np.zeros(len(content) + PADDING_BYTES, np.uint8)
        self.content[: len(content)] = content
        self.buffer = pa.py_buffer(self.content)
        self.words: np.ndarray = np.ndarray((len(self.content) - _WORD + 1,), "<u8", self.content, strides=(1,))


class Lanes:
    """The places of some values; a step moves all of them."""

    def __init__(self, source: Bytes, places: np.ndarray, ends: np.ndarray) -> None:
        self.source = source
        self.places = places
        self.ends = ends
        self.is_doubtful = np.zeros(len(places), bool)

    def __len__(self) -> int:
        return len(self.places)

    def pick(self, lanes: np.ndarray) -> "Lanes":
        """Return some lanes, to be given back to ``put``."""
        return Lanes(self.source, self.places[lanes], self.ends[lanes])

    def put(self, lanes: np.ndarray, picked: "Lanes") -> None:
        """Take over what became of picked lanes."""
        # What has been read may still refer to the places from before.
        self.places = self.places.copy()
        self.places[lanes] = picked.places
        self.is_doubtful[lanes] |= picked.is_doubtful

    def doubt(self, is_wrong: np.ndarray) -> None:
        """Give lanes up."""
        if is_wrong.any():
            self.is_doubtful |= is_wrong
            self.places = np.where(is_wrong, self.ends, self.places)

    def skip(self, count: np.ndarray | int) -> None:
        """Move by so many bytes, of which none is negative and none beyond the number of all bytes."""
        self.places = self.places + count
        self.doubt(self.places > self.ends)

    def read_words(self, size_bytes: int) -> np.ndarray:
        """Return the next bytes as a number without a sign; at most 8."""
        words: np.ndarray = self.source.words[self.places]
        self.skip(size_bytes)
        if size_bytes == _WORD:
            return words
        cut: np.ndarray = words & ((_ONE << _u64(8 * size_bytes)) - _ONE)
        return cut

    def read_numbers(self) -> np.ndarray:
        """Return the next numbers of variable length as 64 bits with a sign."""
        words = self.source.words[self.places]
        stops = ~words & _STOPS
        first_stop = stops & (~stops + _ONE)
        own = first_stop | (first_stop - _ONE)
        count = (np.bitwise_count(own) >> 3).astype(np.int64)
        numbers = _join_groups(words & own)
        is_long = stops == 0
        if is_long.any():
            self._read_long_numbers(np.flatnonzero(is_long), numbers, count)
        self.skip(count)
        halves: np.ndarray = (numbers >> _ONE).view(np.int64)
        return halves ^ -((numbers & _ONE).view(np.int64))

    def _read_long_numbers(self, lanes: np.ndarray, numbers: np.ndarray, count: np.ndarray) -> None:
        """Add the ninth and the tenth byte."""
        words = self.source.words[self.places[lanes] + _WORD]
        ninth, tenth = words & _u64(0xFF), (words >> _u64(8)) & _u64(0xFF)
        has_tenth = ninth > _LOW_BITS
        numbers[lanes] |= (ninth & _LOW_BITS) << _u64(56)
        numbers[lanes] |= np.where(has_tenth, (tenth & _ONE) << _u64(63), _u64(0))
        count[lanes] = np.where(has_tenth, _MOST_BYTES, _MOST_BYTES - 1)
        # Beyond 64 bits or without an end.
        self._doubt_some(lanes, has_tenth & (tenth > _ONE))

    def _doubt_some(self, lanes: np.ndarray, is_wrong: np.ndarray) -> None:
        self.is_doubtful[lanes[is_wrong]] = True

    def read_lengths(self) -> np.ndarray:
        """Return numbers of bytes that are left in each lane; 0 in one that becomes doubtful."""
        lengths = self.read_numbers()
        is_wrong = (lengths < 0) | (lengths > self.ends - self.places) | self.is_doubtful
        if is_wrong.any():
            self.doubt(is_wrong)
            lengths[is_wrong] = 0
        return lengths

    def read_places(self, count: int) -> np.ndarray:
        """Return places in a list of so many; 0 in a lane that becomes doubtful."""
        places = self.read_numbers()
        is_wrong = (places < 0) | (places >= count)
        if is_wrong.any():
            self.doubt(is_wrong)
            places[is_wrong] = 0
        return places


def _join_groups(words: np.ndarray) -> np.ndarray:
    joined = words & ~_STOPS
    for low, high, shift in _STEPS:
        joined = (joined & low) | ((joined & high) >> shift)
    return joined


@dataclass(frozen=True)
class Scanned:
    """Values of one type.

    ``parts`` are the numbers that a value has, each for all values: one, or where it starts and how long it is.
    ``children`` are fields of records, items of arrays, or keys and values of maps. ``counts`` are the items of each.
    """

    size: int
    parts: tuple[np.ndarray, ...] = ()
    children: tuple["Scanned", ...] = ()
    counts: np.ndarray | None = None
    is_valid: np.ndarray | None = None

    @property
    def item_counts(self) -> np.ndarray:
        """The items of each value, if these are arrays or maps."""
        return np.zeros(0, np.int64) if self.counts is None else self.counts


def spread(found: Scanned, lanes: np.ndarray, size: int) -> Scanned:
    """Return the values at ascending lanes of more, and nulls in all others."""
    if len(lanes) == size:
        return found
    children = found.children
    if found.counts is None:
        children = tuple(spread(child, lanes, size) for child in children)
    is_valid = _scatter(np.ones(found.size, bool) if found.is_valid is None else found.is_valid, lanes, size)
    counts = None if found.counts is None else _scatter(found.counts, lanes, size)
    return Scanned(size, tuple(_scatter(part, lanes, size) for part in found.parts), children, counts, is_valid)


def take(found: Scanned, places: np.ndarray) -> Scanned:
    """Return the values at these places, in their order."""
    children_at = places
    counts = found.counts
    if counts is not None:
        starts = (np.cumsum(counts) - counts)[places]
        counts = counts[places]
        ends = np.cumsum(counts)
        children_at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return Scanned(
        len(places),
        tuple(part[places] for part in found.parts),
        tuple(take(child, children_at) for child in found.children),
        counts,
        None if found.is_valid is None else found.is_valid[places],
    )


def join(pieces: Sequence[Scanned]) -> Scanned:
    """Return the values of all pieces, of one type and at least one, one piece behind the other."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    is_valid = None
    if any(each.is_valid is not None for each in pieces):
        is_valid = np.concatenate(
            [np.ones(each.size, bool) if each.is_valid is None else each.is_valid for each in pieces]
        )
    return replace(
        first,
        size=sum(each.size for each in pieces),
        parts=tuple(map(np.concatenate, zip(*(each.parts for each in pieces), strict=True))),
        children=tuple(map(join, zip(*(each.children for each in pieces), strict=True))),
        counts=None
        if first.counts is None
        else np.concatenate([each.counts for each in pieces if each.counts is not None]),
        is_valid=is_valid,
    )


def _scatter(values: np.ndarray, lanes: np.ndarray, size: int) -> np.ndarray:
    spread_out = np.zeros(size, values.dtype)
    spread_out[lanes] = values
    return spread_out
