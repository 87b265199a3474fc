"""What the bench counts for itself, and how it reads what a look names."""

from typing import Any

import pytest

from bench.own_count import OwnCount, compare
from bench.parts.watched import read_named

RECORDS = [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_own_count_names_what_is_missing_and_what_is_there_twice() -> None:
    assert compare(RECORDS, RECORDS) == OwnCount(frozenset(), frozenset())
    rows = [(0, 0), (0, 2), (0, 2), (1, 0), (1, 0), (1, 0)]
    assert compare(RECORDS, rows) == OwnCount(frozenset({(0, 1)}), frozenset({(0, 2), (1, 0)}))


def test_own_count_refuses_rows_without_a_record() -> None:
    with pytest.raises(RuntimeError, match=r"\(2, 7\)"):
        compare(RECORDS, [*RECORDS, (2, 7)])


def found(difference: str, count: int, *ranges: str) -> dict[str, Any]:
    """What a look says of a difference."""
    return {"difference": difference, "count": count, "ranges": list(ranges)}


def test_ranges_of_a_look_are_offsets() -> None:
    look = {"found": [found("missing", 3, "orders[0] 1..3", "orders[1] 0..1"), found("twice", 1, "orders[0] 0..1")]}
    assert read_named(look) == OwnCount(frozenset({(0, 1), (0, 2), (1, 0)}), frozenset({(0, 0)}))


@pytest.mark.parametrize("more", [found("unknown", 1, "orders[0] 9..10"), found("missing", 5, "orders[0] 1..3")])
def test_look_that_does_not_name_all_to_the_offset_is_no_result(more: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="not named to the offset"):
        read_named({"found": [more]})
