"""What a record's key and headers become in columns; docs/reference/meaning.md, "Key and headers"."""

import base64
import json
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.decoder import NO_KEY, NO_VALUE, RecordDecoder
from batchledger.formats.decoding.objects import ObjectReader
from batchledger.formats.decoding.outer import UNREADABLE_HEADERS
from batchledger.formats.records import RECORD_SCHEMA, UNREADABLE_NAME
from batchledger.model.records.columns import Column, parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_headers, parse_key
from batchledger.model.records.rules import TombstonePolicy

Headers = Sequence[tuple[str, bytes | None]]


def records_of(*records: tuple[bytes | None, bytes | None, Headers]) -> pa.RecordBatch:
    """Records of (key, value, headers), as they are read."""
    columns = {
        "topic": ["orders"] * len(records),
        "partition": [0] * len(records),
        "offset": list(range(len(records))),
        "timestamp_ms": [1_764_000_000_000] * len(records),
        "key": [key for key, _, _ in records],
        "value": [value for _, value, _ in records],
        "headers": [_write(headers) if headers else None for _, _, headers in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)


def _write(headers: Headers) -> str:
    return json.dumps(
        [{"key": name, "value": None if each is None else base64.b64encode(each).decode()} for name, each in headers]
    )


def decode(outer: OuterColumns, records: pa.RecordBatch, **more: Any) -> tuple[dict[int, Any], dict[int, str]]:
    """The declared columns of each row, and the errors, both by offset."""
    decoder = RecordDecoder(parse_columns("id int"), outer=outer, **more)
    decoded = decoder.decode(records)
    rows = {row["_offset"]: row for part in decoded.rows for row in part.to_pylist()}
    errors = decoded.set_aside.to_pylist() if decoded.set_aside else []
    names = [each.name for each in decoder.declared]
    return (
        {offset: tuple(row[name] for name in names) for offset, row in rows.items()},
        {row["offset"]: row["error"] for row in errors},
    )


def with_key(format_: KeyFormat, columns: str) -> OuterColumns:
    return OuterColumns(parse_key(format_, columns))


@pytest.mark.parametrize(
    ("format_", "columns", "key", "expected"),
    [
        ("string", "k string", b"a", "a"),
        ("string", "k string", b"", ""),
        ("string", "k string", None, None),
        ("string", "k bigint", b"42", 42),
        ("string", "k date", b"2026-11-26", date(2026, 11, 26)),
        ("string", "k string", "ä".encode(), "ä"),
        ("bytes", "k binary", b"\xff\x00", b"\xff\x00"),
        ("bytes", "k binary", None, None),
        ("json", "k int", b'{"k": 7, "other": 1}', 7),
        ("json", "k int", b"{}", None),
        ("json", "k string", b'{"k": {"deep": 1.10}}', '{"deep": 1.10}'),
        ("json", "k int", None, None),
    ],
)
def test_key_becomes_a_column(format_: str, columns: str, key: bytes | None, expected: Any) -> None:
    rows, errors = decode(with_key(KeyFormat(format_), columns), records_of((key, b'{"id": 1}', ())))
    assert (rows, errors) == ({0: (1, expected)}, {})


@pytest.mark.parametrize(
    ("format_", "columns", "key", "error"),
    [
        ("string", "k string", b"\xff", "its key: the value is not valid UTF-8"),
        ("string", "k string", b"a\x00", "its key: k (string) cannot hold U+0000"),
        ("string", "k bigint", b"forty", "its key: k (bigint) cannot hold a text that is not its JSON"),
        ("json", "k int", b"7", "its key: the value is not exactly one JSON object"),
        ("json", "k int", b'{"k": "7"}', "its key: k (int) cannot hold a string"),
        ("json", "k int", b'{"k": 1, "k": 2}', "its key: field k is given twice"),
    ],
)
def test_key_that_does_not_fit_sets_its_record_aside_and_no_other(
    format_: str, columns: str, key: bytes, error: str
) -> None:
    good = b'{"k": 1}' if format_ == "json" else b"1"
    records = records_of((good, b'{"id": 1}', ()), (key, b'{"id": 2}', ()), (good, b'{"id": "x"}', ()))
    rows, errors = decode(with_key(KeyFormat(format_), columns), records)
    assert rows.keys() == {0}
    assert errors[1] == error
    assert errors.keys() == {1, 2}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), (None, None)),
        ([("tenant", b"a")], ("a", None)),
        ([("tenant", b"a"), ("tenant", b"b")], ("b", None)),
        ([("tenant", b"a"), ("tenant", None)], (None, None)),
        ([("Tenant", b"a")], (None, None)),
        ([("tenant", b""), ("trace", b"\xff")], ("", b"\xff")),
        ([("other", b"\xff")], (None, None)),
    ],
)
def test_last_header_of_a_name_becomes_a_column(headers: Headers, expected: Any) -> None:
    outer = OuterColumns(headers=parse_headers({"tenant": "header tenant string", "t": "header trace bytes"}))
    rows, errors = decode(outer, records_of((None, b'{"id": 1}', headers)))
    assert (rows, errors) == ({0: (1, *expected)}, {})


