"""Values of an output topic in Avro, many at once: by the schema that ``registered`` makes of the same columns.

Avro has no text between a value and its bytes, so every value stays what it is: each bit of a floating point number,
all digits of a decimal, days and moments of any year. A value stands in Confluent's frame.

A library writes record by record, and fastavro takes 12 times as long as JSON takes here. So columns become bytes as a
whole. The tests compare them with what fastavro reads. An array or a map is one block, and every number and decimal has
its shortest form.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.arrow_types import group, reached

_MAGIC = b"\0"
_EMPTY = pa.scalar(b"", pa.binary())
_END = pa.scalar(b"\0", pa.binary())
_NOT_NULL = 2
"""The second branch of a union with null, as Avro writes its place."""
_BITS_OF_A_GROUP = 7
_BYTES_OF_A_DECIMAL = 16


@dataclass(frozen=True)
class AvroValues:
    """Writes rows by the schema of an id; pickled to the executors."""

    schema_id: int

    def __call__(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
        """Return the value of each row with the columns of these names."""
        frame = _MAGIC + self.schema_id.to_bytes(4, "big")
        parts = [part for name in names for part in _nullable(rows[name])]
        return _join([pa.repeat(pa.scalar(frame, pa.binary()), rows.num_rows), *parts])


def _join(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of each row: what the parts have of it, one after the other."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _EMPTY)


def _nullable(values: pa.Array) -> list[pa.Array]:
    """Return the parts of a union with null. No part is null."""
    type_, is_valid = values.type, values.is_valid().to_numpy(zero_copy_only=False)
    match type_:
        case _ if pa.types.is_boolean(type_):
            return [_pack(is_valid, pc.fill_null(values.cast(pa.uint8()), 0).to_numpy()[:, None])]
        case _ if pa.types.is_floating(type_):
            return [_pack(is_valid, _own_bytes(values, type_.bit_width // 8))]
        case _ if pa.types.is_decimal128(type_):
            return [_pack(is_valid, *_decimal_bytes(values))]
        case _ if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
            return [_pack(is_valid, *_varints(_numbers(values)))]
        case _ if pa.types.is_nested(type_):
            return _nested(is_valid, values)
        case _:
            return _text(is_valid, values)


def _text(is_valid: np.ndarray, values: pa.Array) -> list[pa.Array]:
    texts = values.cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
    return [_pack(is_valid, *_varints(sizes)), pc.fill_null(texts, b"")]


def _nested(is_valid: np.ndarray, values: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(values.type):
        fields = [part for place in range(values.type.num_fields) for part in _nullable(values.field(place))]
        return [_branch(is_valid), *([_where(values, _join(fields))] if fields else [])]
    if pa.types.is_map(values.type):
        names, items = reached(values, values.keys), reached(values, values.items)
        return _block(is_valid, values, _join([*_name(names), *_nullable(items)]))
    return _block(is_valid, values, _join(_nullable(reached(values, values.values))))


def _name(values: pa.Array) -> list[pa.Array]:
    """Return the parts of the name of a map, which is never null."""
    texts = values.cast(pa.binary())
    content, is_there = _varints(pc.binary_length(texts).to_numpy().astype(np.int64))
    return [_to_binary(content, is_there), texts]


def _numbers(values: pa.Array) -> np.ndarray:
    """Return whole numbers, days, or microseconds, with 0 for null."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    numbers: np.ndarray = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return numbers


def _varints(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a row of bytes for each number, and which of them are there: 7 bits each, the sign lowest.

    Example: -2 becomes 3, one byte; 64 becomes 128, the bytes 0x80 and 0x01.
    """
    folded = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = max(1, -(-int(folded.max(initial=0)).bit_length() // _BITS_OF_A_GROUP))
    groups = folded[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(_BITS_OF_A_GROUP))
    content = (groups & np.uint64(0x7F)).astype(np.uint8)
    is_there = groups != 0
    is_there[:, 0] = True
    content[:, :-1] |= is_there[:, 1:].astype(np.uint8) << _BITS_OF_A_GROUP
    return content, is_there


def _decimal_bytes(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return length and digits as bytes, and which of them are there: the fewest that hold number and sign.

    Example: 128 takes the bytes 0x00 and 0x80, since 0x80 alone is -128.
    """
    digits = _own_bytes(values, _BYTES_OF_A_DECIMAL)[:, ::-1]
    is_negative = digits[:, :1] >= 0x80
    # A byte may go if it repeats the sign, and the highest bit of the next one does as well.
    repeats = (digits[:, :-1] == np.where(is_negative, 0xFF, 0)) & ((digits[:, 1:] >= 0x80) == is_negative)
    is_there = np.ones(digits.shape, bool)
    is_there[:, :-1] = ~np.logical_and.accumulate(repeats, axis=1)
    sizes = 2 * is_there.sum(axis=1, keepdims=True).astype(np.uint8)
    return np.hstack([sizes, digits]), np.hstack([np.ones((len(digits), 1), bool), is_there])


def _own_bytes(values: pa.Array, size: int) -> np.ndarray:
    """Return the bytes that Arrow keeps of values of one size, the lowest first as in Avro; any bytes for null.

    Every bit stays as it is, also within a NaN.
    """
    content = np.frombuffer(values.buffers()[1], np.uint8)
    return content[values.offset * size : (values.offset + len(values)) * size].reshape(-1, size)


def _block(is_valid: np.ndarray, values: pa.Array, items: pa.Array) -> list[pa.Array]:
    """Return the parts of arrays or maps: one block of all items, and an end. An empty one has the end alone."""
    grouped = group(values, items)
    counts = np.where(is_valid, np.diff(grouped.offsets.to_numpy()), 0).astype(np.int64)
    joined = pc.binary_join(grouped, _EMPTY)
    ends = pc.if_else(pa.array(counts > 0), _END, _EMPTY)
    return [_pack(is_valid, *_varints(counts)), _where(values, joined), ends]


def _where(values: pa.Array, content: pa.Array) -> pa.Array:
    """Return the content, and no byte for a value that is null."""
    return content if not values.null_count else pc.if_else(values.is_valid(), content, _EMPTY)


def _branch(is_valid: np.ndarray) -> pa.Array:
    return _pack(is_valid, np.empty((len(is_valid), 0), np.uint8))


def _pack(is_valid: np.ndarray, content: np.ndarray, is_there: np.ndarray | None = None) -> pa.Array:
    """Return the place of the branch, and behind it the bytes of the row that are there; of null nothing more."""
    branch = (is_valid * _NOT_NULL).astype(np.uint8)[:, None]
    kept = np.broadcast_to(is_valid[:, None], content.shape)
    kept = kept if is_there is None else kept & is_there
    return _to_binary(np.hstack([branch, content]), np.hstack([np.ones((len(branch), 1), bool), kept]))


def _to_binary(content: np.ndarray, is_there: np.ndarray) -> pa.Array:
    """Return a binary value for each row of bytes, of those that are there."""
    offsets = np.zeros(len(content) + 1, np.int32)
    np.cumsum(is_there.sum(axis=1), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content[is_there])]
    return pa.Array.from_buffers(pa.binary(), len(content), buffers)
