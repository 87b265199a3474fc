"""HMAC-SHA-256 under the secret of the deployment (RFC 2104), and the fingerprint that the secret is known by. Pure.

Columns and keys are hashed with it, and both are known by the same fingerprint.
"""

import hmac
from collections.abc import Callable
from hashlib import sha256

from batchledger.model.errors import ConfigurationError

_BLOCK_BYTES = 64
_INNER, _OUTER = 0x36, 0x5C
# A column's text is UTF-8, where the first byte never stands, and a key's digest has 32 bytes. So no hash equals it.
_FINGERPRINTED = b"\xffbatchledger"


def fingerprint_of(secret: bytes) -> bytes:
    """Return what tells a secret from another one: 32 bytes, from which the secret cannot be computed."""
    return hmac.digest(secret, _FINGERPRINTED, "sha256")


def pads_of(secret: bytes) -> tuple[bytes, bytes]:
    """Return the inner and the outer block of 64 bytes: HMAC of m is sha256(outer || sha256(inner || m))."""
    block = (secret if len(secret) <= _BLOCK_BYTES else sha256(secret).digest()).ljust(_BLOCK_BYTES, b"\0")
    return bytes(each ^ _INNER for each in block), bytes(each ^ _OUTER for each in block)


def make_hash(secret: bytes) -> Callable[[str], str]:
    """Return what gives HMAC-SHA-256 of a text's UTF-8 under the secret, as 64 small hexadecimal digits.

    Nothing is normalised: another case, or a space more, is another text. Both blocks of the secret are hashed once.
    ``hmac.digest``, which hashes them for each value, takes twice as long.
    """
    inner, outer = (sha256(each) for each in pads_of(secret))

    def hash_text(text: str) -> str:
        first, second = inner.copy(), outer.copy()
        first.update(text.encode())
        second.update(first.digest())
        return second.hexdigest()

    return hash_text


def other_secret(told: str, why: str, pipeline: str | None = None) -> ConfigurationError:
    """Say that the connection has another secret than before, and what to do."""
    return ConfigurationError(
        told,
        why=why,
        advice="Give the connection batchledger_keys the password that it had.\n"
        "If it is lost, or others know it, see the documentation: guides/key-secret",
        pipeline=pipeline,
        subject="batchledger_keys",
    )
