"""A proxy that ends TLS, as one stands before a Spark Connect server, which has no TLS of its own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"


@dataclass
class TlsProxy:
    """Forwards bytes to a port of this machine. ``received`` are those that clients have sent."""

    to_port: int
    port: int = 0
    received: bytearray = field(default_factory=bytearray)

    async def handle(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Forward one connection until both sides have ended it."""
        server, to_server = await asyncio.open_connection(HOST, self.to_port)
        await asyncio.gather(self._forward(client, to_server, self.received), self._forward(server, to_client))

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, seen: bytearray | None = None
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if seen is not None:
                    seen += data
                target.write(data)
                await target.drain()
        target.close()


@contextmanager
def serve_tls_proxy(
    to_port: int, certificate: tuple[Path, Path], authority_of_clients: Path | None = None
) -> Iterator[TlsProxy]:
    """Serve HTTP/2 over TLS for the duration of the block. Clients need a certificate if an authority is given."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority_of_clients)
    tls.load_cert_chain(*certificate)
    tls.set_alpn_protocols(["h2"])
    if authority_of_clients is not None:
        tls.verify_mode = ssl.CERT_REQUIRED
    proxy, is_up, is_over = TlsProxy(to_port), threading.Event(), asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(proxy.handle, HOST, 0, ssl=tls)
        proxy.port = server.sockets[0].getsockname()[1]
        is_up.set()
        await is_over.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    is_up.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()
