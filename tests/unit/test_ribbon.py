"""Where the rectangles of ribbons and bars are: nothing overlaps, and nothing that matters is too small to be seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.interfaces.page.ribbon import COLUMNS, Piece, draw_bars, draw_ribbon, place
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.coverage import URGENCY, Kind, Segment

ORDERS_0 = TopicPartition("orders", 0)


def tile(start: int, *parts: tuple[Kind, int]) -> list[Segment[Kind]]:
    """Segments of these lengths, one after the other."""
    segments = []
    for kind, length in parts:
        segments.append(Segment(kind, OffsetRange(ORDERS_0, start, start + length)))
        start += length
    return segments


def frame_of(segments: list[Segment[Kind]]) -> OffsetRange:
    return OffsetRange(ORDERS_0, segments[0].range.start, segments[-1].range.until)


lengths = st.integers(1, 10) | st.integers(1, 10**7)
coverings = st.builds(
    lambda start, parts: tile(start, *parts),
    st.integers(0, 10**12),
    st.lists(st.tuples(st.sampled_from(Kind), lengths), min_size=1, max_size=8),
)
column_counts = st.integers(1, 12) | st.just(COLUMNS)


def test_columns_of_the_worked_example_are_as_it_says() -> None:
    segments = tile(0, (Kind.PUBLISHED, 5), (Kind.GAP, 1), (Kind.PUBLISHED, 2))
    pieces = draw_ribbon(frame_of(segments), segments, columns=4)
    assert pieces == (Piece(Kind.PUBLISHED, 0, 2), Piece(Kind.GAP, 2, 3), Piece(Kind.PUBLISHED, 3, 4))
    assert [each.width for each in pieces] == [2, 1, 1]


@given(coverings, column_counts)
def test_pieces_fill_all_columns_and_do_not_overlap(segments: list[Segment[Kind]], columns: int) -> None:
    pieces = draw_ribbon(frame_of(segments), segments, columns)
    edges = [0, *(each.right for each in pieces)]
    assert [each.left for each in pieces] == edges[:-1]
    assert edges[-1] == columns
    assert all(each.width > 0 for each in pieces)


@given(coverings, column_counts)
def test_each_column_has_the_most_urgent_kind_of_its_offsets(segments: list[Segment[Kind]], columns: int) -> None:
    frame = frame_of(segments)
    shown = {column: each.kind for each in draw_ribbon(frame, segments, columns) for column in range(*span(each))}
    for column in range(columns):
        # In parts of a column's width, so that nothing is rounded.
        left, right = column * len(frame), (column + 1) * len(frame)
        inside = [
            each.kind
            for each in segments
            if (each.range.start - frame.start) * columns < right and (each.range.until - frame.start) * columns > left
        ]
        assert shown[column] is min(inside, key=URGENCY.index)


def span(piece: Piece) -> tuple[int, int]:
    return piece.left, piece.right


@given(st.integers(0, 10**9), st.integers(0, 10**9), column_counts)
def test_gap_of_one_offset_is_seen_however_long_the_log_is(before: int, behind: int, columns: int) -> None:
    parts = [(Kind.PUBLISHED, before), (Kind.GAP, 1), (Kind.PUBLISHED, behind)]
    segments = tile(0, *[each for each in parts if each[1]])
    gaps = [each for each in draw_ribbon(frame_of(segments), segments, columns) if each.kind is Kind.GAP]
    assert len(gaps) == 1
    assert gaps[0].left <= before * columns // (before + 1 + behind) < gaps[0].right


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.GAP])
def test_one_offset_of_any_other_kind_is_not_seen_beside_a_gap(kind: Kind) -> None:
    """Otherwise the property above would hold of any kind, and say nothing about gaps."""
    segments = tile(0, (Kind.GAP, 10**9), (kind, 1), (Kind.GAP, 10**9))
    assert draw_ribbon(frame_of(segments), segments) == (Piece(Kind.GAP, 0, COLUMNS),)


def test_nothing_is_drawn_of_an_empty_frame() -> None:
    assert draw_ribbon(OffsetRange(ORDERS_0, 5, 5), []) == ()


@pytest.mark.parametrize(
    ("offset", "column"),
    [(99, None), (100, 0), (124, 0), (125, 1), (199, 3), (200, 3), (201, None)],
)
def test_offset_is_placed_in_its_column_and_the_end_in_the_last(offset: int, column: int | None) -> None:
    assert place(OffsetRange(ORDERS_0, 100, 200), offset, columns=4) == column


def test_nothing_has_a_place_in_an_empty_frame() -> None:
    assert place(OffsetRange(ORDERS_0, 5, 5), 5) is None


@given(coverings, column_counts, st.data())
def test_offset_is_placed_where_its_segment_is_drawn(
    segments: list[Segment[Kind]], columns: int, data: st.DataObject
) -> None:
    frame = frame_of(segments)
    offset = data.draw(st.integers(frame.start, frame.until - 1))
    column = place(frame, offset, columns)
    assert column is not None
    mine = next(each.kind for each in segments if offset in each.range)
    shown = next(each.kind for each in draw_ribbon(frame, segments, columns) if each.left <= column < each.right)
    assert URGENCY.index(shown) <= URGENCY.index(mine)


@pytest.mark.parametrize(
    ("values", "heights"),
    [
        ((), ()),
        ((0, 0), (0, 0)),
        ((5,), (24,)),
        ((0, 1, 50, 100), (0, 1, 12, 24)),
        ((1, 10**9), (1, 24)),
    ],
)
def test_largest_bar_is_as_high_as_there_is_room_and_the_smallest_can_be_seen(
    values: tuple[int, ...], heights: tuple[int, ...]
) -> None:
    assert draw_bars(values, 24) == heights


@given(st.lists(st.integers(0, 10**12)), st.integers(1, 100))
def test_no_bar_is_higher_than_another_one_of_a_larger_value(values: list[int], height: int) -> None:
    bars = draw_bars(values, height)
    assert all(0 <= each <= height for each in bars)
    ordered = [bar for _, bar in sorted(zip(values, bars, strict=True))]
    assert ordered == sorted(bars)
    assert [bar == 0 for bar in bars] == [value == 0 for value in values]
