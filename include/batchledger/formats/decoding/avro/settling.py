"""Makes Arrow columns of what lanes have read, and finds the values that a column does not surely hold.

Decimals of many values are made at once, from big-endian bytes or whole numbers: exact, or said to be unsure.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import to_arrow_type
from batchledger.formats.decoding.avro import schema as avro
from batchledger.formats.decoding.avro.lanes import Bytes, Scanned
from batchledger.formats.decoding.avro.projection import make_fit, without_null
from batchledger.formats.decoding.avro.scanning import is_scanned
from batchledger.formats.decoding.avro.texts import EARLIEST_DAY, LATEST_DAY
from batchledger.formats.decoding.avro.wire import MalformedError, WireReader
from batchledger.formats.decoding.fitting import Leaf
from batchledger.formats.decoding.meaning import EARLIEST_MICROSECONDS, LATEST_MICROSECONDS, UnfitError
from batchledger.model.records.types import (
    MOST_DIGITS,
    ArrayOf,
    ColumnType,
    DecimalOf,
    Epoch,
    Floating,
    Integer,
    MapOf,
    Scalar,
    StructOf,
)

_WORD = 8
_MOST_BYTES = 16
_LOW = 2**64 - 1


def settle_decimals(
    source: Bytes, found: Scanned, scale: int | None, declared: DecimalOf
) -> tuple[pa.Array, np.ndarray]:
    """Return a decimal column, with 0 in place of values that it may not hold, and which these are.

    ``found`` has starts and lengths of bytes with a ``scale``, or whole numbers if there is none.
    """
    precision, wanted = declared.precision, declared.scale
    is_valid = np.ones(found.size, bool) if found.is_valid is None else found.is_valid
    if scale is None:
        (low,) = found.parts
        high, is_unsure, scale = low >> 63, np.zeros(found.size, bool), 0
    else:
        starts, lengths = found.parts
        is_unsure = is_valid & ((lengths < 1) | (lengths > _MOST_BYTES))
        low, high = _read(source, starts, np.clip(lengths, 1, _MOST_BYTES))
    # What has too many digits before the point; then no step below can overflow.
    digits = min(precision - wanted + scale, MOST_DIGITS)
    is_unsure |= is_valid & ~_is_within(low, high, 10**digits if digits >= 0 else 1)
    is_zero = is_unsure | ~is_valid
    both = np.zeros((found.size, 2), np.int64)
    both[:, 0], both[:, 1] = np.where(is_zero, 0, low), np.where(is_zero, 0, high)
    validity = None if found.is_valid is None else pa.array(found.is_valid).buffers()[1]
    target = pa.decimal128(precision, wanted)
    if scale == wanted:
        return pa.Array.from_buffers(target, found.size, [validity, pa.py_buffer(both)]), is_unsure
    written = pa.Array.from_buffers(pa.decimal128(MOST_DIGITS, scale), found.size, [validity, pa.py_buffer(both)])
    try:
        return written.cast(target), is_unsure
    except pa.ArrowInvalid:
        return _cast_singly(written, target, is_unsure)


def _cast_singly(written: pa.Array, target: pa.DataType, is_unsure: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Find the values that lose places."""
    values = written.to_pylist()
    step = target.scale
    for place, value in enumerate(values):
        if value is not None and -int(value.normalize().as_tuple().exponent) > step:
            is_unsure[place] = True
            values[place] = 0
    return pa.array(values, target), is_unsure


