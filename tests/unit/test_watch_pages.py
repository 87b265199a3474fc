"""What the page of a watch says of each offset, and how its lists count, name and sort. Pure."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.config.watch_file import WatchConfig
from batchledger.interfaces.page.ordering import SortOrder
from batchledger.interfaces.page.pipeline_list import choose, count_standings, count_states
from batchledger.interfaces.page.watch_view import BY_NUMBER, WatchedColumn, arrange_watched, describe_file, draw_strips
from batchledger.interfaces.surveys import Standing
from batchledger.ledger.watches import read_look, write_look
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.monitoring.health import PipelineHealth
from batchledger.proof.marks import OffsetMark, mark_offsets
from batchledger.proof.watching import Discrepancy, Found, PartitionStanding, TableLook, WatchOutcome, tell
from batchledger.watching.history import LookSummary

P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def stand(partition: TopicPartition, start: int, until: int, end: int, proved: int) -> PartitionStanding:
    return PartitionStanding(partition, start, until, end, proved, rows=proved)


def marks_of(standing: PartitionStanding, *found: Found) -> list[tuple[str, int, int]]:
    marked = mark_offsets([standing], found)[standing.partition]
    return [(each.kind.value, each.range.start, each.range.until) for each in marked]


def test_marks_of_the_worked_example_are_as_it_says() -> None:
    missing = tell(Discrepancy.MISSING, [OffsetRange(P0, 20, 22)])
    assert marks_of(stand(P0, 10, 40, 44, 28), missing) == [
        ("before the watch", 7, 10),
        ("proved", 10, 20),
        ("wrong", 20, 22),
        ("proved", 22, 40),
        ("late", 40, 44),
    ]


def test_expired_offsets_and_other_doubts_are_marked_apart_and_never_as_proved() -> None:
    found = (
        tell(Discrepancy.EXPIRED, [OffsetRange(P0, 0, 3)]),
        tell(Discrepancy.UNCLEAR, [OffsetRange(P0, 5, 6)]),
        # A row behind the end of the log, and the records of the topic of that name that is gone.
        tell(Discrepancy.UNKNOWN, [OffsetRange(P0, 2**62, 2**62 + 1)]),
        tell(Discrepancy.RECREATED, [OffsetRange(P0, 0, 10)]),
        Found(Discrepancy.STRAY, 7),
    )
    assert marks_of(stand(P0, 0, 10, 10, 6), *found) == [
        ("expired", 0, 3), ("proved", 3, 5), ("cannot say", 5, 6), ("proved", 6, 10),
    ]  # fmt: skip


def test_offsets_behind_the_last_named_range_are_not_said_to_be_proved() -> None:
    """Two rows of three are missing, and the look names the first 100 of 120 ranges."""
    ranges = [OffsetRange(P0, 3 * each, 3 * each + 2) for each in range(120)]
    standings = [stand(P0, 0, 360, 360, proved=120), stand(P1, 0, 50, 50, proved=50)]
    marked = mark_offsets(standings, [Found(Discrepancy.MISSING, 240, tuple(ranges[:100]))])
    assert [each.range for each in marked[P0] if each.kind is OffsetMark.UNNAMED] == [OffsetRange(P0, 299, 360)]
    assert [each.kind for each in marked[P1]] == [OffsetMark.PROVED]
    # With all of them named, every offset has a mark of its own.
    marks = [each.kind for each in mark_offsets(standings, [tell(Discrepancy.MISSING, ranges)])[P0]]
    assert marks == [OffsetMark.WRONG, OffsetMark.PROVED] * 120


ranges = st.builds(lambda start, size: OffsetRange(P0, start, start + size), st.integers(0, 90), st.integers(1, 15))


found_parts = st.lists(st.tuples(st.sampled_from(Discrepancy), ranges))


@given(found_parts, st.integers(0, 30), st.integers(0, 60), st.integers(0, 9))
def test_every_offset_of_the_frame_has_one_mark(
    parts: list[tuple[Discrepancy, OffsetRange]], start: int, due: int, late: int
) -> None:
    found = [tell(kind, merge_ranges(each for other, each in parts if other is kind)) for kind in dict(parts)]
    until, end = start + due, start + due + late
    marked = mark_offsets([stand(P0, start, until, end, 0)], found)[P0]
    edges = [each.range.start for each in marked] + [marked[-1].range.until] if marked else []
    assert edges[1:] == [each.range.until for each in marked]
    assert all(each.range for each in marked)
    assert not marked or edges[-1] == end
    wrong = {kind for kind, _ in parts if kind.outcome is WatchOutcome.WRONG}
    assert (OffsetMark.WRONG in {each.kind for each in marked}) == any(
        max(each.start, start) < min(each.until, until) for kind, each in parts if kind in wrong
    )


def test_one_wrong_offset_of_ten_million_is_seen_on_the_bar() -> None:
    found = (tell(Discrepancy.DELETED, [OffsetRange(P0, 5_000_000, 5_000_001)]),)
    standing = stand(P0, 0, 10**7, 10**7, 10**7 - 1)
    (strip,) = draw_strips(TableLook("payments", NOW, WatchOutcome.WRONG, (standing,), found, {}), [standing])
    assert [each.kind for each in strip.pieces] == [OffsetMark.PROVED, OffsetMark.WRONG, OffsetMark.PROVED]
    assert strip.counts == {OffsetMark.WRONG: 1, OffsetMark.PROVED: 10**7 - 1}


def test_partitions_are_sorted_by_what_is_not_proved_and_filtered_by_a_part_of_the_name() -> None:
    found = [stand(TopicPartition("payments", number), 0, 10, 10, 10 - number % 3) for number in (10, 2, 1)]
    numbers = [each.partition.partition for each in arrange_watched(found, "", BY_NUMBER)]
    assert numbers == [1, 2, 10]
    worst = arrange_watched(found, "", SortOrder(WatchedColumn.UNPROVED, is_descending=True))
    assert [each.partition.partition for each in worst] == [2, 1, 10]
    assert [str(each.partition) for each in arrange_watched(found, "[1]", BY_NUMBER)] == ["payments[1]"]


def test_list_counts_watches_beside_pipelines_and_chooses_both_by_state() -> None:
    pipelines = [Standing(PipelineHealth(name, PipelineState.CAUGHT_UP, "", None)) for name in ("clicks", "orders")]
    watch = Standing(PipelineHealth("payments", PipelineState.WRONG, "missing 2", None), is_watch=True)
    both = [watch, *pipelines]
    assert count_standings(both, both) == "2 pipelines, 1 watch"
    assert count_standings(choose(both, "", "wrong"), both) == "0 of 2 pipelines, 1 watch"
    assert (count_standings(pipelines, pipelines), count_standings([], [])) == ("2 pipelines", "0 pipelines")
    assert list(count_states(both)) == [PipelineState.WRONG, PipelineState.CAUGHT_UP]


def test_each_outcome_of_a_look_is_a_state_and_only_one_of_them_is_told_as_proved() -> None:
    assert [PipelineState(each) for each in WatchOutcome] == [
        PipelineState.WRONG, PipelineState.CANNOT_SAY, PipelineState.PROVED,
    ]  # fmt: skip
    look = LookSummary(NOW, WatchOutcome.PROVED, 1, 1, 1, 0, {})
    assert look.told == "1 offset proved"
    assert replace(look, found={Discrepancy.MISSING: 1200, Discrepancy.TWICE: 2}).told == "missing 1,200, twice 2"


def test_look_at_a_row_of_the_largest_offset_is_read_back_as_it_was() -> None:
    """Kafka has no such offset, and no range that a person writes ends behind it."""
    part = OffsetRange(P0, 2**63 - 1, 2**63)
    look = TableLook("payments", NOW, WatchOutcome.WRONG, (), (tell(Discrepancy.UNKNOWN, [part]),), {})
    assert read_look(write_look(look)) == look
    with pytest.raises(ValueError, match="Kafka has no"):
        OffsetRange.parse(str(part))


def test_file_is_told_in_words() -> None:
    watch = WatchConfig.model_validate(
        {
            "watch": "payments",
            "source": {"topics": ["payments"]},
            "table": {"catalog": "lake", "name": "shop.payments"},
            "coordinates": "redpanda",
            "since": "30d",
            "lateness": "10m",
        }
    )
    said = describe_file(watch)
    assert said["Topics"] == "payments (kafka_default)"
    assert said["Table"] == "shop.payments (lake)"
    assert said["Coordinates"] == "partition: redpanda.partition, offset: redpanda.offset"
    assert (said["Watched since"], said["Lateness"]) == ("30 d ago", "10 min")
    assert said["Looks"] == "when a person or another DAG asks"
