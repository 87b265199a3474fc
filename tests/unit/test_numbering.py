"""What people read of producers' own numbering."""

import pytest

from batchledger.numbering import NumberFacts, describe_numbers, name_missing, name_repeated


@pytest.mark.parametrize(
    ("first", "last", "at", "text"),
    [
        (5, 7, 8, "device_id 7: 5..7 missing before 8"),
        (5, 5, 6, "device_id 7: 5 missing before 6"),
        (4, 6, 3, "device_id 7: 4..6 missing after 3"),
        (-3, -2, -1, "device_id 7: -3..-2 missing before -1"),
    ],
)
def test_missing_numbers_are_named_beside_the_record_that_shows_them(first: int, last: int, at: int, text: str) -> None:
    assert name_missing({"device_id": 7}, first, last, at) == text


def test_key_of_several_columns_is_named_whole() -> None:
    assert name_repeated({"site": "north", "device_id": 7}, 5) == "site north, device_id 7: 5 came again"


def test_value_of_a_key_is_short_and_cannot_command_a_terminal() -> None:
    assert name_repeated({"device": "a\x1b[31m\n"}, 5) == r"device a\x1b[31m\n: 5 came again"
    assert name_repeated({"device": "x" * 50}, 5) == f"device {'x' * 40}…: 5 came again"


@pytest.mark.parametrize(
    ("facts", "quarantined", "text"),
    [
        (NumberFacts(series=5), 0, ""),
        (NumberFacts(series=5), 3, ""),
        (NumberFacts(5, 6, 2, 1, 3, 4, 5, 6), 0, "gaps 2, late 3, restarts 4, joined 5, unnumbered 6"),
    ],
)
def test_what_is_no_failure_is_told_in_numbers(facts: NumberFacts, quarantined: int, text: str) -> None:
    assert describe_numbers(facts, quarantined) == text


def test_quarantined_records_are_told_where_numbers_are_missing() -> None:
    text = describe_numbers(NumberFacts(missing=1, gaps=1), 3)
    assert text == "gaps 1, 3 records of the batch are in quarantine, whose numbers may be among the missing"
