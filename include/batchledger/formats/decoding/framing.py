"""Takes Confluent's frame off the values of many records: a byte 0, the number of a schema, and the datum.

A header of a record has a frame without a datum, and may have a GUID in place of the number.

A datum of Protobuf begins with the place of its message in the schema, as a list of numbers. Knows no registry.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.model.records.writer_schemas import FIRST_MESSAGE, SchemaId

TOO_SHORT = "the value is shorter than a schema id"
NO_MAGIC = "it does not begin with the magic byte 0"
NO_ID = "it begins with neither the byte 0 of an id nor the byte 1 of a GUID"
NO_INDEXES = "its message indexes are cut off or no numbers"

FRAME_BYTES = 5
_GUID_FRAME_BYTES = 17
_ID = np.dtype(">u4")
_MOST_BYTES_OF_INDEX = 5
_MOST_INDEX = 2**31 - 1
_MOST_INDEXES = 32
"""Messages lie within each other no deeper."""


class Unframed(NamedTuple):
    """Schema ids and payloads by record; -1 and null for a record that has none. ``errors`` says why, by place.

    A record without a value has no error.
    """

    schema_ids: np.ndarray
    payloads: pa.BinaryArray
    errors: Mapping[int, str]


def split_frames(values: pa.BinaryArray) -> Unframed:
    """Return what lies in the frames. Example: ``00 00000007 02`` has the id 7 and the payload ``02``."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(values.buffers()[1] or bytes(4), np.int32, len(values) + 1, 4 * values.offset)
    content = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    is_short = ~is_null & (lengths < FRAME_BYTES)
    schema_ids = np.full(len(values), -1, np.int64)
    left = np.flatnonzero(~is_null & ~is_short)
    has_magic = content[starts[left]] == 0
    wrong, left = left[~has_magic], left[has_magic]
    header = content[starts[left, None] + np.arange(1, FRAME_BYTES)]
    schema_ids[left] = np.ascontiguousarray(header).view(_ID).ravel()
    errors = {**dict.fromkeys(np.flatnonzero(is_short).tolist(), TOO_SHORT), **dict.fromkeys(wrong.tolist(), NO_MAGIC)}
    payloads = _drop_beginning(values, FRAME_BYTES)
    if errors:
        payloads = pc.if_else(pa.array(schema_ids >= 0), payloads, pa.scalar(None, pa.binary()))
    return Unframed(schema_ids, payloads, errors)


def split_header(frame: bytes) -> tuple[SchemaId, bytes]:
    """Return the id or GUID that the value of a header begins with, and the bytes behind it. Raises ValueError.

    Example: ``00 00000007`` is the id 7; ``01`` and 16 bytes are a GUID, as Confluent's serializers write it.
    """
    size = {b"\0": FRAME_BYTES, b"\1": _GUID_FRAME_BYTES}.get(frame[:1], 0)
    if frame and not size:
        raise ValueError(NO_ID)
    if not frame or len(frame) < size:
        raise ValueError(TOO_SHORT)
    own, rest = frame[1:size], frame[size:]
    return (str(UUID(bytes=own)) if size == _GUID_FRAME_BYTES else int.from_bytes(own, "big")), rest


class SplitMessages(NamedTuple):
    """The places of payloads by the indexes of their message, the messages themselves, and why others are none."""

    places_by_indexes: Mapping[tuple[int, ...], np.ndarray]
    payloads: pa.BinaryArray
    errors: Mapping[int, str]


def split_messages(payloads: pa.BinaryArray) -> SplitMessages:
    """Return which message of the schema each payload holds, and its bytes; see ``split_message_indexes``."""
    first_bytes = pc.binary_slice(payloads, 0, 1)
    is_first = pc.fill_null(pc.equal(first_bytes, b"\0"), fill_value=False).to_numpy(zero_copy_only=False)
    if is_first.all():
        return SplitMessages({FIRST_MESSAGE: np.arange(len(payloads))}, _drop_beginning(payloads, 1), {})
    places: dict[tuple[int, ...], list[int]] = {}
    found: list[bytes | None] = []
    errors = {}
    for place, payload in enumerate(payloads.to_pylist()):
        try:
            indexes, message = split_message_indexes(payload)
        except ValueError as error:
            errors[place] = str(error)
            found.append(None)
            continue
        places.setdefault(indexes, []).append(place)
        found.append(message)
    return SplitMessages({each: np.array(at) for each, at in places.items()}, pa.array(found, pa.binary()), errors)


def _drop_beginning(values: pa.BinaryArray, count: int) -> pa.BinaryArray:
    # Without an end pyarrow 26 computes a negative size.
    return pc.binary_slice(values, count, 2**31 - 1)


def split_message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the message indexes that a datum of Protobuf begins with, and the message.

    A single 0 stands for the first message of the schema. Raises ValueError.
    """
    count, place = _read_index(payload, 0)
    if count == 0:
        return FIRST_MESSAGE, payload[place:]
    if count > _MOST_INDEXES:
        raise ValueError(NO_INDEXES)
    indexes = []
    for _ in range(count):
        index, place = _read_index(payload, place)
        indexes.append(index)
    return tuple(indexes), payload[place:]


def _read_index(payload: bytes, place: int) -> tuple[int, int]:
    """Return a number that is written in zigzag, and the place behind it."""
    number = 0
    for shift, byte in enumerate(payload[place : place + _MOST_BYTES_OF_INDEX]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if number & 1 or number >> 1 > _MOST_INDEX:
                break
            return number >> 1, place + shift + 1
    raise ValueError(NO_INDEXES)
