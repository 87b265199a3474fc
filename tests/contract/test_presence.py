"""Who is at work on a batch: found while its process lives, gone with it, and handed on from step to step.

Over the ledger in memory and the one in PostgreSQL. What a session of PostgreSQL does is shown over that one alone.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from uuid import uuid4

import psycopg
import pytest

from batchledger.ledger.decisions import PostgresDecisions
from batchledger.ledger.ledger import PostgresLedger
from batchledger.ledger.presence import PostgresPresences
from batchledger.model.batch import Attempt, BatchState, Decision, Position, Step, StepFailure
from batchledger.model.offsets import OffsetRange
from batchledger.model.presence import NO_PATIENCE, Patience
from batchledger.planning.live import Plan
from batchledger.ports import Decisions, Ledger, Presences
from tests.contract.life import ORDERS_0
from tests.contract.warehouses import IDENTITY
from tests.fakes.database import MemoryDatabase
from tests.fakes.decisions import MemoryDecisions
from tests.fakes.ledger import MemoryLedger
from tests.fakes.presence import MemoryPresences
from tests.forked import fork_server
from tests.support import wait_until

PATIENCE = Patience()


@dataclass(frozen=True)
class Ground:
    """A planned batch, and who looks after it."""

    presences: Presences
    ledger: Ledger
    decisions: Decisions
    batch_id: int


def plan_batch(ledger: Ledger) -> int:
    plan = Plan((OffsetRange(ORDERS_0, 0, 5),), 0, (Position(ORDERS_0, 0, 0, IDENTITY),))
    return ledger.store_plan(f"pipeline_{uuid4().hex[:12]}", plan, "run").batch_id


@pytest.fixture(params=["memory", "postgres"])
def ground(request: pytest.FixtureRequest) -> Ground:
    ledger: Ledger
    if request.param == "memory":
        database = MemoryDatabase()
        ledger = MemoryLedger(database)
        return Ground(MemoryPresences(database), ledger, MemoryDecisions(database), plan_batch(ledger))
    dsn = request.getfixturevalue("warehouse_dsn")
    ledger = PostgresLedger(dsn)
    return Ground(PostgresPresences(dsn), ledger, PostgresDecisions(dsn), plan_batch(ledger))


class BrokenError(Exception):
    """A step that does not end well."""


def test_nobody_is_at_work_on_a_batch_that_was_only_planned(ground: Ground) -> None:
    assert ground.presences.find(ground.batch_id) is None


def test_run_at_work_is_found_with_its_name_and_machine_and_others_are_shown_it(ground: Ground) -> None:
    with ground.presences.hold(ground.batch_id, "first", PATIENCE) as before:
        assert before is None
        found = ground.presences.find(ground.batch_id)
        assert found is not None
        assert (found.run, found.is_held, found.is_handed_on) == ("first", True, False)
        assert "@" in found.worker
        assert found.lasts(PATIENCE)
        with ground.presences.hold(ground.batch_id, "second", PATIENCE) as other:
            assert other is not None
            assert other.run == "first"
        assert ground.presences.find(ground.batch_id) is not None
    with ground.presences.hold(ground.batch_id + 1, "second", PATIENCE) as other:
        assert other is None, "another batch"


def test_step_that_ended_well_hands_the_batch_on_to_its_own_run(ground: Ground) -> None:
    with ground.presences.hold(ground.batch_id, "first", PATIENCE):
        pass
    # The server lets go of the lock when it has noticed that the connection is closed.
    wait_until(lambda: (last := ground.presences.find(ground.batch_id)) is not None and not last.is_held)
    found = ground.presences.find(ground.batch_id)
    assert found is not None
    assert (found.run, found.is_held, found.is_handed_on) == ("first", False, True)
    assert found.lasts(PATIENCE)
    assert not found.lasts(Patience(handed_on_seconds=0))
    with ground.presences.hold(ground.batch_id, "second", PATIENCE) as other:
        assert other is not None
    with ground.presences.hold(ground.batch_id, "first", PATIENCE) as other:
        assert other is None


def test_step_that_failed_leaves_the_batch_to_everybody_at_once(ground: Ground) -> None:
    with pytest.raises(BrokenError), ground.presences.hold(ground.batch_id, "first", PATIENCE):
        raise BrokenError
    assert ground.presences.find(ground.batch_id) is None


def test_batch_that_is_over_has_nobody_at_work(ground: Ground) -> None:
    with ground.presences.hold(ground.batch_id, "first", PATIENCE):
        ground.decisions.discard(ground.batch_id, Decision("ana@host", "not wanted"))
    assert ground.presences.find(ground.batch_id) is None


def test_run_takes_over_from_itself_and_the_one_before_ends_nothing_of_it(ground: Ground) -> None:
    """A task that Airflow started a second time, because it heard nothing of the first."""
    with ground.presences.hold(ground.batch_id, "run", PATIENCE):
        stale = ground.presences.hold(ground.batch_id, "run", PATIENCE)
        stale.__enter__()
        with ground.presences.hold(ground.batch_id, "run", PATIENCE):
            stale.__exit__(None, None, None)
            found = ground.presences.find(ground.batch_id)
            assert found is not None
            assert found.is_held


def test_without_patience_everybody_begins(ground: Ground) -> None:
    with (
        ground.presences.hold(ground.batch_id, "first", PATIENCE),
        ground.presences.hold(ground.batch_id, "second", NO_PATIENCE) as other,
    ):
        assert other is None
        found = ground.presences.find(ground.batch_id)
        assert found is not None
        assert found.run == "second"
    assert ground.presences.find(ground.batch_id) is not None, "handed on by the second"


def test_batch_can_be_published_while_its_run_is_present(ground: Ground) -> None:
    """No lock of the batch is in the way of the publication, nor of a sign of life."""
    with ground.presences.hold(ground.batch_id, "run", Patience(stalled_seconds=0.6)):
        attempt = ground.ledger.open_attempt(ground.batch_id, "run")
        assert isinstance(attempt, Attempt)
        ground.ledger.mark_failed(attempt, StepFailure(Step.STAGE, "for the test"))


# What a session of PostgreSQL does.


@contextmanager
def holding(dsn: str, batch_id: int, sent: signal.Signals | None = None, seconds: float = 60.0) -> Iterator[int]:
    """Let a process of its own be at work on the batch; yield its id. It gets the signal as soon as it is present."""
    context = fork_server()
    ours, theirs = context.Pipe()
    process = context.Process(target=_hold, args=(dsn, batch_id, seconds, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(60)
        assert ours.recv() == "present"
        assert process.pid is not None
        if sent is not None:
            os.kill(process.pid, sent)
        yield process.pid
    finally:
        process.kill()
        process.join(30)


def _hold(dsn: str, batch_id: int, seconds: float, channel: Connection) -> None:
    with PostgresPresences(dsn).hold(batch_id, "held", Patience(stalled_seconds=seconds)):
        channel.send("present")
        channel.recv()


def is_held(dsn: str, batch_id: int) -> bool:
    found = PostgresPresences(dsn).find(batch_id)
    assert found is not None
    return found.is_held


def silent_seconds(dsn: str, batch_id: int) -> float:
    found = PostgresPresences(dsn).find(batch_id)
    assert found is not None
    return found.silent_seconds


def test_session_of_a_killed_process_is_gone_and_another_run_begins(warehouse_dsn: str) -> None:
    batch_id = plan_batch(PostgresLedger(warehouse_dsn))
    with holding(warehouse_dsn, batch_id) as pid:
        assert is_held(warehouse_dsn, batch_id)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_held(warehouse_dsn, batch_id), seconds=2)
        with PostgresPresences(warehouse_dsn).hold(batch_id, "next", PATIENCE) as other:
            assert other is None


def test_paused_process_keeps_its_session_and_falls_silent_until_it_is_woken(warehouse_dsn: str) -> None:
    batch_id = plan_batch(PostgresLedger(warehouse_dsn))
    with holding(warehouse_dsn, batch_id, signal.SIGSTOP, seconds=0.6) as pid:
        wait_until(lambda: silent_seconds(warehouse_dsn, batch_id) > 0.6)
        assert is_held(warehouse_dsn, batch_id)
        with PostgresPresences(warehouse_dsn).hold(batch_id, "next", PATIENCE) as other:
            assert other is not None, "within the bound"
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: silent_seconds(warehouse_dsn, batch_id) < 0.3)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: silent_seconds(warehouse_dsn, batch_id) > 0.6)
        with PostgresPresences(warehouse_dsn).hold(batch_id, "next", Patience(stalled_seconds=0.6)) as other:
            assert other is None, "beyond it"


def test_lock_that_a_lost_connection_let_go_is_taken_again_by_the_next_sign_of_life(warehouse_dsn: str) -> None:
    batch_id = plan_batch(PostgresLedger(warehouse_dsn))
    with PostgresPresences(warehouse_dsn).hold(batch_id, "run", Patience(stalled_seconds=1.2)):
        with psycopg.connect(warehouse_dsn, autocommit=True) as connection:
            end = (
                "select pg_terminate_backend(pid, 10000) from pg_locks l join batchledger.presence p "
                "on l.locktype = 'advisory' and l.objid::bigint = (p.holder & 4294967295) where p.batch_id = %s"
            )
            assert connection.execute(end, [batch_id]).fetchall() == [(True,)]
        wait_until(lambda: is_held(warehouse_dsn, batch_id))
    found = PostgresPresences(warehouse_dsn).find(batch_id)
    assert found is not None
    assert found.is_handed_on


def test_lock_that_stays_behind_in_a_pool_of_connections_is_in_nobodys_way(warehouse_dsn: str) -> None:
    """A pool that hands connections on after each transaction keeps the lock of a process that has died."""
    batch_id = plan_batch(PostgresLedger(warehouse_dsn))
    with psycopg.connect(warehouse_dsn, autocommit=True) as pooled:
        with holding(warehouse_dsn, batch_id, seconds=0.6) as pid:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_held(warehouse_dsn, batch_id))
            (number,) = pooled.execute(
                "select holder from batchledger.presence where batch_id = %s", [batch_id]
            ).fetchall()
            pooled.execute("select pg_advisory_lock(%s)", number)
            assert is_held(warehouse_dsn, batch_id)
            bound = silent_seconds(warehouse_dsn, batch_id) + 0.5
            wait_until(lambda: silent_seconds(warehouse_dsn, batch_id) > bound)
        with PostgresPresences(warehouse_dsn).hold(batch_id, "next", Patience(stalled_seconds=bound)) as other:
            assert other is None
        # It held a number of its own; the server lets go of it when it has seen that the session is over.
        wait_until(lambda: not is_held(warehouse_dsn, batch_id))


def test_of_many_that_come_at_once_one_is_at_work(warehouse_dsn: str) -> None:
    batch_id = plan_batch(PostgresLedger(warehouse_dsn))
    begun: list[str] = []
    everybody, over = threading.Barrier(8), threading.Event()

    def come(run: str) -> None:
        everybody.wait(60)
        with PostgresPresences(warehouse_dsn).hold(batch_id, run, PATIENCE) as other:
            if other is None:
                begun.append(run)
                over.wait(60)
            else:
                left.release()

    left = threading.Semaphore(0)
    threads = [threading.Thread(target=come, args=(f"run-{number}",), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(7):
        assert left.acquire(timeout=60)
    over.set()
    for thread in threads:
        thread.join(60)
    assert len(begun) == 1


def test_statement_of_a_killed_publication_ends_with_its_process(warehouse_dsn: str) -> None:
    """Otherwise the run that takes over waits for as long as the insertion of a large batch takes, or gives up."""
    ledger = PostgresLedger(warehouse_dsn)
    attempt = ledger.open_attempt(plan_batch(ledger), "killed")
    ours, theirs = fork_server().Pipe()
    process = fork_server().Process(target=_publish_for_long, args=(warehouse_dsn, attempt, theirs), daemon=True)
    process.start()
    assert ours.poll(60)
    process.kill()
    process.join(30)
    assert ledger.open_attempt(attempt.batch.batch_id, "next").number == 2


def _publish_for_long(dsn: str, attempt: Attempt, channel: Connection) -> None:
    with PostgresLedger(dsn).publication(attempt, BatchState.PLANNED) as publication:
        channel.send("in the publication")
        publication.connection.execute("select pg_sleep(60)")
