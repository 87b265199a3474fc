"""The texts of output records: the meaning that the guide writes down, and the fast way beside the plain one."""

import math
import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.encoding import blocks
from batchledger.formats.encoding.blocks import RecordEncoder
from batchledger.formats.encoding.texts import make_element_writer, make_text_writer, make_writer, write_float

_MOMENT = pa.timestamp("us", "UTC")
_DAY_MICROSECONDS = 86_400_000_000


def rows_of(**columns: pa.Array) -> pa.RecordBatch:
    """Rows with these columns, from one place each."""
    count = len(next(iter(columns.values())))
    places = {
        "_topic": pa.array(["orders"] * count),
        "_partition": pa.array([3] * count, pa.int32()),
        "_offset": pa.array(range(count), pa.int64()),
        "_timestamp": pa.array([1_372_636_800_000_000] * count, _MOMENT),
    }
    return pa.RecordBatch.from_pydict({**columns, **places})


def encode(rows: pa.RecordBatch, key: tuple[str, ...] = ()) -> pa.RecordBatch:
    (records,) = RecordEncoder(key).encode(rows)
    return records


def values_of(array: pa.Array) -> list[str]:
    """The JSON tokens that the values become."""
    whole = encode(rows_of(c=array))["value"].to_pylist()
    return [each.decode().removeprefix('{"c":').removesuffix("}") for each in whole]


def keys_of(array: pa.Array, *more: pa.Array) -> list[str | None]:
    names = {f"c{place}": each for place, each in enumerate((array, *more))}
    found = encode(rows_of(**names), tuple(names))["key"].to_pylist()
    return [None if each is None else each.decode() for each in found]


