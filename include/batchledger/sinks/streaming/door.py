"""The way of rows from Spark's tasks to the process of the step: a door, and what goes through it.

On loopback it is open as it is, to other machines it speaks TLS with a certificate of its own. Both sides prove that
they know the secret of the attempt, and neither says it: each signs what the other has chosen at random. Then a task
sends frames: the size of the data, the number of its rows, the data, which holds whole rows. A size of 0 is the end of
its share, with the number of all rows; the answer says that the share was taken.

Frames are handed on whole, one after the other. If the receiver is slow, the sockets are full and the tasks wait. A
share that breaks off breaks the stream: what it has sent cannot be taken back.
"""

import errno
import hmac
import os
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import pyarrow as pa
from typing_extensions import override

from batchledger.model.errors import StagingError
from batchledger.model.stream_address import StreamAddress
from batchledger.ports import StagingWriter
from batchledger.sinks.streaming.one_certificate import make_client_context, make_server_context

_FRAME = struct.Struct("!QQ")
_HELLO = struct.Struct("!32s32s")
_TAKEN = b"taken"
_KNOCK_SECONDS = 10.0
_KEEPALIVES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_MOST_BYTES = 1 << 30
_MOST_STRANGERS = 256
"""So many connections may be open that have not proved yet that they know the secret."""
_SILENT_MILLISECONDS = 120_000
"""Not shorter: to Linux a database that is slow to take rows is silent, too."""
_LEAST_BUFFER = 64 << 10


class ShareError(ConnectionError):
    """A task has sent what no task sends."""


class RowEncoder(Protocol):
    """Makes the data of frames of the rows of one share."""

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return data of whole rows, perhaps of earlier ones, perhaps none yet."""

    def finish(self) -> bytes:
        """Return the data of the rows that are left."""


@dataclass(frozen=True)
class StreamWriter(StagingWriter):
    """Encodes rows, and sends them through a door; pickled to the executors. Without ``certificate`` in the clear."""

    host: str
    port: int
    secret: bytes = field(repr=False)
    make_encoder: Callable[[], RowEncoder] = field(repr=False)
    certificate: str = field(default="", repr=False)

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """A task that writes nothing tells so, too. Raises StagingError if the step does not take the share."""
        with self._connect(task) as connection:
            encoder = self.make_encoder()
            waiting = rows = 0

            def send(data: bytes) -> None:
                nonlocal waiting
                if data:
                    with _telling():
                        connection.sendall(_FRAME.pack(len(data), waiting))
                        connection.sendall(data)
                    waiting = 0

            def write(batch: pa.RecordBatch) -> None:
                nonlocal waiting, rows
                waiting, rows = waiting + batch.num_rows, rows + batch.num_rows
                send(encoder.encode(batch))

            yield write
            send(encoder.finish())
            with _telling():
                connection.sendall(_FRAME.pack(0, rows))
                _receive(connection, len(_TAKEN))

    @contextmanager
    def _connect(self, task: int) -> Iterator[socket.socket]:
        with _telling(f"{self.host}:{self.port}"):
            connection = socket.create_connection((self.host, self.port), _KNOCK_SECONDS)
        with ExitStack() as opened:
            opened.enter_context(connection)
            with _telling():
                _watch(connection, sends=bool(self.certificate))
                if self.certificate:
                    connection = make_client_context(self.certificate).wrap_socket(connection)
                    opened.enter_context(connection)
                _knock(connection, self.secret, task)
            connection.settimeout(None)
            yield connection


@contextmanager
def _telling(unreached: str = "") -> Iterator[None]:
    """Raise StagingError for an OSError; ``unreached`` is the address that the block connects to."""
    try:
        yield
    except OSError as error:
        why = str(error) or type(error).__name__
        raise StagingError(
            "A task could not stream its rows to the process of the step. Nothing is visible.",
            why=f"{unreached}: {why}." if unreached else f"{why}.",
            advice="Let Spark's workers reach this address: set stream_host and stream_ports of the Spark connection."
            if unreached
            else "",
        ) from error


def _watch(connection: socket.socket, *, sends: bool = False) -> None:
    """Let a peer whose machine or network has gone count as closed: after 25 s for the side that waits for rows.

    The side that ``sends`` them would wait a quarter of an hour.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_KEEPALIVES, **({"TCP_USER_TIMEOUT": _SILENT_MILLISECONDS} if sends else {})}.items():
        # Not every system has them.
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _knock(connection: socket.socket, secret: bytes, task: int) -> None:
    theirs = _receive(connection, 32)
    ours = os.urandom(32)
    connection.sendall(_HELLO.pack(ours, _sign(secret, b"task", theirs, ours)) + struct.pack("!q", task))
    if not hmac.compare_digest(_receive(connection, 32), _sign(secret, b"step", ours, theirs)):
        raise ConnectionError("another process listens there")


def _sign(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(parts), "sha256")


