"""What the parts of a batch come to: the steps of its attempts, and its balance over all ranges."""

from datetime import timedelta

import pytest

from batchledger.books.history import AttemptRecord, RangeRecord
from batchledger.interfaces.batch_view import list_steps, sum_balance
from tests.fakes.docs import NOON


def attempt(
    staged: int | None = None, audited: int | None = None, ended: int | None = None, outcome: str | None = None
) -> AttemptRecord:
    """An attempt opened at noon; the numbers are seconds after it."""
    moments = [None if each is None else NOON + timedelta(seconds=each) for each in (staged, audited, ended)]
    return AttemptRecord(1, "run", NOON, *moments, outcome, None, None)


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        pytest.param(attempt(), [("stage", None)], id="being staged"),
        pytest.param(attempt(10), [("stage", 10), ("audit", None)], id="being audited"),
        pytest.param(attempt(10, 12), [("stage", 10), ("audit", 2), ("publish", None)], id="being published"),
        pytest.param(attempt(10, 12, 15, "published"), [("stage", 10), ("audit", 2), ("publish", 3)], id="published"),
        pytest.param(attempt(10, 12, 12, "blocked"), [("stage", 10), ("audit", 2)], id="blocked by its audit"),
        pytest.param(attempt(10, 12, 20, "compared"), [("stage", 10), ("audit", 2)], id="a dry run"),
        pytest.param(attempt(ended=4, outcome="failed"), [("stage", 4)], id="failed while it was staged"),
        pytest.param(attempt(10, ended=14, outcome="failed"), [("stage", 10), ("audit", 4)], id="failed in its audit"),
        pytest.param(
            attempt(10, 12, 90, "fenced"), [("stage", 10), ("audit", 2), ("publish", 78)], id="fenced by another one"
        ),
    ],
)
def test_steps_that_an_attempt_has_begun_are_listed_with_how_long_they_took(
    record: AttemptRecord, steps: list[tuple[str, int | None]]
) -> None:
    assert [(each.name, each.seconds) for each in list_steps(record)] == steps


AUDITED = RangeRecord("orders", 0, 0, 10, 4, 1, 2, 0, 0, 3, 1, 2, 0, 0, 0)
ALL_OF_ONE_KIND = RangeRecord("orders", 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2)
UNCLASSED = RangeRecord("orders", 2, 0, 5, 2, 0, 0, 0, 0, 3, None, None, None, 0, 0)
NOT_AUDITED = RangeRecord("orders", 3, 0, 5, *[None] * 11)


def test_i7_balance_over_all_ranges_adds_up_to_their_offsets() -> None:
    balance = sum_balance([AUDITED, ALL_OF_ONE_KIND, UNCLASSED])
    assert balance == {
        "accepted": 6, "duplicates": 1, "quarantined": 2, "aborted": 1, "markers": 2, "accepted_loss": 3, "holes": 3,
        "unexplained": 2,
    }  # fmt: skip
    assert sum(balance.values()) == 20


def test_batch_that_accepted_nothing_says_so() -> None:
    assert sum_balance([ALL_OF_ONE_KIND]) == {"accepted": 0, "accepted_loss": 3, "unexplained": 2}


@pytest.mark.parametrize("ranges", [(), (AUDITED, NOT_AUDITED)], ids=["no range", "one not audited"])
def test_there_is_no_balance_before_the_audit(ranges: tuple[RangeRecord, ...]) -> None:
    assert sum_balance(ranges) is None
