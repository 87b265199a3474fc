"""The proof over a pipeline's history finds each way in which ledger and target can contradict the promise."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.balance import TargetCount, TargetCounts
from batchledger.model.batch import Lane, Position, TopicIdentity
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import SinkMode
from batchledger.proof.proving import prove
from batchledger.proof.verification import PublishedHistory, PublishedRange, Removed, TargetKey, Verification

FIRST = TopicPartition("orders", 0)
IDENTITY = TopicIdentity("cluster", "topic")


@dataclass(frozen=True)
class History:
    """What the proof reads; two batches, ``orders[0] 0..10`` and ``10..15``, the second with a quarantined record."""

    positions: tuple[Position, ...] = (Position(FIRST, 0, 15, IDENTITY),)
    published: tuple[PublishedRange, ...] = (
        PublishedRange(1, OffsetRange(FIRST, 0, 10), 10, 0, 0),
        PublishedRange(2, OffsetRange(FIRST, 10, 15), 4, 1, 0),
    )
    target: Mapping[TargetKey, TargetCount] = field(
        default_factory=lambda: {(1, FIRST): TargetCount(10, 10, 0, 9), (2, FIRST): TargetCount(4, 4, 10, 13)}
    )
    quarantined: Mapping[TargetKey, int] = field(default_factory=lambda: {(2, FIRST): 1})
    duplicates: Mapping[TargetKey, int] = field(default_factory=dict)
    mode: SinkMode = SinkMode.APPEND

    def verify(self) -> Verification:
        history = PublishedHistory(self.positions, self.published, self.quarantined, self.duplicates)
        return prove("orders", lambda: history, lambda: TargetCounts(self.target), self.mode)


GOOD = History()


def test_consistent_history_holds_and_is_measured() -> None:
    verification = GOOD.verify()
    assert verification.holds
    assert (verification.batches, verification.offsets, verification.rows, verification.quarantined) == (2, 15, 14, 1)


def test_s38_accepted_loss_is_told_by_every_proof_ever_after() -> None:
    given_up = PublishedRange(3, OffsetRange(FIRST, 15, 20), 0, 0, 0, accepted_loss=5)
    history = replace(GOOD, positions=(Position(FIRST, 0, 20, IDENTITY),), published=(*GOOD.published, given_up))
    assert (history.verify().holds, history.verify().accepted_loss) == (True, 5)


@pytest.mark.parametrize(("replaced", "dropped"), [((), 2), ((OffsetRange(FIRST, 10, 14),), 1)], ids=["held", "again"])
def test_records_dropped_from_quarantine_are_counted_until_their_offsets_are_published_again(
    replaced: tuple[OffsetRange, ...], dropped: int
) -> None:
    second = replace(GOOD.published[1], quarantine_dropped=2, replaced=replaced)
    assert replace(GOOD, published=(GOOD.published[0], second)).verify().quarantine_dropped == dropped


def test_erased_rows_are_not_missed_and_no_others_are() -> None:
    first, second = GOOD.published
    fewer = {(1, FIRST): TargetCount(8, 8, 0, 9), (2, FIRST): TargetCount(4, 4, 10, 13)}
    erased = replace(GOOD, published=(replace(first, rows_erased=2), second), target=fewer).verify()
    assert (erased.findings, erased.rows, erased.rows_erased, erased.offsets_without_row) == ((), 12, 2, 0)
    for rows_erased in (1, 3):
        wrong = replace(GOOD, published=(replace(first, rows_erased=rows_erased), second), target=fewer).verify()
        assert [each.invariant for each in wrong.findings] == ["target"]


@pytest.mark.parametrize("left", [0, 1])
def test_erased_row_counts_until_its_own_offset_is_published_again(left: int) -> None:
    """One of two erased rows, or both, lie in the part that a replay has taken over."""
    removed = Removed(rows=1 + left, quarantined=1)
    taken = replace(GOOD.published[1], rows_erased=2, replaced=(OffsetRange(FIRST, 10, 14),), removed=removed)
    assert replace(GOOD, published=(GOOD.published[0], taken)).verify().rows_erased == left


def test_offsets_count_once_however_often_they_were_published_and_a_loss_ends_where_a_replay_brings_records() -> None:
    lost = PublishedRange(
        3, OffsetRange(FIRST, 15, 20), 0, 0, 0, accepted_loss=5, replaced=(OffsetRange(FIRST, 18, 20),)
    )
    found = PublishedRange(4, OffsetRange(FIRST, 18, 20), 2, 0, 0, lane=Lane.REPLAY)
    history = PublishedHistory([], [lost, found])
    told = prove("orders", lambda: history, lambda: TargetCounts({}), SinkMode.APPEND)
    assert (told.offsets, told.accepted_loss) == (5, 3)


def test_pipeline_that_never_published_holds() -> None:
    assert History((), (), {}, {}).verify().holds


@pytest.mark.parametrize(
    ("history", "invariant", "where", "detail"),
    [
        (replace(GOOD, positions=(Position(FIRST, 0, 20, IDENTITY),)), "I1", "orders[0] 15..20", "no batch published"),
        (replace(GOOD, positions=(Position(FIRST, 0, 12, IDENTITY),)), "I1", "orders[0] 12..15", "outside of what"),
        (
            replace(GOOD, published=(*GOOD.published, PublishedRange(3, OffsetRange(FIRST, 8, 11), 0, 0, 0))),
            "I2",
            "orders[0] 8..11",
            "more than one batch",
        ),
        (
            replace(GOOD, published=(GOOD.published[0], replace(GOOD.published[1], unexplained=2))),
            "I7",
            "orders[0] 10..15",
            "2 offsets unexplained",
        ),
        (
            replace(GOOD, target={**GOOD.target, (1, FIRST): TargetCount(9, 9, 0, 9)}),
            "target",
            "batch 1, orders[0] 0..10",
            "accepted 10 rows, the target holds 9",
        ),
        (
            replace(GOOD, target={**GOOD.target, (1, FIRST): TargetCount(10, 9, 0, 9)}),
            "target",
            "batch 1",
            "rows that repeat an offset: 1",
        ),
        (
            replace(GOOD, target={**GOOD.target, (1, FIRST): TargetCount(10, 10, 1, 10)}),
            "target",
            "batch 1",
            "lie outside of the range",
        ),
        (
            replace(GOOD, target={**GOOD.target, (9, FIRST): TargetCount(3, 3, 0, 2)}),
            "target",
            "batch 9, orders[0]",
            "3 rows that no published batch",
        ),
        (replace(GOOD, quarantined={}), "quarantine", "batch 2, orders[0] 10..15", "quarantine holds 0"),
    ],
)
def test_contradiction_is_found_and_named(history: History, invariant: str, where: str, detail: str) -> None:
    (finding,) = [each for each in history.verify().findings if each.invariant == invariant]
    assert where in finding.where
    assert detail in finding.detail


@pytest.mark.parametrize("listed", [{}, {(2, FIRST): 2}, {(1, FIRST): 1, (2, FIRST): 1}], ids=["lost", "more", "other"])
@pytest.mark.parametrize("mode", SinkMode)
def test_duplicates_that_are_not_listed_as_the_balance_says_are_found(
    listed: Mapping[TargetKey, int], mode: SinkMode
) -> None:
    one_dropped = replace(GOOD.published[1], quarantined=0, duplicates=1)
    history = replace(GOOD, published=(GOOD.published[0], one_dropped), quarantined={}, mode=mode)
    assert replace(history, duplicates={(2, FIRST): 1}).verify().holds
    (finding,) = replace(history, duplicates=listed).verify().findings
    batch = one_dropped if (1, FIRST) not in listed else GOOD.published[0]
    assert (finding.invariant, finding.where) == ("duplicate", f"batch {batch.batch_id}, {batch.range}")
    count = listed.get((batch.batch_id, FIRST), 0)
    assert finding.detail == f"the ledger accounted for {batch.duplicates} duplicates, {count} are listed"


def test_duplicates_are_listed_with_the_rows_so_a_batch_without_rows_has_one_finding() -> None:
    """at_most_once between its commits: the list of duplicates is in the second one."""
    half = replace(GOOD.published[1], quarantined=0, duplicates=1, has_rows=False)
    target = {(1, FIRST): GOOD.target[1, FIRST]}
    (finding,) = replace(GOOD, published=(GOOD.published[0], half), quarantined={}, target=target).verify().findings
    assert finding.invariant == "I3"


def test_target_that_is_updated_by_key_may_hold_fewer_rows_than_were_accepted() -> None:
    history = replace(GOOD, target={(2, FIRST): TargetCount(3, 3, 10, 13)})
    assert not history.verify().holds
    assert replace(history, mode=SinkMode.UPSERT).verify().holds


@pytest.mark.parametrize(
    ("count", "detail"),
    [
        (TargetCount(5, 5, 10, 14), "accepted 4 rows, the target holds 5"),
        (TargetCount(2, 2, 9, 10), "lie outside of the range"),
        (TargetCount(2, 2, 10, 11, repeated_keys=2), "rows with a key that another row has too: 2"),
    ],
)
def test_target_that_is_updated_by_key_is_proved_as_far_as_it_can_be(count: TargetCount, detail: str) -> None:
    history = replace(GOOD, target={(2, FIRST): count}, mode=SinkMode.UPSERT)
    (finding,) = history.verify().findings
    assert detail in finding.detail


@given(cuts=st.lists(st.integers(1, 99), unique=True), lost=st.integers(0, 99))
def test_any_cut_of_the_history_holds_and_any_lost_row_is_found(cuts: list[int], lost: int) -> None:
    edges = [0, *sorted(cuts), 100]
    ranges = [OffsetRange(FIRST, start, until) for start, until in itertools.pairwise(edges)]
    published = tuple(PublishedRange(number, each, len(each), 0, 0) for number, each in enumerate(ranges))
    target = {
        (each.batch_id, FIRST): TargetCount(each.accepted, each.accepted, each.range.start, each.range.until - 1)
        for each in published
    }
    history = History((Position(FIRST, 0, 100, IDENTITY),), published, target, {})
    assert history.verify().holds
    (hit,) = [each for each in published if lost in each.range]
    damaged = replace(target[hit.batch_id, FIRST], rows=hit.accepted - 1, distinct_offsets=hit.accepted - 1)
    assert not replace(history, target={**target, (hit.batch_id, FIRST): damaged}).verify().holds


@pytest.mark.parametrize("mode", SinkMode)
def test_rows_that_were_never_written_are_found_in_every_mode(mode: SinkMode) -> None:
    """at_most_once, killed between its two commits: the position has moved, the target holds nothing."""
    published = [PublishedRange(1, OffsetRange(TopicPartition("orders", 0), 0, 5), 5, 0, 0, has_rows=False)]
    position = Position(TopicPartition("orders", 0), 0, 5, TopicIdentity("cluster", "topic"))
    history = PublishedHistory([position], published)
    (finding,) = prove("orders", lambda: history, lambda: TargetCounts({}), mode).findings
    lost = "the position has moved, but its 5 rows were never written, or are being written right now"
    assert (finding.invariant, finding.detail) == ("I3", lost)
