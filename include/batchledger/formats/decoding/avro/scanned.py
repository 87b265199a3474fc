"""What lanes have read, before it becomes a column: numbers, and where texts and bytes lie.

The values of all lanes stand side by side. In place of a null there are zeros, which fit every column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


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
