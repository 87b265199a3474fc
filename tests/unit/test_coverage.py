"""What has become of every offset of a partition, against a model that asks of one offset after the other."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.batch import PartitionLog, Position, TopicIdentity
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.coverage import (
    URGENCY,
    Accounted,
    Kind,
    Segment,
    choose_frame,
    count_by_kind,
    cover,
    find_missing,
)

ORDERS_0 = TopicPartition("orders", 0)
LONGEST = 24


def ranges(*spans: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(ORDERS_0, start, until) for start, until in spans]


def position_at(next_offset: int, origin: int = 0) -> Position:
    return Position(ORDERS_0, origin, next_offset, TopicIdentity("cluster", "topic"))


def log_of(start: int, end: int, high_watermark: int | None = None) -> PartitionLog:
    return PartitionLog(start, end, 0 if high_watermark is None else high_watermark - end)


def drawn(position: Position, log: PartitionLog | None, accounted: Accounted) -> list[tuple[str, int, int]]:
    """The segments of everything that there is to tell of."""
    segments = cover(choose_frame(position, log), position, log, accounted)
    return [(each.kind.value, each.range.start, each.range.until) for each in segments]


def offsets_of(pieces: Sequence[OffsetRange]) -> set[int]:
    return {offset for each in pieces for offset in range(each.start, each.until)}


spans = st.builds(
    lambda start, length: OffsetRange(ORDERS_0, start, start + length), st.integers(0, LONGEST), st.integers(0, 6)
)
span_lists = st.lists(spans, max_size=4)
accounts = st.builds(Accounted, span_lists, span_lists, span_lists, span_lists, span_lists)
positions = st.tuples(st.integers(0, LONGEST), st.integers(0, LONGEST)).map(
    lambda each: position_at(max(each), origin=min(each))
)
logs = st.tuples(*[st.integers(0, LONGEST)] * 3).map(sorted).map(lambda each: log_of(*each))
logs_or_none = st.none() | logs


def test_offsets_of_the_worked_example_are_told_as_it_says() -> None:
    accounted = Accounted(held=ranges((0, 20), (22, 30)), quarantined=ranges((25, 26)))
    assert drawn(position_at(30), log_of(10, 40), accounted) == [
        ("published", 10, 20),
        ("gap", 20, 22),
        ("published", 22, 25),
        ("quarantined", 25, 26),
        ("published", 26, 30),
        ("unread", 30, 40),
    ]


@pytest.mark.parametrize(
    ("position", "log", "accounted", "expected"),
    [
        pytest.param(position_at(0), log_of(0, 0), Accounted(), [], id="empty topic"),
        pytest.param(position_at(0), log_of(0, 5), Accounted(), [("unread", 0, 5)], id="nothing read yet"),
        pytest.param(
            position_at(5),
            log_of(9, 12),
            Accounted(held=ranges((0, 5))),
            [("expired unread", 5, 9), ("unread", 9, 12)],
            id="removed by Kafka before it was read",
        ),
        pytest.param(
            position_at(9),
            log_of(9, 12),
            Accounted(held=ranges((0, 9)), lost=ranges((5, 9))),
            [("unread", 9, 12)],
            id="a loss that was accepted, and is not in the log any more",
        ),
        pytest.param(
            position_at(9),
            log_of(2, 12),
            Accounted(held=ranges((0, 9)), lost=ranges((5, 9))),
            [("published", 2, 5), ("accepted loss", 5, 9), ("unread", 9, 12)],
            id="records that were skipped",
        ),
        pytest.param(
            position_at(4),
            log_of(0, 6, 10),
            Accounted(held=ranges((0, 4))),
            [("published", 0, 4), ("unread", 4, 6), ("held back", 6, 10)],
            id="an open transaction",
        ),
        pytest.param(
            position_at(8, origin=5),
            log_of(2, 10),
            Accounted(held=ranges((5, 8))),
            [("before the start", 2, 5), ("published", 5, 8), ("unread", 8, 10)],
            id="began at the end",
        ),
        pytest.param(
            position_at(8, origin=5),
            log_of(2, 10),
            Accounted(held=ranges((3, 8))),
            [("before the start", 2, 3), ("published", 3, 8), ("unread", 8, 10)],
            id="a replay has published what lies before the start",
        ),
        pytest.param(
            position_at(2),
            log_of(0, 10),
            Accounted(held=ranges((0, 8)), in_flight=ranges((2, 5))),
            [("published", 0, 8), ("unread", 8, 10)],
            id="rewound: what the earlier epoch holds is there until it is replaced",
        ),
        pytest.param(
            position_at(2),
            log_of(0, 10),
            Accounted(held=ranges((0, 2)), in_flight=ranges((2, 5))),
            [("published", 0, 2), ("in flight", 2, 5), ("unread", 5, 10)],
            id="a batch at work",
        ),
        pytest.param(
            position_at(2),
            log_of(0, 10),
            Accounted(held=ranges((0, 2)), blocked=ranges((2, 5))),
            [("published", 0, 2), ("blocked", 2, 5), ("unread", 5, 10)],
            id="a batch that waits for a person",
        ),
        pytest.param(
            position_at(4),
            None,
            Accounted(held=ranges((0, 3))),
            [("published", 0, 3), ("gap", 3, 4)],
            id="Kafka does not answer",
        ),
        pytest.param(
            position_at(8),
            log_of(0, 5),
            Accounted(held=ranges((0, 7))),
            [("published", 0, 7), ("gap", 7, 8)],
            id="the position lies beyond the log",
        ),
        pytest.param(
            position_at(4),
            log_of(0, 4),
            Accounted(held=ranges((0, 2)), quarantined=ranges((1, 3))),
            [("published", 0, 1), ("quarantined", 1, 2), ("gap", 2, 4)],
            id="quarantine that no batch holds accounts for nothing",
        ),
    ],
)
def test_every_offset_is_told_by_what_has_become_of_it(
    position: Position, log: PartitionLog | None, accounted: Accounted, expected: list[tuple[str, int, int]]
) -> None:
    assert drawn(position, log, accounted) == expected


@given(positions, logs_or_none, accounts, st.booleans())
def test_each_offset_of_the_frame_is_in_exactly_one_segment(
    position: Position, log: PartitionLog | None, accounted: Accounted, is_looked_at_from_offset_zero_on: bool
) -> None:
    frame = choose_frame(position, log)
    if is_looked_at_from_offset_zero_on:
        frame = OffsetRange(ORDERS_0, 0, frame.until)
    segments = cover(frame, position, log, accounted)
    assert all(each.range for each in segments)
    edges = [frame.start, *(each.range.until for each in segments)]
    assert [each.range.start for each in segments] == edges[:-1]
    assert edges[-1] == frame.until


@given(positions, logs_or_none, accounts)
def test_neighbouring_segments_are_of_different_kinds(
    position: Position, log: PartitionLog | None, accounted: Accounted
) -> None:
    segments = cover(choose_frame(position, log), position, log, accounted)
    assert all(left.kind is not right.kind for left, right in pairwise(segments))


@given(positions, logs_or_none, accounts)
def test_i1_offset_is_a_gap_exactly_when_the_position_has_passed_it_and_nothing_accounts_for_it(
    position: Position, log: PartitionLog | None, accounted: Accounted
) -> None:
    frame = choose_frame(position, log)
    segments = cover(frame, position, log, accounted)
    known = offsets_of([*accounted.held, *accounted.lost, *accounted.in_flight, *accounted.blocked])
    passed = range(max(frame.start, position.origin_offset), min(frame.until, position.next_offset))
    assert offsets_of([each.range for each in segments if each.kind is Kind.GAP]) == set(passed) - known


def test_gap_appears_as_soon_as_one_batch_of_the_past_is_forgotten() -> None:
    """Otherwise the property above could hold because nothing is ever called a gap."""
    batches, position, log = ranges((0, 4), (4, 7), (7, 12)), position_at(12), log_of(0, 20)
    at_work = ranges((12, 15))
    assert "gap" not in {kind for kind, *_ in drawn(position, log, Accounted(batches, in_flight=at_work))}
    for forgotten in batches:
        left = Accounted([each for each in batches if each != forgotten], in_flight=at_work)
        assert ("gap", forgotten.start, forgotten.until) in drawn(position, log, left)
        assert find_missing(position, left) == [forgotten]


@given(positions, logs_or_none, accounts, spans)
def test_part_of_a_frame_is_told_as_in_the_whole(
    position: Position, log: PartitionLog | None, accounted: Accounted, part: OffsetRange
) -> None:
    whole = choose_frame(position, log)
    start, until = max(part.start, whole.start), min(part.until, whole.until)
    if start > until:
        start = until = whole.start
    near = cover(OffsetRange(ORDERS_0, start, until), position, log, accounted)
    far = cover(whole, position, log, accounted)
    assert kind_by_offset(near) == {at: kind for at, kind in kind_by_offset(far).items() if start <= at < until}


def kind_by_offset(segments: Sequence[Segment[Kind]]) -> dict[int, Kind]:
    return {offset: each.kind for each in segments for offset in range(each.range.start, each.range.until)}


@given(positions, logs, accounts)
def test_every_offset_is_of_the_first_kind_that_fits(
    position: Position, log: PartitionLog, accounted: Accounted
) -> None:
    held = offsets_of(accounted.held)
    fits = [
        (Kind.QUARANTINED, lambda at: at in offsets_of(accounted.quarantined) and at in held),
        (Kind.ACCEPTED_LOSS, lambda at: at in offsets_of(accounted.lost)),
        (Kind.PUBLISHED, lambda at: at in held),
        (Kind.BLOCKED, lambda at: at in offsets_of(accounted.blocked)),
        (Kind.IN_FLIGHT, lambda at: at in offsets_of(accounted.in_flight)),
        (Kind.BEFORE_START, lambda at: at < position.origin_offset),
        (Kind.GAP, lambda at: at < position.next_offset),
        (Kind.EXPIRED, lambda at: at < log.log_start),
        (Kind.UNREAD, lambda at: at < log.end),
        (Kind.HELD_BACK, lambda at: at < log.high_watermark),
    ]
    assert [kind for kind, _ in fits] == list(Kind)
    segments = cover(choose_frame(position, log), position, log, accounted)
    for at, kind in kind_by_offset(segments).items():
        assert kind is next(each for each, holds in fits if holds(at))


@pytest.mark.parametrize(
    ("position", "log", "frame"),
    [
        pytest.param(position_at(30), log_of(10, 40, 45), (10, 45), id="from the log start to the high watermark"),
        pytest.param(position_at(5), log_of(10, 40), (5, 40), id="from what was not read before it was removed"),
        pytest.param(position_at(50), log_of(10, 40), (10, 50), id="to a position beyond the log"),
        pytest.param(position_at(30, origin=7), None, (7, 30), id="without a log, what the position has passed"),
    ],
)
def test_frame_is_what_there_is_to_tell_of(
    position: Position, log: PartitionLog | None, frame: tuple[int, int]
) -> None:
    found = choose_frame(position, log)
    assert (found.start, found.until) == frame


@given(positions, accounts)
def test_i1_missing_is_exactly_what_the_position_has_passed_and_nobody_holds_or_has_given_up(
    position: Position, accounted: Accounted
) -> None:
    passed = set(range(position.origin_offset, position.next_offset))
    assert offsets_of(find_missing(position, accounted)) == passed - offsets_of([*accounted.held, *accounted.lost])


def test_missing_offsets_are_found_however_long_ago_kafka_has_removed_them() -> None:
    accounted = Accounted(held=ranges((0, 20), (22, 900)), lost=ranges((20, 21)))
    assert find_missing(position_at(900), accounted) == ranges((21, 22))
    assert drawn(position_at(900), log_of(900, 900), accounted) == []


def test_open_batch_hides_nothing_that_the_position_has_passed() -> None:
    """It begins at the position, so offsets behind it that only an open batch names are missing all the same."""
    assert find_missing(position_at(5), Accounted(in_flight=ranges((0, 5)))) == ranges((0, 5))


@given(positions, logs_or_none, accounts)
def test_counts_of_all_kinds_add_up_to_the_frame(
    position: Position, log: PartitionLog | None, accounted: Accounted
) -> None:
    frame = choose_frame(position, log)
    segments = cover(frame, position, log, accounted)
    counts = count_by_kind(segments, Kind)
    assert sum(counts.values()) == len(frame)
    assert counts == Counter(kind_by_offset(segments).values())
    assert list(counts) == [kind for kind in Kind if kind in counts]


def test_every_kind_has_its_urgency() -> None:
    assert sorted(URGENCY) == sorted(Kind)
    assert len(set(URGENCY)) == len(URGENCY)
