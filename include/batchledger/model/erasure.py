"""What a person wants erased: the key of rows, and whether a record in quarantine holds it. Pure.

The values of a key are personal. Nothing here shows them: no ``repr``, no error, no effect.
"""

import base64
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Any
from uuid import UUID

from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.housekeeping import StagingTable
from batchledger.model.offsets import OffsetRange, count_offsets, describe_ranges
from batchledger.model.records.columns import BATCH_COLUMN, PROVENANCE_COLUMNS


@dataclass(frozen=True, slots=True)
class ErasureKey:
    """The rows whose columns all have these values: pairs of column and text, sorted by column.

    ``clear`` has the pairs as records hold them, if columns are hashed. ``form`` is how rows hold the values of the
    columns, as ``protection.describe_form`` says it.
    """

    pairs: tuple[tuple[str, str], ...] = field(repr=False)
    clear: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    form: str = ""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "ErasureKey":
        """Read ``customer=4711``, once for each column. Raises ValueError, whose text holds no value."""
        split = [each.partition("=") for each in texts]
        if not split or not all(column and value for column, _, value in split):
            raise ValueError("write COLUMN=VALUE, such as customer=4711")
        pairs = tuple(sorted((column, value) for column, _, value in split))
        if len(dict(pairs)) < len(pairs):
            raise ValueError("name each column once: a row is erased if all of its columns have these values")
        added = [column for column, _ in pairs if column in (*PROVENANCE_COLUMNS, BATCH_COLUMN)]
        if added:
            raise ValueError(
                f"{added[0]} says where a record lay or which batch wrote the row; name columns of its data"
            )
        return cls(pairs)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, sorted."""
        return tuple(column for column, _ in self.pairs)

    @property
    def values(self) -> tuple[str, ...]:
        """The values, in the order of ``columns``."""
        return tuple(value for _, value in self.pairs)

    def seal(self, code: str) -> str:
        """Return a text that only the same key has with the same code. Without the code it tells a reader nothing."""
        return hmac.new(code.encode(), json.dumps(self.pairs).encode(), "sha256").hexdigest()

    @property
    def of_records(self) -> "ErasureKey":
        """The key as records hold it."""
        return ErasureKey(self.clear) if self.clear else self

    def require_unnamed(self, reason: str) -> None:
        """Raise DecisionRefusedError if a reason names a value: the ledger keeps reasons for ever."""
        if any(
            re.search(rf"(?<!\w){re.escape(each)}(?!\w)", reason, re.IGNORECASE)
            for each in (*self.values, *self.of_records.values)
        ):
            raise DecisionRefusedError(
                "The reason names a value of the key. Nothing was erased.",
                why="The ledger keeps reasons for ever.",
                advice="Name a ticket instead: --reason 'ticket 812'",
            )


@dataclass(frozen=True, slots=True)
class Erased:
    """What a sink has erased: rows, and remembered keys of messages and of deletions.

    ``is_remembered``: the key was not remembered as an erased one before, or records have been read since.
    ``type_by_column`` has the columns of the key, with types as PostgreSQL writes them, without modifiers.
    ``leaves_versions``: the key does not say which keys of a target that is updated by key its rows have, so each
    erased record stays known as the newest one of its key.
    """

    rows: int
    remembered_keys: int
    is_remembered: bool
    type_by_column: Mapping[str, str] = field(default_factory=dict)
    leaves_versions: bool = False

    @property
    def is_anything(self) -> bool:
        """Whether anything has changed."""
        return self.is_remembered or self.rows > 0 or self.remembered_keys > 0


class Holding(IntEnum):
    """Whether a record holds a key. ``PERHAPS``: it has the values in a form of which nothing says what it means."""

    NO = auto()
    PERHAPS = auto()
    YES = auto()


_READ: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {
        "text": str,
        "character varying": str,
        "uuid": UUID,
        **dict.fromkeys(("smallint", "integer", "bigint", "numeric"), Decimal),
    }
)
"""How to read values of a type so that they are unequal only if PostgreSQL calls them unequal."""


def find_holding(
    key: ErasureKey,
    type_by_column: Mapping[str, str],
    record_key: bytes | None,
    record_value: bytes | None,
    headers: str | None,
) -> Holding:
    """Say whether a record holds a key: in headers, or in fields of a JSON object that is its value or its own key.

    Each value of the key may be in another part of the record. ``type_by_column`` holds types as PostgreSQL writes
    them. ``headers`` is JSON, a list of {key, value} with values in base64.

    Example: a record with the value ``{"customer": 4711}`` holds ``customer=4711``. ``{"customer": 4711.0}`` does, too,
    if the column is a ``bigint``. A value ``{"customer": 4711`` cannot be read, and holds it perhaps. A record with the
    key ``4711`` holds it perhaps, too: nothing says what the number means.

    Known limits: a value that is written in another way, such as binary, with escapes or compressed, is not found in a
    part that cannot be read. A collation that calls different texts equal is not known here.
    """
    parts = [(_read_fields(each), each) for each in (record_key, record_value) if each is not None]
    parts += _read_headers(headers)
    return min(
        max((_find_value(column, value, type_by_column.get(column, ""), *each) for each in parts), default=Holding.NO)
        for column, value in key.pairs
    )


def _find_value(column: str, value: str, type_: str, fields: Mapping[str, str], payload: bytes) -> Holding:
    """Say whether a part of a record has the value of a column."""
    if column not in fields:
        return Holding.PERHAPS if value.encode() in payload else Holding.NO
    if fields[column] == value:
        return Holding.YES
    try:
        read = _READ[type_]
        return Holding.YES if read(fields[column]) == read(value) else Holding.NO
    except (LookupError, ValueError, ArithmeticError):
        return Holding.PERHAPS


def _read_headers(text: str | None) -> list[tuple[dict[str, str], bytes]]:
    """Return each header that has a value as a part: its field as a text, and its bytes."""
    given = [each for each in json.loads(text or "[]") if each.get("value") is not None]
    contents = [(each["key"], base64.b64decode(each["value"])) for each in given]
    return [({name: content.decode(errors="surrogateescape")}, content) for name, content in contents]


def _read_fields(payload: bytes) -> dict[str, str]:
    """Return the fields of a JSON object as texts, numbers as they are written; empty if it is none."""
    try:
        found: Any = json.loads(payload, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return {}
    fields = found if isinstance(found, dict) else {}
    texts = {name: json.dumps(value) if isinstance(value, bool) else value for name, value in fields.items()}
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def describe_doubtful(pipeline: str, doubtful: list[OffsetRange], left: Sequence[StagingTable] = ()) -> str:
    """Say which records of quarantine, and which staging that was ``left``, a person has to look at.

    Empty if there is none. Without a full stop.
    """
    told = []
    if doubtful:
        records = describe_count(count_offsets(doubtful), "record")
        told.append(
            f"{records} in quarantine may hold the key: {describe_ranges(doubtful)}. Look at them "
            f"(batchledger quarantine list {pipeline} --show-payload), and drop what belongs to the key (batchledger "
            f"quarantine drop {pipeline} RANGE --reason WHY)"
        )
    if left:
        tables = describe_count(len(left), "staging table")
        told.append(
            f"{tables} of other roles may hold the key, such as {left[0].name}. Run housekeeping with a login that may "
            "drop them"
        )
    return ". ".join(told)
