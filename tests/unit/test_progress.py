"""How far the reading of a batch is: what is counted, what is said, and that it never goes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.progress import Progress, Reading, round_rate, round_time

NOTHING_YET = Progress(0, 2_000_000, 0.0)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            Progress(1_240_000, 2_000_000, 6.888),
            "1,240,000 of 2,000,000 records read (62%), 180,000 a second, about 5 s left",
        ),
        (NOTHING_YET, "0 of 2,000,000 records read (0%)"),
        (Progress(2_000_000, 2_000_000, 10.0), "2,000,000 of 2,000,000 records read (100%), 200,000 a second"),
        (Progress(1, 1000, 10.0), "1 of 1,000 records read (0%), less than 1 a second, about 3 h left"),
        (
            Progress(500, 1000, 1.0, rows=300),
            "500 of 1,000 records read (50%), 300 rows being written, 500 a second, about 1 s left",
        ),
    ],
)
def test_progress_is_one_line(progress: Progress, text: str) -> None:
    assert str(progress) == text


def test_only_whole_percent_are_told_so_that_100_means_all() -> None:
    assert Progress(1_999_999, 2_000_000, 10.0).percent == 99


def test_before_anything_was_read_there_is_neither_rate_nor_time_left() -> None:
    waiting = NOTHING_YET.advance(Reading(0), 2.0)
    assert (waiting.rate, waiting.seconds_left, waiting.share) == (None, None, 0.0)


def test_rate_and_time_left_follow_from_what_was_read() -> None:
    progress = NOTHING_YET.advance(Reading(500_000), 2.0).advance(Reading(1_000_000), 3.0)
    assert (progress.rate, progress.seconds_left, progress.share) == (200_000, 5.0, 0.5)


def test_the_time_before_the_first_record_is_no_slow_reading() -> None:
    progress = NOTHING_YET.advance(Reading(0), 30.0).advance(Reading(0), 30.0).advance(Reading(400_000), 2.0)
    assert progress.rate == 200_000


def test_a_batch_without_offsets_is_read() -> None:
    assert (Progress(0, 0, 0.0).share, Progress(0, 0, 0.0).percent) == (1.0, 100)


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 100)), max_size=20))
def test_progress_never_goes_back_nor_beyond_the_plan(looks: list[tuple[int, float]]) -> None:
    """A failed task takes its rows back, and records of one that runs twice are counted twice."""
    progress = Progress(0, 2000, 0.0)
    for records, seconds in looks:
        before, progress = progress, progress.advance(Reading(records), seconds)
        assert before.read_records <= progress.read_records <= 2000
        assert 0 <= progress.percent <= 100
        assert progress.seconds_left is None or progress.seconds_left >= 0
        assert str(progress)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(183_456, "180,000"), (42.4, "42"), (1.0, "1"), (0.4, "less than 1")],
)
def test_of_a_rate_two_digits_are_told(rate: float, text: str) -> None:
    assert round_rate(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (119, "119 s"),
        (130, "3 min"),
        (7199, "120 min"),
        (7201, "3 h"),
    ],
)
def test_the_time_left_is_told_in_a_unit_that_fits_and_rounded_up(seconds: float, text: str) -> None:
    assert round_time(seconds) == text
