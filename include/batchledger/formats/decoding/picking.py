"""Keeps the texts of values as the producer wrote them, from many JSON records at once.

pyarrow has no type for the text of any value, nor for an object with any names. msgspec picks such texts. It takes the
last of two fields of one name; what it reads is doubtful, therefore, if a name is there more often than it was read.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter, is_not

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import to_arrow_type
from batchledger.formats.decoding.meaning import UnfitError
from batchledger.formats.decoding.nested import are_plain, make_reader
from batchledger.model.records.columns import Column
from batchledger.model.records.types import Json, Scalar

# A letter, digit or underscore that is written as an escape may be part of a column's name.
_ESCAPED_NAME = re.compile(rb"\\u00(?:3[0-9]|[46][1-9A-Fa-f]|5[0-9AaFf]|7[0-9Aa])")

_ABSENT = msgspec.Raw(b"null")
"""In place of a field that a record does not have. It means the same as a null."""


class DoubtfulError(Exception):
    """At least one of the records has to be read by itself."""


def read_as_written(
    columns: Sequence[Column], picked: Sequence[msgspec.Struct], text: bytes, count: int
) -> Iterator[tuple[Column, Sequence[bytes]]]:
    """Yield columns with the texts that the producer wrote, ``null`` for a field that is absent.

    ``text`` has ``count`` records, of which these fields were ``picked``. A field that is given twice would go
    unnoticed, so its name has to be in the text no more often than it is read. Raises DoubtfulError.
    """
    # Looking for one byte first, as below.
    if text.find(b"\\") >= 0 and _ESCAPED_NAME.search(text):
        raise DoubtfulError
    if len(picked) != count:
        raise DoubtfulError
    for column in columns:
        field = column.source[0]
        found = list(map(attrgetter(_attribute(field)), picked))
        name, given = field.encode(), sum(map(is_not, found, repeat(_ABSENT)))
        if text.count(b'"%s"' % name) != given and len(re.findall(rb'"%s"\s*:' % name, text)) != given:
            raise DoubtfulError
        yield column, list(map(bytes, found))


def read_texts(column: Column, texts: Sequence[bytes]) -> pa.Array:
    """Return the values of a column that keeps texts, or has a type that the parser does not know.

    Raises DoubtfulError.
    """
    read = make_reader(column)
    tokens = pa.array(texts, pa.string())
    is_null = pc.equal(tokens, "null")
    if column.type is Json.JSONB and are_plain(texts):
        return pc.if_else(is_null, pa.scalar(None, pa.string()), tokens)
    if column.type is not Scalar.STRING:
        try:
            values = [None if token == b"null" else read(token) for token in texts]
        except UnfitError as error:
            raise DoubtfulError from error
        return pa.array(values, to_arrow_type(column.type))
    is_string = pc.starts_with(tokens, '"')
    strings = [read(token.encode()) for token in tokens.filter(is_string).to_pylist()]
    kept = pc.replace_with_mask(tokens, is_string, pa.array(strings, pa.string()))
    return pc.if_else(is_null, pa.scalar(None, pa.string()), kept)


@cache
def make_picker(names: tuple[str, ...], *, is_strict: bool = False) -> "msgspec.json.Decoder[msgspec.Struct]":
    """Return what reads these fields of an object as their exact texts; a strict one refuses any other field."""
    fields = [(_attribute(name), msgspec.Raw, msgspec.field(name=name, default=_ABSENT)) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Picked", fields, gc=False, forbid_unknown_fields=is_strict))


def _attribute(name: str) -> str:
    """The name of a field as one that Python takes, whatever letters it has."""
    return f"field_{name.encode().hex()}"
