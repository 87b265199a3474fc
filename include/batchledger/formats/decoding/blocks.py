"""Decodes many JSON records at once into Arrow columns, if pyarrow surely does as ``docs/reference/meaning.md`` says.

``objects`` and ``meaning`` read one record after the other, which costs several times as much. This module parses the
values of a block as one text. A record that the parser might read in another way is *doubtful*, and is left to them.
``settling`` makes the columns' own types of what the parser gives. A ``string`` or ``jsonb`` column keeps the text of
any value, and a map has any names. pyarrow has no type for these, so msgspec picks their texts.
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

from batchledger.formats.arrow_types import arrow_schema
from batchledger.formats.decoding.nested import Declared, count_fields, declare_fields, fields_given_once
from batchledger.formats.decoding.objects import BYTE_ORDER_MARK, MOST_LEVELS
from batchledger.formats.decoding.settling import (
    DoubtfulError,
    have_tiny,
    lay_out,
    make_picker,
    read_as_written,
    read_texts,
    replace_decimals,
    require_form,
    require_same_decimals,
    settle,
    to_parsed_type,
)
from batchledger.model.records.columns import Column
from batchledger.model.records.rules import UnknownFieldPolicy
from batchledger.model.records.types import MOST_DIGITS, ColumnType, DecimalOf, MapOf, Scalar

# The search for a doubtful record halves blocks down to so many records.
_FEWEST_RECORDS = 64

_WHITE_SPACE = " \t\r\n"

# U+0000 cannot be stored. The parser reads NaN and Inf, although JSON does not know them.
_TELLING_WORDS = (b"\\u0000", b"NaN", b"Inf")
_NO_NUMBER = re.compile(rb"[-:,\[]\s*(?:NaN|Inf)")

# For a decimal the parser looks up a power of ten by the exponent, in a table of 39. Far behind its end the process
# dies; nearer, a number that is not 0 may become 0. Parts of a UUID look like one, but go on.
_FAR_EXPONENT = re.compile(rb"[0-9][eE]-[0-9]{3,}+(?![0-9a-zA-Z-])")

# The names that can be picked.
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)


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
        looked for if they are to be counted, refused or kept.

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
        if self._has_unreadable:
            raise DoubtfulError
        text = _join(values)
        text_bytes = text.to_pybytes()
        _require_sure(text_bytes)
        is_text = self._look_at_first(values.slice(0, _FEWEST_RECORDS))
        kept = tuple(column for column in self.columns if _is_kept(column, is_text))
        layers = self._lay_out(kept)
        doubles = [_read_doubles(text, each, is_text) for each in layers]
        if any(have_tiny(each) for some in doubles for each in some.values()) and _may_have_far_exponent(text_bytes):
            raise DoubtfulError
        # To the parser, what it does not parse is unknown.
        first, may_have_unknown = (_parse(text, layers[0]), False) if kept else self._parse_noticing(text, layers[0])
        parsed = [first, *(_parse(text, each) for each in layers[1:])]
        if first.num_rows != len(values):
            raise DoubtfulError
        for table, some in zip(parsed, doubles, strict=True):
            for name, each in some.items():
                require_same_decimals(table[name].combine_chunks(), each)
        written: Mapping[str, pa.Array] = {}
        if kept:
            picked, may_have_unknown = self._pick(kept, text_bytes)
            written = {
                column.name: _read_picked(column, texts)
                for column, texts in read_as_written(kept, picked, text_bytes, len(values))
            }
        columns = [
            written[column.name] if column.name in written else settle(column.type, _find(column, parsed), values)
            for column in self.columns
        ]
        return DecodedBlock(pa.table(columns, schema=self._schema), may_have_unknown)

    def _lay_out(self, kept: tuple[Column, ...]) -> Sequence[pa.Schema]:
        """Return what to parse of columns that are not kept: one schema, or several if columns share fields."""
        if kept not in self._layers:
            self._layers[kept] = lay_out([column for column in self.columns if column not in kept])
        return self._layers[kept]

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
        may_have_unknown = self.unknown_fields is not UnknownFieldPolicy.IGNORE
        if may_have_unknown and self._declared.is_flat:
            try:
                return make_picker(tuple(self._declared.fields or ()), is_strict=True).decode_lines(text), False
            except msgspec.DecodeError:
                pass
        elif may_have_unknown:
            may_have_unknown = not self._declared.surely_covers(text)
        if may_have_unknown and self.unknown_fields is UnknownFieldPolicy.QUARANTINE:
            raise DoubtfulError
        try:
            return make_picker(tuple({column.source[0]: 0 for column in kept})).decode_lines(text), may_have_unknown
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

    @cached_property
    def _has_unreadable(self) -> bool:
        return any(map(_is_unreadable, self.columns))

    @cached_property
    def _ambiguous(self) -> AbstractSet[str]:
        """The fields that may hold texts, and other values, too."""
        return {
            column.source[0]
            for column in self.columns
            if len(column.source) == 1 and (column.type is Scalar.STRING or isinstance(column.type, DecimalOf))
        }

    @cached_property
    def _layers(self) -> dict[tuple[Column, ...], Sequence[pa.Schema]]:
        return {}

    @cached_property
    def _declared(self) -> Declared:
        return declare_fields(self.columns)

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self.columns)


def _read_picked(column: Column, texts: Sequence[bytes]) -> pa.Array:
    """Return the values of a column that the parser does not read. Raises DoubtfulError."""
    if isinstance(column.type, MapOf) and to_parsed_type(column.type.value) is not None:
        return _read_maps(column.type.value, texts)
    return read_texts(column, texts)


def _read_maps(value_type: ColumnType, texts: Sequence[bytes]) -> pa.Array:
    """Return maps, whose values are parsed as a block of their own."""
    names: list[str] = []
    tokens: list[bytes] = []
    offsets: list[int | None] = []
    for text in texts:
        offsets.append(None if text == b"null" else len(names))
        if text == b"null":
            continue
        fields = fields_given_once.decode(text) if text[:1] == b"{" else {}
        if len(fields) != count_fields(text):
            raise DoubtfulError
        names += fields
        tokens += map(bytes, fields.values())
    values, are_sure, _ = BlockDecoder((Column("value", value_type),)).decode(
        pa.array([b'{"value":%s}' % each for each in tokens], pa.binary())
    )
    if not are_sure.all() or "\0" in "".join(names):
        raise DoubtfulError
    return pa.MapArray.from_arrays(
        pa.array([*offsets, len(names)], pa.int32()), pa.array(names, pa.string()), values.column(0)
    )


def _is_unreadable(column: Column) -> bool:
    """Whether a column can be neither parsed nor picked, so that its records are read one by one."""
    (name, *within) = column.source
    return to_parsed_type(column.type) is None and bool(within or _PLAIN_NAME.fullmatch(name) is None)


def _is_kept(column: Column, is_text: Mapping[str, bool]) -> bool:
    """Whether a column is made of the texts of its values, since the parser cannot read them."""
    (name, *within) = column.source
    if to_parsed_type(column.type) is None:
        return True
    is_plain = not within and _PLAIN_NAME.fullmatch(name) is not None
    return column.type is Scalar.STRING and is_plain and is_text.get(name) is False


def _find(column: Column, parsed: Sequence[pa.Table]) -> pa.Array:
    """Return the parsed values of a column."""
    wanted = to_parsed_type(column.type)
    for table in parsed:
        field = pa.struct(list(table.schema))
        for name in column.source:
            place = field.get_field_index(name) if pa.types.is_struct(field) else -1
            field = field[place].type if place >= 0 else pa.null()
        if field == wanted:
            values = table[column.source[0]].combine_chunks()
            for name in column.source[1:]:
                values = values.field(name)
            return values
    raise LookupError(column.name)


def _read_doubles(text: pa.Buffer, layer: pa.Schema, is_text: Mapping[str, bool]) -> Mapping[str, pa.Array]:
    """Return decimals, also within, as doubles by the name of the field. Refuse what is unsafe to read as a decimal.

    For decimals the parser does not check that a number still fits with the digits of the scale: beyond 38 digits it
    wraps, far below the last one it becomes 0, and further below the process dies. So all are parsed as something else
    first: numbers as doubles, to compare with; texts as texts, to check their form, since the parser takes some that
    are no numbers. The first records say which of the two a column has.
    """
    as_doubles = {each.name: replace_decimals(each.type) for each in layer}
    wanted = {each.name: as_doubles[each.name] for each in layer if as_doubles[each.name] != each.type}
    if not wanted:
        return {}
    are_texts = {name for name, type_ in wanted.items() if is_text.get(name) and pa.types.is_floating(type_)}
    table = _parse(text, pa.schema([(name, pa.string() if name in are_texts else wanted[name]) for name in wanted]))
    for name in are_texts:
        digits = MOST_DIGITS - layer.field(name).type.scale - 1
        whole = "0" if digits < 0 else rf"(0|[1-9][0-9]{{0,{digits}}})"
        require_form(table[name].combine_chunks(), rf"^-?{whole}(\.[0-9]{{1,{MOST_DIGITS}}})?$")
    return {name: table[name].combine_chunks() for name in wanted.keys() - are_texts}


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


def _may_have_far_exponent(text: bytes) -> bool:
    """Whether a number may have a negative exponent of three digits or more."""
    codes = np.frombuffer(text, np.uint8)
    minuses = np.flatnonzero(codes == ord("-"))
    minuses = minuses[(codes[minuses - 1] | 0x20) == ord("e")]
    # As one expression over the whole text it would cost twice as much.
    after_numbers = minuses[codes[minuses - 2] - np.uint8(ord("0")) < 10].tolist()
    return any(_FAR_EXPONENT.match(text, place - 2) for place in after_numbers)


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
