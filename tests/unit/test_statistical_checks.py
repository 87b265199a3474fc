"""Checks that compare a batch with the ones before it: each with its clean twin and without enough history."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.checks.distributions import Distribution, measure_distance
from batchledger.checks.statistics import StatisticalChecks
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.checks import CheckResult, Outcome, RequestedCheck
from batchledger.ports import CheckedBatch, RecentBatch, RowsToCheck

BATCH = Batch(9, "orders", Lane.LIVE, BatchState.STAGED, 1, "run", (), 0, datetime(2026, 11, 21, tzinfo=UTC))
ROWS = RequestedCheck("rows", "expect_batch_rows_to_be_near_recent", {"min_ratio": 0.5, "max_ratio": 2})
SHARE = RequestedCheck("share", "expect_share_quarantined_to_be_at_most", {"max_share": 0.1})


def judge(
    check: RequestedCheck, recent: Sequence[int] = (), rows: int = 0, visible: int = 0, quarantined: int = 0
) -> CheckResult:
    history = [RecentBatch(number, accepted, {}) for number, accepted in enumerate(recent)]
    batch = CheckedBatch(BATCH, visible, quarantined, history)
    (judged,) = StatisticalChecks((check,)).judge(RowsToCheck(None, "rows", rows, rows), batch)
    return judged.result


@pytest.mark.parametrize(
    ("rows", "outcome"), [(1, Outcome.FAILED), (50, Outcome.PASSED), (200, Outcome.PASSED), (201, Outcome.FAILED)]
)
def test_volume_is_compared_with_the_median_of_the_batches_before(rows: int, outcome: Outcome) -> None:
    found = judge(ROWS, [100, 100, 100, 100, 90_000], rows)
    assert found.outcome is outcome
    assert f"{rows} rows, {rows / 100:.3f} of the median 100 of 5 batches" in found.detail


def test_batch_without_rows_does_not_pass_for_a_usual_one() -> None:
    assert judge(ROWS, [100] * 5, 0).outcome is Outcome.FAILED


def test_volume_is_not_judged_without_five_batches_before() -> None:
    found = judge(ROWS, [100] * 4, 1)
    assert (found.outcome, found.detail) == (Outcome.EMPTY, "nothing to judge: 4 earlier batches, 5 are needed")


def test_only_as_many_batches_are_compared_as_the_check_asks_for() -> None:
    check = RequestedCheck("rows", ROWS.type, {"min_ratio": 0.5, "batches": 5})
    assert judge(check, [10] * 5 + [1000] * 15, 10).outcome is Outcome.PASSED
    assert StatisticalChecks((check, SHARE)).recent_batches == 5
    assert StatisticalChecks((SHARE,)).recent_batches == 0


@pytest.mark.parametrize(("quarantined", "outcome"), [(10, Outcome.PASSED), (11, Outcome.FAILED)])
def test_share_of_records_set_aside_is_bounded(quarantined: int, outcome: Outcome) -> None:
    assert judge(SHARE, visible=100, quarantined=quarantined).outcome is outcome


def test_share_is_not_judged_of_a_batch_without_records() -> None:
    assert judge(SHARE).outcome is Outcome.EMPTY


def test_result_is_one_of_great_expectations_and_says_its_number() -> None:
    found = judge(SHARE, visible=100, quarantined=11)
    assert found.validation is not None
    assert found.validation["expectation_config"]["type"] == "expect_share_quarantined_to_be_at_most"
    assert found.observed["number"] == pytest.approx(0.11)


def percentiles(shift: float = 0, spread: float = 1) -> list[float]:
    return [shift + spread * level for level in range(1, 100)]


def test_numbers_that_are_shifted_are_far_from_those_before() -> None:
    recent = [percentiles() for _ in range(5)]
    assert measure_distance(Distribution("percentiles", percentiles()), recent) == pytest.approx(0)
    assert measure_distance(Distribution("percentiles", percentiles(30)), recent) == pytest.approx(0.3, abs=0.02)
    assert measure_distance(Distribution("percentiles", percentiles(1000)), recent) == pytest.approx(1)


def test_shares_that_move_from_one_value_to_another_are_as_far_as_they_moved() -> None:
    recent = [{"a": 0.5, "b": 0.5}] * 5
    assert measure_distance(Distribution("shares", {"a": 0.5, "b": 0.5}), recent) == 0
    assert measure_distance(Distribution("shares", {"a": 0.25, "b": 0.5, "c": 0.25}), recent) == pytest.approx(0.25)
    assert measure_distance(Distribution("shares", {"c": 1.0}), recent) == pytest.approx(1)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=99, max_size=99).map(sorted), min_size=2, max_size=4))
def test_distance_of_numbers_lies_between_the_same_and_nothing_in_common(each: list[list[float]]) -> None:
    present: Any = Distribution("percentiles", each[0])
    assert measure_distance(present, [each[0]] * 3) == pytest.approx(0)
    assert 0 <= measure_distance(present, each[1:]) <= 1
