"""What a pipeline file lets become of a column before anything is written: hashed, masked, or dropped. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from batchledger.model.quoting import quote
from batchledger.model.records.columns import Column
from batchledger.model.records.types import Scalar

STARS = "****"
MOST_HIDDEN = 8
"""A text of so many characters, or fewer, is masked whole."""


class ColumnProtection(StrEnum):
    """``HASH``: the HMAC-SHA-256 of the text. ``MASK``: the last four characters of it. ``DROP``: no column at all."""

    HASH = "hash"
    MASK = "mask"
    DROP = "drop"


Protections = Mapping[str, ColumnProtection]
"""What becomes of columns, by their names; others stay as they are."""


def describe_form(columns: Iterable[str], protections: Protections, fingerprint: bytes | None) -> str:
    """Say how rows hold values of the columns; empty if they hold all of them as records do.

    Two texts differ if the same values are written in another way. Example: ``email hash 5f3a…`` for columns ``email``
    and ``id``, of which the first is hashed with the secret of that fingerprint.
    """
    protected = sorted((each, protections[each]) for each in columns if each in protections)
    by_what = {ColumnProtection.HASH: f" {fingerprint.hex()}" if fingerprint else ""}
    return ", ".join(f"{column} {protection}{by_what.get(protection, '')}" for column, protection in protected)


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
        if protection is not ColumnProtection.DROP and by_name[name].type is not Scalar.STRING:
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
