"""The balance of I7: it closes when every offset is accounted for once, and the checks together miss no fault."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.balance import (
    Balance,
    HoleCounts,
    HoleEvidence,
    HolePolicy,
    RangeFacts,
    StagedRange,
    WitnessedRange,
    balance_batch,
    balance_range,
    classify_holes,
    combine_witnesses,
    count_classes,
    describe_balance,
    describe_holes,
    find_unexplained,
    give_up_unexplained,
)
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import RecordTimes

ORDERS_3 = OffsetRange(TopicPartition("orders", 3), 1200, 1500)
DECLARED_HOLES = [HolePolicy.TRANSACTIONAL, HolePolicy.COMPACTED]


def facts_of(
    range_: OffsetRange = ORDERS_3, visible: int = 0, staged: int = 0, quarantined: int = 0, repeated: int = 0
) -> RangeFacts:
    """Facts of one range; ``repeated`` of the ``staged`` rows carry an offset that another one has too.

    The holes are transaction markers.
    """
    markers = HoleCounts(markers=len(range_) - visible)
    return RangeFacts(range_, visible, quarantined, staged, staged - repeated, outside=0, holes=markers)


policies = st.sampled_from(list(HolePolicy))
lengths = st.integers(0, 6)


@st.composite
def consistent_facts(draw: st.DrawFn, holes: HolePolicy, has_transform: bool) -> RangeFacts:
    """Deal every offset of a range to exactly one fate: staged, quarantined, dropped by the transform, or a hole."""
    fates = ["staged", "quarantined"]
    fates += ["filtered"] if has_transform else []
    fates += ["hole"] if holes is not HolePolicy.NONE else []
    dealt = draw(st.lists(st.sampled_from(fates), max_size=30))
    staged = dealt.count("staged")
    range_ = OffsetRange(ORDERS_3.partition, ORDERS_3.start, ORDERS_3.start + len(dealt))
    return facts_of(
        range_, visible=len(dealt) - dealt.count("hole"), staged=staged, quarantined=dealt.count("quarantined")
    )


@given(st.data(), policies, st.booleans())
def test_i7_balance_closes_when_every_offset_has_one_fate(
    data: st.DataObject, holes: HolePolicy, has_transform: bool
) -> None:
    facts = data.draw(consistent_facts(holes, has_transform))
    balance = balance_range(facts, holes, has_transform)
    assert balance.is_closed
    assert balance.accepted == facts.staged
    assert balance.filtered + balance.holes == len(facts.range) - facts.staged - facts.quarantined


@given(lengths, lengths, lengths, lengths, lengths, policies, st.booleans())
def test_i7_balance_closes_only_over_facts_that_fit_together(
    length: int, visible: int, distinct: int, repeated: int, quarantined: int, holes: HolePolicy, has_transform: bool
) -> None:
    """Any counts whatever: a closed balance, without duplicates and without forbidden holes, is a true account.

    ``visible`` is at most the length, and there is no row to repeat without a distinct one: one pass over staging can
    find nothing else.
    """
    visible = min(visible, length)
    staged = distinct + (repeated if distinct else 0)
    range_ = OffsetRange(ORDERS_3.partition, 0, length)
    facts = facts_of(range_, visible, staged, quarantined, repeated=staged - distinct)
    passes_the_other_checks = staged == distinct and (holes is not HolePolicy.NONE or visible == length)
    accounted = distinct + quarantined
    is_true = accounted <= visible if has_transform else accounted == visible
    closes = balance_range(facts, holes, has_transform).is_closed
    assert (closes and passes_the_other_checks) == (is_true and passes_the_other_checks)


@pytest.mark.parametrize("holes", DECLARED_HOLES)
def test_worked_example_of_the_module_closes_where_holes_are_declared(holes: HolePolicy) -> None:
    facts = facts_of(visible=297, staged=296, quarantined=1)
    balance = balance_range(facts, holes, has_transform=False)
    assert balance == Balance(ORDERS_3, accepted=296, quarantined=1, markers=3)
    assert balance.is_closed


def test_worked_example_of_the_module_is_blocked_where_no_hole_is_declared() -> None:
    facts = facts_of(visible=297, staged=296, quarantined=1)
    balance = balance_range(facts, HolePolicy.NONE, has_transform=False)
    assert balance.unexplained == 3
    assert not balance.is_closed


def test_visible_record_that_is_nowhere_stays_unexplained_without_a_transform() -> None:
    facts = facts_of(visible=300, staged=299)
    assert balance_range(facts, HolePolicy.TRANSACTIONAL, has_transform=False).unexplained == 1


def test_visible_record_that_is_nowhere_was_filtered_by_the_transform() -> None:
    facts = facts_of(visible=300, staged=299)
    balance = balance_range(facts, HolePolicy.NONE, has_transform=True)
    assert balance.filtered == 1
    assert balance.is_closed


@pytest.mark.parametrize("has_transform", [False, True])
def test_row_that_is_staged_twice_is_counted_twice_and_opens_the_balance(has_transform: bool) -> None:
    facts = facts_of(visible=300, staged=301, repeated=1)
    assert balance_range(facts, HolePolicy.NONE, has_transform).unexplained == -1


@pytest.mark.parametrize("holes", list(HolePolicy))
@pytest.mark.parametrize("has_transform", [False, True])
def test_row_that_kafka_never_showed_never_closes_together_with_the_hole_check(
    holes: HolePolicy, has_transform: bool
) -> None:
    """299 records were visible and 300 rows are staged: the balance is open, or the hole is one that is forbidden."""
    facts = facts_of(visible=299, staged=300)
    is_forbidden_hole = holes is HolePolicy.NONE and facts.visible < len(facts.range)
    assert is_forbidden_hole or not balance_range(facts, holes, has_transform).is_closed


def test_s63_range_without_any_visible_record_closes_where_holes_are_declared() -> None:
    balance = balance_range(facts_of(), HolePolicy.TRANSACTIONAL, has_transform=False)
    assert balance.holes == 300
    assert balance.is_closed


@pytest.mark.parametrize(
    "line",
    [
        "accepted", "duplicates", "quarantined", "tombstones", "filtered", "aborted", "markers", "compacted",
        "accepted_loss",
    ],
)  # fmt: skip
def test_every_line_of_the_equation_explains_its_offsets(line: str) -> None:
    assert Balance(ORDERS_3, **{line: 300}).is_closed
    assert Balance(ORDERS_3, **{line: 299}).unexplained == 1


def test_batch_is_balanced_range_by_range_in_order() -> None:
    """A surplus in one range never pays for a shortage in another one."""
    other = OffsetRange(TopicPartition("orders", 1), 0, 300)
    facts = [
        facts_of(visible=300, staged=301, repeated=1),
        facts_of(other, visible=300, staged=299),
    ]
    balances = balance_batch(facts, HolePolicy.NONE, has_transform=False)
    assert [(each.range, each.unexplained) for each in balances] == [(ORDERS_3, -1), (other, 1)]


def test_the_two_witnesses_are_joined_range_by_range() -> None:
    seen = [WitnessedRange(ORDERS_3, visible=297, quarantined=1)]
    staged = [StagedRange(ORDERS_3, rows=296, distinct_offsets=295, outside=4)]
    holes = HoleCounts(aborted=3)
    assert combine_witnesses(seen, staged, [holes]) == (
        RangeFacts(ORDERS_3, visible=297, quarantined=1, staged=296, distinct=295, outside=4, holes=holes),
    )


def test_witnesses_of_different_ranges_are_never_joined() -> None:
    other = OffsetRange(ORDERS_3.partition, 1200, 1499)
    with pytest.raises(ValueError, match=r"evidence is about .*, staging about"):
        combine_witnesses([WitnessedRange(ORDERS_3, 1, 0)], [StagedRange(other, 1, 1)], [HoleCounts()])
    with pytest.raises(ValueError, match="shorter"):
        combine_witnesses([WitnessedRange(ORDERS_3, 1, 0)], [], [])


def classify(
    ranges: Sequence[OffsetRange], holes: Sequence[OffsetRange], found: HoleEvidence
) -> tuple[HoleCounts, ...]:
    return count_classes(ranges, classify_holes(holes, found))


def evidence(
    committed: Sequence[int] = (), aborted: Sequence[int] = (), log_start: int = 0, is_compacted: bool = False
) -> HoleEvidence:
    """What the second read found in ``orders[3]``, offset by offset."""

    def ranges(offsets: Sequence[int]) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(ORDERS_3.partition, offset, offset + 1) for offset in sorted(offsets))

    compacted = frozenset({"orders"} if is_compacted else ())
    return HoleEvidence(ranges(committed), ranges([*committed, *aborted]), {ORDERS_3.partition: log_start}, compacted)


def hole(start: int, until: int) -> OffsetRange:
    return OffsetRange(ORDERS_3.partition, start, until)


def test_hole_with_a_record_that_only_read_uncommitted_shows_is_aborted_and_one_with_none_is_a_marker() -> None:
    """The example of ``classify_holes``."""
    counts = classify([hole(0, 10)], [hole(3, 6)], evidence(aborted=[3, 4]))
    assert counts == (HoleCounts(aborted=2, markers=1),)


def test_hole_without_any_record_in_a_compacted_topic_is_compacted() -> None:
    counts = classify([hole(0, 10)], [hole(3, 6)], evidence(aborted=[3], is_compacted=True))
    assert counts == (HoleCounts(aborted=1, compacted=2),)


def test_committed_record_that_the_stage_step_did_not_return_is_never_explained() -> None:
    (counts,) = classify([hole(0, 10)], [hole(3, 6)], evidence(committed=[3, 4, 5]))
    assert counts == HoleCounts(unread=3)
    facts = RangeFacts(hole(0, 10), 7, 0, 7, 7, 0, holes=counts)
    assert [balance_range(facts, policy, has_transform=True).unexplained for policy in HolePolicy] == [3, 3, 3]


def test_hole_that_expired_before_it_could_be_looked_into_is_never_explained() -> None:
    (counts,) = classify([hole(0, 10)], [hole(3, 6)], evidence(aborted=[5], log_start=5))
    assert counts == HoleCounts(expired=2, aborted=1)
    facts = RangeFacts(hole(0, 10), 7, 0, 7, 7, 0, holes=counts)
    assert balance_range(facts, HolePolicy.COMPACTED, has_transform=False).unexplained == 2


def test_compacted_hole_is_explained_only_where_compaction_is_declared() -> None:
    facts = RangeFacts(hole(0, 10), 7, 0, 7, 7, 0, holes=HoleCounts(compacted=3))
    unexplained = {policy: balance_range(facts, policy, has_transform=False).unexplained for policy in HolePolicy}
    assert unexplained == {HolePolicy.NONE: 3, HolePolicy.TRANSACTIONAL: 3, HolePolicy.COMPACTED: 0}


def test_holes_are_counted_with_the_range_that_they_lie_in() -> None:
    counts = classify([hole(0, 10), hole(10, 20)], [hole(8, 10), hole(10, 11)], evidence(aborted=[9, 10]))
    assert counts == (HoleCounts(aborted=1, markers=1), HoleCounts(aborted=1))


@given(st.lists(st.sampled_from(["seen", "aborted", "committed", "nothing"]), max_size=20), st.integers(0, 20))
def test_every_hole_is_in_exactly_one_class(fates: list[str], log_start: int) -> None:
    """Against a model that looks at one offset at a time."""
    holes = [hole(offset, offset + 1) for offset, fate in enumerate(fates) if fate != "seen"]
    found = {
        fate: [offset for offset, each in enumerate(fates) if each == fate and offset >= log_start] for fate in fates
    }
    known = evidence(found.get("committed", []), found.get("aborted", []), log_start)
    (counts,) = classify([hole(0, len(fates))], holes, known)
    assert counts == HoleCounts(
        aborted=len(found.get("aborted", [])),
        markers=len(found.get("nothing", [])),
        unread=len(found.get("committed", [])),
        expired=sum(each.start < log_start for each in holes),
    )


def test_holes_are_described_by_class_and_those_that_nothing_explains_with_what_to_do() -> None:
    facts = [facts_of(visible=299, staged=299), RangeFacts(ORDERS_3, 298, 0, 298, 298, 0, holes=HoleCounts(aborted=2))]
    explained = balance_batch(facts, HolePolicy.TRANSACTIONAL, has_transform=False)
    assert describe_holes(facts, explained) == "holes: aborted 2, markers 1"
    unexplained = balance_batch(facts, HolePolicy.NONE, has_transform=False)
    assert "markers 1 (if transactions write to the topic, set source.holes: transactional)" in describe_holes(
        facts, unexplained
    )
    assert describe_holes([facts_of(visible=300, staged=300)], []) == ""


def test_hole_of_a_topic_whose_settings_may_not_be_read_is_explained_only_where_either_kind_is_allowed() -> None:
    found = replace(evidence(aborted=[3]), topics_of_unknown_policy=frozenset({"orders"}))
    (counts,) = classify([hole(0, 10)], [hole(3, 6)], found)
    assert counts == HoleCounts(aborted=1, unclear=2)
    facts = RangeFacts(hole(0, 10), 7, 0, 7, 7, 0, holes=counts)
    unexplained = {policy: balance_range(facts, policy, has_transform=False).unexplained for policy in HolePolicy}
    assert unexplained == {HolePolicy.NONE: 3, HolePolicy.TRANSACTIONAL: 2, HolePolicy.COMPACTED: 0}
    assert "grant DESCRIBE_CONFIGS" in describe_holes([facts], [])


def test_unexplained_holes_are_those_of_the_classes_that_the_pipeline_does_not_declare() -> None:
    by_class = classify_holes([hole(3, 7), hole(8, 10)], evidence(aborted=[3], committed=[8]))
    assert {policy: find_unexplained(by_class, policy) for policy in HolePolicy} == {
        HolePolicy.NONE: [hole(3, 7), hole(8, 10)],
        HolePolicy.TRANSACTIONAL: [hole(8, 9)],
        HolePolicy.COMPACTED: [hole(8, 9)],
    }


def test_balance_is_told_by_what_the_offsets_became_without_what_is_zero() -> None:
    told = Balance(OffsetRange(TopicPartition("orders", 0), 0, 5), accepted=4, filtered=1, times=RecordTimes(7, 9))
    assert describe_balance(told) == "orders[0] 0..5: 5 offsets = 4 accepted + 1 filtered"


def test_told_balance_names_every_line_and_what_is_unexplained() -> None:
    told = Balance(OffsetRange(TopicPartition("orders", 0), 0, 3_000), accepted=1_000, accepted_loss=500)
    assert describe_balance(told) == (
        "orders[0] 0..3000: 3,000 offsets = 1,000 accepted + 500 accepted loss + 1,500 unexplained"
    )


def test_record_that_was_skipped_as_a_tombstone_was_not_dropped_by_the_transform() -> None:
    facts = RangeFacts(hole(0, 10), 10, 1, 5, 5, 0, tombstones=3)
    balance = balance_range(facts, HolePolicy.NONE, has_transform=True)
    assert (balance.accepted, balance.quarantined, balance.tombstones, balance.filtered) == (5, 1, 3, 1)
    assert balance.is_closed


def test_row_whose_message_is_stored_already_is_a_duplicate_and_not_accepted() -> None:
    balance = balance_range(RangeFacts(hole(0, 5), 5, 0, 5, 5, 0, duplicates=2), HolePolicy.NONE, has_transform=False)
    assert (balance.accepted, balance.duplicates, balance.unexplained) == (3, 2, 0)


def test_duplicates_that_staging_has_counted_are_joined_to_what_was_read() -> None:
    staged = StagedRange(hole(0, 5), 5, 5, duplicates=2, known_duplicates=1)
    (facts,) = combine_witnesses([WitnessedRange(hole(0, 5), 5, 0)], [staged], [HoleCounts()])
    assert (facts.duplicates, facts.known_duplicates) == (2, 1)


def test_hole_of_a_partition_whose_log_start_is_unknown_has_not_expired() -> None:
    found = HoleEvidence((), (), {}, frozenset())
    assert classify([hole(0, 5)], [hole(0, 1)], found) == (HoleCounts(markers=1),)


def test_loss_that_is_accepted_closes_the_balance_and_one_that_was_counted_twice_is_refused_with_how_much() -> None:
    (closed,) = give_up_unexplained([Balance(hole(0, 5), accepted=3)])
    assert closed == Balance(hole(0, 5), accepted=3, accepted_loss=2)
    with pytest.raises(DecisionRefusedError, match=r"orders\[3\] 0\.\.5 by 2\."):
        give_up_unexplained([Balance(hole(0, 5), accepted=7)])


def test_hole_that_no_balance_can_explain_is_told_with_what_to_do_and_one_remark_follows_the_other() -> None:
    facts = RangeFacts(hole(0, 10), 8, 0, 8, 8, 0, holes=HoleCounts(markers=1, unread=1))
    told = describe_holes([facts], [balance_range(facts, HolePolicy.NONE, has_transform=False)])
    assert told.startswith("holes: markers 1, unread 1 (if transactions write to the topic")
    assert "transactional; unread are committed records" in told
