"""One deadline over everything that a conversation waits for.

Libraries bound each wait for itself, so they would wait for ever for a server that sends a byte now and then. Here a
timer shuts the connection at the deadline, and any wait for the server then ends at once.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from threading import Timer
from time import monotonic


@dataclass
class SocketDeadline:
    """Shuts the connection that it watches when the seconds are over; another conversation may start it again."""

    _ends_at: float = inf
    _timer: Timer | None = None
    _handle: socket.socket | None = None

    @property
    def is_over(self) -> bool:
        """Whether the connection was or will be shut: what it has answered may be cut off."""
        return monotonic() >= self._ends_at

    def start(self, seconds: float) -> None:
        """Let the time begin, before there is a connection or with one that is watched already."""
        self._ends_at = monotonic() + seconds
        self._timer = Timer(seconds, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, opened: socket.socket) -> None:
        """Watch a connection in place of the one before, by a second handle: TLS takes the first one over."""
        self._let_go()
        self._handle = socket.socket(fileno=os.dup(opened.fileno()))
        if self.is_over:
            self._shut()

    def stop(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """End the timer, and let the connection go."""
        self.stop()
        self._let_go()

    def _let_go(self) -> None:
        if self._handle is not None:
            self._handle.close()

    def _shut(self) -> None:
        if self._handle is not None:
            # The server, or the handle, may have gone before.
            with suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)
