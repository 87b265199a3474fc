"""The blocks by which PostgreSQL computes HMAC: the examples of RFC 4231, and any secret."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.hashing import fingerprint_of, make_hash, pads_of

EXAMPLES = [
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
]


def hash_by_pads(secret: bytes, message: bytes) -> bytes:
    inner, outer = pads_of(secret)
    return sha256(outer + sha256(inner + message).digest()).digest()


@pytest.mark.parametrize(("secret", "message", "expected"), EXAMPLES, ids=["short", "longer than a block"])
def test_blocks_give_what_the_standard_says(secret: bytes, message: bytes, expected: str) -> None:
    assert hash_by_pads(secret, message).hex() == expected


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_blocks_give_what_python_computes(secret: bytes, digest: bytes) -> None:
    assert hash_by_pads(secret, digest) == hmac.digest(secret, digest, "sha256")


def test_fingerprint_tells_secrets_apart() -> None:
    first, second = b"1" * 32, b"2" * 32
    assert fingerprint_of(first) != fingerprint_of(second)
    assert first not in fingerprint_of(first)


@given(st.text())
def test_no_column_and_no_key_has_the_fingerprint_as_its_hash(text: str) -> None:
    """It is made of bytes that are neither a text nor a digest."""
    secret, made_of = b"1" * 32, b"\xffbatchledger"
    assert fingerprint_of(secret) == hmac.digest(secret, made_of, "sha256")
    with pytest.raises(UnicodeDecodeError):
        made_of.decode()
    assert len(made_of) != sha256().digest_size
    assert make_hash(secret)(text) != fingerprint_of(secret).hex()
