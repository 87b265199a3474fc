"""The error family: every member pickles with its fields and says whether a retry helps and how the process exits."""

import copy
import pickle

import pytest

from batchledger.model import errors
from batchledger.model.errors import BatchledgerError

FAMILY = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BatchledgerError)]

RETRYABLE_AND_EXIT_CODE = {
    errors.BatchledgerError: (False, 1),
    errors.ConfigurationError: (False, 2),
    errors.SetupError: (False, 1),
    errors.ServiceUnavailableError: (True, 1),
    errors.OutcomeUnknownError: (True, 1),
    errors.FencedError: (False, 1),
    errors.AtWorkError: (False, 0),
    errors.BatchBlockedError: (False, 3),
    errors.PositionConflictError: (False, 1),
    errors.PlanOvertakenError: (True, 1),
    errors.PredecessorPendingError: (True, 1),
    errors.OutcomePendingError: (True, 1),
    errors.RowsLostError: (False, 3),
    errors.LossError: (False, 3),
    errors.DecisionRefusedError: (False, 2),
    errors.PipelinePausedError: (False, 3),
    errors.ReplayRefusedError: (False, 2),
    errors.ExpiredError: (False, 3),
    errors.TopicChangedError: (False, 3),
    errors.TargetRefusedError: (False, 3),
    errors.TargetChangedError: (False, 3),
    errors.RowsRefusedError: (False, 3),
    errors.KeyConflictError: (False, 3),
    errors.DatabaseRefusedError: (False, 1),
    errors.StagingError: (True, 1),
    errors.StagingLostError: (False, 1),
    errors.AuditOutdatedError: (True, 1),
    errors.UnsettledError: (True, 1),
    errors.StageRefusedError: (False, 3),
    errors.ConnectionMissingError: (True, 2),
    errors.UnknownBatchError: (False, 2),
    errors.CheckNotRunError: (True, 1),
    errors.ChannelError: (True, 1),
}


def test_table_names_the_whole_family() -> None:
    assert set(RETRYABLE_AND_EXIT_CODE) == set(FAMILY)


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_retry_and_exit_code_are_properties_of_the_class(kind: type[BatchledgerError]) -> None:
    """S96."""
    assert (kind.retryable, kind.exit_code) == RETRYABLE_AND_EXIT_CODE[kind]


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_what_waits_for_a_person_is_never_retried(kind: type[BatchledgerError]) -> None:
    assert not (kind.retryable and kind.exit_code == 3)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_error_pickles_with_message_and_fields(kind: type[BatchledgerError], protocol: int) -> None:
    error = kind("batch 17 of flights is stopped; do this.", batch_id=17, ranges=["orders[3] 1200..1500"])
    carried = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 -- our own bytes
    assert type(carried) is kind
    assert str(carried) == str(error) == "batch 17 of flights is stopped; do this."
    assert carried.fields == {"batch_id": 17, "ranges": ["orders[3] 1200..1500"]}
    assert carried.args == error.args


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_error_copies(kind: type[BatchledgerError]) -> None:
    copied = copy.deepcopy(kind("message", batch_id=17))
    assert (type(copied), str(copied), copied.fields) == (kind, "message", {"batch_id": 17})


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_every_error_is_named_and_explained(kind: type[BatchledgerError]) -> None:
    assert kind.__name__.endswith("Error")
    assert kind.__doc__
