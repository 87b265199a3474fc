"""Offsets that more than one row has are found exactly, in whatever order and batches the rows come."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.offsets import OffsetRange, TopicPartition, intersect, merge_ranges, single_offset
from batchledger.watching.counting import OffsetCounter, RepeatCounter

FIRST = 2**53
SPANS = [OffsetRange(TopicPartition("payments", number), FIRST + 3, FIRST + 150) for number in range(2)]
ROWS = st.lists(
    st.tuples(st.integers(-1, 2), st.one_of(st.just(-1), st.integers(FIRST - 2, FIRST + 200))), max_size=300
)


@given(ROWS, st.integers(1, 50))
def test_repeated_offsets_are_the_ones_of_a_plain_count(rows: list[tuple[int, int]], size: int) -> None:
    counter = RepeatCounter(SPANS)
    for at in range(0, len(rows), size):
        partitions, offsets = np.array(rows[at : at + size], np.int64).T
        counter.add("payments", partitions, offsets)
        counter.add("another", partitions, offsets)
    expected = merge_ranges(
        single_offset("payments", partition, offset)
        for (partition, offset), count in Counter(rows).items()
        if count > 1 and 0 <= partition < 2 and FIRST + 3 <= offset < FIRST + 150
    )
    again = OffsetCounter(SPANS)
    for words in counter.finish():
        again.add(words)
    assert intersect(again.finish((), {}).held, SPANS) == expected


def test_rows_of_each_offset_once_are_no_repeats() -> None:
    counter = RepeatCounter(SPANS)
    counter.add("payments", np.zeros(100, np.int64), np.arange(FIRST, FIRST + 100))
    counter.add("payments", np.ones(100, np.int64), np.arange(FIRST, FIRST + 100))
    assert sum(len(each.words) for each in counter.finish()) == 0
