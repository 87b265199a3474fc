"""Pages of a list: each entry is on one of them, and there is always a page to show."""

from hypothesis import given
from hypothesis import strategies as st

from batchledger.interfaces.batch_view import turn_to


@given(st.integers(0, 200), st.integers(1, 60))
def test_every_entry_is_on_one_page(entries: int, size: int) -> None:
    every = list(range(entries))
    pages = [turn_to(number, entries, size) for number in range(1, turn_to(1, entries, size).pages + 1)]
    assert [entry for each in pages for entry in every[each.shown]] == every
    assert all(every[each.shown] for each in pages) or entries == 0


@given(st.integers(-5, 500), st.integers(0, 200), st.integers(1, 60))
def test_page_that_is_not_there_is_the_nearest_one(number: int, entries: int, size: int) -> None:
    page = turn_to(number, entries, size)
    assert 1 <= page.number <= page.pages
    assert page.number == number or number < 1 or number > page.pages
