"""The role of a target: a table or topic made for one order, and looked at afterwards."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Protocol


class Target(Protocol):
    """All tables, or all topics. Everything here reads like a reader of committed rows."""

    def fresh(self, name: str) -> AbstractContextManager[object]:
        """Lend an empty table or topic of that name."""

    def count_rows(self, name: str) -> int:
        """How many rows it has."""

    def read_digest(self, name: str) -> str:
        """Return a digest of the rows, the same in any order. The numbers of batches are no content."""


def digest(rows: Iterable[object]) -> str:
    """Return a digest of the rows, the same in any order; it changes if a row is there twice."""
    marks = (blake2b(repr(row).encode(), digest_size=8).digest() for row in rows)
    return str(sum(map(int.from_bytes, marks)))
