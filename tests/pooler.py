"""A pooler as strict as PgBouncer: it refuses a session whose start has ``options``, and passes all others on."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socket import SHUT_WR, create_connection, socket
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typing_extensions import override

_ENCRYPTION_REQUESTS = (80877103, 80877104)
_REFUSAL = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


@contextmanager
def serve_strict_pooler(dsn: str) -> Iterator[str]:
    """Lend the connection string by which ``dsn`` is reached through the pooler."""
    parts = conninfo_to_dict(dsn)

    class Handler(socketserver.BaseRequestHandler):
        @override
        def handle(self) -> None:
            start = _read_start(self.request)
            if b"\0options\0" in start:
                self.request.sendall(b"E" + (len(_REFUSAL) + 4).to_bytes(4, "big") + _REFUSAL)
                return
            with create_connection((parts["host"], int(str(parts["port"])))) as server:
                server.sendall(start)
                answers = threading.Thread(target=_pass_on, args=(server, self.request))
                answers.start()
                _pass_on(self.request, server)
                answers.join()

    class Pooler(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Pooler(("127.0.0.1", 0), Handler) as pooler:
        serving = threading.Thread(target=pooler.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield make_conninfo(dsn, host="127.0.0.1", port=pooler.server_address[1])
        finally:
            pooler.shutdown()
            serving.join()


def _read_start(client: socket) -> bytes:
    """Return the first packet with parameters; encryption is declined before."""
    while True:
        size = client.recv(4, 0x100)  # MSG_WAITALL
        packet = size + client.recv(int.from_bytes(size, "big") - 4, 0x100)
        if int.from_bytes(packet[4:8], "big") not in _ENCRYPTION_REQUESTS:
            return packet
        client.sendall(b"N")


def _pass_on(source: Any, target: Any) -> None:
    try:
        while received := source.recv(65536):
            target.sendall(received)
        target.shutdown(SHUT_WR)
    except OSError:
        target.close()
