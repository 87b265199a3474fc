"""Which old batches become a span, and what the proof of a span finds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Position, TopicIdentity
from batchledger.model.housekeeping import Bounds
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.joining import OldBatch, choose_spans, prove_span
from batchledger.proof.verification import PublishedHistory, PublishedRange

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
ORDERS_0 = TopicPartition("orders", 0)
EVERY = Bounds(1_000, 1_000)


def test_a_span_ends_where_a_day_an_epoch_or_plain_history_does() -> None:
    old = [
        *(OldBatch(each, MONDAY, 0) for each in (1, 2, 3)),
        OldBatch(4, MONDAY, None),
        OldBatch(5, MONDAY, 0),
        OldBatch(6, TUESDAY, 0),
        OldBatch(7, TUESDAY, 0),
        OldBatch(8, TUESDAY, 1),
        OldBatch(9, TUESDAY, 1),
    ]
    assert choose_spans(old, EVERY) == [(1, 2, 3), (6, 7), (8, 9)]


def test_no_more_than_the_bounds_are_chosen_and_no_more_is_read() -> None:
    read = []

    def endless() -> Iterator[OldBatch]:
        for number in range(1, 10_000):
            read.append(number)
            yield OldBatch(number, date.fromordinal(MONDAY.toordinal() + number // 10), 0)

    chosen = choose_spans(endless(), Bounds(25, 4))
    assert max(map(len, chosen)) == 4
    assert sum(map(len, chosen)) <= 25
    assert read[-1] < 50


@given(st.lists(st.tuples(st.sampled_from([MONDAY, TUESDAY]), st.sampled_from([None, 0, 1])), max_size=40))
def test_every_span_is_of_neighbours_that_are_alike_and_what_is_left_cannot_be_joined(
    history: list[tuple[date, int | None]],
) -> None:
    old = [OldBatch(number, *each) for number, each in enumerate(sorted(history, key=lambda each: each[0]), 1)]
    by_id = {each.batch_id: each for each in old}
    spans = choose_spans(old, EVERY)
    for span in spans:
        assert list(span) == list(range(span[0], span[-1] + 1))
        assert len(span) > 1
        assert len({(by_id[each].published_on, by_id[each].epoch) for each in span}) == 1
        assert by_id[span[0]].epoch is not None
    joined = {each for span in spans for each in span}
    # A span is no plain batch any more, so a second look finds nothing.
    after = [replace(each, epoch=None) if each.batch_id in joined else each for each in old]
    assert choose_spans(after, EVERY) == []


def history_of(*ranges: PublishedRange) -> PublishedHistory:
    """A part of a long history, as the ledger gives it: the position is far behind."""
    return PublishedHistory([Position(ORDERS_0, 0, 1_000, TopicIdentity("cluster", "topic"))], ranges, epoch=3)


def rows_of(batch_id: int, offsets: Sequence[int]) -> dict[tuple[int, TopicPartition], TargetCount]:
    count = TargetCount(len(offsets), len(set(offsets)), min(offsets), max(offsets))
    return {(batch_id, ORDERS_0): count}


FIRST = PublishedRange(5, OffsetRange(ORDERS_0, 100, 110), 10, 0, 0, epoch=2)
SECOND = PublishedRange(6, OffsetRange(ORDERS_0, 110, 120), 8, 0, 0, epoch=2)
WHOLE = TargetCounts(rows_of(5, range(100, 110)) | rows_of(6, range(110, 118)))


def test_a_part_of_history_holds_by_itself_in_whichever_epoch_it_lies() -> None:
    found = prove_span("orders", lambda: history_of(FIRST, SECOND), lambda within: WHOLE)
    assert (found.findings, found.rows, found.offsets) == ((), 18, 20)


@pytest.mark.parametrize(
    ("ranges", "counts", "invariant"),
    [
        ((FIRST, SECOND), TargetCounts(rows_of(5, range(100, 109)) | rows_of(6, range(110, 118))), "target"),
        # As many rows as in all, but not of each batch.
        ((FIRST, SECOND), TargetCounts(rows_of(5, range(100, 109)) | rows_of(6, range(110, 119))), "target"),
        ((FIRST, SECOND), TargetCounts(WHOLE.by_batch | rows_of(9, [111])), "target"),
        ((FIRST, replace(SECOND, range=OffsetRange(ORDERS_0, 111, 121))), WHOLE, "I1"),
        ((FIRST, replace(SECOND, range=OffsetRange(ORDERS_0, 109, 119))), WHOLE, "I2"),
        ((FIRST, replace(SECOND, unexplained=1)), WHOLE, "I7"),
    ],
)
def test_what_verify_would_find_of_the_batches_is_found_before_they_are_joined(
    ranges: tuple[PublishedRange, ...], counts: TargetCounts, invariant: str
) -> None:
    found = prove_span("orders", lambda: history_of(*ranges), lambda within: counts)
    assert invariant in {each.invariant for each in found.findings}
