"""Reads JSON tokens as values of any declared type, nested ones too. The reference: docs/reference/meaning.md.

Arrays, maps and structs are read field by field, by the rules for scalars. Whatever does not fit makes the whole record
unfit: there is no empty object in place of one that cannot be read.
"""

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import msgspec

from batchledger.formats.decoding.meaning import Reader, UnfitError, kind_of, make_scalar_reader, unfit
from batchledger.model.records.columns import Column
from batchledger.model.records.types import ArrayOf, ColumnType, Json, MapOf, StructOf

MOST_DIGITS = 10_000
"""How many digits a number of a ``jsonb`` column may have, before its point or behind."""

_NUMBER = re.compile(r"-?(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:[eE](?P<exponent>[-+]?[0-9]+))?")
_MOST_EXPONENT_DIGITS = 9
_LONG_EXPONENT = re.compile(rb"[eE][-+]?0*[1-9][0-9]{3}")
_END_OF_NAME = re.compile(rb'"[ \t\r\n]*:')


class _Name(str):
    """The name of a field; equal to no other, not even of the same text: two fields of one name stay two."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


_fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=operator.call)
fields_given_once = msgspec.json.Decoder(dict[str, msgspec.Raw])
elements = msgspec.json.Decoder(list[msgspec.Raw])


def parse_fields(token: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and token of each field of an object, in their order, also if it is given twice.

    Raises msgspec.DecodeError.
    """
    fields: Mapping[_Name, msgspec.Raw] = _fields.decode(token)
    for name, raw in fields.items():
        yield str(name), bytes(raw)


def count_fields(token: bytes) -> int:
    """Return how many fields an object has, -1 for a value that is none. Raises msgspec.DecodeError."""
    return len(_fields.decode(token)) if token[:1] == b"{" else -1


def make_reader(column: Column) -> Reader:
    """Return the function that reads a token, not ``null``, as a value of the column. Raises UnfitError."""
    match column.type:
        case ArrayOf(element):
            return partial(_read_array, column, make_reader(Column(f"{column.name}[]", element)))
        case MapOf(value):
            return partial(_read_map, column, make_reader(Column(f"{column.name}[]", value)))
        case StructOf(fields):
            readers = {each.name: make_reader(Column(f"{column.name}.{each.name}", each.type)) for each in fields}
            return partial(_read_struct, column, readers)
        case Json():
            return partial(_read_json, column)
        case _:
            return make_scalar_reader(column)


def make_path_reader(column: Column) -> Reader:
    """Return the function that reads a token, not ``null``, of the field that the column's path begins with.

    The value is None if a field on the way is null or absent. Raises UnfitError.
    """
    read, way = make_reader(column), column.source[1:]
    return partial(_read_at_end, column, way, read) if way else read


def _read_at_end(column: Column, way: Sequence[str], read: Reader, token: bytes) -> Any:
    for place, name in enumerate(way, 1):
        if token[:1] != b"{":
            raise UnfitError(f"{'.'.join(column.source[:place])} is {kind_of(token)}, not an object")
        tokens = [each for found, each in parse_fields(token) if found == name]
        if len(tokens) > 1:
            raise UnfitError(f"field {'.'.join(column.source[: place + 1])} is given twice")
        if not tokens or tokens[0] == b"null":
            return None
        (token,) = tokens
    return read(token)


def _open(column: Column, token: bytes) -> Iterable[tuple[str, bytes]]:
    if token[:1] != b"{":
        raise unfit(column, kind_of(token))
    return parse_fields(token)


def _read_array(column: Column, read: Reader, token: bytes) -> list[Any]:
    if token[:1] != b"[":
        raise unfit(column, kind_of(token))
    return [None if (each := bytes(raw)) == b"null" else read(each) for raw in elements.decode(token)]


def _read_map(column: Column, read: Reader, token: bytes) -> list[tuple[str, Any]]:
    values: dict[str, Any] = {}
    for name, each in _open(column, token):
        if name in values:
            raise unfit(column, "a name that is given twice")
        if "\x00" in name:
            raise unfit(column, "U+0000")
        values[name] = None if each == b"null" else read(each)
    return list(values.items())


