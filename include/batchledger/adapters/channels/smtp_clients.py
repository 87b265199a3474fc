"""Clients of smtplib that end: one deadline over a whole conversation, and a bound on what the server says.

smtplib bounds each wait for itself, and takes lines as long as the server goes on with them.
"""

import os
import smtplib
import socket
from threading import Timer
from time import monotonic
from typing import IO, Any

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

    def __init__(self, *, timeout: float, **settings: Any) -> None:
        self.bytes_left = MOST_BYTES
        self._ends_at = monotonic() + timeout
        self._guard: Timer | None = None
        super().__init__(timeout=timeout, **settings)

    # typeshed does not know it.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        opened: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        # A second handle of the connection: TLS takes the first one over.
        handle = socket.socket(fileno=os.dup(opened.fileno()))
        self._guard = Timer(max(0.0, self._ends_at - monotonic()), handle.shutdown, [socket.SHUT_RDWR])
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


class BoundedSmtpOverTls(BoundedSmtp, smtplib.SMTP_SSL):
    """The same, encrypted from the first byte."""
