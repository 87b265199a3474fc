"""Requests over HTTP that end: one deadline over all of it, and a bound on the answer.

httpx bounds each wait for itself, and would keep an answer that goes on. The look-up of a name alone has the bound of
the machine's resolver. No address gets into a log, because it may hold a secret.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from batchledger.bounds.socket_deadline import SocketDeadline


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
    deadline: SocketDeadline = field(default_factory=SocketDeadline)

    def send(self, method: str, url: str, *, seconds: float, most_bytes: int, **request: Any) -> Answer:
        """Return the answer; with ``most_bytes`` 0 the status alone, as soon as it is there.

        Follows no redirection. Raises TimeoutError after ``seconds``, AnswerTooLargeError, httpx.HTTPError and
        httpx.InvalidURL.
        """
        if seconds <= 0:
            raise TimeoutError
        # It logs the address of every request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self.deadline.start(seconds)
        try:
            answer = self._send(method, url, most_bytes, timeout=seconds, extensions={"trace": self._note}, **request)
        except httpx.TimeoutException:
            raise TimeoutError from None
        except httpx.TransportError:
            if not self.deadline.is_over:
                raise
            raise TimeoutError from None
        finally:
            self.deadline.stop()
        if self.deadline.is_over:
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
        if event == "connection.connect_tcp.complete":
            self.deadline.watch(facts["return_value"].get_extra_info("socket"))


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
            bounded.deadline.close()
