"""Which records are decoded in blocks. Without Spark, with whose decoding ``tests/integration`` compares it."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.columns import parse_columns
from batchledger.spark.blocks import BlockDecoder, decodes_in_blocks, to_arrow_type

DECODER = BlockDecoder(
    parse_columns("name string, number int, share double, moment timestamp, day date, is_new boolean")
)
NOTHING = dict.fromkeys(("name", "number", "share", "moment", "day", "is_new"))
GOOD = b'{"name":"a","number":1}'


def decode(*values: bytes | None) -> tuple[list[dict[str, Any]], list[bool]]:
    rows, is_sure = DECODER.decode(pa.array(values, pa.binary()))
    return rows.to_pylist(), is_sure.to_pylist()


def test_objects_become_rows_in_their_order_and_what_they_lack_is_null() -> None:
    rows, is_sure = decode(
        b'{"name": "\\u00e4\\ud83d\\ude00", "number": -0, "share": 1, "is_new": true, "unknown": [{"a": null}]}',
        b"{}",
        b'{"moment":"2026-11-22T01:02:03.5Z","day":"2026-11-22"}',
        b'{"moment":"2026-11-22 01:02:03","number":\n2}',
    )
    assert is_sure == [True] * 4
    assert rows == [
        NOTHING | {"name": "ä😀", "number": 0, "share": 1.0, "is_new": True},
        NOTHING,
        NOTHING | {"moment": datetime(2026, 11, 22, 1, 2, 3, 500_000, UTC), "day": date(2026, 11, 22)},
        NOTHING | {"moment": datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC), "number": 2},
    ]


@pytest.mark.parametrize(
    ("written", "hour", "minute"),
    [
        ("2026-11-22T12:00:00", 12, 0),
        ("2026-11-22T12:00:00Z", 12, 0),
        ("2026-11-22T12:00:00+00:00", 12, 0),
        ("2026-11-22 12:00:00.000+01:00", 11, 0),
        ("2026-11-22T12:00:00-03:30", 15, 30),
    ],
)
def test_moment_is_read_in_the_zone_that_it_names(written: str, hour: int, minute: int) -> None:
    rows, is_sure = decode(f'{{"moment":"{written}"}}'.encode(), b'{"moment":"2026-11-22T01:00:00"}', b"{}")
    assert is_sure == [True] * 3
    moments = [row["moment"] for row in rows]
    assert moments == [datetime(2026, 11, 22, hour, minute, tzinfo=UTC), datetime(2026, 11, 22, 1, tzinfo=UTC), None]


DOUBTFUL = {
    "a tombstone": None,
    "nothing": b"",
    "two objects": b'{"name":"a"}{"name":"b"}',
    "an object and more": b'{"name":"a"} ',
    "a list": b'[{"name":"a"}]',
    "half an object": b'{"name":"a"',
    "not UTF-8": b'{"name":"\xff"}',
    "half of a surrogate pair": b'{"name":"\\udc00"}',
    "U+0000": b'{"name":"a\\u0000b"}',
    "a field twice": b'{"number":1,"number":2}',
    "a number for a text": b'{"name":1}',
    "a text for a number": b'{"number":"1"}',
    "a fraction for a whole number": b'{"number":1.0}',
    "a number that is too large": b'{"number":2147483648}',
    "a share beyond all doubles": b'{"share":1e400}',
    "a share that is no number": b'{"share": NaN}',
    "a zero with a sign": b'{"share":-0}',
    "an unknown field that is no number": b'{"unknown": -Inf}',
    "a moment in another form": b'{"moment":"2026-11-22"}',
    "a moment in no known zone": b'{"moment":"2026-11-22T00:00:00+15:00"}',
    "a day that no calendar has": b'{"day":"2026-02-30"}',
    "a year before 1000": b'{"day":"0900-01-01"}',
    "objects in objects": b'{"unknown":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}",
    "an endless number": b'{"unknown":' + b"9" * 2000 + b"}",
    "an endless name": b'{"' + b"n" * 60_000 + b'":1}',
}


@pytest.mark.parametrize("value", DOUBTFUL.values(), ids=DOUBTFUL)
def test_doubtful_record_is_left_to_spark(value: bytes | None) -> None:
    assert decode(value) == ([], [False])


@pytest.mark.parametrize("value", DOUBTFUL.values(), ids=DOUBTFUL)
def test_doubtful_record_costs_its_neighbours_at_most_that_they_are_left_to_spark_too(value: bytes | None) -> None:
    rows, is_sure = decode(*[GOOD] * 300, value, *[GOOD] * 300)
    assert not is_sure[300]
    assert len(rows) == sum(is_sure) >= 600 - 64
    assert all(row == NOTHING | {"name": "a", "number": 1} for row in rows)


@given(
    st.lists(
        st.sampled_from([GOOD, *DOUBTFUL.values(), b'{"name":"b"}', b"}\n{", b'{"a":{"b":1}', b'{"c":1}}']),
        max_size=200,
    )
)
def test_no_record_becomes_a_row_of_another(values: list[bytes | None]) -> None:
    """Also where one value holds two objects and another none, so that their number is right."""
    rows, is_sure = decode(*values)
    sure = [value for value, each in zip(values, is_sure, strict=True) if each and value is not None]
    assert [(row["name"], row["number"]) for row in rows] == [
        (fields.get("name"), fields.get("number")) for fields in map(json.loads, sure)
    ]


def test_types_on_which_parsers_differ_are_not_decoded_in_blocks() -> None:
    assert decodes_in_blocks(parse_columns("a string, b tinyint, c short, d integer, e long, f double, g date"))
    for type_ in ("float", "real", "decimal(10,2)", "binary"):
        assert not decodes_in_blocks(parse_columns(f"a string, b {type_}"))
        assert str(to_arrow_type(parse_columns(f"b {type_}")[0].type)).startswith(
            type_[:3] if type_ != "real" else "float"
        )
