"""Follow an attempt while it is staged, and tell how far it is.

The follower looks from a thread of its own, each time over connections of its own, and ends with the step. It never
fails the step, and holds it up only for a look that does not come back (``LEAVE_WITHIN_SECONDS``). A step that is over
within the first interval is never looked at.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread

from batchledger.model.batch import Attempt
from batchledger.model.errors import BatchledgerError
from batchledger.model.offsets import count_offsets
from batchledger.model.progress import Progress, Reading

logger = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0
LEAVE_WITHIN_SECONDS = 1.0
# Evidence of a compacted topic may be a million ranges; to count them takes the database a second.
REST_FOR_EACH_SECOND = 20.0

Look = Callable[[], Reading]
"""Says what was read so far. Raises BatchledgerError when that cannot be learnt now."""

Tell = Callable[[Progress], None]
"""Shows one progress."""

Follow = Callable[[Attempt, Look], AbstractContextManager[None]]
"""Follows an attempt for the duration of the block."""


@contextmanager
def follow_nothing(attempt: Attempt, look: Look) -> Iterator[None]:  # noqa: ARG001 -- the signature of Follow
    """Tell nobody."""
    yield


@contextmanager
def log_progress(attempt: Attempt) -> Iterator[Tell]:
    """Write a line into the log each time."""
    yield lambda progress: logger.info("%s attempt %d: %s", attempt.batch.label, attempt.number, progress)


@dataclass(frozen=True)
class Follower:
    """Looks each ``interval_seconds``, for the first time after one, and tells what it has learnt.

    After a look that took long it rests ``REST_FOR_EACH_SECOND``: the database has the batch to work for.
    ``display`` is entered when there is something to tell and left when the step is over, both in the follower's
    thread. ``wait`` waits for an event, so many seconds at most, and says whether it has happened.
    """

    display: Callable[[Attempt], AbstractContextManager[Tell]]
    interval_seconds: float
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[Event, float], bool] = Event.wait

    @contextmanager
    def follow(self, attempt: Attempt, look: Look) -> Iterator[None]:
        """See ``Follow``."""
        over = Event()
        # In the context of the step, in which Airflow's log finds the names of run and task.
        work = partial(copy_context().run, self._run, attempt, look, over)
        # A daemon: a process that ends does not wait for a database that does not answer.
        thread = Thread(target=work, name=f"follow {attempt.batch.label}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(LEAVE_WITHIN_SECONDS)

    def _run(self, attempt: Attempt, look: Look, over: Event) -> None:
        try:
            self._tell_until(over, attempt, look)
        except Exception:
            logger.warning("%s is not followed any more; it goes on", attempt.batch.label, exc_info=True)

    def _tell_until(self, over: Event, attempt: Attempt, look: Look) -> None:
        progress, looked_at = Progress(0, count_offsets(attempt.batch.ranges), 0.0), self.clock()
        tell: Tell | None = None
        rest = self.interval_seconds
        with ExitStack() as shown:
            while not self.wait(over, rest):
                begun_at = self.clock()
                try:
                    reading = look()
                except BatchledgerError:
                    # A database that is down for a moment: the next look tells more.
                    continue
                finally:
                    now = self.clock()
                    rest = max(self.interval_seconds, REST_FOR_EACH_SECOND * (now - begun_at))
                progress, looked_at = progress.advance(reading, now - looked_at), now
                if over.is_set():
                    return
                tell = tell or shown.enter_context(self.display(attempt))
                tell(progress)


def follow_in_log() -> Follow:
    """Return what follows an attempt in the log."""
    return Follower(log_progress, LOG_INTERVAL_SECONDS).follow
