"""Decodes values that are one JSON object each: many at once where that is sure, the others one by one.

The reference is docs/reference/meaning.md. What no column declares can be kept, as the JSON of its exact texts
(``source.unknown_fields: keep``): what columns declare and what is kept give the record back together. An object
within keeps its undeclared fields alone, at its place, and an array keeps its length: null stands for an element that
has none.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from batchledger.formats.decoding.blocks import BlockDecoder
from batchledger.formats.decoding.decoded import DecodedData, keep_rest, read_singly
from batchledger.formats.decoding.meaning import Reader, UnfitError
from batchledger.formats.decoding.nested import (
    Declared,
    declare_fields,
    elements,
    fields_given_once,
    make_reader,
    parse_fields,
)
from batchledger.formats.decoding.objects import BYTE_ORDER_MARK, ObjectReader
from batchledger.model.records.columns import REST, Column
from batchledger.model.records.rules import UnknownFieldPolicy
from batchledger.model.records.unknown_fields import write_name

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


@dataclass(frozen=True)
class DocumentDecoder:
    """Decodes JSON values, or keys, into ``columns``; pickled to the executors.

    The last column may be ``REST``, which has what no other one declares. Then no field is undeclared.
    """

    columns: tuple[Column, ...]
    unknown_fields: UnknownFieldPolicy = UnknownFieldPolicy.IGNORE

    def decode(self, values: pa.BinaryArray, _headers: pa.StringArray | None = None) -> DecodedData:
        """Decode the values that are not null. JSON needs no headers."""
        rows, is_sure, may_have_unknown = self._blocks.decode(values)
        data = read_singly(rows, is_sure, values, self._read)
        is_strange = data.is_decoded & ~is_sure
        is_strange[np.flatnonzero(is_sure)[may_have_unknown]] = True
        strange = np.flatnonzero(is_strange)
        if REST in self.columns:
            looked_at = values.take(pa.array(strange)).to_pylist()
            left = strange[list(self._rest.find_strange(looked_at))].tolist()
            return keep_rest(data, values, left, self._rest.read)
        if self.unknown_fields.counts and len(strange):
            return data._replace(undeclared=list(self._group_unknown(values, strange)))
        return data

    def _group_unknown(self, values: pa.BinaryArray, places: np.ndarray) -> Iterator[tuple[frozenset[str], np.ndarray]]:
        """Yield unknown fields, together with the places of the values that have exactly these."""
        places_by_names: dict[frozenset[str], list[int]] = {}
        for place in places.tolist():
            names = frozenset(self._objects.find_unknown(values[place].as_py()))
            places_by_names.setdefault(names, []).append(place)
        places_by_names.pop(frozenset(), None)
        for names, found in places_by_names.items():
            yield names, np.array(found)

    def _read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column, beside ``REST``. Raises UnfitError."""
        read = self._objects.read(value)
        if self.unknown_fields is UnknownFieldPolicy.QUARANTINE and (unknown := self._objects.find_unknown(value)):
            raise UnfitError(f"field {min(map(write_name, unknown))} is not declared")
        return read

    @property
    def _own(self) -> tuple[Column, ...]:
        return tuple(each for each in self.columns if each != REST)

    @cached_property
    def _blocks(self) -> BlockDecoder:
        return BlockDecoder(self._own, self.unknown_fields)

    @cached_property
    def _objects(self) -> ObjectReader:
        return ObjectReader(self._own)

    @cached_property
    def _rest(self) -> RestReader:
        return RestReader(self._own)
