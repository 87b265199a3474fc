"""Only an error that the next worker gets over, or that the mode allows, is what a fault may leave behind."""

from collections.abc import Callable
from functools import partial

import pytest

from batchledger.local.torture.worker import is_expected
from batchledger.model import errors
from batchledger.model.batch import DeliveryMode
from batchledger.model.errors import BatchledgerError


@pytest.mark.parametrize(
    "kind",
    [errors.ServiceUnavailableError, errors.OutcomeUnknownError, errors.StagingError, errors.FencedError],
)
@pytest.mark.parametrize("delivery", DeliveryMode)
def test_error_that_the_next_worker_gets_over_is_expected(kind: type[BatchledgerError], delivery: DeliveryMode) -> None:
    assert is_expected(kind("x"), delivery, may_lose_staging=False)


@pytest.mark.parametrize(
    "kind",
    [
        partial(errors.BatchBlockedError, batch_id=1),
        errors.LossError,
        errors.TopicChangedError,
        errors.PositionConflictError,
    ],
)
@pytest.mark.parametrize("delivery", DeliveryMode)
def test_error_that_needs_a_person_is_a_surprise(
    kind: Callable[[str], BatchledgerError], delivery: DeliveryMode
) -> None:
    assert not is_expected(kind("x"), delivery, may_lose_staging=True)


def test_lost_rows_are_expected_at_most_once_only() -> None:
    expected = {each for each in DeliveryMode if is_expected(errors.RowsLostError("x"), each, may_lose_staging=True)}
    assert expected == {DeliveryMode.AT_MOST_ONCE}


@pytest.mark.parametrize("kind", [errors.StagingLostError, errors.AuditOutdatedError])
def test_lost_staging_is_expected_only_while_postgresql_crashes(kind: type[BatchledgerError]) -> None:
    assert is_expected(kind("x"), DeliveryMode.EXACTLY_ONCE, may_lose_staging=True)
    assert not is_expected(kind("x"), DeliveryMode.EXACTLY_ONCE, may_lose_staging=False)
