"""Run one batch of a pipeline in a process of its own that gets a signal when it passes a named crash point.

SIGKILL: the process really ends there, no handler runs, connections are left to the services to notice. SIGSTOP: it is
paused, as by a hypervisor or a long garbage collection, until it is woken.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

import psutil
import psycopg

from batchledger.config.pipeline_file import load_pipeline
from batchledger.ledger.presence import PostgresPresences
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.platform import Platform
from batchledger.looking import ledger_dsn
from batchledger.model.batch import Batch, Decision
from batchledger.model.errors import BatchledgerError
from batchledger.model.presence import Patience
from batchledger.planning.replay import Replay
from batchledger.wiring import build_platform
from tests.forked import fork_server
from tests.support import staging, wait_until

WAIT_SECONDS = 240


@dataclass(frozen=True)
class Run:
    """A run in a process of its own."""

    process: ForkServerProcess
    outcome: Connection

    def wait_until_killed(self) -> None:
        """Return when SIGKILL has ended it."""
        self.process.join(WAIT_SECONDS)
        assert self.process.exitcode == -signal.SIGKILL, f"the run ended with {self.process.exitcode}, not killed"

    def wait_until_paused(self) -> None:
        """Return when SIGSTOP has stopped it."""
        assert self.process.pid is not None
        observed = psutil.Process(self.process.pid)
        wait_until(lambda: observed.status() == psutil.STATUS_STOPPED, WAIT_SECONDS)

    def wake(self) -> None:
        """Let a paused run go on."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def wait(self) -> str:
        """Return how the run ended: ``done`` or the kind of its error and its message."""
        assert self.outcome.poll(WAIT_SECONDS), "the run did not end"
        text = str(self.outcome.recv())
        self.process.join(WAIT_SECONDS)
        return text


def start_run(
    pipeline: str,
    run: str,
    point: str = "none",
    sent: signal.Signals = signal.SIGKILL,
    batch_id: int | None = None,
    replay: Replay | None = None,
    patience: Patience | None = None,
    stages: bool = False,
) -> Run:
    """Start a run of one batch that gets the signal when it passes the point; with ``replay`` it publishes that.

    ``patience`` with others that are at work, other than the platform's own. ``stages``: no rows stream.
    """
    context = fork_server()
    ours, theirs = context.Pipe(duplex=False)
    arguments = (pipeline, run, point, sent, batch_id, replay, patience, stages, theirs)
    process = context.Process(target=_run, args=arguments, daemon=True)
    process.start()
    theirs.close()
    return Run(process, ours)


@contextmanager
def ending_runs() -> Iterator[None]:
    """Let no run outlive the block, however it is left: SIGTERM, which ends other children, waits in a paused one."""
    try:
        yield
    finally:
        for each in multiprocessing.active_children():
            each.kill()
            each.join(WAIT_SECONDS)


def run_until_killed(
    pipeline: str, run: str, point: str, replay: Replay | None = None, *, stages: bool = False
) -> None:
    """Run one batch; return when it has been killed at the point, and the database knows it."""
    start_run(pipeline, run, point, replay=replay, stages=stages).wait_until_killed()
    wait_until_left_by_the_dead(pipeline)


def wait_until_left_by_the_dead(pipeline: str) -> None:
    """Return when others may take over what a killed run was at work on: within two seconds."""
    dsn = ledger_dsn(load_pipeline(pipeline))
    with psycopg.connect(dsn) as connection:
        query = "select batch_id from batchledger.presence join batchledger.batch using (batch_id) where pipeline = %s"
        batches = [batch_id for (batch_id,) in connection.execute(query, [pipeline])]
    presences = PostgresPresences(dsn)
    wait_until(lambda: not any((found := presences.find(each)) and found.is_held for each in batches), seconds=2)


def publish_again(platform: Platform, replay: Replay, run: str) -> Batch:
    """Take a replay through its whole life; a run that is repeated goes on with its own."""
    batch = plans.plan_replay(platform, replay, run, Decision("ana@host", "the transform was wrong"), key=run)
    assert batch is not None
    return run_batch.take_through(platform, batch.batch_id, run)


def _run(
    pipeline: str,
    run: str,
    fatal_point: str,
    sent: signal.Signals,
    batch_id: int | None,
    replay: Replay | None,
    patience: Patience | None,
    stages: bool,
    outcome: Connection,
) -> None:
    platform = build_platform(load_pipeline(pipeline), crash=_signal_at(fatal_point, sent))
    platform = replace(staging(platform) if stages else platform, patience=patience or platform.patience)
    try:
        if replay is None:
            run_batch.run_once(platform, run, batch_id)
        else:
            publish_again(platform, replay, run)
        outcome.send("done")
    except BatchledgerError as error:
        outcome.send(f"{type(error).__name__}: {error}")


def _signal_at(fatal_point: str, sent: signal.Signals) -> Callable[[str], None]:
    def crash(point: str) -> None:
        if point == fatal_point:
            os.kill(os.getpid(), sent)

    return crash
