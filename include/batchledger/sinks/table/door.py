"""The way of rows from Spark's tasks to the process of the step: a door on loopback, and what goes through it.

Both sides prove that they know the secret of the attempt, and neither says it: each signs what the other has chosen at
random. Then a task sends frames: the size of COPY data, the number of its rows, the data, which holds whole rows. A
size of 0 is the end of its share, with the number of all rows; the answer says that the share was taken.

Frames are handed on whole, one after the other. If the receiver is slow, the sockets are full and the tasks wait. A
share that breaks off breaks the stream: what it has sent cannot be taken back.
"""

import hmac
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from typing_extensions import override

from batchledger.model.errors import StagingError
from batchledger.model.records.columns import BATCH_COLUMN
from batchledger.ports import StagingWriter
from batchledger.sinks.staging.tables import CopyEncoder

HOST = "127.0.0.1"
_FRAME = struct.Struct("!QQ")
_HELLO = struct.Struct("!32s32s")
_TAKEN = b"taken"
_KNOCK_SECONDS = 10.0
_MOST_BYTES = 1 << 30
_MOST_AT_ONCE = 256
_BUFFER = 4 << 20


@dataclass(frozen=True)
class StreamWriter(StagingWriter):
    """Encodes rows, and sends them through a door; pickled to the executors."""

    port: int
    secret: bytes = field(repr=False)
    batch_id: int

    @contextmanager
    @override
    def open(self, task: int) -> Iterator[Callable[[pa.RecordBatch], None]]:
        """A task that writes nothing tells so, too. Raises StagingError if the step does not take the share."""
        with _telling():
            connection = socket.create_connection((HOST, self.port), _KNOCK_SECONDS)
        with connection:
            with _telling():
                _knock(connection, self.secret, task)
            connection.settimeout(None)
            encoder: CopyEncoder | None = None
            waiting = rows = 0

            def send(data: bytes) -> None:
                nonlocal waiting
                if data:
                    with _telling():
                        connection.sendall(_FRAME.pack(len(data), waiting))
                        connection.sendall(data)
                    waiting = 0

            def write(batch: pa.RecordBatch) -> None:
                nonlocal encoder, waiting, rows
                ids = pa.repeat(pa.scalar(self.batch_id, pa.int64()), batch.num_rows)
                marked = batch.append_column(BATCH_COLUMN, ids)
                encoder = encoder or CopyEncoder(marked.schema)
                waiting, rows = waiting + batch.num_rows, rows + batch.num_rows
                send(encoder.encode(marked))

            yield write
            if encoder is not None:
                send(encoder.finish())
            with _telling():
                connection.sendall(_FRAME.pack(0, rows))
                _receive(connection, len(_TAKEN))


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingError(
            "A task could not stream its rows to the process of the step. Nothing is visible.",
            why=f"{str(error) or type(error).__name__}.",
        ) from error


def _knock(connection: socket.socket, secret: bytes, task: int) -> None:
    theirs = _receive(connection, 32)
    ours = os.urandom(32)
    connection.sendall(_HELLO.pack(ours, _sign(secret, b"task", theirs, ours)) + struct.pack("!q", task))
    if not hmac.compare_digest(_receive(connection, 32), _sign(secret, b"step", ours, theirs)):
        raise ConnectionError("another process listens there")


def _sign(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(parts), "sha256")


def _receive(connection: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes. Raises ConnectionError if there are fewer."""
    data = bytearray(size)
    _receive_into(connection, memoryview(data))
    return bytes(data)


def _receive_into(connection: socket.socket, view: memoryview) -> None:
    while view:
        received = connection.recv_into(view)
        if not received:
            raise ConnectionError("the connection was closed early")
        view = view[received:]


class Door:
    """Takes the frames of all tasks of an attempt, and hands each to ``take``, one at a time.

    ``error`` is the first that broke the stream; then nothing more is taken, and every task hears of it by its socket.
    """

    def __init__(self, take: Callable[[memoryview], None]) -> None:
        self._take, self.secret = take, os.urandom(32)
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._rows_by_task: dict[int, int] = {}
        self._open: dict[int, socket.socket] = {}
        self.arriving = 0
        self.error: Exception | None = None
        self._server = _Server((HOST, 0), self._serve)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens, on ``HOST``."""
        return int(self._server.server_address[1])

    def break_off(self, error: Exception) -> None:
        """Take nothing more, because of ``error``."""
        with self._lock:
            self.error = self.error or error
            for each in self._open.values():
                with suppress(OSError):
                    # Closed by a reset: a task that waits for room in a full buffer would not hear of a mere end.
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> dict[int, int]:
        """Listen no more, and wait for what is being handed on. Returns how many rows came of each task."""
        self._server.shutdown()
        self.break_off(ConnectionError("the step has ended"))
        self._server.server_close()
        self._thread.join()
        return self._rows_by_task

    def _serve(self, connection: socket.socket) -> None:
        """Serve one connection. A stranger is hung up on, and breaks nothing."""
        key = id(connection)
        with self._lock:
            if self.error is not None or len(self._open) >= _MOST_AT_ONCE:
                return
            self._open[key] = connection
        try:
            with suppress(OSError):
                if (task := self._admit(connection)) is not None:
                    self._take_share(connection, task)
        finally:
            with self._lock:
                del self._open[key]

    def _admit(self, connection: socket.socket) -> int | None:
        connection.settimeout(_KNOCK_SECONDS)
        ours = os.urandom(32)
        connection.sendall(ours)
        theirs, signed = _HELLO.unpack(_receive(connection, _HELLO.size))
        (task,) = struct.unpack("!q", _receive(connection, 8))
        if not hmac.compare_digest(signed, _sign(self.secret, b"task", ours, theirs)):
            return None
        connection.sendall(_sign(self.secret, b"step", theirs, ours))
        # Between two frames a task reads, for as long as a step of it may take; a dead one closes its socket.
        connection.settimeout(None)
        return int(task)

    def _take_share(self, connection: socket.socket, task: int) -> None:
        try:
            total, buffer = 0, bytearray(_BUFFER)
            while True:
                size, rows = _FRAME.unpack(_receive(connection, _FRAME.size))
                _require(size <= _MOST_BYTES, f"a frame of {size:,} bytes is too long")
                if size > len(buffer):
                    buffer = bytearray(size)
                view = memoryview(buffer)[:size]
                _receive_into(connection, view)
                if not size:
                    break
                with self._turn:
                    if self.error is not None:
                        return
                    self._take(view)
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
        raise ConnectionError(otherwise)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = _MOST_AT_ONCE

    def __init__(self, address: tuple[str, int], serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        super().__init__(address, socketserver.BaseRequestHandler)

    @override
    def finish_request(self, request: Any, client_address: Any) -> None:
        self._serve(request)
