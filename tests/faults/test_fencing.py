"""Two processes want the same batch: exactly one publishes, the other one learns which and leaves nothing behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.at_work import wait_until_left
from batchledger.model.batch import Attempt, Batch, BatchState
from batchledger.model.errors import AtWorkError, FencedError, OutcomeUnknownError
from batchledger.model.presence import NO_PATIENCE, Patience
from tests.faults.run_and_die import Run, ending_runs, start_run
from tests.forked import fork_server
from tests.support import TestPipeline, Workplace, staging, wait_until

BOUND = Patience(stalled_seconds=0.5)


def overtake(pipeline: TestPipeline) -> Batch | None:
    """Run a batch as soon as the run that is paused at it counts as stalled."""
    platform = pipeline.platform(patience=BOUND)
    left = platform.ledger.find_open_batch(pipeline.name)
    if left is not None:
        assert wait_until_left(platform, left.batch_id, seconds=60)
    return run_batch.run_once(platform, "overtaking")


OUTSIDE_OF_TRANSACTIONS = ["attempt_opened", "staging_sealed", "staged", "audited"]


@pytest.mark.parametrize(
    ("point", "stages"),
    [*((point, True) for point in OUTSIDE_OF_TRANSACTIONS), ("attempt_opened", False), ("staging_sealed", False)],
)
def test_paused_process_that_wakes_up_after_another_run_is_fenced_and_leaves_nothing(
    workplace: Workplace, point: str, stages: bool
) -> None:
    """S60, S61, S101: the other run publishes this batch and the next one in the meantime."""
    pipeline = workplace.create()
    pipeline.send(30)
    paused = start_run(pipeline.name, "paused", point, signal.SIGSTOP, stages=stages)
    paused.wait_until_paused()
    with pytest.raises(AtWorkError, match="left to run paused"):
        run_batch.run_once(pipeline.platform(), "within the bound")
    assert overtake(pipeline) is not None
    pipeline.send(10)
    assert overtake(pipeline) is not None
    paused.wake()
    assert "Attempt 2 of run overtaking has taken " in paused.wait()
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


LOST_IN_TRANSACTION = {
    "positions_moved": "ServiceUnavailableError: could not publish",
    "rows_moved": "OutcomeUnknownError: The connection was lost during the COMMIT",
    "before_commit": "OutcomeUnknownError: The connection was lost during the COMMIT",
}


@pytest.mark.parametrize(
    ("point", "stages"),
    [*((point, True) for point in LOST_IN_TRANSACTION), ("staged", False), ("before_commit", False)],
)
def test_process_paused_inside_the_publishing_transaction_changes_nothing_once_the_server_has_ended_its_session(
    workplace: Workplace, point: str, stages: bool
) -> None:
    """S61, S105: idle_in_transaction_session_timeout ends such a session after 60 s; here it is ended by hand.

    If it stages, it learns only that its connection is gone; when it tries again, it learns which run fenced it.
    """
    pipeline = workplace.create()
    pipeline.send(30)
    paused = start_run(pipeline.name, "paused", point, signal.SIGSTOP, stages=stages)
    paused.wait_until_paused()
    ended = pipeline.query(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where state = 'idle in transaction' and datname = current_database()"
    )
    assert ended == [(True,)]
    overtaking = overtake(pipeline)
    assert overtaking is not None
    paused.wake()
    # A stream asks the ledger before its rows are staged.
    assert paused.wait().startswith(LOST_IN_TRANSACTION[point] if stages else "FencedError")
    with pytest.raises(FencedError, match="Run paused changes nothing") as told:
        run_batch.publish(pipeline.platform(), overtaking.batch_id, "paused")
    assert "Attempt 2 of run overtaking has taken it over" in str(told.value)
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_transaction_of_a_paused_process_is_ended_by_the_server(workplace: Workplace) -> None:
    """S105: the bound that the test above relies on is set on every connection of the ledger."""
    pipeline = workplace.create()
    pipeline.send(5)
    seen = []

    def look(point: str) -> None:
        if point == "before_commit":
            seen.append(publication.execute("show idle_in_transaction_session_timeout").fetchone())

    class WatchedLedger(PostgresLedger):
        @contextmanager
        def publication(
            self, attempt: Attempt, expected: BatchState = BatchState.AUDITED
        ) -> Iterator[PostgresPublication]:
            nonlocal publication
            with super().publication(attempt, expected) as opened:
                publication = opened.connection
                yield opened

    publication = None  # type: ignore[assignment]
    platform = replace(pipeline.platform(crash=look), ledger=WatchedLedger(workplace.dsn))
    run_batch.run_once(platform, "streams")
    pipeline.send(5)
    run_batch.run_once(staging(platform), "stages")
    assert seen == [("1min",)] * 2


@pytest.mark.parametrize("runs", [("airflow", "cli"), ("twin", "twin")], ids=["two runs", "two schedulers, one run"])
def test_two_processes_at_once_publish_the_batch_once(workplace: Workplace, runs: tuple[str, str]) -> None:
    """S55, S101: a CLI run beside an Airflow run, or one task started by two schedulers.

    Both have opened an attempt before either goes on; which of them is the later one is not arranged.
    """
    pipeline = workplace.create()
    pipeline.send(30)
    both = [start_run(pipeline.name, run, "attempt_opened", signal.SIGSTOP, patience=NO_PATIENCE) for run in runs]
    for each in both:
        each.wait_until_paused()
    for each in both:
        each.wake()
    loser, winner = sorted((each.wait(), run) for each, run in zip(both, runs, strict=True))
    assert winner[0] == "done"
    assert loser[0].startswith("FencedError")
    assert f"Attempt 2 of run {winner[1]} has taken the batch over" in loser[0]
    assert run_batch.run_once(pipeline.platform(), "after them") is None
    pipeline.assert_exact()
    assert pipeline.list_staging() == []
    batches = pipeline.query("select attempt, state from batchledger.batch where pipeline = %s", pipeline.name)
    assert batches == [(2, "published")]


def test_publication_waits_for_the_one_before_it_and_is_not_lost(workplace: Workplace) -> None:
    """S58: a process that arrives while another one is publishing waits for its lock, then goes on."""
    pipeline = workplace.create()
    pipeline.send(30)
    first = start_run(pipeline.name, "first", "before_commit", signal.SIGSTOP)
    first.wait_until_paused()
    second = start_run(pipeline.name, "second", patience=NO_PATIENCE)
    wait_until(
        lambda: pipeline.query(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
    )
    first.wake()
    assert first.wait() == "done"
    assert "Attempt 1 of run first has it published" in second.wait()
    assert run_batch.run_once(pipeline.platform(), "third") is None
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


class LateReplyLedger(PostgresLedger):
    """The real ledger; the answer to its COMMIT gets lost, and before anybody asks, later batches are published."""

    def __init__(self, pipeline: TestPipeline) -> None:
        super().__init__(pipeline.workplace.dsn)
        object.__setattr__(self, "pipeline", pipeline)

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator[PostgresPublication]:
        """Commit, let others go on, then claim not to know."""
        with super().publication(attempt, expected) as publication:
            yield publication
        pipeline: TestPipeline = self.pipeline  # type: ignore[attr-defined]
        for _ in range(2):
            pipeline.send(10)
            assert run_batch.run_once(pipeline.platform(), "others") is not None
        raise OutcomeUnknownError("the reply got lost")


def test_i9_lost_reply_is_resolved_by_batch_id_although_later_batches_were_published(workplace: Workplace) -> None:
    """S65, S81: not "the newest batch" is looked at, but this one."""
    pipeline = workplace.create()
    pipeline.send(30)
    batch = run_batch.run_once(replace(staging(pipeline.platform()), ledger=LateReplyLedger(pipeline)), "run")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


def test_run_that_is_paused_when_its_test_fails_is_ended() -> None:
    """Such a run takes no SIGTERM, and the end of all tests would wait for it."""
    process = fork_server().Process(target=signal.raise_signal, args=(signal.SIGSTOP,), daemon=True)
    ours, _ = fork_server().Pipe()
    with suppress(AssertionError), ending_runs():
        process.start()
        Run(process, ours).wait_until_paused()
        raise AssertionError("a test fails")
    assert process.exitcode == -signal.SIGKILL
