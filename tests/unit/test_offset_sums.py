"""Sums tell that rows have each offset of a stretch once; damage that they miss has to be built on purpose."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.offset_sums import SQUARED, OffsetSums


def sum_up(offsets: Sequence[int]) -> OffsetSums:
    """What PostgreSQL returns of rows with these offsets."""
    return OffsetSums(
        len(offsets), min(offsets), max(offsets), sum(offsets), sum((each % SQUARED) ** 2 for each in offsets)
    )


starts = st.one_of(st.integers(0, 100), st.integers(2**31 - 50, 2**31 + 50), st.integers(2**62, 2**63 - 10_000))


@given(starts, st.integers(1, 500))
def test_each_offset_once_is_told_unless_the_low_bits_begin_anew(start: int, count: int) -> None:
    is_within = start // SQUARED == (start + count - 1) // SQUARED
    assert sum_up(range(start, start + count)).are_each_once == is_within


@given(starts, st.integers(2, 500), st.data())
def test_a_row_that_is_lost_and_another_one_that_came_twice_are_noticed(
    start: int, count: int, data: st.DataObject
) -> None:
    offsets = list(range(start, start + count))
    lost = data.draw(st.integers(0, count - 1))
    twice = data.draw(st.integers(0, count - 1).filter(lambda each: each != lost))
    offsets[lost] = offsets[twice]
    assert not sum_up(offsets).are_each_once


@given(st.integers(0, 1000), st.integers(3, 50), st.integers(1, 20))
def test_chunks_that_are_lost_and_doubled_symmetrically_are_noticed_by_their_squares(
    start: int, size: int, between: int
) -> None:
    """Number, first, last and sum agree: the chunks before and after are doubled in place of the two in the middle."""
    chunks = [list(range(start + n * size, start + (n + 1) * size)) for n in range(4)]
    offsets = [*chunks[0], *chunks[0], *chunks[3], *chunks[3]]
    assert sum(offsets) == sum(range(start, start + 4 * size))
    assert not sum_up(offsets).are_each_once


def test_known_limit_three_of_six_at_these_distances_pass_for_three_others() -> None:
    """1, 5 and 6 are lost, and 2, 3 and 7 came twice."""
    assert sum_up([0, 2, 2, 3, 3, 4, 7, 7, 8]).are_each_once
