"""Clients of smtplib that end: one deadline over a whole conversation, and a bound on what the server says.

smtplib bounds each wait for itself, and takes lines as long as the server goes on with them.
"""

import smtplib
import socket
from time import monotonic
from typing import IO

from typing_extensions import override

from batchledger.bounds.socket_deadline import SocketDeadline

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
    """A client whose connection is shut when ``timeout`` seconds are over."""

    bytes_left = MOST_BYTES
    # It never begins: a client has one of its own from its connection on.
    _deadline = SocketDeadline()

    # typeshed does not know it.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        began = monotonic()
        opened: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._deadline = SocketDeadline()
        self._deadline.start(timeout - (monotonic() - began))
        self._deadline.watch(opened)
        return opened

    @override
    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"), self)
        try:
            return super().getreply()
        except smtplib.SMTPServerDisconnected:
            if not self._deadline.is_over:
                raise
            raise TimeoutError from None

    @override
    def close(self) -> None:
        super().close()
        self._deadline.close()


class BoundedSmtpOverTls(smtplib.SMTP_SSL, BoundedSmtp):
    """The same, encrypted from the first byte: the handshake is within the deadline, too."""

    @override
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        try:
            return super()._get_socket(host, port, timeout)
        except OSError:
            self.close()
            if not self._deadline.is_over:
                raise
            raise TimeoutError from None
