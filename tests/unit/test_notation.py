"""What a person may write where a moment, an offset, or what lies between two of them is asked for."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from batchledger.interfaces.cli import command_line
from batchledger.interfaces.notation import RewindTarget, parse_bounds, parse_coordinate, parse_moment, parse_target
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.live import StartPolicy
from batchledger.planning.replay import Window

ORDERS_3, ORDERS_4 = TopicPartition("orders", 3), TopicPartition("orders", 4)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-11-20", "2026-11-21"),
        ("2026-11-20T00:00:00", "2026-11-21T00:00"),
        ("2026-11-20T00:00:00Z", "2026-11-21T01:00:00+01:00"),
    ],
)
def test_moments_without_a_zone_are_in_utc(since: str, until: str) -> None:
    assert parse_bounds(since, until) == Window(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))


def test_two_offsets_of_one_partition_are_a_range() -> None:
    assert parse_bounds("my.topic[3]@1200", "my.topic[3]@1500") == OffsetRange(
        TopicPartition("my.topic", 3), 1200, 1500
    )


@pytest.mark.parametrize(
    ("since", "until", "told"),
    [
        ("yesterday", "2026-11-21", "'yesterday' is neither a moment"),
        ("2026-11-21", "2026-11-20", "has to end after it begins"),
        ("orders[3]@1200", "2026-11-21", "two offsets of one partition"),
        ("2026-11-21", "orders[3]@1200", "two offsets of one partition"),
        ("orders[3]@1200", "orders[4]@1500", "two offsets of one partition"),
        ("orders[3]@1500", "orders[3]@1200", "is not a range"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_by_what_is_wrong(since: str, until: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_bounds(since, until)


@given(st.text("abcXYZ0189._-", min_size=1, max_size=12), st.integers(0, 10_000), st.integers(0, 2**63 - 1))
def test_every_coordinate_reads_back_from_its_text(topic: str, number: int, offset: int) -> None:
    partition = TopicPartition(topic, number)
    assert parse_coordinate(f"{partition}@{offset}") == (partition, offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders[3]",
        "orders[3]@",
        "orders[3] 1..2",
        "orders[3]@-1",
        " orders[3]@1",
        "orders[3]@1\n",
        "a b[3]@1",
        "orders[\N{ARABIC-INDIC DIGIT THREE}]@1",
        "2026-11-21",
    ],
)
def test_text_that_is_no_coordinate_is_something_else(text: str) -> None:
    assert parse_coordinate(text) is None


@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["earliest"], StartPolicy.EARLIEST),
        (["2026-11-21"], datetime(2026, 11, 21, tzinfo=UTC)),
        (["orders[3]@1200"], {ORDERS_3: 1200}),
        (["orders[3]@1200", "orders[4]@0"], {ORDERS_3: 1200, ORDERS_4: 0}),
    ],
    ids=str,
)
def test_rewind_goes_to_earliest_or_to_a_moment_or_to_an_offset_of_each_partition(
    texts: list[str], target: RewindTarget
) -> None:
    assert parse_target(texts) == target


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "once for each partition"),
        (["latest"], "'latest' is neither a moment"),
        (["earliest", "orders[3]@1"], "once for each partition"),
        (["orders[3]@1", "orders[3]@2"], "once for each partition"),
        (["2026-11-21", "2026-11-22"], "once for each partition"),
        (["orders[3]@1", "2026-11-22"], "once for each partition"),
    ],
    ids=str,
)
def test_rewind_to_anything_else_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_target(texts)


def test_text_that_is_no_moment_is_refused_with_what_one_looks_like() -> None:
    with pytest.raises(ValueError, match="2026-11-21T10:00"):
        parse_moment("21.11.2026")


@pytest.mark.parametrize(
    ("read", "told"),
    [
        pytest.param(lambda: command_line.parse_bounds("yesterday", "today"), "--from and --until: 'yes", id="bounds"),
        pytest.param(lambda: command_line.parse_target(["latest"]), "--to: 'latest'", id="target"),
        pytest.param(lambda: command_line.parse_range("orders 1..2"), 'in quotes: "orders', id="range"),
    ],
)
def test_command_line_says_by_which_option_something_was_refused(read: Callable[[], object], told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        read()
