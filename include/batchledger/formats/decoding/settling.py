"""Settles what pyarrow's JSON parser gives into the types of columns, as far as it is surely what the page says.

``docs/reference/meaning.md`` is the page. Whatever the parser may have read in another way raises DoubtfulError.

pyarrow has no type for the text of any value, nor for an object with any names. msgspec picks such texts. It takes the
last of two fields of one name; what it reads is doubtful, therefore, if a name is there more often than it was read.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter, is_not
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import MOMENT, to_arrow_type
from batchledger.formats.decoding.meaning import (
    EARLIEST_MICROSECONDS,
    LARGEST_EXACT_DOUBLE,
    LARGEST_EXACT_FLOAT,
    LATEST_MICROSECONDS,
    ZONE,
    UnfitError,
    decode_base64,
)
from batchledger.formats.decoding.nested import are_plain, make_reader
from batchledger.model.records.columns import Column
from batchledger.model.records.types import (
    UUID_FORM,
    ArrayOf,
    ColumnType,
    DecimalOf,
    Epoch,
    Floating,
    Integer,
    Json,
    Scalar,
    StructOf,
)

# How a number may be written that is not 0 and becomes a double of 0.
_TINY = "[eE]-0*[1-9][0-9]{2}|0{220}"

# With up to 38 digits behind the point, a number that is larger has an exponent of two digits.
_TINIEST = 1e-90

# There is no year 0.
_DAY = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_SURE_DAY = f"^{_DAY}$"
_SURE_MOMENT = rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?{ZONE}?$"

_BINARY = Column("", Scalar.BINARY)

_Layer = dict[str, Any]
"""Parsed types by the name of the field, or what is parsed of an object."""


def to_parsed_type(type_: ColumnType) -> pa.DataType | None:  # noqa: PLR0911 -- one a type
    """Return the type that the parser is to give for a declared type; None if it cannot read such values.

    A type that is not named here is one of these: its values are picked as texts, and read one by one.
    """
    match type_:
        case ArrayOf(element):
            within = to_parsed_type(element)
            return None if within is None else pa.list_(within)
        case StructOf(fields):
            parsed = {each.name: to_parsed_type(each.type) for each in fields}
            return None if None in parsed.values() else pa.struct(list(parsed.items()))
        case Scalar.STRING | Scalar.BOOLEAN | Integer() | DecimalOf():
            return to_arrow_type(type_)
        case Scalar.DATE | Scalar.TIMESTAMP | Scalar.BINARY | Scalar.UUID:
            # Texts become values only if they have the one form that the parser reads as the page says.
            return pa.string()
        case Floating():
            return pa.float64()
        case Epoch():
            return pa.int64()
        case _:
            return None


def lay_out(columns: Sequence[Column]) -> Sequence[pa.Schema]:
    """Return what to parse for columns, which have a parsed type: one schema, or several if columns share fields.

    Example: ``customer string`` and ``customer.id as customer_id bigint`` cannot be read at once.
    """
    layers: list[_Layer] = [{}]
    for column in columns:
        type_ = to_parsed_type(column.type)
        if not any(_insert(layer, column.source, type_) for layer in layers):
            layers.append({})
            _insert(layers[-1], column.source, type_)
    return [pa.schema(list(_to_struct(layer))) for layer in layers]


def _insert(layer: _Layer, path: Sequence[str], type_: pa.DataType) -> bool:
    """Add a field to what is parsed, unless a value would have to be an object and another one at once."""
    name, *within = path
    if not within:
        return layer.setdefault(name, type_) is type_
    inner = layer.setdefault(name, {})
    return isinstance(inner, dict) and _insert(inner, within, type_)


def _to_struct(layer: _Layer) -> pa.DataType:
    return pa.struct([(name, _to_struct(each) if isinstance(each, dict) else each) for name, each in layer.items()])


def replace_decimals(type_: pa.DataType) -> pa.DataType:
    """Return a parsed type with doubles in place of decimals within."""
    if pa.types.is_list(type_):
        return pa.list_(replace_decimals(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(each.name, replace_decimals(each.type)) for each in type_])
    return pa.float64() if pa.types.is_decimal(type_) else type_


def have_tiny(doubles: pa.Array) -> bool:
    """Whether a number, also within, is 0 or so close to it that only an exponent can write it."""
    if pa.types.is_list(doubles.type):
        return have_tiny(doubles.values)
    if pa.types.is_struct(doubles.type):
        return any(have_tiny(doubles.field(place)) for place in range(doubles.type.num_fields))
    is_number = pa.types.is_floating(doubles.type)
    return is_number and bool((np.abs(doubles.to_numpy(zero_copy_only=False)) < _TINIEST).any())


def require_same_decimals(found: pa.Array, written: pa.Array) -> None:
    """Compare decimals, also within, with the same values as doubles. Raises DoubtfulError."""
    if pa.types.is_list(found.type):
        require_same_decimals(found.values, written.values)
    elif pa.types.is_struct(found.type):
        for place in range(found.type.num_fields):
            require_same_decimals(found.field(place), written.field(place))
    elif pa.types.is_decimal(found.type):
        numbers = found.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not np.allclose(numbers, written.to_numpy(zero_copy_only=False), rtol=1e-9, atol=0, equal_nan=True):
            raise DoubtfulError


def settle(type_: ColumnType, values: pa.Array, records: pa.StringArray, *, are_beside: bool = True) -> pa.Array:
    """Return the values in the column's own type; ``records`` are what they were read from.

    Unless they ``are_beside`` their records, any value may come from any record. Raises pa.ArrowInvalid or
    DoubtfulError.
    """
    match type_:
        case ArrayOf(element):
            within = settle(element, values.values, records, are_beside=False)
            return pa.ListArray.from_arrays(values.offsets, within, mask=values.is_null())
        case StructOf(fields):
            children = [
                settle(each.type, values.field(place), records, are_beside=are_beside)
                for place, each in enumerate(fields)
            ]
            named = [pa.field(each.name, child.type) for each, child in zip(fields, children, strict=True)]
            return pa.StructArray.from_arrays(children, fields=named, mask=values.is_null())
        case _:
            return _settle_scalars(type_, values, records, are_beside)


def _settle_scalars(type_: ColumnType, values: pa.Array, records: pa.StringArray, are_beside: bool) -> pa.Array:
    settled = values
    match type_:
        case Floating.DOUBLE:
            _require_numbers(values.to_numpy(zero_copy_only=False), LARGEST_EXACT_DOUBLE, records, are_beside)
        case Floating():
            settled = _to_floats(values, records, are_beside)
        case Scalar.DATE:
            require_form(values, _SURE_DAY)
            settled = values.cast(pa.date32())
        case Scalar.TIMESTAMP:
            settled = _to_moments(values)
        case Scalar.BINARY:
            settled = _decode_base64(values)
        case Scalar.UUID:
            require_form(values, f"^{UUID_FORM}$")
            settled = pc.ascii_lower(values)
        case Epoch():
            unit = type_.microseconds
            _require_between(values, EARLIEST_MICROSECONDS // unit, LATEST_MICROSECONDS // unit)
            settled = pc.multiply(values, unit).cast(MOMENT)
        case DecimalOf():
            values.validate(full=True)  # which refuses what is beyond the precision; the parser does not
        case _:
            # The parser gives what the column holds.
            pass
    return settled


def _to_floats(values: pa.Array, records: pa.StringArray, are_beside: bool) -> pa.Array:
    doubles = values.to_numpy(zero_copy_only=False)
    _require_numbers(doubles, LARGEST_EXACT_FLOAT, records, are_beside)
    floats = doubles.astype(np.float32)
    if ((floats == 0) & (doubles != 0)).any():
        raise DoubtfulError
    return pa.array(floats, mask=values.is_null().to_numpy(zero_copy_only=False))


def _to_moments(values: pa.Array) -> pa.Array:
    require_form(values, _SURE_MOMENT)
    # A moment without a zone is in UTC.
    has_zone = pc.match_substring_regex(values, f"{ZONE}$")
    zoned = pc.if_else(has_zone, values, pc.binary_join_element_wise(values, "Z", ""))
    return _require_between(zoned.cast(MOMENT), EARLIEST_MICROSECONDS, LATEST_MICROSECONDS)


def _require_numbers(numbers: np.ndarray, largest_exact: int, records: pa.StringArray, are_beside: bool) -> None:
    """Refuse numbers beyond the type, whole numbers whose digits it may not keep, and a 0 that was not written so."""
    if (np.abs(numbers) >= largest_exact).any():
        raise DoubtfulError
    is_zero = numbers == 0
    if not is_zero.any():
        return
    written = records.filter(pa.array(is_zero)) if are_beside else records
    if pc.any(pc.match_substring_regex(written, _TINY)).as_py():
        raise DoubtfulError


def require_form(values: pa.Array, form: str) -> None:
    """Raise DoubtfulError unless all texts have the form, a regular expression."""
    if pc.all(pc.match_substring_regex(values, form)).as_py() is False:
        raise DoubtfulError


def _require_between(values: pa.Array, least: int, most: int) -> pa.Array:
    found = pc.min_max(values.cast(pa.int64())).as_py()
    if found["min"] is not None and (found["min"] < least or found["max"] > most):
        raise DoubtfulError
    return values


def _decode_base64(values: pa.Array) -> pa.Array:
    try:
        decoded = [None if each is None else decode_base64(_BINARY, each) for each in values.to_pylist()]
    except UnfitError as error:
        raise DoubtfulError from error
    return pa.array(decoded, pa.binary())


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
