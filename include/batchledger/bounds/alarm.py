"""How long decoding, and each step of a task, may take; after that, this process ends.

Decoding: the kernel ends the process by SIGALRM. A wait for a registry, a ledger or a compiler has bounds of its own.
It stops the clock, since no record is to blame.
"""

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Alarm:
    """The one alarm that a process has. Others may use it while ``is_set`` is false."""

    is_set: bool = False

    @contextmanager
    def after(self, seconds: float) -> Iterator[None]:
        """End this process unless the block ends in time."""
        signal.setitimer(signal.ITIMER_REAL, seconds)
        self.is_set = True
        try:
            yield
        finally:
            self.is_set = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop the clock until the block ends, if it runs."""
        if not self.is_set:
            yield
            return
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, left)


ALARM = Alarm()

STEP_SECONDS = 600.0
"""How long a task may read, decode and write some thousand records, or wait until a transform gives or takes them."""


@dataclass
class Steps:
    """The steps of the task that this process runs. A thread without Python watches them, whatever holds Python up."""

    seconds: float | None = None

    @contextmanager
    def bounded(self, seconds: float) -> Iterator[None]:
        """End this process, with the lines that it is in on standard error, if a step of the block takes longer."""
        self.seconds = seconds
        self.made()
        try:
            yield
        finally:
            self.seconds = None
            faulthandler.cancel_dump_traceback_later()

    def made(self) -> None:
        """Begin the next step. Outside of such a block nothing is bounded."""
        if self.seconds is not None:
            faulthandler.dump_traceback_later(self.seconds, exit=True)


STEPS = Steps()
