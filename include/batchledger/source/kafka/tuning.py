"""Translates how a pipeline file tunes its consumer, in the names of Kafka's documentation, for librdkafka. No I/O.

The configuration has checked before which options are allowed.
"""

from collections.abc import Mapping

_OTHER_NAMES: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_DEFAULT_WAIT_MS = "500"
_LEAST_MESSAGE_BYTES = 1_000


def to_client_options(tuning: Mapping[str, str]) -> dict[str, str]:
    """Return the options of librdkafka that mean the same.

    If a pipeline asks for more bytes at once, Kafka's default wait applies. The reader's own would give up before. The
    client refuses fetches that are smaller than the largest message that it would send itself, which it never does.
    """
    implied = {}
    if "fetch.min.bytes" in tuning:
        implied["fetch.wait.max.ms"] = _DEFAULT_WAIT_MS
    if "fetch.max.bytes" in tuning:
        implied["message.max.bytes"] = str(_LEAST_MESSAGE_BYTES)
    return implied | {_OTHER_NAMES.get(option, option): value for option, value in tuning.items()}
