"""Requests over HTTP that end: one deadline over all of it, and a bound on the answer.

httpx bounds each wait for itself, so it would wait for ever for a server that sends a byte now and then, and keep an
answer that goes on. Here a timer shuts the connection at the deadline, and any wait for the server then ends at once.
The look-up of a name alone has the bound of the machine's resolver. No address gets into a log, because it may hold a
secret.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from time import monotonic
from typing import Any

import httpx


class AnswerTooLargeError(Exception):
    """An answer with this ``status`` goes on beyond its bound."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """The status of an answer, and its content."""

    status: int
    content: bytes = field(repr=False)


@dataclass
class BoundedClient:
    """Asks one request after the other, of one server; the connection is kept until ``open_client`` ends."""

    client: httpx.Client
    _handle: socket.socket | None = None
    _is_over: bool = False

    def send(self, method: str, url: str, *, seconds: float, most_bytes: int, **request: Any) -> Answer:
        """Return the answer; with ``most_bytes`` 0 the status alone, as soon as it is there.

        Follows no redirection. Raises TimeoutError after ``seconds``, AnswerTooLargeError, httpx.HTTPError and
        httpx.InvalidURL.
        """
        if seconds <= 0:
            raise TimeoutError
        # It logs the address of every request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        ends_at, self._is_over = monotonic() + seconds, False
        guard = Timer(seconds, self._shut)
        guard.daemon = True
        guard.start()
        try:
            answer = self._send(method, url, most_bytes, timeout=seconds, extensions={"trace": self._note}, **request)
        except httpx.TimeoutException:
            raise TimeoutError from None
        except httpx.TransportError:
            if monotonic() < ends_at:
                raise
            raise TimeoutError from None
        finally:
            guard.cancel()
        if self._is_over:
            # A connection that is shut looks like the end of an answer.
            raise TimeoutError
        return answer

    def _send(self, method: str, url: str, most_bytes: int, **request: Any) -> Answer:
        with self.client.stream(method, url, **request) as answer:
            content = bytearray()
            for part in answer.iter_raw() if most_bytes else ():
                content += part
                if len(content) > most_bytes:
                    raise AnswerTooLargeError(answer.status_code)
            return Answer(answer.status_code, bytes(content))

    def _note(self, event: str, facts: Mapping[str, Any]) -> None:
        """Keep a second handle of each new connection: TLS takes the first one over."""
        if event == "connection.connect_tcp.complete":
            self.close()
            opened = facts["return_value"].get_extra_info("socket")
            self._handle = socket.socket(fileno=os.dup(opened.fileno()))
            if self._is_over:
                self._shut()

    def _shut(self) -> None:
        self._is_over = True
        if self._handle is not None:
            with suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the handle go."""
        if self._handle is not None:
            self._handle.close()


@contextmanager
def open_client(**settings: Any) -> Iterator[BoundedClient]:
    """Open a client with settings of httpx: ``verify``, ``auth``, ``headers``."""
    # The answer is taken as it comes: a few bytes that are compressed could become any number.
    settings["headers"] = {"Accept-Encoding": "identity", **settings.get("headers", {})}
    with httpx.Client(**settings, follow_redirects=False) as client:
        bounded = BoundedClient(client)
        try:
            yield bounded
        finally:
            bounded.close()
