"""A TCP proxy that can cut, delay and hold up connections, and lose the reply to a COMMIT.

One event loop in a thread of its own serves all links. Knows nothing of Kafka; it knows only PostgreSQL's COMMIT.
Everything listens and connects on 127.0.0.1 only.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from batchledger.local.stack.machine import HOST

_CHUNK_BYTES = 65_536
_COMMIT = b"COMMIT\0"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Tunnel:
    """A client's connection, and the connection to the service that was opened for it."""

    client: asyncio.StreamWriter
    service: asyncio.StreamWriter
    loses_reply: bool = False

    def cut(self) -> None:
        """End both sides with a reset, like a machine that has restarted."""
        for writer in (self.client, self.service):
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


@dataclass(eq=False)
class Link:
    """The way to one service: ``port`` is where clients connect, ``target`` where the service listens."""

    port: int
    target: int
    loop: asyncio.AbstractEventLoop = field(repr=False)
    _tunnels: set[_Tunnel] = field(default_factory=set, repr=False)
    _server: asyncio.Server | None = field(default=None, repr=False)
    _delay_seconds: float = 0.0
    _flows: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    _must_lose_reply: bool = False
    _has_lost_reply: threading.Event = field(default_factory=threading.Event, repr=False)

    def cut(self) -> int:
        """Reset every connection; new ones get through. Return how many were reset."""
        return self._call(self._cut)

    def delay(self, seconds: float) -> None:
        """Delay all data by so many seconds, in both directions, until ``heal``."""
        self._call(lambda: self._hold_back(seconds))

    def black_hole(self) -> int:
        """Accept connections and data, and let nothing through, until ``heal``. Return the number of connections."""
        return self._call(self._hold_up)

    def lose_next_commit_reply(self) -> threading.Event:
        """Let the next COMMIT through, then cut its connection before the reply.

        The returned event is set when that has happened.
        """
        self._has_lost_reply = threading.Event()
        self._call(self._await_commit)
        return self._has_lost_reply

    def heal(self) -> int:
        """Undo everything; connections that were held up are reset, because their data is lost.

        Return how many these were.
        """
        return self._call(self._heal)

    async def open(self) -> None:
        """Listen."""
        self._flows.set()
        self._server = await asyncio.start_server(self._connect, HOST, self.port)

    async def close(self) -> None:
        """Listen no more, and end every connection."""
        if self._server is not None:
            self._server.close()
        self._flows.set()
        while self._tunnels:
            self._cut()
            await asyncio.sleep(0.01)

    def _call(self, act: Callable[[], int]) -> int:
        """Do it in the loop's thread; return how many connections it concerned."""

        async def run() -> int:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def _hold_back(self, seconds: float) -> int:
        self._delay_seconds = seconds
        return len(self._tunnels)

    def _hold_up(self) -> int:
        self._flows.clear()
        return len(self._tunnels)

    def _await_commit(self) -> int:
        self._must_lose_reply = True
        return len(self._tunnels)

    def _cut(self) -> int:
        for tunnel in self._tunnels:
            tunnel.cut()
        return len(self._tunnels)

    def _heal(self) -> int:
        self._delay_seconds, self._must_lose_reply = 0.0, False
        if self._flows.is_set():
            return 0
        held_up = self._cut()
        self._flows.set()
        return held_up

    async def _connect(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            service_reader, service = await asyncio.open_connection(HOST, self.target)
        except OSError:
            client.transport.abort()
            return
        tunnel = _Tunnel(client, service)
        self._tunnels.add(tunnel)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(client_reader, service, tunnel, is_reply=False))
                group.create_task(self._pump(service_reader, client, tunnel, is_reply=True))
        except* OSError:
            tunnel.cut()
        finally:
            self._tunnels.discard(tunnel)
            client.close()
            service.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: _Tunnel, *, is_reply: bool
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            await self._flows.wait()
            if is_reply and tunnel.loses_reply:
                self._has_lost_reply.set()
                raise ConnectionResetError
            if not is_reply and self._must_lose_reply and _COMMIT in chunk:
                self._must_lose_reply, tunnel.loses_reply = False, True
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


@contextlib.contextmanager
def run_proxy(target_by_port: Mapping[int, int]) -> Iterator[list[Link]]:
    """Run one link for each entry, in their order, for the length of the block."""
    loop = asyncio.new_event_loop()
    links = [Link(port, target, loop) for port, target in target_by_port.items()]
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    try:
        for link in links:
            asyncio.run_coroutine_threadsafe(link.open(), loop).result(10)
        yield links
    finally:
        for link in links:
            asyncio.run_coroutine_threadsafe(link.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
