"""The error family: every member pickles with its fields and says whether a retry helps and how the process exits."""

import copy
import json
import pickle
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from batchledger.model import errors
from batchledger.model.batch import TopicIdentity
from batchledger.model.errors import BatchledgerError, FileFault
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.presence import Presence

FAMILY = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BatchledgerError)]

RETRYABLE_AND_EXIT_CODE = {
    errors.BatchledgerError: (False, 1),
    errors.ConfigurationError: (False, 2),
    errors.FileRefusedError: (False, 2),
    errors.UnknownPipelineError: (False, 2),
    errors.SetupError: (False, 1),
    errors.ServiceUnavailableError: (True, 1),
    errors.LookOvertakenError: (True, 1),
    errors.OutcomeUnknownError: (True, 1),
    errors.AccessRefusedError: (False, 3),
    errors.CertificateUntrustedError: (False, 3),
    errors.CertificateExpiredError: (False, 3),
    errors.LoginRefusedError: (False, 3),
    errors.RightMissingError: (False, 3),
    errors.SchemaRefusedError: (False, 3),
    errors.GuidsUnknownError: (False, 3),
    errors.SchemaChangedError: (False, 3),
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
    errors.TopicAwaitedError: (False, 3),
    errors.RowRulesChangedError: (True, 1),
    errors.TargetRefusedError: (False, 3),
    errors.TargetChangedError: (False, 3),
    errors.RowsRefusedError: (False, 3),
    errors.KeyConflictError: (False, 3),
    errors.DatabaseRefusedError: (False, 1),
    errors.StagingError: (True, 1),
    errors.DecoderFailedError: (True, 1),
    errors.StagingLostError: (False, 1),
    errors.AuditOutdatedError: (True, 1),
    errors.UnsettledError: (True, 1),
    errors.StageRefusedError: (False, 3),
    errors.ConnectionMissingError: (True, 2),
    errors.UnknownBatchError: (False, 2),
    errors.CheckNotRunError: (True, 1),
    errors.ChannelError: (True, 1),
}


def test_retry_and_exit_code_are_properties_of_the_class() -> None:
    """S96."""
    assert {kind: (kind.retryable, kind.exit_code) for kind in FAMILY} == RETRYABLE_AND_EXIT_CODE


def test_what_waits_for_a_person_is_never_retried() -> None:
    assert [kind for kind in FAMILY if kind.retryable and kind.exit_code == 3] == []


COORDINATES: dict[str, Any] = {"coordinates": ("orders[3]@1207",)}
ORDERS_3 = TopicPartition("orders", 3)
ABOUT: dict[str, Any] = {
    "batch_id": 17,
    "pipeline": "flights",
    "subject": "public.flights",
    "ranges": (OffsetRange(ORDERS_3, 1200, 1500),),
}
ALSO: dict[type[BatchledgerError], dict[str, Any]] = {
    errors.FileRefusedError: {"faults": (FileFault(3, 5, "sink.key: write a list"),)},
    errors.FencedError: {"attempt": 2, "run": "manual__2"},
    errors.AtWorkError: {
        "state": "staged",
        "attempt": 1,
        "step": "audit",
        "other": Presence(17, "manual__1", "ana@host", datetime(2026, 11, 21, tzinfo=UTC), 3.0, is_held=True),
    },
    errors.BatchBlockedError: {"failed": ("balance_closes",)},
    errors.CheckNotRunError: {"unjudged": ("range_of_amount",)},
    errors.PositionConflictError: {"found": {ORDERS_3: 1100}},
    errors.TopicChangedError: {
        "expected": TopicIdentity("cluster", "topic-1"),
        "found": TopicIdentity("cluster", "topic-2"),
    },
    errors.TargetRefusedError: COORDINATES,
    errors.TargetChangedError: {"expected": "16412", "found": "16500", "owner": "flights_old", **COORDINATES},
    errors.RowsRefusedError: COORDINATES,
    errors.KeyConflictError: COORDINATES,
}


def example(kind: type[BatchledgerError]) -> tuple[BatchledgerError, dict[str, Any]]:
    """An error with everything that it can be about, and this."""
    own = next((ALSO[each] for each in kind.__mro__ if each in ALSO), {})
    values = {
        "message": "batch 17 is stopped.",
        "why": "It is late.\nIt is dark.",
        "advice": "Do this.",
        "quoted": "bad 4111",
        **ABOUT,
        **own,
    }
    return kind(**values), values


def test_example_has_every_field() -> None:
    assert {kind: {each.name for each in fields(kind)} for kind in FAMILY} == {
        kind: set(example(kind)[1]) for kind in FAMILY
    }


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_error_pickles_with_message_and_fields(protocol: int) -> None:
    for error, values in map(example, FAMILY):
        carried = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 -- our own bytes
        assert type(carried) is type(error)
        assert str(carried) == "batch 17 is stopped.\nIt is late.\nIt is dark.\nDo this."
        assert {name: getattr(carried, name) for name in values} == values


def test_error_copies() -> None:
    for error, values in map(example, FAMILY):
        copied = copy.deepcopy(error)
        assert type(copied) is type(error)
        assert {name: getattr(copied, name) for name in values} == values


def test_what_an_error_is_about_goes_into_a_document() -> None:
    told = errors.TargetChangedError("gone", subject="public.flights", ranges=ABOUT["ranges"], found="16500")
    assert told.where == {"subject": "public.flights", "ranges": ["orders[3] 1200..1500"], "found": "16500"}
    moved = errors.PositionConflictError("moved", found={ORDERS_3: 1100})
    assert moved.where == {"found": {"orders[3]": 1100}}
    assert errors.SetupError("no Java").where == {}


def test_whatever_an_error_is_about_can_be_stored() -> None:
    for error, values in map(example, FAMILY):
        assert set(json.loads(json.dumps(error.where))) == set(values) - {
            *("message", "why", "advice", "quoted", "faults")
        }


def test_no_field_is_taken_without_its_name() -> None:
    assert [kind for kind in FAMILY if [each.name for each in fields(kind) if not each.kw_only] != ["message"]] == []


def test_every_error_is_named_and_explained() -> None:
    assert [kind for kind in FAMILY if not (kind.__name__.endswith("Error") and kind.__doc__)] == []
