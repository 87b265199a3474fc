"""Decodes many JSON records at once into Arrow columns, if pyarrow surely does as ``docs/reference/meaning.md`` says.

``objects`` and ``meaning`` read one record after the other, which costs several times as much. This module parses the
values of a block as one text. A record that the parser might read in another way is *doubtful*, and is left to them.
A ``string`` column keeps the text of any value; msgspec picks such texts, which pyarrow has no type for.
``tests/unit/test_meaning.py`` holds both against the page. Knows nothing of Kafka, offsets or tables.

Why one text of n values that holds n objects holds one object a value: without the white space around it, each value
begins with ``{`` and ends with ``}``, and what is between two values is a newline. Outside of a string ``}`` is never
followed by ``{`` within one object, and inside of a string a newline is refused. So no object crosses from one value
to the next, and each value has at least one.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from batchledger.adapters.decoding.meaning import (
    EARLIEST_MICROSECONDS,
    LARGEST_EXACT_DOUBLE,
    LARGEST_EXACT_FLOAT,
    LATEST_MICROSECONDS,
    ZONE,
    UnfitError,
    decode_base64,
)
from batchledger.adapters.decoding.objects import BYTE_ORDER_MARK, MOST_LEVELS
from batchledger.adapters.decoding.picking import DoubtfulError, make_picker, read_as_written
from batchledger.model.records.columns import EPOCH_UNITS, Column, decimal_size
from batchledger.model.records.rules import UnknownFieldPolicy

# The search for a doubtful record halves blocks down to so many records.
_FEWEST_RECORDS = 64

_WHITE_SPACE = " \t\r\n"

# U+0000 cannot be stored. The parser reads NaN and Inf, although JSON does not know them.
_TELLING_WORDS = (b"\\u0000", b"NaN", b"Inf")
_NO_NUMBER = re.compile(rb"[-:,\[]\s*(?:NaN|Inf)")

# How a number may be written that is not 0 and becomes a double of 0.
_TINY = "[eE]-0*[1-9][0-9]{2}|0{220}"

# There is no year 0.
_DAY = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_SURE_DAY = f"^{_DAY}$"
_SURE_MOMENT = rf"^{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?{ZONE}?$"

_MOMENT = pa.timestamp("us", "UTC")
_MOST_DIGITS = 38

_PARSED_AS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float64(),
    "real": pa.float64(),
    # Texts become values only if they have the one form that the parser reads as the page says.
    "date": pa.string(),
    "timestamp": pa.string(),
    "binary": pa.string(),
    **dict.fromkeys(EPOCH_UNITS, pa.int64()),
}


class DecodedBlock(NamedTuple):
    """The rows of neighbouring records, and whether any of these may have a field that no column declares."""

    rows: pa.Table
    may_have_unknown: bool


@dataclass(frozen=True)
class BlockDecoder:
    """Decodes blocks of JSON values into ``columns``; pickled to the executors."""

    columns: tuple[Column, ...]
    unknown_fields: UnknownFieldPolicy = UnknownFieldPolicy.IGNORE

    def decode(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
        """Return the rows of the records that decode for sure, in their order, and which records these are.

        Also returns, for each of the rows, whether its record may have a field that no column declares. Such fields are
        looked for if they are to be counted or refused.

        Example: three values, the second not JSON, give two rows, ``[True, False, True]`` and ``[False, False]``.
        """
        values = _trim(values)
        looks_sure = _look_sure(values)
        pieces, is_sure = self._decode_by_halves(values.filter(pa.array(looks_sure)))
        among_all = looks_sure.copy()
        among_all[looks_sure] = is_sure
        rows = pa.concat_tables([self._schema.empty_table(), *(each.rows for each in pieces)])
        columns = [column.combine_chunks() for column in rows.columns]
        may_have_unknown = np.repeat(
            np.array([each.may_have_unknown for each in pieces], bool), [each.rows.num_rows for each in pieces]
        )
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), among_all, may_have_unknown

    def _decode_by_halves(self, values: pa.StringArray) -> tuple[list[DecodedBlock], np.ndarray]:
        try:
            return [self._decode_whole(values)], np.ones(len(values), bool)
        except (pa.ArrowInvalid, DoubtfulError):
            if len(values) <= _FEWEST_RECORDS or self._is_doubtful_throughout(values):
                return [], np.zeros(len(values), bool)
        half = len(values) // 2
        first, is_first_sure = self._decode_by_halves(values.slice(0, half))
        second, is_second_sure = self._decode_by_halves(values.slice(half))
        return [*first, *second], np.concatenate([is_first_sure, is_second_sure])

    def _is_doubtful_throughout(self, values: pa.StringArray) -> bool:
        """Whether the first and the last few are doubtful, so that a search would cost more than it saves."""
        for start in (0, len(values) - _FEWEST_RECORDS):
            try:
                self._decode_whole(values.slice(start, _FEWEST_RECORDS))
            except (pa.ArrowInvalid, DoubtfulError):
                continue
            return False
        return True

    def _decode_whole(self, values: pa.StringArray) -> DecodedBlock:
        """Return one row a value. Raises pa.ArrowInvalid or DoubtfulError."""
        if not len(values):
            return DecodedBlock(self._schema.empty_table(), may_have_unknown=False)
        values.validate(full=True)  # which refuses what is not UTF-8
        text = _join(values)
        text_bytes = text.to_pybytes()
        _require_sure(text_bytes)
        is_text = self._look_at_first(values.slice(0, _FEWEST_RECORDS))
        kept = [column for column in self.columns if column.type == "string" and is_text.get(column.name) is False]
        names = {column.name for column in kept}
        parsed = pa.schema([field for field in self._parsed if field.name not in names])
        # To the parser, what it does not parse is unknown.
        table, may_have_unknown = (_parse(text, parsed), False) if kept else self._parse_noticing(text, parsed)
        if table.num_rows != len(values):
            raise DoubtfulError
        self._require_decimals(text, table, is_text)
        written: Mapping[str, pa.ChunkedArray] = {}
        if kept:
            picked, may_have_unknown = self._pick(kept, text_bytes)
            written = read_as_written(kept, picked, text_bytes, len(values))
        columns = [
            written[column.name] if column.name in written else _settle(column, table[column.name], values)
            for column in self.columns
        ]
        return DecodedBlock(pa.table(columns, schema=self._schema), may_have_unknown)

    def _parse_noticing(self, text: pa.Buffer, schema: pa.Schema) -> tuple[pa.Table, bool]:
        """Return the parsed text, and whether it may have fields that no column declares, if that matters.

        Raises pa.ArrowInvalid, also for such a field if it is to be refused.
        """
        if self.unknown_fields is UnknownFieldPolicy.IGNORE:
            return _parse(text, schema), False
        try:
            return _parse(text, schema, "error"), False
        except pa.ArrowInvalid:
            if self.unknown_fields is UnknownFieldPolicy.QUARANTINE:
                raise
            return _parse(text, schema), True

    def _pick(self, kept: Sequence[Column], text: bytes) -> tuple[list[msgspec.Struct], bool]:
        """Return the kept fields of each record as their texts; else as ``_parse_noticing``. Raises DoubtfulError."""
        matters = self.unknown_fields is not UnknownFieldPolicy.IGNORE
        if matters:
            try:
                return make_picker(tuple(column.name for column in self.columns), is_strict=True).decode_lines(
                    text
                ), False
            except msgspec.DecodeError as error:
                if self.unknown_fields is UnknownFieldPolicy.QUARANTINE:
                    raise DoubtfulError from error
        try:
            return make_picker(tuple(column.name for column in kept)).decode_lines(text), matters
        except msgspec.DecodeError as error:
            raise DoubtfulError from error

    def _look_at_first(self, values: pa.StringArray) -> Mapping[str, bool]:
        """Return whether the first value is a text, by name of each column that takes texts and other values."""
        is_text: dict[str, bool] = {}
        for value in values:
            if len(is_text) == len(self._ambiguous):
                break
            try:
                fields = msgspec.json.decode(value.as_py())
            except msgspec.DecodeError as error:
                raise DoubtfulError from error
            for name in self._ambiguous - is_text.keys():
                if fields.get(name) is not None:
                    is_text[name] = isinstance(fields[name], str)
        return is_text

    def _require_decimals(self, text: pa.Buffer, parsed: pa.Table, is_text: Mapping[str, bool]) -> None:
        """Refuse decimals that may have become others, and texts that the parser takes although they are no numbers.

        The parser does not check that a number still fits with the digits of the scale: beyond 38 digits it wraps, and
        far below the last one it becomes 0. So all are parsed once more: numbers as doubles, to compare with; texts as
        texts, to check their form. The first records say which of the two a column has.
        """
        if not self._decimals:
            return
        written = _parse(
            text, pa.schema([(name, pa.string() if is_text.get(name) else pa.float64()) for name in self._decimals])
        )
        for name, digits in self._decimals.items():
            if is_text.get(name):
                whole = "0" if digits < 0 else rf"(0|[1-9][0-9]{{0,{digits}}})"
                _require_form(written[name], rf"^-?{whole}(\.[0-9]{{1,{_MOST_DIGITS}}})?$")
                continue
            found, wanted = parsed[name].cast(pa.float64()).to_numpy(), written[name].to_numpy()
            if not np.allclose(found, wanted, rtol=1e-9, atol=0, equal_nan=True):
                raise DoubtfulError

    @cached_property
    def _ambiguous(self) -> AbstractSet[str]:
        """The columns that take texts, and other values, too."""
        return {column.name for column in self.columns if column.type == "string"} | self._decimals.keys()

    @cached_property
    def _decimals(self) -> Mapping[str, int]:
        """Return by name of each decimal column how many digits it has before the point, less one."""
        return {
            column.name: _MOST_DIGITS - decimal_size(column.type)[1] - 1
            for column in self.columns
            if column.type.startswith("decimal")
        }

    @cached_property
    def _parsed(self) -> pa.Schema:
        return pa.schema(
            [(column.name, _PARSED_AS.get(column.type) or to_arrow_type(column.type)) for column in self.columns]
        )

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self.columns)


def _join(values: pa.StringArray) -> pa.Buffer:
    return pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), "\n")[0].as_buffer()


def _parse(text: pa.Buffer, schema: pa.Schema, unexpected: Literal["ignore", "error"] = "ignore") -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(text),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def _require_sure(text: bytes) -> None:
    # Looking for one byte is much faster than for a word.
    found = [word for word in _TELLING_WORDS if text.find(word[:1]) >= 0 and text.find(word) >= 0]
    if _TELLING_WORDS[0] in found or (found and _NO_NUMBER.search(text)):
        raise DoubtfulError


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow fields of declared columns."""
    return pa.schema([(column.name, to_arrow_type(column.type)) for column in columns])


