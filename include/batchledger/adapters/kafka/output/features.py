"""Asks a broker for the features that its cluster has agreed on, such as ``transaction.version``.

No client library at hand shows them, so this module speaks the one request that does, ApiVersions (KIP-35, KIP-584). It
needs no login: brokers answer it before a client has said who it is (KIP-152), on listeners with SASL and TLS, too.
Nothing else is sent, and what comes back is read with bounds.
"""

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

from batchledger.model.errors import ConfigurationError, ServiceUnavailableError

ANSWER_SECONDS = 10.0

_API_VERSIONS, _VERSION, _CORRELATION = 18, 3, 1
_CLIENT = b"batchledger"
_FINALIZED_EPOCH, _FINALIZED = 1, 2
_LARGEST_ANSWER_BYTES = 1024 * 1024
_DEFAULT_PORT, _LARGEST_PORT = 9092, 65_535


class _Truncated(ValueError):  # noqa: N818 -- never leaves this module
    """An answer ends before what it announces."""


def read_features(options: Mapping[str, str]) -> dict[str, int] | None:
    """Return the finalized level of each feature, None when the broker does not say.

    A feature that is not there is at level 0. ``options`` are checked librdkafka options. Asks the brokers in turn
    until one answers. Raises ServiceUnavailableError when none does within ``ANSWER_SECONDS``, ConfigurationError for
    a malformed address.
    """
    deadline = monotonic() + ANSWER_SECONDS
    trouble: Exception | None = None
    for host, port in _addresses(options["bootstrap.servers"]):
        left_seconds = deadline - monotonic()
        if left_seconds <= 0:
            break
        try:
            return _parse(_ask(host, port, options, left_seconds))
        except (OSError, ValueError, struct.error) as error:
            trouble = error
    raise ServiceUnavailableError(
        f"could not ask Kafka at {options['bootstrap.servers']} for its features. Nothing was changed.",
        why=f"It says: {trouble or 'no answer'}.",
        advice="Run the step again when the broker answers; batchledger up starts the local one.",
        subject=options["bootstrap.servers"],
    ) from trouble


def _addresses(servers: str) -> Iterator[tuple[str, int]]:
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


def _ask(host: str, port: int, options: Mapping[str, str], seconds: float) -> bytes:
    """Return the body of the broker's answer."""
    deadline = monotonic() + seconds
    with socket.create_connection((host, port), seconds) as plain, _secure(plain, host, options) as stream:
        request = struct.pack(">hhih", _API_VERSIONS, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
        # No tagged fields; the name of the client, its version, no tagged fields.
        request += b"\0" + bytes([len(_CLIENT) + 1]) + _CLIENT + b"\x02" + b"1" + b"\0"
        stream.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _receive(stream, 4, deadline))
        if not 4 < length <= _LARGEST_ANSWER_BYTES:
            raise ValueError(f"{host}:{port} does not answer as a Kafka broker does; check security.protocol")
        answer = _receive(stream, length, deadline)
    if struct.unpack_from(">i", answer) != (_CORRELATION,):
        raise ValueError(f"{host}:{port} answers another request")
    return answer[4:]


def _secure(plain: socket.socket, host: str, options: Mapping[str, str]) -> socket.socket:
    """Return the connection that requests go through, as the options say."""
    if options.get("security.protocol", "PLAINTEXT").upper() not in ("SSL", "SASL_SSL"):
        return plain
    place = options.get("ssl.ca.location")
    is_folder = place is not None and Path(place).is_dir()
    context = ssl.create_default_context(cafile=None if is_folder else place, capath=place if is_folder else None)
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context.wrap_socket(plain, server_hostname=host)


def _receive(stream: socket.socket, count: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        stream.settimeout(max(0.001, deadline - monotonic()))
        part = stream.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection; check security.protocol")
        parts += part
    return bytes(parts)


class _Reader:
    """Takes values of Kafka's protocol from the front of an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise _Truncated("the broker's answer is cut off")
        self._at += count
        return part

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("the broker's answer holds a number that is too long")

    def count(self) -> int:
        """The length of an array or a string; none at all counts as empty."""
        return max(0, self.varint() - 1)

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def _parse(body: bytes) -> dict[str, int] | None:
    """Return the finalized features, which are tagged fields behind the list of requests that the broker knows."""
    reader = _Reader(body)
    if reader.int16() != 0:
        # A broker that does not know this version of the request has no features either.
        return None
    for _ in range(reader.count()):
        # The request, and its oldest and newest version.
        reader.take(6)
        reader.skip_tags()
    # How long the client is asked to wait.
    reader.take(4)
    tags = {}
    for _ in range(reader.varint()):
        number = reader.varint()
        tags[number] = reader.take(reader.varint())
    # Without an epoch the broker does not know yet. With an epoch and no features, all of them are at level 0.
    if _FINALIZED_EPOCH not in tags or _Reader(tags[_FINALIZED_EPOCH]).int64() < 0:
        return None
    return _parse_features(_Reader(tags.get(_FINALIZED, b"\x01")))


def _parse_features(reader: _Reader) -> dict[str, int]:
    levels = {}
    for _ in range(reader.count()):
        name = reader.take(reader.count()).decode()
        # The level agreed on; behind it the lowest that is allowed.
        levels[name] = reader.int16()
        reader.int16()
        reader.skip_tags()
    return levels
