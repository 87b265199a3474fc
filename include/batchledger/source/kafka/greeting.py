"""Greets a broker by the one request that needs no login, ApiVersions (KIP-35, KIP-152), on a connection of its own.

Nothing else is sent, and what comes back is read with bounds. Python's TLS says more about a certificate than
librdkafka does.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from time import monotonic

from batchledger.model.errors import ConfigurationError
from batchledger.source.kafka.clients import open_tls

_API_VERSIONS, _VERSION, _CORRELATION = 18, 3, 1
_CLIENT = b"batchledger"
_LARGEST_ANSWER_BYTES = 1024 * 1024
_DEFAULT_PORT, _LARGEST_PORT = 9092, 65_535


def list_addresses(servers: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of each: ``a``, ``a:9092``, ``[::1]:9092`` or ``SSL://a:9092``, as librdkafka takes them.

    Raises ConfigurationError.
    """
    for each in servers.split(","):
        address = each.strip().rpartition("://")[2].rstrip("/")
        host, colon, port = address.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = address, str(_DEFAULT_PORT)
        if address:
            if not port.isascii() or not port.isdigit() or int(port) > _LARGEST_PORT:
                raise ConfigurationError(
                    f"bootstrap.servers names {address!r}, whose port is no number up to {_LARGEST_PORT}.",
                    advice="Write each broker as host:port in the connection.",
                    subject=servers,
                )
            yield host.strip("[]"), int(port)


def greet(host: str, port: int, options: Mapping[str, str], seconds: float) -> bytes:
    """Return the body of the broker's answer. Raises OSError, ssl.SSLError among them, and ValueError."""
    deadline = monotonic() + seconds
    with socket.create_connection((host, port), seconds) as plain, _secure(plain, host, options) as stream:
        request = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
        # No tagged fields; the name of the client, its version, no tagged fields.
        request += b"\0" + bytes([len(_CLIENT) + 1]) + _CLIENT + b"\x02" + b"1" + b"\0"
        stream.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(stream, 4, deadline))
        if not 4 < length <= _LARGEST_ANSWER_BYTES:
            raise ValueError(f"{host}:{port} does not answer as a Kafka broker does")
        answer = _receive(stream, length, deadline)
    if struct.unpack_from(">i", answer) != (_CORRELATION,):
        raise ValueError(f"{host}:{port} answers another request")
    return answer[4:]


def _secure(plain: socket.socket, host: str, options: Mapping[str, str]) -> socket.socket:
    """Return the connection that requests go through, as the options say."""
    if options.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return open_tls(options).wrap_socket(plain, server_hostname=host)
    return plain


def _receive(stream: socket.socket, count: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        stream.settimeout(max(0.001, deadline - monotonic()))
        part = stream.recv(count - len(parts))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        parts += part
    return bytes(parts)
