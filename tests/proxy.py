"""A TCP proxy before one Kafka broker that loses chosen requests or answers, so that faults happen exactly as planned.

It understands no more of Kafka's protocol than the frames, the kind of a request (its first two bytes), the number that
an answer has in common with its request, and the broker's own address, which it replaces by its own wherever an answer
names it: clients then come back through the proxy.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from threading import Thread

HOST = b"127.0.0.1"
PRODUCE = struct.pack(">h", 0)


class Loss(Enum):
    """What the next request to produce suffers."""

    REQUEST = "it never reaches the broker; the client's connection stays"
    ANSWER = "the broker handles it, then the connection is cut before the answer"


@dataclass
class LossyProxy:
    """Passes everything on but its ``losses``, each once, in order; ``lost`` counts them.

    ``broker`` is what a client needs to reach the broker without this proxy.
    """

    broker: Mapping[str, str] = field(repr=False)
    losses: list[Loss]
    lost: int = 0
    listener: socket.socket = field(default_factory=lambda: socket.create_server((HOST.decode(), 0)))

    @property
    def options(self) -> dict[str, str]:
        """What a client needs to come through this proxy."""
        return {**self.broker, "bootstrap.servers": f"{HOST.decode()}:{self._port}"}

    @property
    def _port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def _broker_port(self) -> int:
        return int(self.broker["bootstrap.servers"].rpartition(":")[2])

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        """Carry one connection's requests to the broker while another thread carries the answers back."""
        doomed: set[bytes] = set()
        broker = socket.create_connection((HOST.decode(), self._broker_port))
        Thread(target=self._pass_back, args=(broker, client, doomed), daemon=True).start()
        with client, broker, suppress(OSError):
            for request in _read_frames(client):
                loss = self.losses.pop(0) if request[:2] == PRODUCE and self.losses else None
                self.lost += loss is not None
                if loss is Loss.ANSWER:
                    doomed.add(request[4:8])
                if loss is not Loss.REQUEST:
                    _write_frame(broker, request)

    def _pass_back(self, broker: socket.socket, client: socket.socket, doomed: set[bytes]) -> None:
        with suppress(OSError):
            for answer in _read_frames(broker):
                if answer[:4] in doomed:
                    break
                _write_frame(client, answer.replace(_address(self._broker_port), _address(self._port)))
        for each in (client, broker):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def lossy_proxy(broker: Mapping[str, str], *losses: Loss) -> Iterator[LossyProxy]:
    """Run a proxy before the broker that a client with these options reaches, for the duration of the block."""
    proxy = LossyProxy(broker, list(losses))
    thread = Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.listener.shutdown(socket.SHUT_RDWR)
        proxy.listener.close()
        thread.join(10)


def _read_frames(stream: socket.socket) -> Iterator[bytes]:
    while True:
        (length,) = struct.unpack(">i", _read_exactly(stream, 4))
        yield _read_exactly(stream, length)


def _read_exactly(stream: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = stream.recv(length)
        if not part:
            raise ConnectionResetError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _write_frame(stream: socket.socket, frame: bytes) -> None:
    stream.sendall(struct.pack(">i", len(frame)) + frame)


def _address(port: int) -> bytes:
    return HOST + struct.pack(">i", port)
