"""Clients of smtplib that end: one deadline over a whole conversation, and a bound on what the server says.

smtplib bounds each wait for itself, and takes lines as long as the server goes on with them.
"""

import os
import smtplib
import socket
from contextlib import suppress
from threading import Timer
from time import monotonic
from typing import IO

from typing_extensions import override

MOST_BYTES = 2**18
"""What a server may say in a whole conversation; a usual one says less than 4 KiB."""


class _Replies:
    """The lines of a server, as many as are allowed."""

    def __init__(self, lines: IO[bytes], client: "BoundedSmtp") -> None:
        self._lines, self._client = lines, client

    def readline(self, limit: int) -> bytes:
        """Return the next line. Raises OSError if the server says too much."""
        line = self._lines.readline(limit)
        self._client.bytes_left -= len(line)
        if self._client.bytes_left < 0:
            raise OSError(f"the server sends more than {MOST_BYTES} bytes")
        return line

    def close(self) -> None:
        """Let the connection go."""
        self._lines.close()


class BoundedSmtp(smtplib.SMTP):
    """A client whose connection is shut when ``timeout`` seconds are over: a wait for the server then ends at once."""

    bytes_left = MOST_BYTES
    _guard: Timer | None = None

    # typeshed does not know it.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._ends_at = monotonic() + timeout
        opened: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        # A second handle of the connection: TLS takes the first one over.
        handle = socket.socket(fileno=os.dup(opened.fileno()))
        self._guard = Timer(max(0.0, self._ends_at - monotonic()), _shut, [handle])
        self._guard.daemon = True
        self._guard.start()
        self._handle = handle
        return opened

    @override
    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"), self)
        try:
            return super().getreply()
        except smtplib.SMTPServerDisconnected:
            if monotonic() < self._ends_at:
                raise
            raise TimeoutError from None

    @override
    def close(self) -> None:
        super().close()
        if self._guard is not None:
            self._guard.cancel()
            self._handle.close()


class BoundedSmtpOverTls(smtplib.SMTP_SSL, BoundedSmtp):
    """The same, encrypted from the first byte: the handshake is within the deadline, too."""

    @override
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        try:
            return super()._get_socket(host, port, timeout)
        except OSError:
            self.close()
            if monotonic() < self._ends_at:
                raise
            raise TimeoutError from None


def _shut(handle: socket.socket) -> None:
    """End every wait for the server; it may have gone before."""
    with suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