def _read(source: Bytes, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two halves of numbers with a sign."""
    first = source.words[starts].byteswap().view(np.int64)
    is_short = lengths <= _WORD
    # The first word has all bytes of a short number, and the high ones of a long number.
    kept = np.where(is_short, lengths, lengths - _WORD)
    shifted = first >> (64 - 8 * kept)
    if is_short.all():
        return shifted, shifted >> 63
    last = source.words[np.where(is_short, starts, starts + lengths - _WORD)].byteswap().view(np.int64)
    return np.where(is_short, shifted, last), np.where(is_short, shifted >> 63, shifted)


def _is_within(low: np.ndarray, high: np.ndarray, bound: int) -> np.ndarray:
    """Whether numbers lie between the bound and its opposite, both excluded."""
    within: np.ndarray = _is_below(low, high, bound) & ~_is_below(low, high, 1 - bound)
    return within


def _is_below(low: np.ndarray, high: np.ndarray, bound: int) -> np.ndarray:
    bound_high, bound_low = bound >> 64, np.uint64(bound & _LOW)
    is_below: np.ndarray = (high < bound_high) | ((high == bound_high) & (low.view(np.uint64) < bound_low))
    return is_below


_MOST_SHORT = 12
"""A view of Arrow holds so many bytes itself."""

_VIEW = np.dtype([("length", "<i4"), ("first", "<u4"), ("buffer", "<i4"), ("start", "<i4")])


@dataclass(frozen=True)
class Settler:
    """Makes columns of the values of one block. ``is_doubtful`` has a place for each lane, and is written to."""

    schema: avro.Schema
    source: Bytes
    is_doubtful: np.ndarray

    def settle(self, found: Scanned, type_: avro.Type, declared: ColumnType, lanes: np.ndarray) -> pa.Array:
        """Return values as a column of a declared type; ``lanes`` says whose each value is."""
        if not is_scanned(type_, declared):
            return self._read_singly(found, type_, declared, lanes)
        inner = without_null(type_)
        match inner:
            case avro.Array() if isinstance(declared, ArrayOf):
                return self._settle_array(found, inner, declared, lanes)
            case avro.Map() if isinstance(declared, MapOf):
                return self._settle_map(found, inner, declared, lanes)
            case avro.RecordType() if isinstance(declared, StructOf):
                return self._settle_struct(found, inner, declared, lanes)
            case avro.Enum():
                return pa.array(inner.symbols, pa.string()).take(pa.array(found.parts[0], mask=_mask(found)))
            case avro.Primitive():
                return self._settle_primitive(found, inner, declared, lanes)
            case _:
                raise TypeError(inner)

    def _read_singly(self, found: Scanned, type_: avro.Type, declared: ColumnType, lanes: np.ndarray) -> pa.Array:
        """Each value between two places, by the reference."""
        if type_ == avro.Primitive("null"):
            # Also a field that the writer does not have, which has no place.
            return pa.nulls(found.size, to_arrow_type(declared))
        content, wire = self.source.content.tobytes(), WireReader(self.schema)
        fit = make_fit(self.schema, type_, Leaf(0, "", declared))
        starts, lengths = found.parts
        is_left = ~self.is_doubtful[lanes] if found.is_valid is None else found.is_valid & ~self.is_doubtful[lanes]
        values = [None] * found.size
        for place in np.flatnonzero(is_left).tolist():
            start = int(starts[place])
            try:
                values[place] = fit(wire.read_part(content, start, start + int(lengths[place]), type_))
            except (UnfitError, MalformedError):
                self.is_doubtful[lanes[place]] = True
        return pa.array(values, to_arrow_type(declared))

    def _settle_array(self, found: Scanned, type_: avro.Array, declared: ArrayOf, lanes: np.ndarray) -> pa.Array:
        items = self.settle(found.children[0], type_.items, declared.element, _owners(found, lanes))
        target = to_arrow_type(declared)
        return pa.ListArray.from_arrays(_offsets(found), items, type=target, mask=_arrow_mask(found))

    def _settle_map(self, found: Scanned, type_: avro.Map, declared: MapOf, lanes: np.ndarray) -> pa.Array:
        owners = _owners(found, lanes)
        keys = self.settle(found.children[0], avro.Primitive("string"), Scalar.STRING, owners)
        values = self.settle(found.children[1], type_.values, declared.value, owners)
        # A key that is no text makes its lane doubtful; Arrow takes no null for one.
        keys = pc.fill_null(keys, "")
        self._doubt_repeated(keys, np.repeat(np.arange(found.size), found.item_counts), owners)
        return pa.MapArray.from_arrays(
            _offsets(found), keys, values, type=to_arrow_type(declared), mask=_arrow_mask(found)
        )

    def _doubt_repeated(self, keys: pa.Array, maps: np.ndarray, owners: np.ndarray) -> None:
        """Give up maps with a key that is given twice."""
        if not len(keys):
            return
        codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        both = maps * (codes.max() + 1) + codes
        order = np.argsort(both, kind="stable")
        is_repeated = np.zeros(len(both), bool)
        is_repeated[order[1:]] = both[order][1:] == both[order][:-1]
        self.is_doubtful[owners[is_repeated]] = True

    def _settle_struct(self, found: Scanned, type_: avro.RecordType, declared: StructOf, lanes: np.ndarray) -> pa.Array:
        by_name = {field.name: field.type for field in type_.fields}
        children = [
            self.settle(child, by_name.get(field.name, avro.Primitive("null")), field.type, lanes)
            for child, field in zip(found.children, declared.fields, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(to_arrow_type(declared)), mask=_arrow_mask(found))

    def _settle_primitive(  # noqa: PLR0911 -- one a kind
        self, found: Scanned, type_: avro.Primitive, declared: ColumnType, lanes: np.ndarray
    ) -> pa.Array:
        target, sort = to_arrow_type(declared), avro.sort_of(type_)
        if sort == "null":
            return pa.nulls(found.size, target)
        if declared is Scalar.STRING and type_.kind == "string":
            return self._settle_texts(found, lanes)
        match sort:
            case "boolean":
                return pa.array(found.parts[0], target, mask=_mask(found))
            case "bytes" | "fixed" | "uuid" | "duration":
                return self._views(found).cast(pa.binary()).cast(target)
            case "decimal" if isinstance(declared, DecimalOf):
                return self._settle_decimals(found, type_.scale, declared, lanes)
            case "float" | "double":
                return self._settle_doubles(found, declared, lanes)
            case "date":
                return self._settle_whole(found, lanes, EARLIEST_DAY, LATEST_DAY, pa.int32()).cast(target)
            case "timestamp":
                return self._settle_moments(found, type_.logical, lanes).cast(target)
            case _:
                return self._settle_numbers(found, declared, lanes)

    def _settle_numbers(self, found: Scanned, declared: ColumnType, lanes: np.ndarray) -> pa.Array:
        (numbers,), target = found.parts, to_arrow_type(declared)
        match declared:
            case Epoch():
                unit = declared.microseconds
                self._doubt_outside(numbers, EARLIEST_MICROSECONDS // unit, LATEST_MICROSECONDS // unit, lanes)
                return pa.array(numbers * unit, mask=_mask(found)).cast(target)
            case Scalar.STRING:
                return pa.array(numbers, mask=_mask(found)).cast(target)
            case Floating():
                rounded = numbers.astype(target.to_pandas_dtype())
                # What is rounded up to 2 to the power of 63 is no number of 64 bits.
                is_inexact = (rounded >= 2.0**63) | (
                    np.where(rounded >= 2.0**63, 0, rounded).astype(np.int64) != numbers
                )
                self._doubt(is_inexact, lanes)
                return pa.array(rounded, target, mask=_mask(found))
            case DecimalOf():
                return self._settle_decimals(found, None, declared, lanes)
            case Integer():
                bound = 2 ** (declared.bits - 1)
                return self._settle_whole(found, lanes, -bound, bound - 1, target)
            case _:
                raise TypeError(declared)

    def _settle_whole(self, found: Scanned, lanes: np.ndarray, least: int, most: int, target: pa.DataType) -> pa.Array:
        (numbers,) = found.parts
        self._doubt_outside(numbers, least, most, lanes)
        return pa.array(numbers.astype(target.to_pandas_dtype()), target, mask=_mask(found))

    def _settle_moments(self, found: Scanned, logical: str, lanes: np.ndarray) -> pa.Array:
        (numbers,) = found.parts
        if logical == "timestamp-nanos":
            self._doubt(numbers % 1_000 != 0, lanes)
            numbers = numbers // 1_000
        unit = 1_000 if logical == "timestamp-millis" else 1
        self._doubt_outside(numbers, EARLIEST_MICROSECONDS // unit, LATEST_MICROSECONDS // unit, lanes)
        return pa.array(numbers * unit, mask=_mask(found))

    def _settle_doubles(self, found: Scanned, declared: ColumnType, lanes: np.ndarray) -> pa.Array:
        (numbers,), target = found.parts, to_arrow_type(declared)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            settled = numbers.astype(target.to_pandas_dtype())
        if settled.itemsize < numbers.itemsize:
            self._doubt((np.isinf(settled) & ~np.isinf(numbers)) | ((settled == 0) & (numbers != 0)), lanes)
        return pa.array(settled, target, mask=_mask(found), from_pandas=False)

    def _settle_decimals(self, found: Scanned, scale: int | None, declared: DecimalOf, lanes: np.ndarray) -> pa.Array:
        column, is_unsure = settle_decimals(self.source, found, scale, declared)
        self._doubt(is_unsure, lanes)
        return column

    def _settle_texts(self, found: Scanned, lanes: np.ndarray) -> pa.Array:
        views = self._views(found)
        try:
            texts = views.cast(pa.string())
        except pa.ArrowInvalid:
            texts = self._keep_valid(views.cast(pa.binary()), lanes)
        content = texts.buffers()[2]
        if content is not None and (np.frombuffer(content, np.uint8) == 0).any():
            has_zero = pc.fill_null(pc.match_substring(texts, "\0"), fill_value=False)
            self._doubt(has_zero.to_numpy(zero_copy_only=False), lanes)
        return texts

    def _keep_valid(self, content: pa.BinaryArray, lanes: np.ndarray) -> pa.StringArray:
        """Return the texts, with a null in place of what is not UTF-8."""
        texts: list[str | None] = []
        is_wrong = np.zeros(len(content), bool)
        for place, each in enumerate(content.to_pylist()):
            try:
                texts.append(None if each is None else each.decode())
            except UnicodeDecodeError:
                texts.append(None)
                is_wrong[place] = True
        self._doubt(is_wrong, lanes)
        return pa.array(texts, pa.string())

    def _views(self, found: Scanned) -> pa.Array:
        """Return the bytes of each value as a view of the block, in the form of Arrow's specification."""
        starts, lengths = found.parts
        words = self.source.words
        views = np.empty(found.size, _VIEW)
        first = words[starts]
        views["length"], views["first"] = lengths, first.astype(np.uint32)
        views["buffer"], views["start"] = 0, starts
        is_short = lengths <= _MOST_SHORT
        if is_short.any():
            low, high = _cut(first, lengths), _cut(words[starts + 8], np.maximum(lengths - 8, 0))
            parts = views.view(np.uint32).reshape(found.size, 4)
            for column, part in ((1, low), (2, low >> np.uint64(32)), (3, high)):
                parts[:, column] = np.where(is_short, part.astype(np.uint32), parts[:, column])
        validity = None if found.is_valid is None else pa.array(found.is_valid).buffers()[1]
        return pa.Array.from_buffers(pa.binary_view(), found.size, [validity, pa.py_buffer(views), self.source.buffer])

    def _doubt_outside(self, numbers: np.ndarray, least: int, most: int, lanes: np.ndarray) -> None:
        self._doubt((numbers < least) | (numbers > most), lanes)

    def _doubt(self, is_wrong: np.ndarray, lanes: np.ndarray) -> None:
        if is_wrong.any():
            self.is_doubtful[lanes[is_wrong]] = True


def _cut(words: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the first bytes of words, and zeros behind them."""
    bits = (np.minimum(lengths, 8) * 8).astype(np.uint64)
    mask = np.where(bits >= 64, ~np.uint64(0), (np.uint64(1) << (bits & np.uint64(63))) - np.uint64(1))
    cut: np.ndarray = words & mask
    return cut


def _mask(found: Scanned) -> np.ndarray | None:
    return None if found.is_valid is None else ~found.is_valid


def _arrow_mask(found: Scanned) -> pa.BooleanArray | None:
    return None if found.is_valid is None else pa.array(~found.is_valid)


def _offsets(found: Scanned) -> pa.Int32Array:
    return pa.array(np.concatenate([[0], np.cumsum(found.item_counts)]), pa.int32())


def _owners(found: Scanned, lanes: np.ndarray) -> np.ndarray:
    owners: np.ndarray = np.repeat(lanes, found.item_counts)
    return owners