def _read_struct(column: Column, readers: Mapping[str, Reader], token: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, each in _open(column, token):
        if name not in readers:
            continue
        if name in values:
            raise UnfitError(f"field {column.name}.{name} is given twice")
        values[name] = None if each == b"null" else readers[name](each)
    return values


# A reader holds none: it is pickled.
@cache
def _make_json_decoder(column: Column) -> json.JSONDecoder:
    number = partial(_require_digits, column)
    return json.JSONDecoder(object_pairs_hook=partial(_require_unique, column), parse_int=number, parse_float=number)


def _read_json(column: Column, token: bytes) -> str:
    """Keep the text of any JSON that is surely the same value in a database: names are unique, numbers not too long."""
    if are_plain([token]):
        return token.decode()
    if b"\\u0000" in token and b"\\u0000" in token.replace(rb"\\", b""):
        raise unfit(column, "U+0000")
    text = token.decode()
    # The text is kept. What this parser makes of it is of no interest.
    _make_json_decoder(column).decode(text)
    return text


def are_plain(tokens: Sequence[bytes]) -> bool:
    """Whether names are surely unique and numbers short, by a look that costs a fraction of reading them in Python.

    Written again without white space, JSON has as many ends of names, unless a name was there twice. Without escapes of
    characters, nothing within a text becomes such an end.
    """
    text = b"[%s]" % b",".join(tokens)
    if max(map(len, tokens), default=0) > MOST_DIGITS or b"\\u" in text or _LONG_EXPONENT.search(text):
        return False
    try:
        again = msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return False
    return again.count(b'":') == len(_END_OF_NAME.findall(text))


def _require_unique(column: Column, pairs: Sequence[tuple[str, Any]]) -> None:
    if len(pairs) > 1 and len({name for name, _ in pairs}) != len(pairs):
        raise unfit(column, "a name that is given twice")


def _require_digits(column: Column, text: str) -> None:
    if len(text) <= _MOST_EXPONENT_DIGITS and "e" not in text and "E" not in text:
        return
    found = _NUMBER.fullmatch(text)
    exponent = (found and found["exponent"]) or "0"
    digits = len(exponent.lstrip("+-").lstrip("0"))
    power = int(exponent) if digits <= _MOST_EXPONENT_DIGITS else MOST_DIGITS + 1
    if found is None or len(found["whole"]) + power > MOST_DIGITS or len(found["fraction"] or "") - power > MOST_DIGITS:
        raise unfit(column, f"a number with more than {MOST_DIGITS:,} digits")


@dataclass(frozen=True)
class Declared:
    """What is declared of a value that may have fields within.

    ``fields`` belong to an object; ``each`` is what is declared of the elements of an array or the values of a map.
    """

    fields: Mapping[str, "Declared | None"] | None = None
    each: "Declared | None" = None

    @cached_property
    def is_flat(self) -> bool:
        """Whether nothing within the fields can be unknown."""
        return self.fields is not None and not any(self.fields.values())

    def surely_covers(self, lines: bytes) -> bool:
        """Whether objects, one a line, surely have no field that is not declared."""
        try:
            self._coverage.decode_lines(lines)
        except msgspec.DecodeError:
            return False
        return True

    @cached_property
    def _coverage(self) -> "msgspec.json.Decoder[Any]":
        return msgspec.json.Decoder(_to_coverage(self))

    def find_unknown(self, token: bytes, place: str = "") -> Iterator[str]:
        """Yield the fields that are not declared: ``customer.name``, ``items[].price``. A name may come twice."""
        if token[:1] == b"{" and self.fields is not None:
            for name, within in fields_given_once.decode(token).items():
                path = f"{place}.{name}" if place else name
                if name not in self.fields:
                    yield path
                elif (declared := self.fields[name]) is not None:
                    yield from declared.find_unknown(bytes(within), path)
        elif self.each is not None and token[:1] in (b"{", b"["):
            tokens = fields_given_once.decode(token).values() if token[:1] == b"{" else elements.decode(token)
            for within in tokens:
                yield from self.each.find_unknown(bytes(within), f"{place}[]")


def _to_coverage(declared: Declared | None) -> Any:
    """Return a type of msgspec that takes what is declared, and nothing else."""
    if declared is None:
        return msgspec.Raw
    if declared.fields is None:
        each = _to_coverage(declared.each)
        return list[each] | dict[str, each] | None  # type: ignore[valid-type]
    fields = [
        (f"field_{number}", _to_coverage(within), msgspec.field(name=name, default=None))
        for number, (name, within) in enumerate(declared.fields.items())
    ]
    return msgspec.defstruct("Covered", fields, gc=False, forbid_unknown_fields=True) | None


def declare_fields(columns: Iterable[Column]) -> Declared:
    """Return what columns declare of an object. A value that one of them keeps as a whole has no unknown fields."""
    declared = Declared({})
    for column in columns:
        within = _declare_type(column.type)
        for name in reversed(column.source):
            within = Declared({name: within})
        declared = _merge(declared, within) or declared
    return declared


def _merge(one: Declared | None, other: Declared | None) -> Declared | None:
    if one is None or other is None:
        return None
    if one.fields is None or other.fields is None:
        # An array is no object, so a record fits one of the two alone.
        return one
    both = {name: _merge(one.fields[name], other.fields[name]) for name in one.fields.keys() & other.fields.keys()}
    return Declared({**one.fields, **other.fields, **both})


def _declare_type(type_: ColumnType) -> Declared | None:
    match type_:
        case ArrayOf(inner) | MapOf(inner):
            within = _declare_type(inner)
            return None if within is None else Declared(each=within)
        case StructOf(fields):
            return Declared({each.name: _declare_type(each.type) for each in fields})
        case _:
            return None
