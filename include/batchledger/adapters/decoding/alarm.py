"""How long decoding may take: after that, the kernel ends this process by SIGALRM.

A wait for a registry, a ledger or a compiler has bounds of its own. It stops the clock, since no record is to blame.
"""

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
