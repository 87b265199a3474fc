"""What may go, and what an open batch still needs: decided from facts, whatever is at work meanwhile."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.batch import BatchState
from batchledger.model.housekeeping import OVER_FOR, StagingOwner, StagingTable, choose_forgetting, find_orphaned

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
OPEN = (BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED, BatchState.BLOCKED)


def table(state: BatchState, attempt: int = 2, newest: int = 2, outcome: str | None = None) -> StagingTable:
    """The rows of an attempt of batch 17 that ended a day ago, if it has ended."""
    ended_at = LONG_AGO if outcome or attempt < newest or state.is_final else None
    published_at = LONG_AGO if state is BatchState.PUBLISHED else None
    known = StagingOwner("orders", state, newest, outcome, ended_at, published_at)
    return StagingTable(f"b17_a{attempt}_rows", 17, attempt, known)


@pytest.mark.parametrize("state", OPEN)
def test_staging_of_the_newest_attempt_of_an_open_batch_stays_however_old_it_is(state: BatchState) -> None:
    outcome = "blocked" if state is BatchState.BLOCKED else None
    assert find_orphaned([table(state, outcome=outcome)], NOW + timedelta(days=1000)) == []


@pytest.mark.parametrize("state", OPEN)
def test_staging_of_an_attempt_that_was_superseded_may_go(state: BatchState) -> None:
    superseded = table(state, attempt=1)
    assert find_orphaned([superseded], NOW) == [superseded]


@pytest.mark.parametrize("state", [BatchState.PUBLISHED, BatchState.DISCARDED])
def test_staging_of_a_batch_that_is_over_may_go_whichever_attempt_made_it(state: BatchState) -> None:
    left = [table(state, attempt=1), table(state)]
    assert find_orphaned(left, NOW) == left


def test_staging_of_an_attempt_that_failed_may_go_unless_its_batch_was_staged_all_the_same() -> None:
    """The reply to the commit that marked it staged was lost, so its run called it failed."""
    failed, staged = table(BatchState.PLANNED, outcome="failed"), table(BatchState.STAGED, outcome="failed")
    assert find_orphaned([failed, staged], NOW) == [failed]


def test_what_was_over_just_now_is_left_to_the_run_that_made_it() -> None:
    """An at-most-once publication writes the rows from staging after the batch was published."""
    left = table(BatchState.PUBLISHED)
    assert left.known is not None
    just_now = replace(left, known=replace(left.known, published_at=NOW - OVER_FOR + timedelta(seconds=1)))
    assert find_orphaned([just_now], NOW) == []
    assert find_orphaned([just_now], NOW + timedelta(seconds=1)) == [just_now]


def test_end_that_nobody_wrote_down_is_long_ago() -> None:
    left = table(BatchState.DISCARDED)
    assert left.known is not None
    unwritten = replace(left, known=replace(left.known, ended_at=None))
    assert find_orphaned([unwritten], NOW) == [unwritten]


@pytest.mark.parametrize(
    "unknown",
    [replace(table(BatchState.PUBLISHED), known=None), table(BatchState.PUBLISHED, attempt=3, newest=2)],
    ids=["no such batch", "no such attempt"],
)
def test_table_that_the_ledger_knows_nothing_of_is_never_removed(unknown: StagingTable) -> None:
    """A ledger that was restored from a backup gives numbers of batches a second time."""
    assert unknown.is_unknown
    assert find_orphaned([unknown], NOW) == []


def test_message_keys_are_remembered_for_every_open_batch() -> None:
    """A batch knows what had not expired when it was planned, however long it has been blocked since."""
    planned = [NOW - timedelta(days=3), NOW - timedelta(days=40)]
    assert choose_forgetting(NOW, planned) == NOW - timedelta(days=40)


def test_message_keys_are_remembered_for_a_batch_that_is_being_planned_right_now() -> None:
    assert choose_forgetting(NOW, []) == NOW - OVER_FOR
    assert choose_forgetting(NOW, [NOW]) == NOW - OVER_FOR
