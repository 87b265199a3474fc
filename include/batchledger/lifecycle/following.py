"""Follow an attempt while it is staged, and show its progress.

The follower looks from a thread of its own, each time over connections of its own, and ends with the step. It never
fails the step, and delays it only for a look that does not come back (``LEAVE_WITHIN_SECONDS``). A step that ends
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
# Evidence of a compacted topic may be a million ranges, and the database needs a second to count them.
REST_FOR_EACH_SECOND = 20.0

Look = Callable[[], Reading]
"""Returns what was read so far. Raises BatchledgerError if that is unknown now."""

Tell = Callable[[Progress], None]
"""Shows one progress."""

Follow = Callable[[Attempt, Look], AbstractContextManager[None]]
"""Follows an attempt for the duration of the block."""


@contextmanager
def follow_nothing(attempt: Attempt, look: Look) -> Iterator[None]:  # noqa: ARG001 -- the signature of Follow
    """Show nothing."""
    yield


@contextmanager
def log_progress(attempt: Attempt) -> Iterator[Tell]:
    """Write a line into the log for each look."""
    yield lambda progress: logger.info("%s attempt %d: %s", attempt.batch.label, attempt.number, progress)


@dataclass(frozen=True)
class Follower:
    """Looks each ``interval_seconds``, for the first time after one, and shows the progress.

    After a slow look it rests ``REST_FOR_EACH_SECOND``: the database has to serve the batch. ``display`` is entered for
    the first progress and left when the step is over, both in the follower's thread. ``wait`` waits for an event, for
    at most so many seconds, and returns whether it has happened.
    """

    display: Callable[[Attempt], AbstractContextManager[Tell]]
    interval_seconds: float
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[Event, float], bool] = Event.wait

    @contextmanager
    def follow(self, attempt: Attempt, look: Look) -> Iterator[None]:
        """See ``Follow``."""
        over = Event()
        # Airflow's log finds the names of run and task in the context of the step.
        work = partial(copy_context().run, self._run, attempt, look, over)
        # A daemon: it keeps no process alive if the database does not answer.
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
                    # The database may be down for a moment. The next look tries again.
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
    """Return a ``Follow`` that writes to the log."""
    return Follower(log_progress, LOG_INTERVAL_SECONDS).follow
