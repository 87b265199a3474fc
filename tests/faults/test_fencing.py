"""Two processes want the same batch: exactly one publishes, the other one is told by whom and leaves nothing behind."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from batchledger import run_batch
from batchledger.batch import Attempt, BatchState
from batchledger.errors import OutcomeUnknownError
from batchledger.ledger.postgres import PostgresLedger
from batchledger.ledger.publication import PostgresPublication
from tests.faults.run_and_die import start_run
from tests.support import TestPipeline, Workplace, wait_until

OUTSIDE_OF_TRANSACTIONS = ["attempt_opened", "staging_sealed", "staged", "audited"]


@pytest.mark.parametrize("point", OUTSIDE_OF_TRANSACTIONS)
def test_paused_process_that_wakes_up_after_another_run_is_fenced_and_leaves_nothing(
    workplace: Workplace, point: str
) -> None:
    """S60, S61, S101: the other run publishes this batch and the next one in the meantime."""
    pipeline = workplace.create()
    pipeline.send(30)
    paused = start_run(pipeline.name, "paused", point, signal.SIGSTOP)
    paused.wait_until_paused()
    assert run_batch.run_once(pipeline.platform(), "overtaking") is not None
    pipeline.send(10)
    assert run_batch.run_once(pipeline.platform(), "overtaking") is not None
    paused.wake()
    assert "is fenced by attempt 2 of run overtaking, which has" in paused.wait()
    pipeline.assert_exact()
    assert pipeline.list_staging() == []


@pytest.mark.parametrize("point", ["positions_moved", "rows_moved", "before_commit"])
def test_process_paused_inside_the_publishing_transaction_changes_nothing_once_the_server_has_ended_its_session(
    workplace: Workplace, point: str
) -> None:
    """S61, S105: idle_in_transaction_session_timeout ends such a session after 60 s; here it is ended by hand."""
    pipeline = workplace.create()
    pipeline.send(30)
    paused = start_run(pipeline.name, "paused", point, signal.SIGSTOP)
    paused.wait_until_paused()
    ended = pipeline.query(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where state = 'idle in transaction' and datname = current_database()"
    )
    assert ended == [(True,)]
    assert run_batch.run_once(pipeline.platform(), "overtaking") is not None
    paused.wake()
    paused.wait()
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
    run_batch.run_once(platform, "run")
    assert seen == [("1min",)]


@pytest.mark.parametrize("runs", [("airflow", "cli"), ("twin", "twin")], ids=["two runs", "two schedulers, one run"])
def test_two_processes_at_once_publish_the_batch_once(workplace: Workplace, runs: tuple[str, str]) -> None:
    """S55, S101: a CLI run beside an Airflow run, or one task started by two schedulers; no order is arranged."""
    pipeline = workplace.create()
    pipeline.send(30)
    outcomes = sorted(each.wait() for each in [start_run(pipeline.name, run) for run in runs])
    assert "done" in outcomes or all("FencedError" in each for each in outcomes)
    while run_batch.run_once(pipeline.platform(), "after them") is not None:
        pass
    pipeline.assert_exact()
    published = pipeline.query(
        "select count(*) from batchledger.batch where pipeline = %s and state = 'published'", pipeline.name
    )
    assert published == [(1,)]


def test_publication_waits_for_the_one_before_it_and_is_not_lost(workplace: Workplace) -> None:
    """S58: a process that arrives while another one is publishing waits for its lock, then goes on."""
    pipeline = workplace.create()
    pipeline.send(30)
    first = start_run(pipeline.name, "first", "before_commit", signal.SIGSTOP)
    first.wait_until_paused()
    second = start_run(pipeline.name, "second")
    wait_until(
        lambda: pipeline.query(
            "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
    )
    first.wake()
    assert first.wait() == "done"
    second.wait()
    assert run_batch.run_once(pipeline.platform(), "third") is None
    pipeline.assert_exact()


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
    batch = run_batch.run_once(replace(pipeline.platform(), ledger=LateReplyLedger(pipeline)), "run")
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    pipeline.assert_exact()
    assert pipeline.list_staging() == []