def to_arrow_type(type_: str) -> pa.DataType:
    """Return the Arrow type of a column of a declared type."""
    match type_:
        case "date":
            return pa.date32()
        case "float" | "real":
            return pa.float32()
        case "binary":
            return pa.binary()
        case _ if type_ == "timestamp" or type_ in EPOCH_UNITS:
            return _MOMENT
        case _ if type_.startswith("decimal"):
            return pa.decimal128(*decimal_size(type_))
        case _:
            return _PARSED_AS[type_]


def _trim(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values without white space and byte order mark around them; not yet known to be UTF-8."""
    texts = values.view(pa.string())
    if pc.all(_has_brackets(texts)).as_py() is not False:
        return texts
    has_mark = pc.starts_with(texts, BYTE_ORDER_MARK.decode())
    if pc.any(has_mark).as_py():
        # Without an end pyarrow 26 computes a negative size.
        unmarked = pc.binary_slice(values, len(BYTE_ORDER_MARK), 2**31 - 1).view(pa.string())
        texts = pc.if_else(has_mark, unmarked, texts)
    return pc.ascii_trim(texts, characters=_WHITE_SPACE)


def _has_brackets(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))


def _look_sure(values: pa.StringArray) -> np.ndarray:
    """Which values look like one object; false for a tombstone, and for what may be nested too deep."""
    looks_sure = _has_brackets(values)
    if (pc.max(pc.binary_length(values)).as_py() or 0) > MOST_LEVELS:
        brackets = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
        looks_sure = pc.and_not(looks_sure, pc.greater(brackets, MOST_LEVELS))
    found: np.ndarray = pc.fill_null(looks_sure, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _settle(column: Column, values: pa.ChunkedArray, records: pa.StringArray) -> pa.ChunkedArray:
    """Return the values in the column's own type; ``records`` are what they were read from.

    Raises pa.ArrowInvalid or DoubtfulError.
    """
    settled = values
    match column.type:
        case "double":
            _require_numbers(values.to_numpy(), LARGEST_EXACT_DOUBLE, records)
        case "float" | "real":
            settled = _to_floats(values, records)
        case "date":
            _require_form(values, _SURE_DAY)
            settled = values.cast(pa.date32())
        case "timestamp":
            settled = _to_moments(values)
        case "binary":
            settled = pa.chunked_array([_decode_base64(column, values)])
        case type_ if type_ in EPOCH_UNITS:
            unit = EPOCH_UNITS[type_]
            _require_between(values, EARLIEST_MICROSECONDS // unit, LATEST_MICROSECONDS // unit)
            settled = pc.multiply(values, unit).cast(_MOMENT)
        case type_ if type_.startswith("decimal"):
            values.validate(full=True)  # which refuses what is beyond the precision; the parser does not
        case _:
            # The parser gives what the column holds.
            pass
    return settled


def _to_floats(values: pa.ChunkedArray, records: pa.StringArray) -> pa.ChunkedArray:
    doubles = values.to_numpy()
    _require_numbers(doubles, LARGEST_EXACT_FLOAT, records)
    floats = doubles.astype(np.float32)
    if ((floats == 0) & (doubles != 0)).any():
        raise DoubtfulError
    return pa.chunked_array([pa.array(floats, mask=values.is_null().to_numpy())])


def _to_moments(values: pa.ChunkedArray) -> pa.ChunkedArray:
    _require_form(values, _SURE_MOMENT)
    # A moment without a zone is in UTC.
    has_zone = pc.match_substring_regex(values, f"{ZONE}$")
    zoned = pc.if_else(has_zone, values, pc.binary_join_element_wise(values, "Z", ""))
    return _require_between(zoned.cast(_MOMENT), EARLIEST_MICROSECONDS, LATEST_MICROSECONDS)


def _require_numbers(numbers: np.ndarray, largest_exact: int, records: pa.StringArray) -> None:
    """Refuse numbers beyond the type, whole numbers whose digits it may not keep, and a 0 that was not written so."""
    if (np.abs(numbers) >= largest_exact).any():
        raise DoubtfulError
    is_zero = numbers == 0
    if is_zero.any() and pc.any(pc.match_substring_regex(records.filter(pa.array(is_zero)), _TINY)).as_py():
        raise DoubtfulError


def _require_form(values: pa.ChunkedArray, form: str) -> None:
    if pc.all(pc.match_substring_regex(values, form)).as_py() is False:
        raise DoubtfulError


def _require_between(values: pa.ChunkedArray, least: int, most: int) -> pa.ChunkedArray:
    found = pc.min_max(values.cast(pa.int64())).as_py()
    if found["min"] is not None and (found["min"] < least or found["max"] > most):
        raise DoubtfulError
    return values


def _decode_base64(column: Column, values: pa.ChunkedArray) -> pa.Array:
    try:
        decoded = [None if each is None else decode_base64(column, each) for each in values.to_pylist()]
    except UnfitError as error:
        raise DoubtfulError from error
    return pa.array(decoded, pa.binary())
