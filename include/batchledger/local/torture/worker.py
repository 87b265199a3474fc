"""Processes that run batches like a task of Airflow or the command line, and that can be ended at any point.

They are forked from a server with the heavy libraries loaded, so that a worker starts in a fraction of a second. At
each of its gates a worker stops, says so and waits for permission to go on. There it can be killed or paused, or a
fault can strike elsewhere. The platform knows nothing of this: a gate is a crash hook.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Self

from batchledger.local.torture.sabotage import build_platform_without
from batchledger.local.torture.schedule import Protection
from batchledger.model.batch import Decision, DeliveryMode
from batchledger.model.errors import BatchBlockedError, BatchledgerError, FencedError, RowsLostError, StagingLostError
from batchledger.model.presence import NO_PATIENCE

PRELOADED = (
    "batchledger.cli",
    "batchledger.wiring",
    "batchledger.checks.integrity",
    "batchledger.source.spark.stager",
    "batchledger.source.spark.session",
    "batchledger.local.torture.sabotage",
    "airflow.providers.apache.spark.hooks.spark_connect",
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker has to do. ``without`` names the protection that is switched off, if one is.

    ``may_lose_staging``: PostgreSQL will crash meanwhile, which empties staging. ``may_be_blocked``: a batch may wait
    for a person; the worker first takes the batch of ``batch_id`` again, as if a person had asked. ``cut_after``: so
    many bytes of a task come through its stream of rows.
    """

    pipeline: str
    run: str
    gates: tuple[str, ...] = ()
    without: Protection | None = None
    may_lose_staging: bool = False
    may_be_blocked: bool = False
    batch_id: int | None = None
    cut_after: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: what it published, its error, and how many streams it cut. A killed worker has no ending."""

    published: tuple[int, ...] = ()
    error: str | None = None
    is_expected: bool = True
    cuts: int = 0


@dataclass
class Worker:
    """A running worker, seen from the process that started it."""

    order: Order
    process: ForkServerProcess
    channel: Connection = field(repr=False)
    ending: Ending | None = None

    def wait_for_gate(self, seconds: float) -> bool:
        """Whether the worker has reached its next gate; False if it ended before, or did neither in time."""
        return self._receive(seconds) and self.ending is None

    def go_on(self) -> None:
        """Let the worker pass its present gate; harmless if it is dead."""
        with contextlib.suppress(OSError):
            self.channel.send(None)

    def wait_for_end(self, seconds: float) -> bool:
        """Open each gate that the worker reaches; whether it ended in time."""
        deadline = time.monotonic() + seconds
        while self.ending is None and self._receive(deadline - time.monotonic()):
            self.go_on()
        self.process.join(max(0.0, deadline - time.monotonic()))
        return not self.process.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, or is paused."""
        return self.process.is_alive()

    def stop(self, seconds: float) -> bool:
        """Send SIGTERM, so that the worker leaves all its blocks; whether it ended in time."""
        self.process.terminate()
        self.process.join(seconds)
        return not self.process.is_alive()

    def kill(self) -> None:
        """SIGKILL; works on a paused worker too."""
        self.process.kill()
        self.process.join(10)

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def _receive(self, seconds: float) -> bool:
        """Take one message; False if none came in time, or if the worker died without one."""
        if not wait([self.channel], max(0.0, seconds)):
            return False
        try:
            message = self.channel.recv()
        except (EOFError, ConnectionResetError):
            return False
        if isinstance(message, Ending):
            self.ending = message
        return True


@dataclass(frozen=True)
class Crew:
    """Starts workers, and ends the remaining ones."""

    log_file: Path
    context: ForkServerContext = field(repr=False)
    workers: list[Worker] = field(default_factory=list)

    @classmethod
    def assemble(cls, log_file: Path) -> Self:
        """Start the server that forks workers; it has the present environment."""
        # A killed worker cannot release its semaphores. Python's tracker does it, and would warn about each.
        os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        return cls(log_file, context)

    def start(self, order: Order) -> Worker:
        """Start a worker."""
        here, there = self.context.Pipe()
        process = self.context.Process(target=_work, args=(order, there, self.log_file), daemon=True)
        process.start()
        there.close()
        worker = Worker(order, process, here)
        self.workers[:] = [*(each for each in self.workers if each.process.is_alive()), worker]
        return worker

    def end_all(self) -> Iterable[Worker]:
        """Kill the remaining workers, paused or not; return them."""
        left = [each for each in self.workers if each.process.is_alive()]
        for each in left:
            each.kill()
        return left


def _work(order: Order, channel: Connection, log_file: Path) -> None:
    """Run batches until nothing is left or an error comes; report the ending."""
    with log_file.open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    # Like a task of Airflow: everything open is closed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    channel.send(_run_batches(order, channel))


def is_expected(error: BatchledgerError, delivery: DeliveryMode, *, may_lose_staging: bool) -> bool:
    """Whether a fault may end a batch with this error. Any other error would need a person."""
    if isinstance(error, StagingLostError):
        return may_lose_staging
    if isinstance(error, RowsLostError):
        return delivery is DeliveryMode.AT_MOST_ONCE
    return error.retryable or isinstance(error, FencedError)


def _run_batches(order: Order, channel: Connection) -> Ending:
    import logging

    from batchledger.config.pipeline_file import load_pipeline
    from batchledger.lifecycle import plans, run_batch
    from batchledger.local.torture.cut_streams import cut_streams
    from batchledger.local.torture.deadly_library import decode_deadly

    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {order.run} %(name)s %(message)s", force=True)
    logger = logging.getLogger("batchledger")
    logger.setLevel(logging.INFO)

    def stop_at_gate(point: str) -> None:
        if point in order.gates:
            channel.send(point)
            channel.recv()

    published: list[int] = []
    pipeline = load_pipeline(order.pipeline)
    cuts = cut_streams(order.cut_after)
    try:
        # All workers begin at once: fencing must not depend on one that leaves a batch to another.
        built = build_platform_without(order.without, pipeline, stop_at_gate)
        platform = dataclasses.replace(
            built, patience=NO_PATIENCE, make_stager=lambda: decode_deadly(built.make_stager())
        )
        if order.batch_id is not None:
            plans.retake(platform, order.batch_id, order.run, Decision("torture", "the target takes it now"))
            published.append(run_batch.take_through(platform, order.batch_id, order.run).batch_id)
        while batch := run_batch.run_once(platform, order.run):
            published.append(batch.batch_id)
    except BatchledgerError as error:
        logger.warning("%s: %s", type(error).__name__, error)
        is_blocked = order.may_be_blocked and isinstance(error, BatchBlockedError)
        expected = is_blocked or is_expected(error, pipeline.delivery, may_lose_staging=order.may_lose_staging)
        return Ending(tuple(published), f"{type(error).__name__}: {error}", expected, len(cuts))
    except Exception as error:
        # The edge of the process: its parent learns of every error.
        logger.exception("unexpected")
        return Ending(tuple(published), f"{type(error).__name__}: {error}", is_expected=False)
    return Ending(tuple(published), cuts=len(cuts))
