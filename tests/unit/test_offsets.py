"""The interval algebra against a brute-force model: a range is the set of its (partition, offset) pairs."""

import sys
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_offsets,
    describe_ranges,
    find_gaps,
    find_overlaps,
    merge_ranges,
    single_offset,
    split_ranges,
)

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_3 = TopicPartition("orders", 3)
LARGEST_OFFSET = 2**63 - 1

partitions = st.builds(TopicPartition, st.sampled_from(["orders", "payments"]), st.integers(0, 1))
small_ranges = st.builds(
    lambda partition, start, length: OffsetRange(partition, start, start + length),
    partitions,
    st.integers(0, 20),
    st.integers(0, 8),
)
range_lists = st.lists(small_ranges, max_size=12)
topics = st.text("abcXYZ0189._-", min_size=1, max_size=12)


def offsets_of(ranges: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    """Every offset once for each range that holds it."""
    return [(each.partition, offset) for each in ranges for offset in range(each.start, each.until)]


def are_canonical(ranges: list[OffsetRange]) -> bool:
    """Whether the ranges are sorted, not empty, and no two of them touch."""
    return all(len(each) > 0 for each in ranges) and all(
        left < right and (left.partition != right.partition or left.until < right.start)
        for left, right in pairwise(ranges)
    )


@given(topics, st.integers(0, 10_000), st.integers(0, LARGEST_OFFSET), st.integers(0, LARGEST_OFFSET))
def test_every_range_reads_back_from_its_text(topic: str, partition: int, one: int, other: int) -> None:
    expected = OffsetRange(TopicPartition(topic, partition), min(one, other), max(one, other))
    assert OffsetRange.parse(str(expected)) == expected


def test_text_form_is_the_one_users_see() -> None:
    assert str(OffsetRange(ORDERS_3, 1200, 1500)) == "orders[3] 1200..1500"
    assert str(ORDERS_3) == "orders[3]"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders[3]",
        "orders[3]1..2",
        "orders[-1] 1..2",
        "orders[3] -1..2",
        "orders[3] 1..2 ",
        "orders[3] 5..4",
        "orders[3] 1...2",
        "orders[3] latest..2",
        "orders[\N{ARABIC-INDIC DIGIT THREE}] 1..2",
        "[3] 1..2",
        "a b[0] 1..2",
    ],
)
def test_text_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        OffsetRange.parse(text)


@pytest.mark.parametrize(("start", "until"), [(5, 4), (-1, 4), (-2, -1)])
def test_s12_negative_and_reversed_ranges_cannot_exist(start: int, until: int) -> None:
    with pytest.raises(ValueError, match=r"orders\[3\].*is not a range"):
        OffsetRange(ORDERS_3, start, until)


def test_s48_offset_zero_is_a_real_offset() -> None:
    first = OffsetRange(ORDERS_0, 0, 1)
    assert len(first) == 1
    assert 0 in first
    assert 1 not in first


def test_s6_the_largest_kafka_offset_does_not_overflow() -> None:
    everything = OffsetRange(ORDERS_0, 0, LARGEST_OFFSET)
    assert len(everything) == LARGEST_OFFSET <= sys.maxsize
    assert count_offsets([everything, everything]) == 2 * LARGEST_OFFSET
    assert find_overlaps([everything, everything]) == [everything]


@given(small_ranges, st.integers(-2, 35))
def test_range_holds_start_and_not_until(each: OffsetRange, offset: int) -> None:
    assert (offset in each) == (offset in range(each.start, each.until))


@given(range_lists)
def test_merging_keeps_every_offset_and_adds_none(ranges: list[OffsetRange]) -> None:
    """S10: pieces of a partition that touch or overlap become one range."""
    merged = merge_ranges(ranges)
    assert offsets_of(merged) == sorted(set(offsets_of(ranges)))
    assert are_canonical(merged)
    assert merge_ranges(merged) == merged


@given(range_lists)
def test_counting_merged_ranges_counts_each_offset_once(ranges: list[OffsetRange]) -> None:
    assert count_offsets(ranges) == len(offsets_of(ranges))
    assert count_offsets(merge_ranges(ranges)) == len(set(offsets_of(ranges)))


@given(range_lists)
def test_i2_overlaps_are_exactly_the_offsets_held_more_than_once(ranges: list[OffsetRange]) -> None:
    held = offsets_of(ranges)
    overlaps = find_overlaps(ranges)
    assert offsets_of(overlaps) == sorted({offset for offset in held if held.count(offset) > 1})
    assert are_canonical(overlaps)


