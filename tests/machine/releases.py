"""Versions of the users' code: which records one decodes, and what its transform does."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.work import Rows, keep_all
from tests.fakes.world import staged_twice
from tests.machine.model import Kind

_ID_COLUMNS = {Kind.GOOD: "message_id", Kind.UNDECODABLE: "id"}


@dataclass(frozen=True)
class Release:
    """``decodes`` is the kind of record that becomes a row; records of the other kind are quarantined."""

    name: str
    decodes: Kind = Kind.GOOD
    alter: Callable[[Rows], Rows] = keep_all

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return the columns of a record. Raises KeyError for a record of the other kind."""
        return {"message_id": json.loads(value)[_ID_COLUMNS[self.decodes]]}


FIRST = Release("first")
CHANGED = Release("changed", decodes=Kind.UNDECODABLE)
"""Another schema: it decodes exactly what the first release does not, so both ways are taken at once."""
FAULTY = Release("faulty", alter=staged_twice)
"""A transform that repeats records: what it stages must never be published."""


def encode(kind: Kind, message_id: str) -> bytes:
    """The value of a record of a kind."""
    return json.dumps({_ID_COLUMNS[kind]: message_id}).encode()
