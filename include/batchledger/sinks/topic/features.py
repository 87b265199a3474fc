"""Asks a broker for the features that its cluster has agreed on, such as ``transaction.version`` (KIP-584).

No client library at hand shows them, so this module reads them from a broker's answer to a greeting.
"""

import struct
from collections.abc import Mapping
from time import monotonic

from confluent_kafka import KafkaError

from batchledger.model.errors import ServiceUnavailableError
from batchledger.source.kafka.refusals import greet, list_addresses, refuse

ANSWER_SECONDS = 10.0

_FINALIZED_EPOCH, _FINALIZED = 1, 2


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
    for host, port in list_addresses(options["bootstrap.servers"]):
        left_seconds = deadline - monotonic()
        if left_seconds <= 0:
            break
        try:
            return _parse(greet(host, port, options, left_seconds))
        except (OSError, ValueError, struct.error) as error:
            trouble = error
    silent = KafkaError(KafkaError._TRANSPORT)
    raise refuse("ask Kafka for its features", options, silent) or ServiceUnavailableError(
        f"could not ask Kafka at {options['bootstrap.servers']} for its features. Nothing was changed.",
        why=f"It says: {trouble or 'no answer'}.",
        advice="Run the step again when the broker answers; batchledger up starts the local one.",
        subject=options["bootstrap.servers"],
    ) from trouble


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
