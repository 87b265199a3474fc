"""Keeps what no column declares of a record, as the JSON of its exact texts (``source.unknown_fields: keep``).

What columns declare and what is kept give the record back together. An object within keeps its undeclared fields alone,
at its place, and an array keeps its length: null stands for an element that has none.
``docs/reference/meaning.md`` shows it. Decides nothing about a record that columns refuse.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.meaning import Reader, UnfitError
from batchledger.formats.decoding.nested import (
    Declared,
    declare_fields,
    elements,
    fields_given_once,
    make_reader,
    parse_fields,
)
from batchledger.formats.decoding.objects import BYTE_ORDER_MARK
from batchledger.model.records.columns import REST, Column

_RECORDS_TOGETHER = 32
# More names than these are read field by field: each of them would have to be looked for in the whole text.
_MOST_COUNTED = 16


@dataclass(frozen=True)
class RestReader:
    """Reads what is left of an object beside ``columns``; pickled to the executors."""

    columns: tuple[Column, ...]

    def read(self, value: bytes) -> str | None:
        """Return the undeclared fields of an object that ``ObjectReader`` reads; None without any. Raises UnfitError.

        Example: ``{"id": 1, "tax": 0.10}`` leaves ``{"tax":0.10}``.
        """
        rest = _leave(self._declared, value.removeprefix(BYTE_ORDER_MARK).strip())
        if rest is None:
            return None
        text: str = self._check(rest)
        return text

    def find_strange(self, values: Sequence[bytes]) -> Iterator[int]:
        """Yield the places of values that may have undeclared fields. Few of many are found at little cost."""
        for start in range(0, len(values), _RECORDS_TOGETHER):
            together = values[start : start + _RECORDS_TOGETHER]
            if not self._declared.surely_covers(b"\n".join(together)):
                yield from range(start, start + len(together))

    @cached_property
    def _declared(self) -> Declared:
        return declare_fields(self.columns)

    @cached_property
    def _check(self) -> Reader:
        return make_reader(REST)


@dataclass(frozen=True)
class KeepingBlocks:
    """Decodes as ``blocks`` does, with one more column: the rest of each record; pickled to the executors."""

    blocks: BlockDecoder
    rest: RestReader

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
        """Return the same as ``blocks``. No field is unknown. A record whose rest cannot be kept is not sure."""
        rows, is_sure, may_have_rest = self.blocks.decode(values)
        texts, is_kept = self._read(values, is_sure, may_have_rest)
        rows = pa.RecordBatch.from_arrays([*rows.columns, texts], schema=self._schema)
        if not is_kept.all():
            rows, is_sure = rows.filter(pa.array(is_kept)), is_sure.copy()
            is_sure[np.flatnonzero(is_sure)[~is_kept]] = False
        return rows, is_sure, np.zeros(rows.num_rows, bool)

    def _read(
        self, values: pa.BinaryArray, is_sure: np.ndarray, may_have_rest: np.ndarray
    ) -> tuple[pa.StringArray, np.ndarray]:
        """Return the rest of each sure record, and whether it can be kept."""
        is_kept = np.ones(len(may_have_rest), bool)
        places = np.flatnonzero(may_have_rest)
        if not len(places):
            return pa.nulls(len(is_kept), pa.string()), is_kept
        texts: list[str | None] = [None] * len(is_kept)
        looked_at = values.take(pa.array(np.flatnonzero(is_sure)[places])).to_pylist()
        for number in self.rest.find_strange(looked_at):
            place, value = places[number], looked_at[number]
            try:
                texts[place] = self.rest.read(value)
            except UnfitError:
                is_kept[place] = False
        return pa.array(texts, pa.string()), is_kept

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema((*self.blocks.columns, REST))


def _leave(declared: Declared, token: bytes) -> bytes | None:
    """Return what of a value is not declared; None if all of it is."""
    if token[:1] == b"{" and declared.fields is not None:
        return _leave_of_object(declared, token)
    if declared.each is None or token[:1] not in (b"{", b"["):
        return None
    if token[:1] == b"{":
        left = ((name, _leave(declared.each, bytes(raw))) for name, raw in fields_given_once.decode(token).items())
        return _write((name, each) for name, each in left if each is not None)
    parts = [_leave(declared.each, bytes(raw)) for raw in elements.decode(token)]
    return b"[%s]" % b",".join(each or b"null" for each in parts) if any(parts) else None


def _leave_of_object(declared: Declared, token: bytes) -> bytes | None:
    known, left = declared.fields or {}, []
    fields = fields_given_once.decode(token)
    unknown = fields.keys() - known
    if declared.is_flat and not unknown:
        return None
    for name, raw in fields.items() if _are_given_once(unknown, token) else parse_fields(token):
        if name in unknown:
            left.append((name, bytes(raw)))
        elif (within := known[name]) is not None and (rest := _leave(within, bytes(raw))) is not None:
            left.append((name, rest))
    return _write(left)


def _are_given_once(names: AbstractSet[str], token: bytes) -> bool:
    """Whether an object surely has no field of these names twice. To read all fields as they are costs more."""
    if len(names) > _MOST_COUNTED or (names and b"\\" in token):
        return False
    return [name for name in names if token.count(b'"%s"' % name.encode()) != 1] == []


def _write(fields: Iterable[tuple[str, bytes]]) -> bytes | None:
    written = b",".join([b"%s:%s" % (msgspec.json.encode(name), each) for name, each in fields])
    return b"{%s}" % written if written else None
