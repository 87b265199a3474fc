"""A ribbon over the offsets of a partition, and bars over hours: where their rectangles are. Pure; no I/O.

A ribbon has so many columns, and a column may stand for millions of offsets: it has the color of the most urgent kind
that falls into it, so that a gap of one offset is seen however long the log is.

Worked example, 4 columns over offsets 0..8: published 0..5, a gap 5..6, published 6..8 become published 0..2, gap 2..3,
published 3..4.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchledger.model.offsets import OffsetRange
from batchledger.proof.coverage import URGENCY, Segment

COLUMNS = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring columns ``[left, right)`` of one kind."""

    kind: StrEnum
    left: int
    right: int

    @property
    def width(self) -> int:
        """How many columns it has."""
        return self.right - self.left


def draw_ribbon(
    frame: OffsetRange,
    segments: Sequence[Segment[StrEnum]],
    columns: int = COLUMNS,
    worst_first: Iterable[StrEnum] = URGENCY,
) -> tuple[Piece, ...]:
    """Return the pieces that fill the columns; none for an empty frame. ``segments`` cover it."""
    if not frame:
        return ()
    rank = {kind: at for at, kind in enumerate(worst_first)}
    chosen: list[StrEnum | None] = [None] * columns
    for each in segments:
        behind = -(-(each.range.until - frame.start) * columns // len(frame))
        for column in range(_column(frame, each.range.start, columns), behind):
            known = chosen[column]
            if known is None or rank[each.kind] < rank[known]:
                chosen[column] = each.kind
    pieces: list[Piece] = []
    for column, kind in enumerate(chosen):
        if kind is None:
            continue
        if pieces and pieces[-1].kind is kind and pieces[-1].right == column:
            pieces[-1] = Piece(kind, pieces[-1].left, column + 1)
        else:
            pieces.append(Piece(kind, column, column + 1))
    return tuple(pieces)


def place(frame: OffsetRange, offset: int, columns: int = COLUMNS) -> int | None:
    """Return the column of an offset; its end counts as the last one. None outside of the frame."""
    if not frame or not frame.start <= offset <= frame.until:
        return None
    return min(_column(frame, offset, columns), columns - 1)


def draw_bars(values: Sequence[int], height: int) -> tuple[int, ...]:
    """Return the height of each bar: the largest value has ``height``, and what is not 0 can be seen."""
    largest = max(values, default=0)
    return tuple(max(1, round(each * height / largest)) if each else 0 for each in values)


def _column(frame: OffsetRange, offset: int, columns: int) -> int:
    return (offset - frame.start) * columns // len(frame)
