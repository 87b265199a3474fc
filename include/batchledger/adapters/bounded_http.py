"""Requests over HTTP that end: one deadline over all of it, and a bound on the answer.

httpx bounds each wait for itself, so it would wait for ever for a server that sends a byte now and then, and keep an
answer that goes on. Here the deadline counts from the look-up of the name to the last byte of the answer. No address
gets into a log, because it may hold a secret.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal


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


@dataclass(frozen=True)
class BoundedClient:
    """Connections that are kept between requests, until the block of ``open_client`` ends."""

    portal: BlockingPortal
    client: httpx.AsyncClient

    def send(self, method: str, url: str, *, seconds: float, most_bytes: int, **request: Any) -> Answer:
        """Return the answer; with ``most_bytes`` 0 the status alone, as soon as it is there.

        Follows no redirection. Raises TimeoutError after ``seconds``, AnswerTooLargeError, httpx.HTTPError and
        httpx.InvalidURL.
        """
        # It logs the address of every request.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        ask = partial(self.client.stream, method, url, **request)
        return self.portal.call(_send, ask, seconds, most_bytes)


@contextmanager
def open_client(**settings: Any) -> Iterator[BoundedClient]:
    """Open a client with settings of httpx: ``verify``, ``auth``, ``headers``. It may be used in any thread."""
    # The answer is taken as it comes: a few bytes that are compressed could become any number.
    settings["headers"] = {"Accept-Encoding": "identity", **settings.get("headers", {})}
    with start_blocking_portal() as portal:
        # Its bounds on single waits would only hide which one is over.
        client = httpx.AsyncClient(**settings, timeout=httpx.Timeout(None), follow_redirects=False)
        with portal.wrap_async_context_manager(client):
            yield BoundedClient(portal, client)


async def _send(
    ask: Callable[[], AbstractAsyncContextManager[httpx.Response]], seconds: float, most_bytes: int
) -> Answer:
    with anyio.fail_after(seconds):
        async with ask() as answer:
            content = bytearray()
            if most_bytes:
                async for part in answer.aiter_raw():
                    content += part
                    if len(content) > most_bytes:
                        raise AnswerTooLargeError(answer.status_code)
            return Answer(answer.status_code, bytes(content))
