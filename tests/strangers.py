"""A stranger who asks Spark for the blocks of running jobs: in Spark's own protocol, without a secret.

A frame is its length (8 bytes, itself included), a type (1 byte), and a message. ``OpenBlocks`` makes a stream of the
blocks that it names; ``ChunkFetchRequest`` takes one of them.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRWPair

_CHUNK_FETCH_REQUEST, _CHUNK_FETCH_SUCCESS, _RPC_REQUEST, _RPC_RESPONSE = 0, 1, 3, 4
_OPEN_BLOCKS = 0


def is_open(port: int) -> bool:
    """Whether a stranger may ask the port for blocks: it answers a request for none."""
    with _connect(port) as stream:
        return _open_blocks(stream) is not None


def fetch_block(port: int, block: str) -> bytes:
    """The content of the block; empty if the port does not hand it out."""
    with _connect(port) as stream:
        handle = _open_blocks(stream, block)
        if handle is None:
            return b""
        answer = _ask(stream, _CHUNK_FETCH_REQUEST, struct.pack(">qi", handle, 0))
        return answer[1 + 8 + 4 :] if answer[:1] == bytes([_CHUNK_FETCH_SUCCESS]) else b""


@contextmanager
def _connect(port: int) -> Iterator[BufferedRWPair]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rwb") as stream:
        yield stream


def _open_blocks(stream: BufferedRWPair, *blocks: str) -> int | None:
    """Return the number of the stream that was made; None if the request was refused."""
    application, executor, count = _text("any"), _text("any"), struct.pack(">i", len(blocks))
    body = bytes([_OPEN_BLOCKS]) + application + executor + count + b"".join(map(_text, blocks))
    answer = _ask(stream, _RPC_REQUEST, struct.pack(">qi", 1, len(body)) + body)
    if answer[:1] != bytes([_RPC_RESPONSE]):
        return None
    # After the number of the request, a size, and the type of the message inside.
    (handle,) = struct.unpack_from(">q", answer, 1 + 8 + 4 + 1)
    return int(handle)


def _ask(stream: BufferedRWPair, kind: int, message: bytes) -> bytes:
    """Return the type and the message of the answer; empty if there was none."""
    try:
        stream.write(struct.pack(">qb", 8 + 1 + len(message), kind) + message)
        stream.flush()
        length = stream.read(8)
    except OSError:
        return b""
    return stream.read(struct.unpack(">q", length)[0] - 8) if length else b""


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()
