"""What a pipeline file lets become of a column before anything is written: hashed, masked, or dropped. Pure."""

import hmac
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from hashlib import sha256

from batchledger.model.quoting import quote
from batchledger.model.records.columns import Column

STARS = "****"
MOST_HIDDEN = 8
"""A text of so many characters, or fewer, is masked whole."""

_BLOCK_BYTES = 64
# No column of type string can hold U+0000, so no value has this hash.
_FINGERPRINTED = b"\0batchledger"


class ColumnProtection(StrEnum):
    """``HASH``: the HMAC-SHA-256 of the text. ``MASK``: the last four characters of it. ``DROP``: no column at all."""

    HASH = "hash"
    MASK = "mask"
    DROP = "drop"


Protections = Mapping[str, ColumnProtection]
"""What becomes of columns, by their names; others stay as they are."""


def make_hash(secret: bytes) -> Callable[[str], str]:
    """Return what gives HMAC-SHA-256 of a text's UTF-8 under the secret, as 64 small hexadecimal digits.

    Nothing is normalised: another case, or a space more, is another text. RFC 2104 written out: both blocks of the
    secret are hashed once. ``hmac.digest``, which hashes them for each value, takes twice as long.
    """
    block = (sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (sha256(bytes(each ^ pad for each in block)) for pad in (0x36, 0x5C))

    def hash_text(text: str) -> str:
        first, second = inner.copy(), outer.copy()
        first.update(text.encode())
        second.update(first.digest())
        return second.hexdigest()

    return hash_text


def take_fingerprint(secret: bytes) -> bytes:
    """Return what tells a secret from another one, and does not reveal it: 32 bytes."""
    return hmac.digest(secret, _FINGERPRINTED, "sha256")


def without_dropped(columns: Iterable[Column], protections: Protections) -> tuple[Column, ...]:
    """Return the columns that rows have."""
    return tuple(each for each in columns if protections.get(each.name) is not ColumnProtection.DROP)


def check_protections(protections: Protections, parts: Iterable[tuple[Column, ...]]) -> None:
    """Raise ValueError if a column cannot be protected as the file says.

    ``parts`` are the columns that come from the value, from the key, and from headers: columns of two parts never read
    the same field.
    """
    of_parts = list(parts)
    by_name = {each.name: each for part in of_parts for each in part}
    for name, protection in protections.items():
        if name not in by_name:
            raise ValueError(
                f"protect: {quote(name)} is no column of schema, key or headers; declare it, also to drop it"
            )
        if protection is not ColumnProtection.DROP and by_name[name].type != "string":
            raise ValueError(
                f"protect: {quote(name)} is a {by_name[name].type}, and {protection} is for texts; declare it as string"
            )
    for part in of_parts:
        _require_no_copy(part, protections)


def _require_no_copy(columns: Iterable[Column], protections: Protections) -> None:
    """Refuse a column in clear text that holds the field of a protected one, by itself or in an object."""
    clear = [each for each in columns if each.name not in protections]
    for column in columns:
        for other in clear if column.name in protections else ():
            if column.source[: len(other.source)] == other.source:
                raise ValueError(
                    f"protect: column {quote(other.name)} holds {'.'.join(column.source)} in clear text, too; protect "
                    "it as well, or declare other fields within it as columns of their own"
                )
