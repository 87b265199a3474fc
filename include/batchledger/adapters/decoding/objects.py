"""Reads one JSON object as the values of its columns, strictly by RFC 8259. The reference: docs/reference/meaning.md.

If a field is given twice, a parser that keeps the last would choose for the producer. This module gets every field with
the exact text of its value: each name is an object of its own, so two names of the same text stay two.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from batchledger.adapters.decoding.meaning import Reader, UnfitError, make_reader, make_text_reader
from batchledger.model.records.columns import Column

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_LEVELS = 500
"""How deep arrays and objects may be nested: every parser has a bound, each another one."""

NOT_UTF8 = "the value is not valid UTF-8"
NOT_ONE_OBJECT = "the value is not exactly one JSON object"
HALF_A_PAIR = "the value holds half of a surrogate pair, which is no character"
TOO_DEEP = f"the value is nested deeper than {MOST_LEVELS} levels"

# Looks at each byte once: a string without an end takes the rest.
_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{])|([\]}])', re.DOTALL)
_HALF_A_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)

_ABSENT: Any = object()


class _Name(str):
    """The name of a field; equal to no other, not even of the same text."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


_fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=operator.call)
_fields_given_once = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True)
class ObjectReader:
    """Reads objects as the values of ``columns``, in their order; pickled to the executors."""

    columns: tuple[Column, ...]

    def read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column, None for a field that is null or absent. Raises UnfitError."""
        values, place_by_name, readers = [_ABSENT] * len(self.columns), self._place_by_name, self._readers
        for name, raw in _parse(value).items():
            place = place_by_name.get(str(name))
            if place is None:
                continue
            if values[place] is not _ABSENT:
                raise UnfitError(f"field {name} is given twice")
            token = bytes(raw)
            values[place] = None if token == b"null" else readers[place](token)
        return [None if each is _ABSENT else each for each in values]

    def find_unknown(self, value: bytes) -> AbstractSet[str]:
        """Return the names of the fields that are no column, of an object that ``read`` accepts."""
        return _fields_given_once.decode(value.removeprefix(BYTE_ORDER_MARK)).keys() - self._place_by_name.keys()

    @cached_property
    def _place_by_name(self) -> Mapping[str, int]:
        return {column.name: place for place, column in enumerate(self.columns)}

    @cached_property
    def _readers(self) -> Sequence[Reader]:
        return [make_reader(column) for column in self.columns]


@dataclass(frozen=True)
class KeyReader:
    """Reads the columns ``key`` from a record's key: one column from its text, several from a JSON object."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def read(self, key: bytes | None) -> Sequence[Any]:
        """Return a value a column, None for columns outside of the key. Raises UnfitError."""
        if key is None:
            raise self._refuse("the record has no key")
        try:
            values = self._read_keyed(key)
        except UnfitError as error:
            raise self._refuse(str(error)) from error
        if None in values:
            raise self._refuse("a part of it is null or absent")
        by_name = dict(zip([column.name for column in self.columns_of_key], values, strict=True))
        return [by_name.get(column.name) for column in self.columns]

    def _read_keyed(self, key: bytes) -> Sequence[Any]:
        if len(self.columns_of_key) > 1:
            return ObjectReader(self.columns_of_key).read(key)
        (column,) = self.columns_of_key
        return [make_bytes_reader(column)(key)]

    def _refuse(self, why: str) -> UnfitError:
        return UnfitError(f"the record has no value, and its key does not decode as {', '.join(self.key)}: {why}")

    @cached_property
    def columns_of_key(self) -> tuple[Column, ...]:
        """The columns that it reads."""
        return tuple(column for column in self.columns if column.name in self.key)


def make_bytes_reader(column: Column) -> Callable[[bytes], Any]:
    """Return the function that reads UTF-8 text as a value of the column, as ``make_text_reader`` says."""
    read = make_text_reader(column)
    return lambda content: read(_decode(content))


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnfitError(NOT_UTF8) from None


def _parse(value: bytes) -> Mapping[_Name, msgspec.Raw]:
    """Return the fields in their order. Raises UnfitError."""
    _decode(value)
    if value.count(b"{") + value.count(b"[") > MOST_LEVELS and _depth(value) > MOST_LEVELS:
        raise UnfitError(TOO_DEEP)
    try:
        fields: Mapping[_Name, msgspec.Raw] = _fields.decode(value.removeprefix(BYTE_ORDER_MARK))
    except msgspec.DecodeError:
        # An escaped backslash escapes nothing.
        is_half = _HALF_A_PAIR.search(value.replace(rb"\\", b"  "))
        raise UnfitError(HALF_A_PAIR if is_half else NOT_ONE_OBJECT) from None
    return fields


def parse_object(value: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and token of each field, in their order, also if it is given twice. Raises UnfitError."""
    for name, raw in _parse(value).items():
        yield str(name), bytes(raw)


def _depth(value: bytes) -> int:
    depth = deepest = 0
    for found in _BRACKET.finditer(value):
        depth += bool(found[1]) - bool(found[2])
        deepest = max(deepest, depth)
    return deepest
