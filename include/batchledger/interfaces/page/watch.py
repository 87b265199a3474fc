"""What takes longer than a page may is found beside it: once for all who look, and only while one of them does."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Generic, TypeVar

from batchledger.model.errors import BatchledgerError

logger = logging.getLogger(__name__)

# What takes long to find is found again later, so that it takes no more than a fifth of the time.
PAUSE_FOR_EACH_SECOND = 4.0
LONGEST_PAUSE_SECONDS = 30.0
# How long a search waits for its turn.
LONGEST_WAIT_SECONDS = 2.0

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Sight(Generic[Value]):
    """The newest value, and when it was found; None before the first. ``error`` is why there is no newer one."""

    value: Value | None = None
    found_at: datetime | None = None
    error: str | None = None


class Watch(Generic[Value]):
    """A value that is found again when a person looks and it is older than ``fresh_seconds``; by one thread at a time.

    What takes long is left alone for ``PAUSE_FOR_EACH_SECOND`` times as long, ``LONGEST_PAUSE_SECONDS`` at most. When
    ``fresh_seconds`` is 4, what was found in 0.5 s is looked for again 4 s after that began, and what took 2 s, 8 s
    after it ended. ``find`` is given the value before, None at first. When it raises, the value stays and the error
    stands beside it.

    Watches with the same ``turn`` look one after the other: Python runs one thread at a time, and each more that wants
    to run keeps pages waiting longer. One that waits for a service which does not answer holds the others up for
    ``LONGEST_WAIT_SECONDS`` at most, and after its first error not at all.
    """

    def __init__(
        self, find: Callable[[Value | None], Value], fresh_seconds: float, turn: "threading.Lock | None" = None
    ) -> None:
        self._find = find
        self._fresh_seconds = fresh_seconds
        self._turn = turn or threading.Lock()
        self._lock = threading.Lock()
        self._sight: Sight[Value] = Sight()
        # By the monotonic clock; None when the next look shall find the value again, whenever that is.
        self._due_at: float | None = None
        self._done = threading.Event()
        self._done.set()
        self._began_late = False

    def look(self, patience_seconds: float) -> Sight[Value]:
        """Return what is known, after waiting a little for what is being found when that is nothing, or from long ago.

        A value that no person has looked at since it was due, ``fresh_seconds`` late or later, is from long ago, too.
        All who look while it is found again wait.
        """
        with self._lock:
            now = monotonic()
            is_late = self._due_at is None or now >= self._due_at + self._fresh_seconds
            if self._done.is_set():
                self._began_late = is_late
                if self._due_at is None or now >= self._due_at:
                    self._begin()
            is_late, sight = is_late or self._began_late, self._sight
        if is_late or sight.value is None or sight.error is not None:
            self._done.wait(patience_seconds)
        return self._sight

    def expire(self) -> None:
        """Let the next look find the value again, because a person has just changed what it is made of."""
        with self._lock:
            self._due_at = None

    def _begin(self) -> None:
        self._due_at = monotonic() + self._fresh_seconds
        self._done.clear()
        # A thread that hangs, because a broker does not answer, shall not hold up the end of the process.
        thread = threading.Thread(target=self._find_again, name="batchledger-watch", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There are too many threads. The next look tries again.
            self._done.set()
            raise

    def _find_again(self) -> None:
        before = self._sight
        try:
            with self._my_turn() if before.error is None else nullcontext():
                began_at = monotonic()
                self._sight = Sight(self._find(before.value), datetime.now(UTC))
                self._rest(monotonic() - began_at)
        except BatchledgerError as error:
            self._sight = Sight(before.value, before.found_at, str(error))
        except Exception:
            logger.exception("something that a page shows could not be found")
            reason = "an error of the page itself; the log of Airflow's API server has it"
            self._sight = Sight(before.value, before.found_at, reason)
        finally:
            self._done.set()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        is_mine = self._turn.acquire(timeout=LONGEST_WAIT_SECONDS)
        try:
            yield
        finally:
            if is_mine:
                self._turn.release()

    def _rest(self, took_seconds: float) -> None:
        """Put the next search off, except for one that a person has asked for meanwhile."""
        with self._lock:
            if self._due_at is not None:
                pause_seconds = min(PAUSE_FOR_EACH_SECOND * took_seconds, LONGEST_PAUSE_SECONDS)
                self._due_at = max(self._due_at, monotonic() + pause_seconds)
