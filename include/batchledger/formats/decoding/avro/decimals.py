"""Decimals of many values at once, from big-endian bytes or from whole numbers; exact, or said to be unsure."""

import numpy as np
import pyarrow as pa

from batchledger.formats.decoding.avro.lanes import Bytes
from batchledger.formats.decoding.avro.scanned import Scanned
from batchledger.model.records.types import MOST_DIGITS, DecimalOf

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