def _receive(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Return exactly so many bytes. Raises ConnectionError if there are fewer, TimeoutError at the deadline."""
    data = bytearray(size)
    _receive_into(connection, memoryview(data), deadline)
    return bytes(data)


def _receive_into(connection: socket.socket, view: memoryview, deadline: float | None = None) -> None:
    while view:
        if deadline is not None:
            # A byte now and then must not hold a place for ever.
            connection.settimeout(max(0.001, deadline - monotonic()))
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the connection was closed early")
        view = view[received:]


def _receive_frame(connection: socket.socket, buffer: bytearray, size: int) -> None:
    """Fill the beginning of the buffer, which grows with what has come, whatever size a task has named."""
    received = 0
    while received < size:
        if received == len(buffer):
            buffer.extend(bytes(min(len(buffer), size - received)))
        with memoryview(buffer) as whole:
            _receive_into(connection, whole[received : min(size, len(buffer))])
        received = min(size, len(buffer))


class Door:
    """Takes the frames of all tasks of an attempt, and hands each to ``take``, one at a time.

    ``error`` is the first that broke the stream; then nothing more is taken, and every task hears of it by its socket.
    Raises OSError if nothing can be listened on.
    """

    def __init__(self, take: Callable[[memoryview], None], address: StreamAddress) -> None:
        self._take, self.secret = take, os.urandom(32)
        self._host, self._tls, self._certificate = address.host, None, ""
        if not address.is_loopback:
            self._tls, self._certificate = make_server_context()
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._rows_by_task: dict[int, int] = {}
        self._open: dict[int, socket.socket] = {}
        self._admitted: set[int] = set()
        self.arriving = 0
        self.error: Exception | None = None
        self._server = _listen(address, self._serve)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def writer(self, make_encoder: Callable[[], RowEncoder]) -> StreamWriter:
        """Return what sends rows to it; it makes an encoder for each share."""
        port = int(self._server.server_address[1])
        return StreamWriter(self._host, port, self.secret, make_encoder, self._certificate)

    def break_off(self, error: Exception) -> None:
        """Take nothing more, because of ``error``."""
        with self._lock:
            self.error = self.error or error
            for each in self._open.values():
                with suppress(OSError):
                    # Closed by a reset: a task that waits for room in a full buffer would not hear of a mere end.
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    # Not by the method of a TLS socket, which others may be reading from.
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def close(self) -> dict[int, int]:
        """Listen no more, and wait for what is being handed on. Returns how many rows came of each task."""
        with suppress(OSError):
            # It wakes the server, which would look whether it shall end when its time is over.
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self.break_off(ConnectionError("the step has ended"))
        self._server.server_close()
        self._thread.join()
        return self._rows_by_task

    def _serve(self, connection: socket.socket) -> None:
        """Serve one connection. A stranger is hung up on, and breaks nothing."""
        connection.settimeout(_KNOCK_SECONDS)
        with suppress(OSError):
            _watch(connection)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with connection:
                self._serve_open(connection)

    def _serve_open(self, connection: socket.socket) -> None:
        key = id(connection)
        with self._lock:
            if self.error is not None or len(self._open) - len(self._admitted) >= _MOST_STRANGERS:
                return
            self._open[key] = connection
        try:
            if (task := self._admit(connection)) is not None:
                self._take_share(connection, task)
        finally:
            with self._lock:
                del self._open[key]
                self._admitted.discard(key)

    def _admit(self, connection: socket.socket) -> int | None:
        deadline = monotonic() + _KNOCK_SECONDS
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        ours = os.urandom(32)
        connection.sendall(ours)
        theirs, signed = _HELLO.unpack(_receive(connection, _HELLO.size, deadline))
        (task,) = struct.unpack("!q", _receive(connection, 8, deadline))
        if not hmac.compare_digest(signed, _sign(self.secret, b"task", ours, theirs)):
            return None
        with self._lock:
            # Before it hears so: the next task may come at once.
            self._admitted.add(id(connection))
        connection.sendall(_sign(self.secret, b"step", theirs, ours))
        # Between two frames a task reads, for as long as a step of it may take; a dead one closes its socket.
        connection.settimeout(None)
        return int(task)

    def _take_share(self, connection: socket.socket, task: int) -> None:
        try:
            total, buffer = 0, bytearray(_LEAST_BUFFER)
            while True:
                size, rows = _FRAME.unpack(_receive(connection, _FRAME.size))
                _require(size <= _MOST_BYTES, f"a frame of {size:,} bytes is too long")
                _receive_frame(connection, buffer, size)
                if not size:
                    break
                with self._turn, memoryview(buffer) as whole:
                    if self.error is not None:
                        return
                    self._take(whole[:size])
                    self.arriving += rows
                total += rows
            _require(rows == total, f"task {task} has sent {total:,} of {rows:,} rows")
            with self._turn:
                self._rows_by_task[task] = self._rows_by_task.get(task, 0) + total
                # From now on the evidence counts them.
                self.arriving -= total
            connection.sendall(_TAKEN)
        except Exception as error:  # noqa: BLE001 -- Whatever it is, the rows cannot be taken back.
            self.break_off(error)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ShareError(otherwise)


def _listen(address: StreamAddress, serve: Callable[[socket.socket], None]) -> "_Server":
    """Listen on the first port that is free. Raises OSError."""
    host, (first, last) = socket.gethostbyname(address.host), address.ports
    for port in range(first, last):
        try:
            return _Server((host, port), serve)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _Server((host, last), serve)


class _Server(socketserver.ThreadingTCPServer):
    # Otherwise a port of the last stream may be taken for a minute.
    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True
    request_queue_size = _MOST_STRANGERS

    def __init__(self, address: tuple[str, int], serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        super().__init__(address, socketserver.BaseRequestHandler)

    @override
    def finish_request(self, request: Any, client_address: Any) -> None:
        self._serve(request)