@given(range_lists)
def test_i1_gaps_are_exactly_what_is_missing_between_the_ends(ranges: list[OffsetRange]) -> None:
    held = set(offsets_of(ranges))
    spans = {partition: [offset for each, offset in held if each == partition] for partition, _ in held}
    between = {(partition, offset) for partition, all_ in spans.items() for offset in range(min(all_), max(all_))}
    gaps = find_gaps(ranges)
    assert offsets_of(gaps) == sorted(between - held)
    assert are_canonical(gaps)


@given(range_lists, range_lists)
def test_gaps_within_frames_are_the_frames_without_the_ranges(
    ranges: list[OffsetRange], frames: list[OffsetRange]
) -> None:
    gaps = find_gaps(ranges, within=merge_ranges(frames))
    assert offsets_of(gaps) == sorted(set(offsets_of(frames)) - set(offsets_of(ranges)))
    assert are_canonical(gaps)


@given(range_lists, range_lists)
def test_frames_that_overlap_are_examined_one_at_a_time(ranges: list[OffsetRange], frames: list[OffsetRange]) -> None:
    one_by_one = [gap for frame in sorted(frames) for gap in find_gaps(ranges, within=[frame])]
    assert find_gaps(ranges, within=frames) == one_by_one


@given(range_lists)
def test_ranges_and_their_gaps_together_are_contiguous_and_fill_the_span(ranges: list[OffsetRange]) -> None:
    filled = merge_ranges([*ranges, *find_gaps(ranges)])
    assert find_gaps(filled) == []
    assert len(filled) == len({each.partition for each in filled})


@given(range_lists, st.randoms())
def test_order_of_the_input_does_not_matter(ranges: list[OffsetRange], random: Random) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)
    assert merge_ranges(shuffled) == merge_ranges(ranges)
    assert find_gaps(shuffled) == find_gaps(ranges)
    assert find_overlaps(shuffled) == find_overlaps(ranges)


def test_worked_examples_of_the_docstrings() -> None:
    zero_to_ten, later = OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_0, 15, 20)
    assert find_gaps([later, zero_to_ten]) == [OffsetRange(ORDERS_0, 10, 15)]
    assert find_gaps([zero_to_ten, later], within=[OffsetRange(ORDERS_0, 0, 25)]) == [
        OffsetRange(ORDERS_0, 10, 15),
        OffsetRange(ORDERS_0, 20, 25),
    ]
    assert find_overlaps([zero_to_ten, OffsetRange(ORDERS_0, 8, 12)]) == [OffsetRange(ORDERS_0, 8, 10)]
    assert merge_ranges([zero_to_ten, OffsetRange(ORDERS_0, 10, 12)]) == [OffsetRange(ORDERS_0, 0, 12)]


def test_no_frame_means_no_gap() -> None:
    assert find_gaps([OffsetRange(ORDERS_0, 0, 1), OffsetRange(ORDERS_0, 5, 6)], within=[]) == []


def test_s10_neighbours_of_other_partitions_are_never_merged() -> None:
    touching = [OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_3, 10, 20)]
    assert merge_ranges(touching) == touching
    assert find_gaps(touching) == []


def test_long_lists_are_described_briefly() -> None:
    many = [OffsetRange(TopicPartition("orders", number), 0, 1) for number in range(10)]
    assert describe_ranges(many, limit=2) == "orders[0] 0..1, orders[1] 0..1 and 8 more"
    assert describe_ranges(many[:2], limit=2) == "orders[0] 0..1, orders[1] 0..1"
    assert describe_ranges([]) == ""
    assert describe_ranges(many[:9]).endswith("orders[7] 0..1 and 1 more")


@given(ranges=st.lists(small_ranges), offsets=st.integers(1, 30))
def test_portions_hold_every_range_once_in_order_and_no_more_than_asked_for(
    ranges: list[OffsetRange], offsets: int
) -> None:
    portions = list(split_ranges(ranges, offsets))
    assert [each for portion in portions for each in portion] == ranges
    assert all(portion for portion in portions)
    assert all(count_offsets(portion) <= offsets or len(portion) == 1 for portion in portions)
    assert all(count_offsets(one) + len(after[0]) > offsets for one, after in pairwise(portions))


def test_single_offset_is_a_range_that_holds_it_and_no_other() -> None:
    assert single_offset("orders", 3, 1200) == OffsetRange(ORDERS_3, 1200, 1201)


def test_s6_largest_numbers_of_kafka_are_read_and_none_beyond_either() -> None:
    assert (
        str(OffsetRange.parse(f"orders[{2**31 - 1}] 0..{LARGEST_OFFSET}")) == f"orders[{2**31 - 1}] 0..{LARGEST_OFFSET}"
    )
    for text in (f"orders[{2**31}] 0..1", f"orders[0] 0..{LARGEST_OFFSET + 1}"):
        with pytest.raises(ValueError, match="Kafka has no partition or offset"):
            OffsetRange.parse(text)
