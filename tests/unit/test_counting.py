"""A number and its noun go together, whatever the number."""

import pytest

from batchledger.model.counting import describe_count


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (1000, ("offset",), "1,000 offsets"),
        (1, ("batch", "batches"), "1 batch"),
        (2, ("row becomes", "rows become"), "2 rows become"),
    ],
)
def test_number_stands_with_its_noun_and_thousands_apart(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert describe_count(number, *nouns) == text
