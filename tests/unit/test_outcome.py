"""What follows an error of a step, by the table of (error, what the ledger has of the batch)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from batchledger.lifecycle.outcome import Next, choose_next, find_next
from batchledger.model.batch import Attempt, Batch, BatchState, Lane
from batchledger.model.errors import (
    BatchledgerError,
    FencedError,
    OutcomeUnknownError,
    ServiceUnavailableError,
    StagingLostError,
)
from tests.fakes.world import World

RUN, TWO = "run-1", 2
FENCED, UNKNOWN = FencedError("fenced"), OutcomeUnknownError("lost")
OURS = Batch(17, "orders", Lane.LIVE, BatchState.AUDITED, TWO, RUN, (), 0, datetime(2026, 11, 23, tzinfo=UTC))
NEWER = replace(OURS, attempt=TWO + 1, attempt_run="run-2")
RESUMED = replace(OURS, attempt_run="run-2")


@pytest.mark.parametrize(
    ("error", "found", "expected"),
    [
        (UNKNOWN, replace(OURS, state=BatchState.PUBLISHED), Next.TAKE_RESULT),
        (FENCED, replace(OURS, state=BatchState.PUBLISHED), Next.TAKE_RESULT),
        (UNKNOWN, replace(OURS, state=BatchState.COMMITTING), Next.GO_ON),
        (FENCED, replace(OURS, state=BatchState.COMMITTING), Next.GO_ON),
        (FENCED, replace(OURS, state=BatchState.AUDITED), Next.GO_ON),
        (UNKNOWN, replace(OURS, state=BatchState.AUDITED), Next.RAISE),
        (FENCED, replace(OURS, state=BatchState.BLOCKED), Next.RAISE),
        (FENCED, replace(OURS, state=BatchState.DISCARDED), Next.LEAVE),
        *((error, replace(NEWER, state=each), Next.LEAVE) for error in (FENCED, UNKNOWN) for each in BatchState),
        # Another run goes on with the same attempt, so its staging stays.
        (FENCED, replace(RESUMED, state=BatchState.COMMITTING), Next.RAISE),
        (FENCED, replace(RESUMED, state=BatchState.PUBLISHED), Next.RAISE),
    ],
)
def test_publication_that_could_not_know_what_it_has_done(
    error: BatchledgerError, found: Batch, expected: Next
) -> None:
    assert choose_next(error, found, Attempt(OURS, TWO, RUN), {BatchState.PUBLISHED}) is expected


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (FENCED, ServiceUnavailableError),
        (UNKNOWN, OutcomeUnknownError),
        (StagingLostError("gone"), ServiceUnavailableError),
    ],
)
def test_step_that_cannot_ask_the_ledger_is_tried_again(
    error: BatchledgerError, raised: type[BatchledgerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S66: it may have been a twin of the step that was faster."""
    platform = World().process()

    def is_away(*_: object) -> None:
        raise ServiceUnavailableError("the ledger is away")

    monkeypatch.setattr(type(platform.ledger), "load_batch", is_away)
    with pytest.raises(raised) as found:
        find_next(platform, Attempt(OURS, TWO, RUN), error, {BatchState.PUBLISHED})
    assert type(found.value) is raised
    assert found.value.retryable