def plain_values(array: pa.Array) -> list[Any]:
    """The values as the plain way takes them: times as numbers."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    return array.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(array.type) else array.to_pylist()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# Value, type, JSON token, key of this column, element of a key of several: the table of docs/guides/topic.md.
WRITTEN = [
    (7, pa.int32(), "7", "7", "7"),
    (-(2**63), pa.int64(), "-9223372036854775808", "-9223372036854775808", "-9223372036854775808"),
    (True, pa.bool_(), "true", "true", "true"),
    (Decimal("1.50"), pa.decimal128(10, 2), "1.50", "1.50", "1.50"),
    (Decimal("1E-10"), pa.decimal128(38, 10), "0.0000000001", "0.0000000001", "0.0000000001"),
    (2.0, pa.float64(), "2", "2", "2"),
    (-0.0, pa.float64(), "-0", "-0", "0"),
    (0.1, pa.float64(), "0.1", "0.1", "0.1"),
    (0.0625, pa.float64(), "0.0625", "0.0625", "0.0625"),
    (1e-4, pa.float64(), "0.0001", "0.0001", "0.0001"),
    (1e-5, pa.float64(), "1e-05", "1e-05", "0.00001"),
    (123456789012345.6, pa.float64(), "123456789012345.6", "123456789012345.6", "123456789012345.6"),
    (1e15, pa.float64(), "1e+15", "1e+15", "1000000000000000"),
    (1e23, pa.float64(), "9.999999999999999e+22", "9.999999999999999e+22", "99999999999999990000000"),
    (math.nan, pa.float64(), '"NaN"', "NaN", '"NaN"'),
    (-math.inf, pa.float64(), '"-Infinity"', "-Infinity", '"-Infinity"'),
    (0.1, pa.float32(), "0.1", "0.1", "0.1"),
    (0.0625, pa.float32(), "0.0625", "0.0625", "0.0625"),
    (1e6, pa.float32(), "1e+06", "1e+06", "1000000"),
    ('a"\\\n\x01ü\x7f/', pa.string(), '"a\\"\\\\\\n\\u0001ü\x7f/"', 'a"\\\n\x01ü\x7f/', '"a\\"\\\\\\n\\u0001ü\x7f/"'),
    (date(2026, 11, 22), pa.date32(), '"2026-11-22"', "2026-11-22", '"2026-11-22"'),
    (
        moment("2026-11-22T12:00:00.120000+00:00"),
        _MOMENT,
        '"2026-11-22T12:00:00.12+00:00"',
        "2026-11-22 12:00:00.12+00",
        '"2026-11-22T12:00:00.12+00:00"',
    ),
    (
        moment("2026-11-22T10:00:00"),
        pa.timestamp("us"),
        '"2026-11-22T10:00:00"',
        "2026-11-22 10:00:00",
        '"2026-11-22T10:00:00"',
    ),
    (b"ab", pa.binary(), '"\\\\x6162"', "ab", '"\\\\x6162"'),
]


@pytest.mark.parametrize(("value", "type_", "token", "key", "element"), WRITTEN)
def test_value_is_written_as_the_guide_says(value: Any, type_: pa.DataType, token: str, key: str, element: str) -> None:
    array = pa.array([value, None], type_)
    plain = plain_values(array)[0]
    written = [make(type_)(plain) for make in (make_writer, make_text_writer, make_element_writer)]
    assert written == [token, r"\x6162" if type_ == pa.binary() else key, element]
    assert values_of(array) == [token, "null"]
    assert keys_of(array) == [key, None]
    assert keys_of(array, pa.array([1, 1], pa.int32())) == [f"[{element}, 1]", None]


def test_years_beyond_four_digits_and_before_the_first_are_written_as_postgresql_does() -> None:
    days = pa.array([2_932_897, -719_163], pa.int32()).cast(pa.date32())
    assert values_of(days) == ['"10000-01-01"', '"0001-12-31 BC"']
    moments = pa.array([2_932_897 * _DAY_MICROSECONDS, -719_163 * _DAY_MICROSECONDS], pa.int64()).cast(_MOMENT)
    assert values_of(moments) == ['"10000-01-01T00:00:00+00:00"', '"0001-12-31T00:00:00+00:00 BC"']
    assert keys_of(moments) == ["10000-01-01 00:00:00+00", "0001-12-31 00:00:00+00 BC"]


def test_value_has_the_columns_in_their_order_and_nothing_else() -> None:
    rows = rows_of(**{'we"ird': pa.array([1]), "b": pa.array(["x"])})
    records = encode(rows)
    assert records["value"].to_pylist() == [b'{"we\\"ird":1,"b":"x"}']
    assert records.drop_columns(["value"]).to_pylist() == [
        {"topic": "orders", "partition": 3, "offset": 0, "timestamp_ms": 1_372_636_800_000, "key": None}
    ]


def test_row_without_columns_is_an_empty_object_and_a_deleted_one_has_no_value() -> None:
    assert encode(rows_of(c=pa.array([1, 2])).drop_columns(["c"]))["value"].to_pylist() == [b"{}", b"{}"]
    rows = rows_of(c=pa.array([1, 2, 3])).append_column("_deleted", pa.array([True, False, None]))
    assert encode(rows, ("c",)).select(["key", "value"]).to_pylist() == [
        {"key": b"1", "value": None},
        {"key": b"2", "value": b'{"c":2}'},
        {"key": b"3", "value": b'{"c":3}'},
    ]


def test_rows_that_are_too_large_for_one_block_are_divided_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_BYTES", 100)
    found = list(RecordEncoder().encode(rows_of(c=pa.array(range(50)))))
    assert len(found) > 1
    assert [each for part in found for each in part["offset"].to_pylist()] == list(range(50))


_DOUBLES = st.floats() | st.floats(1e-5, 1e16) | st.integers(-(2**63), 2**63).map(float)
_DECIMALS = st.decimals(min_value=-(10**18), max_value=10**18, places=9)
_ANY_MOMENT = st.integers(-70_000_000_000_000_000, 300_000_000_000_000_000)
COLUMNS = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1)),
    st.tuples(st.just(pa.float64()), st.lists(st.none() | _DOUBLES, min_size=1)),
    st.tuples(st.just(pa.float32()), st.lists(st.none() | st.floats(width=32), min_size=1)),
    st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans(), min_size=1)),
    st.tuples(
        st.just(pa.string()), st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1)
    ),
    st.tuples(st.just(pa.binary()), st.lists(st.none() | st.binary(), min_size=1)),
    st.tuples(st.just(pa.decimal128(38, 9)), st.lists(st.none() | _DECIMALS, min_size=1)),
    st.tuples(st.just(pa.date32()), st.lists(st.none() | st.integers(-900_000, 4_000_000), min_size=1)),
    st.tuples(st.just(_MOMENT), st.lists(st.none() | _ANY_MOMENT, min_size=1)),
    st.tuples(st.just(pa.timestamp("us")), st.lists(st.none() | _ANY_MOMENT, min_size=1)),
)


@given(COLUMNS, st.integers(0, 3))
def test_blocks_write_what_the_plain_way_writes(column: tuple[pa.DataType, list[Any]], skipped: int) -> None:
    """Also from the middle of a longer array."""
    type_, values = column
    number = pa.int32() if type_ == pa.date32() else pa.int64() if pa.types.is_timestamp(type_) else type_
    values = [None] * skipped + values
    array = pa.array(values, number).cast(type_).slice(skipped)
    values = plain_values(array)
    write, write_text, write_element = (make(type_) for make in (make_writer, make_text_writer, make_element_writer))
    assert values_of(array) == ["null" if each is None else write(each) for each in values]
    wanted = [None if each is None else f"[{write_element(each)}, {write_element(each)}]" for each in values]
    assert keys_of(array, array) == wanted
    if type_ != pa.binary():
        assert keys_of(array) == [None if each is None else write_text(each) for each in values]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_digits_of_a_double_mean_the_same_double(value: float) -> None:
    text = write_float(value, 64)
    assert struct.pack("d", float(text)) == struct.pack("d", value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_digits_of_a_float_mean_the_same_float(value: float) -> None:
    assert struct.pack("f", float(write_float(value, 32))) == struct.pack("f", value)
