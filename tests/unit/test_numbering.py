"""What people read of producers' own numbering."""

import pytest

from batchledger.model.records.numbering import NumberFacts, describe_numbers, name_missing, name_repeated


@pytest.mark.parametrize(
    ("first", "last", "at", "text"),
    [
        (5, 7, 8, "5..7 missing before 8"),
        (5, 5, 6, "5 missing before 6"),
        (4, 6, 3, "4..6 missing after 3"),
        (-3, -2, -1, "-3..-2 missing before -1"),
    ],
)
def test_missing_numbers_are_named_beside_the_record_that_shows_them(first: int, last: int, at: int, text: str) -> None:
    assert name_missing(first, last, at) == text


def test_number_that_came_again_is_named() -> None:
    assert name_repeated(5) == "5 came again"


@pytest.mark.parametrize(
    ("facts", "unreadable", "text"),
    [
        (NumberFacts(series=5), 0, ""),
        (NumberFacts(series=5), 3, ""),
        (NumberFacts(5, 6, 2, 1, 3, 4, 5, 6), 0, "gaps: 2, late: 3, restarts: 4, joined: 5, unnumbered: 6"),
    ],
)
def test_what_is_no_failure_is_told_in_numbers(facts: NumberFacts, unreadable: int, text: str) -> None:
    assert describe_numbers(facts, unreadable) == text


def test_records_that_cannot_be_read_are_told_where_numbers_are_missing() -> None:
    text = describe_numbers(NumberFacts(missing=1, gaps=1), 3)
    assert text == "gaps: 1; records that cannot be read, whose numbers may be among the missing: 3"
