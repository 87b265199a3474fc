"""Tells by a few sums that rows have each offset of a stretch once. Pure.

That costs a third of looking at each offset. Rows that are lost and others that came twice would have to agree in
number, first, last, sum and sum of squares: two of three and two others of three, at such distances as 0, 4, 5 and 1,
2, 6. Whatever is not such a stretch is counted offset by offset.
"""

from dataclasses import dataclass

SQUARED = 1 << 31
"""Offsets are squared modulo this, so that a square has 62 bits."""


@dataclass(frozen=True, slots=True)
class OffsetSums:
    """How many rows there are, their first and last offset, and the sums of offsets, and of squares of the low bits."""

    rows: int
    first: int
    last: int
    total: int
    squares: int

    @property
    def are_each_once(self) -> bool:
        """Whether the rows have every offset from first to last, and none twice, as far as sums can tell."""
        first, last = self.first % SQUARED, self.last % SQUARED
        return (
            self.rows == self.last - self.first + 1
            # Otherwise the low bits begin anew in between.
            and self.first // SQUARED == self.last // SQUARED
            and 2 * self.total == (self.first + self.last) * self.rows
            and self.squares == _sum_of_squares(last) - _sum_of_squares(first - 1)
        )


def _sum_of_squares(last: int) -> int:
    """Return the sum of the squares of 0 to ``last``."""
    return last * (last + 1) * (2 * last + 1) // 6
