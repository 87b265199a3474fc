"""Reads one JSON object as the values of its columns, strictly by RFC 8259. The reference: docs/reference/meaning.md.

If a field is given twice, a parser that keeps the last would choose for the producer. This module gets every field with
the exact text of its value.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from batchledger.formats.decoding.meaning import Reader, UnfitError, make_scalar_reader, make_text_reader
from batchledger.formats.decoding.nested import Declared, declare_fields, make_path_reader, parse_fields
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
_ENVELOPE = {"schema", "payload"}


@dataclass(frozen=True)
class ObjectReader:
    """Reads objects as the values of ``columns``, in their order; pickled to the executors."""

    columns: tuple[Column, ...]

    def read(self, value: bytes) -> Sequence[Any]:
        """Return a value a column, None for a field that is null or absent. Raises UnfitError."""
        values, takers_by_name = [_ABSENT] * len(self.columns), self._takers_by_name
        for name, token in parse_object(value):
            for place, read in takers_by_name.get(name, ()):
                if values[place] is not _ABSENT:
                    raise UnfitError(f"field {name} is given twice")
                values[place] = None if token == b"null" else read(token)
        return [None if each is _ABSENT else each for each in values]

    def find_unknown(self, value: bytes) -> AbstractSet[str]:
        """Return the fields that no column declares, of an object that ``read`` accepts: ``customer.name``."""
        return frozenset(self._declared.find_unknown(value.removeprefix(BYTE_ORDER_MARK).strip()))

    @cached_property
    def _takers_by_name(self) -> Mapping[str, Sequence[tuple[int, Reader]]]:
        takers: dict[str, list[tuple[int, Reader]]] = {}
        for place, column in enumerate(self.columns):
            takers.setdefault(column.source[0], []).append((place, make_path_reader(column)))
        return takers

    @cached_property
    def _declared(self) -> Declared:
        return declare_fields(self.columns)


@dataclass(frozen=True)
class KeyReader:
    """Reads the columns ``key`` from a record's key: one column from its text, several from a JSON object.

    Kafka Connect and Debezium also write one column as a JSON string, or as an object, with a schema around it or not.
    """

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
        names = [column.name for column in self.columns_of_key]
        token = _unwrap(key, names)
        if len(names) > 1:
            return ObjectReader(self.columns_of_key).read(token)
        (column,) = self.columns_of_key
        fields = _names_of(token)
        if fields is not None:
            if fields != set(names):
                raise UnfitError(f"it is a JSON object with other fields than {column.name}")
            return ObjectReader(self.columns_of_key).read(token)
        if _is_string(token):
            return [make_scalar_reader(column)(token.strip())]
        return [make_bytes_reader(column)(token)]

    def _refuse(self, why: str) -> UnfitError:
        return UnfitError(f"the record has no value, and its key does not decode as {', '.join(self.key)}: {why}")

    @cached_property
    def columns_of_key(self) -> tuple[Column, ...]:
        """The columns that it reads."""
        return tuple(Column(column.name, column.type) for column in self.columns if column.name in self.key)


def _unwrap(key: bytes, names: Sequence[str]) -> bytes:
    """Return a key without the schema that Connect's JSON converter puts around it. Raises UnfitError."""
    fields = _names_of(key)
    if fields != _ENVELOPE or fields == set(names):
        return key
    payload = dict(parse_object(key))["payload"]
    if payload == b"null":
        raise UnfitError("its payload is null")
    return payload


def _names_of(token: bytes) -> AbstractSet[str] | None:
    """Return the names of the fields if it is one JSON object. Raises UnfitError if it is one that is not read."""
    if not token.lstrip().startswith(b"{"):
        return None
    try:
        return {name for name, _ in parse_object(token)}
    except UnfitError as error:
        if str(error) == NOT_ONE_OBJECT:
            return None
        raise


def _is_string(token: bytes) -> bool:
    """Whether it is one JSON string."""
    try:
        return isinstance(msgspec.json.decode(token), str) if token.lstrip().startswith(b'"') else False
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def make_bytes_reader(column: Column) -> Callable[[bytes], Any]:
    """Return the function that reads UTF-8 text as a value of the column, as ``make_text_reader`` says."""
    read = make_text_reader(column)
    return lambda content: read(_decode(content))


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UnfitError(NOT_UTF8) from None


def parse_object(value: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and token of each field, in their order, also if it is given twice. Raises UnfitError."""
    _decode(value)
    if value.count(b"{") + value.count(b"[") > MOST_LEVELS and _depth(value) > MOST_LEVELS:
        raise UnfitError(TOO_DEEP)
    try:
        yield from parse_fields(value.removeprefix(BYTE_ORDER_MARK))
    except msgspec.DecodeError:
        # An escaped backslash escapes nothing.
        is_half = _HALF_A_PAIR.search(value.replace(rb"\\", b"  "))
        raise UnfitError(HALF_A_PAIR if is_half else NOT_ONE_OBJECT) from None


def _depth(value: bytes) -> int:
    depth = deepest = 0
    for found in _BRACKET.finditer(value):
        depth += bool(found[1]) - bool(found[2])
        deepest = max(deepest, depth)
    return deepest
