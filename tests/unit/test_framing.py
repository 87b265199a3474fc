"""The frame of Confluent's serializers: what is in it, and what is none."""

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.framing import (
    NO_ID,
    NO_INDEXES,
    NO_MAGIC,
    TOO_SHORT,
    split_frames,
    split_header,
    split_message_indexes,
)


def frame(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@given(
    st.lists(st.none() | st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=20))),
    st.integers(0, 3),
)
def test_id_and_payload_come_back_also_from_a_slice(frames: list[tuple[int, bytes] | None], start: int) -> None:
    values = pa.array([None if each is None else frame(*each) for each in frames], pa.binary()).slice(start)
    found = split_frames(values)
    expected = frames[start:]
    assert found.schema_ids.tolist() == [-1 if each is None else each[0] for each in expected]
    assert found.payloads.to_pylist() == [None if each is None else each[1] for each in expected]
    assert found.errors == {}


def test_what_is_no_frame_is_said_by_record_and_its_neighbours_are_taken() -> None:
    values = [frame(7, b"a"), b"", b"\0\0\0\0", b'{"id":1}', None, frame(8, b"")]
    found = split_frames(pa.array(values, pa.binary()))
    assert found.schema_ids.tolist() == [7, -1, -1, -1, -1, 8]
    assert found.payloads.to_pylist() == [b"a", None, None, None, None, b""]
    assert found.errors == {1: TOO_SHORT, 2: TOO_SHORT, 3: NO_MAGIC}


def test_no_records_have_no_frames() -> None:
    assert split_frames(pa.array([], pa.binary())).payloads.to_pylist() == []
    assert split_frames(pa.nulls(2, pa.binary())).schema_ids.tolist() == [-1, -1]


GUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
GUID_BYTES = b"\1" + UUID(GUID).bytes


@pytest.mark.parametrize(
    ("header", "schema_id", "rest"),
    [
        (frame(7, b""), 7, b""),
        (frame(2**32 - 1, b"\0"), 2**32 - 1, b"\0"),
        (GUID_BYTES, GUID, b""),
        (GUID_BYTES + b"\2\2", GUID, b"\2\2"),
        (b"\1" + bytes(16), "00000000-0000-0000-0000-000000000000", b""),
    ],
)
def test_header_has_an_id_or_a_guid(header: bytes, schema_id: int | str, rest: bytes) -> None:
    assert split_header(header) == (schema_id, rest)


@pytest.mark.parametrize(
    ("header", "error"),
    [(b"", TOO_SHORT), (b"\0\0\0\0", TOO_SHORT), (GUID_BYTES[:-1], TOO_SHORT), (b"\2" + bytes(16), NO_ID)],
)
def test_header_without_an_id_is_refused(header: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        split_header(header)


@pytest.mark.parametrize(
    ("payload", "indexes", "message"),
    [
        (b"\x00m", (0,), b"m"),
        (b"\x02\x00m", (0,), b"m"),
        (b"\x02\x02m", (1,), b"m"),
        (b"\x04\x02\x04m", (1, 2), b"m"),
        (b"\x02\x80\x01", (64,), b""),
    ],
)
def test_message_indexes_are_a_list_and_0_stands_for_the_first(
    payload: bytes, indexes: tuple[int, ...], message: bytes
) -> None:
    assert split_message_indexes(payload) == (indexes, message)


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x04\x02", b"\x01", b"\x02\x03", b"\x80" * 9, b"\xfe\xff\xff\x0f"])
def test_message_indexes_that_are_cut_off_or_negative_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=NO_INDEXES):
        split_message_indexes(payload)
