"""How the ranges of a batch are divided among tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, merge_ranges
from batchledger.planning.shares import OFFSETS_IN_SHARE, OFFSETS_WORTH_A_RANGE, divide


def ranges_of(*sizes: int) -> list[OffsetRange]:
    """One range of each size, each of a partition of its own."""
    return [OffsetRange(TopicPartition("orders", number), 7, 7 + size) for number, size in enumerate(sizes)]


def cost(share: list[OffsetRange]) -> int:
    return count_offsets(share) + OFFSETS_WORTH_A_RANGE * len(share)


def test_range_that_crosses_the_end_of_a_share_is_split_there() -> None:
    shares = divide(
        [OffsetRange(TopicPartition("orders", 0), 0, 500), OffsetRange(TopicPartition("orders", 1), 0, 100)],
        offsets=400,
    )
    assert [[str(each) for each in share] for share in shares] == [
        ["orders[0] 0..300"],
        ["orders[0] 300..500", "orders[1] 0..100"],
    ]


def test_one_large_range_is_shared_and_many_small_ones_share() -> None:
    assert [count_offsets(each) for each in divide(ranges_of(2_000_000))] == [499_925, 500_025, 500_025, 500_025]
    assert [len(each) for each in divide(ranges_of(*[10] * 256))] == [256]
    assert [len(each) for each in divide(ranges_of(*[100] * 10_000))] == [2500] * 4
    assert [count_offsets(each) for each in divide(ranges_of(*[500_000] * 4))] == [500_000] * 4


@given(st.lists(st.integers(0, 3000), max_size=8), st.integers(1, 5000))
def test_range_that_may_not_be_split_is_in_one_share_and_all_are_in_their_order(sizes: list[int], offsets: int) -> None:
    ranges = [each for each in ranges_of(*sizes) if len(each)]
    shares = divide(ranges_of(*sizes), 2, offsets, splits=False)
    assert [each for share in shares for each in share] == ranges
    assert all(shares) or not ranges


def test_all_slots_are_used_if_there_is_work_for_them() -> None:
    assert [len(divide(ranges_of(700_000), slots)) for slots in (1, 2, 13, 16)] == [1, 2, 13, 14]
    assert len(divide(ranges_of(99_000), 16)) == 1
    assert len(divide(ranges_of(2_000_000), 2)) == 4
    assert len(divide(ranges_of(*[10] * 256), 16)) == 1


def test_batch_without_offsets_is_one_empty_share() -> None:
    """The step opens and seals its staging all the same."""
    assert divide([]) == divide(ranges_of(0, 0)) == [[]]


def test_share_without_offsets_is_not_possible() -> None:
    with pytest.raises(ValueError, match="a share of 0 offsets"):
        divide(ranges_of(1), offsets=0)


@given(st.lists(st.integers(0, 3000), max_size=8), st.integers(1, 5000))
def test_each_offset_is_in_exactly_one_share_and_no_share_is_much_larger_than_another(
    sizes: list[int], offsets: int
) -> None:
    ranges = ranges_of(*sizes)
    shares = divide(ranges, offsets=offsets)
    parts = [each for share in shares for each in share]
    assert merge_ranges(parts) == merge_ranges(ranges)
    assert count_offsets(parts) == count_offsets(ranges)
    # A range of which a share has only a part costs it something of its own.
    work = sum(OFFSETS_WORTH_A_RANGE + size for size in sizes)
    assert all(cost(share) <= work / max(1, round(work / offsets)) + OFFSETS_WORTH_A_RANGE + 1 for share in shares)
    assert OFFSETS_IN_SHARE >= 100 * OFFSETS_WORTH_A_RANGE
