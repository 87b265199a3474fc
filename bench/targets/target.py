"""The role of a target: where the rows of an order go, made for it alone and looked at afterwards."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Protocol


class Target(Protocol):
    """All tables, or all topics. What is read is what a reader of committed rows sees."""

    def fresh(self, name: str) -> AbstractContextManager[object]:
        """Lend an empty one of that name."""

    def count_rows(self, name: str) -> int:
        """How many rows it has."""

    def read_digest(self, name: str) -> str:
        """Return what is the same for two with the same rows, in whatever order.

        Whatever number somebody gives to a batch is no content.
        """


def digest(rows: Iterable[object]) -> str:
    """Return what is the same for the same rows in whatever order; a row that is there twice makes a difference."""
    marks = (blake2b(repr(row).encode(), digest_size=8).digest() for row in rows)
    return str(sum(map(int.from_bytes, marks)))