def test_header_that_does_not_fit_sets_its_record_aside() -> None:
    outer = OuterColumns(headers=parse_headers({"tenant": "header tenant string", "tries": "header x-tries int"}))
    headers = [
        [("tenant", b"\xff")],
        [("x-tries", b"many")],
        [(UNREADABLE_NAME, None)],
        [("x-tries", b"3")],
    ]
    rows, errors = decode(outer, records_of(*((None, b'{"id": 1}', each) for each in headers)))
    assert rows == {3: (1, None, 3)}
    assert errors == {
        0: "its header tenant: the value is not valid UTF-8",
        1: "its header x-tries: tries (int) cannot hold a text that is not its JSON",
        2: UNREADABLE_HEADERS,
    }


def test_tombstone_has_the_columns_of_its_key_and_headers() -> None:
    outer = OuterColumns(parse_key(KeyFormat.STRING, "k string"), parse_headers({"tenant": "header tenant string"}))
    records = records_of((b"a", None, [("tenant", b"t")]), (None, None, ()), (b"b", b'{"id": 1}', ()))
    rows, errors = decode(outer, records, tombstones=TombstonePolicy.DELETE, key=("k",))
    assert (rows, errors) == ({0: (None, "a", "t"), 2: (1, "b", None)}, {1: NO_KEY})
    rows, errors = decode(outer, records, tombstones=TombstonePolicy.KEEP)
    assert (rows[0], rows[1], errors) == ((None, "a", "t"), (None, None, None), {})
    _, errors = decode(outer, records)
    assert errors == {0: NO_VALUE, 1: NO_VALUE}


documents = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=4) | st.lists(st.integers()),
    max_size=3,
)
keys = st.none() | documents.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=6)


@given(st.lists(keys, max_size=150))
def test_many_json_keys_become_what_the_reader_of_single_objects_says(given_keys: list[bytes | None]) -> None:
    columns: tuple[Column, ...] = parse_columns("a int, b string")
    records = records_of(*((key, b'{"id": 1}', ()) for key in given_keys))
    rows, errors = decode(OuterColumns(parse_key(KeyFormat.JSON, "a int, b string")), records)
    reader = ObjectReader(columns)
    for offset, key in enumerate(given_keys):
        try:
            expected = (1, *([None, None] if key is None else reader.read(key)))
        except ValueError:
            assert offset in errors
        else:
            assert rows[offset] == expected


@pytest.mark.parametrize(
    ("format_", "columns", "why"),
    [
        ("string", "a string, b string", "makes one column"),
        ("bytes", "a string", "write 'a binary'"),
        ("json", "a nothing", "type .nothing. is not known"),
    ],
)
def test_key_that_cannot_be_is_refused(format_: str, columns: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_key(KeyFormat(format_), columns)


@pytest.mark.parametrize("text", ["tenant string", "header tenant", "header", ""])
def test_header_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="header NAME TYPE"):
        parse_headers({"tenant": text})
