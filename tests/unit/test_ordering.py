"""Sorting, filtering and paging of tables: pure functions over what an address says."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchledger.books.history import BatchSummary
from batchledger.books.overview import Volume
from batchledger.interfaces.page.batch_list import (
    BATCHES_ARRANGED,
    BATCHES_ON_PAGE,
    BatchColumn,
    BatchQuery,
    arrange_batches,
    sort_batches,
)
from batchledger.interfaces.page.ordering import (
    SortOrder,
    arrange,
    count_found,
    holds_text,
    keep_fields,
    read_order,
    write_query,
)
from batchledger.interfaces.page.partition_list import (
    BY_NUMBER,
    PartitionColumn,
    PartitionLine,
    PartitionQuery,
    arrange_partitions,
)
from batchledger.interfaces.page.pipeline_list import (
    WORST_FIRST,
    Facts,
    PipelineColumn,
    choose,
    count_states,
    sort_standings,
)
from batchledger.interfaces.surveys import Standing
from batchledger.model.batch import PartitionLog, Position, TopicIdentity
from batchledger.model.errors import ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import TopicPartition
from batchledger.monitoring.health import PipelineHealth, Threats

NOW = datetime(2026, 11, 24, tzinfo=UTC)
BY_UNREAD = SortOrder(PipelineColumn.UNREAD)
NUMBERS = {PipelineColumn.UNREAD: lambda each: each[1]}


def standing(name: str, state: PipelineState, unread: int | None) -> Standing:
    threats = None if unread is None else Threats(unread, (), None, None)
    return Standing(PipelineHealth(name, state, "", threats))


SHOP = [
    standing("payments", PipelineState.BLOCKED, 7),
    standing("clicks", PipelineState.UNREAD, 90),
    standing("orders", PipelineState.UNREAD, 20),
    standing("archive", PipelineState.CAUGHT_UP, None),
]


def batch(number: int, state: str = "published", rows: int | None = 1) -> BatchSummary:
    return BatchSummary(
        batch_id=number,
        lane="live",
        state=state,
        attempt=1,
        planned_by="run",
        planned_at=NOW + timedelta(minutes=number),
        published_at=None,
        rows=rows,
        seconds=None,
        ranges=1,
        offsets=number,
        quarantined=0,
        is_dry_run=state == "discarded",
    )


def names(standings: list[Standing]) -> list[str]:
    return [each.name for each in standings]


@pytest.mark.parametrize("order", [SortOrder(each, down) for each in PipelineColumn for down in (False, True)])
def test_order_reads_back_from_the_address_that_it_writes(order: SortOrder[PipelineColumn]) -> None:
    assert read_order(str(order), PipelineColumn, WORST_FIRST) == order


@given(st.text(min_size=1))
def test_address_can_name_no_column_that_is_not_in_the_table(text: str) -> None:
    assume(text.removeprefix("-") not in {*PipelineColumn, ""} or text == "-")
    with pytest.raises(ConfigurationError) as refused:
        read_order(text, PipelineColumn, WORST_FIRST)
    assert "name, state, unread" in refused.value.advice


@pytest.mark.parametrize("text", ["password", "--unread", "unread; drop table", "rows,name", "NAME", "-"])
def test_unknown_column_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_order(text, PipelineColumn, WORST_FIRST)


def test_second_press_of_a_button_turns_the_order_round() -> None:
    first = WORST_FIRST.after_press(PipelineColumn.UNREAD)
    assert str(first) == "-unread"
    assert str(first.after_press(PipelineColumn.UNREAD)) == "unread"
    assert str(first.after_press(PipelineColumn.NAME)) == "name"


def test_one_column_says_how_it_is_sorted() -> None:
    order = SortOrder(PipelineColumn.ROWS, is_descending=True)
    said = {each: order.describe(each) for each in PipelineColumn}
    assert said.pop(PipelineColumn.ROWS) == "descending"
    assert set(said.values()) == {"none"}


@given(st.lists(st.tuples(st.integers(), st.none() | st.integers(0, 3))), st.booleans())
def test_lines_are_sorted_stably_and_unknown_values_come_last(lines: list, is_descending: bool) -> None:
    found = arrange(lines, SortOrder(PipelineColumn.UNREAD, is_descending), NUMBERS, WORST_FIRST)
    assert sorted(map(repr, found)) == sorted(map(repr, lines))
    values = [each[1] for each in found]
    known = [each for each in values if each is not None]
    assert values == [*known, *[None] * (len(values) - len(known))]
    assert known == sorted(known, reverse=is_descending)
    for value in {*values}:
        assert [each for each in found if each[1] == value] == [each for each in lines if each[1] == value]


def test_pipelines_are_filtered_by_name_and_state_and_counted_the_worst_first() -> None:
    assert names(choose(SHOP, "CLI", "")) == ["clicks"]
    assert names(choose(SHOP, "s", "unread records")) == ["clicks", "orders"]
    assert names(choose(SHOP, "", "")) == names(SHOP)
    assert choose(SHOP, "%' or 1=1", "") == []
    assert list(count_states(SHOP).items()) == [
        (PipelineState.BLOCKED, 1),
        (PipelineState.UNREAD, 2),
        (PipelineState.CAUGHT_UP, 1),
    ]


def test_pipelines_are_sorted_by_what_overview_and_ledger_know() -> None:
    facts = Facts(volumes={"orders": Volume(5, ()), "clicks": Volume(3, ())})
    for order, expected in {
        "state": ["payments", "clicks", "orders", "archive"],
        "-state": ["archive", "clicks", "orders", "payments"],
        "name": ["archive", "clicks", "orders", "payments"],
        "-unread": ["clicks", "orders", "payments", "archive"],
        "unread": ["payments", "orders", "clicks", "archive"],
        "-rows": ["orders", "clicks", "payments", "archive"],
    }.items():
        assert names(sort_standings(SHOP, read_order(order, PipelineColumn, WORST_FIRST), facts)) == expected, order


def test_batches_are_sorted_before_they_are_paged() -> None:
    newest = [batch(number, rows=-number) for number in range(60, 0, -1)]
    order = SortOrder(BatchColumn.ROWS, is_descending=True)
    first = arrange_batches(newest, BatchQuery(order))
    last = arrange_batches(newest, BatchQuery(order, page=3))
    assert [each.batch_id for each in first.lines] == list(range(1, BATCHES_ON_PAGE + 1))
    assert [each.batch_id for each in last.lines] == list(range(41, 61))
    assert (first.found, first.is_cut) == (60, False)


def test_list_of_batches_says_when_older_ones_were_left_out() -> None:
    newest = [batch(number) for number in range(BATCHES_ARRANGED + 1, 0, -1)]
    found = arrange_batches(newest, BatchQuery(SortOrder(BatchColumn.BATCH)))
    assert found.is_cut
    assert (found.found, found.lines[0].batch_id) == (BATCHES_ARRANGED, 2)


def test_batches_of_one_state_are_chosen_by_the_word_of_the_page() -> None:
    batches = [batch(3, "discarded"), batch(2, "blocked"), batch(1)]
    assert [each.batch_id for each in arrange_batches(batches, BatchQuery(state="compared")).lines] == [3]
    assert [each.batch_id for each in sort_batches(batches, SortOrder(BatchColumn.STATE))] == [2, 3, 1]


def test_partitions_are_sorted_and_filtered_before_they_are_paged() -> None:
    lines = []
    for number in range(12):
        position = Position(TopicPartition("orders", number), 0, 10, TopicIdentity("id", NOW))
        log = None if number == 3 else PartitionLog(0, 10 + number)
        lines.append(PartitionLine(position, log, None))
    order = SortOrder(PartitionColumn.UNREAD, is_descending=True)
    numbers = [each.partition.partition for each in arrange_partitions(lines, PartitionQuery(order=order))]
    assert numbers == [11, 10, 9, 8, 7, 6, 5, 4, 2, 1, 0, 3]
    assert [each.partition.partition for each in arrange_partitions(lines, PartitionQuery("[1"))] == [1, 10, 11]
    assert arrange_partitions(lines, PartitionQuery(order=BY_NUMBER)) == [each.position for each in lines]


def test_address_keeps_what_is_asked_for_and_leaves_out_what_is_usual() -> None:
    assert write_query({"q": "a&b", "sort": ""}, page=1) == "?q=a%26b"
    assert write_query({"q": "a"}, {"state": "blocked"}, state="", anchor="#batches") == "?q=a#batches"
    assert write_query({"q": ""}) == ""
    assert keep_fields({"q": "a"}, {"sort": "name"}, without="q") == {"sort": "name"}


def test_words_are_found_in_any_order_and_count_reads_as_a_sentence() -> None:
    assert holds_text("ORD 3", "orders[3]")
    assert not holds_text("ord 4", "orders[3]")
    assert [count_found(1, 1, "pipeline"), count_found(3, 1340, "pipeline")] == ["1 pipeline", "3 of 1,340 pipelines"]
