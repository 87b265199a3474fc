"""What a person may write behind --from and --until."""

from datetime import UTC, datetime

import pytest
import typer

from batchledger.command_line import parse_bounds
from batchledger.offsets import OffsetRange, TopicPartition
from batchledger.replay import Window


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
        ("orders[3]@1200", "orders[4]@1500", "two offsets of one partition"),
        ("orders[3]@1500", "orders[3]@1200", "is not a range"),
    ],
)
def test_bounds_that_make_no_sense_are_refused_by_what_is_wrong(since: str, until: str, told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        parse_bounds(since, until)
