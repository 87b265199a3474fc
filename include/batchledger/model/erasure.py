"""What a person wants erased: the key of rows, and whether a record in quarantine holds it. Pure.

The values of a key are personal. Nothing here shows them: no ``repr``, no error, no effect.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges


@dataclass(frozen=True, slots=True)
class ErasureKey:
    """The rows whose columns all have these values: pairs of column and text, sorted by column."""

    pairs: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "ErasureKey":
        """Read ``customer=4711``, once for each column. Raises ValueError, whose text holds no value."""
        split = [each.partition("=") for each in texts]
        if not split or not all(column and value for column, _, value in split):
            raise ValueError("write COLUMN=VALUE, such as customer=4711")
        pairs = tuple(sorted((column, value) for column, _, value in split))
        if len(dict(pairs)) < len(pairs):
            raise ValueError("name each column once: a row is erased if all of its columns have these values")
        return cls(pairs)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, sorted."""
        return tuple(column for column, _ in self.pairs)

    @property
    def values(self) -> tuple[str, ...]:
        """The values, in the order of ``columns``."""
        return tuple(value for _, value in self.pairs)

    def require_unnamed(self, reason: str) -> None:
        """Raise DecisionRefusedError if a reason names a value: the ledger keeps reasons for ever."""
        if any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", reason, re.IGNORECASE) for each in self.values):
            raise DecisionRefusedError(
                "The reason names a value of the key. Nothing was erased.",
                why="The ledger keeps reasons for ever.",
                advice="Name a ticket instead: --reason 'ticket 812'",
            )


@dataclass(frozen=True, slots=True)
class Erased:
    """What a sink has erased: rows, and remembered keys of messages and of deletions.

    ``is_remembered``: the key was not remembered as an erased one before, or records have been read since.
    """

    rows: int
    remembered_keys: int
    is_remembered: bool

    @property
    def is_anything(self) -> bool:
        """Whether anything has changed."""
        return self.is_remembered or self.rows > 0 or self.remembered_keys > 0


class Holding(Enum):
    """Whether a record holds a key. ``PERHAPS``: it cannot be read, and has the values somewhere in its bytes."""

    YES = auto()
    NO = auto()
    PERHAPS = auto()


def find_holding(key: ErasureKey, record_key: bytes | None, record_value: bytes | None) -> Holding:
    """Say whether a record holds a key, in the fields of a JSON object that is its value or its own key.

    Example: a record with the value ``{"customer": 4711}`` holds ``customer=4711``. A value ``{"customer": 4711``
    cannot be read, and holds it perhaps. A record with the key ``4711`` holds it perhaps, too: nothing says what the
    number means.

    Known limit: a value that is written in another way, such as with escapes or compressed, is not found in a record
    that cannot be read.
    """
    found = Holding.NO
    for payload in (record_key, record_value):
        if payload is None:
            continue
        fields = _read_fields(payload)
        if fields.keys() >= set(key.columns):
            if all(fields[column] == value for column, value in key.pairs):
                return Holding.YES
        elif all(value.encode() in payload for value in key.values):
            found = Holding.PERHAPS
    return found


def _read_fields(payload: bytes) -> dict[str, str]:
    """Return the fields of a JSON object as texts, numbers as they are written; empty if it is none."""
    try:
        found: Any = json.loads(payload, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return {}
    fields = found if isinstance(found, dict) else {}
    texts = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in fields.items()}
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def describe_doubtful(pipeline: str, doubtful: list[OffsetRange]) -> str:
    """Say which records of quarantine a person has to look at; empty if there is none. Without a full stop."""
    if not doubtful:
        return ""
    records = describe_count(count_offsets(doubtful), "record")
    return (
        f"{records} in quarantine cannot be read and may hold the key: {describe_ranges(doubtful)}. Look at them "
        f"(batchledger quarantine list {pipeline} --show-payload), and drop what belongs to the key (batchledger "
        f"quarantine drop {pipeline} RANGE --reason WHY)"
    )
