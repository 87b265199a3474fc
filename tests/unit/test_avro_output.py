"""Rows in Avro: the schema that columns become, and values that a library of others reads back as they were."""

import io
import json
import math
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.arrow_types import arrow_schema, mark_columns
from batchledger.formats.encoding.avro_values import AvroValues
from batchledger.formats.encoding.blocks import RecordEncoder
from batchledger.formats.encoding.registered import RegisteredOutput, name_record, write_schema
from batchledger.model.errors import BatchledgerError, ConfigurationError, SchemaRefusedError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.writer_schemas import SchemaType
from tests.unit.test_output_texts import rows_of

SCHEMA_ID = 0x01020304
FRAME = b"\0\1\2\3\4"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}

# Declared type, type in Avro: the table of docs/guides/topic.md.
DERIVED = [
    ("string", "string"),
    ("jsonb", "string"),
    ("boolean", "boolean"),
    ("tinyint", "int"),
    ("smallint", "int"),
    ("int", "int"),
    ("bigint", "long"),
    ("float", "float"),
    ("double", "double"),
    ("decimal(10,2)", DECIMAL),
    ("date", DAY),
    ("timestamp", MOMENT),
    ("timestamp_ms", MOMENT),
    ("binary", "bytes"),
    ("array<bigint>", {"type": "array", "items": ["null", "long"]}),
    ("map<string, double>", {"type": "map", "values": ["null", "double"]}),
]


def derive(schema: pa.Schema, topic: str = "out") -> Any:
    return json.loads(write_schema(name_record(topic), schema))


def type_of(schema: Any) -> Any:
    """The type of the only column."""
    (column,) = schema["fields"]
    assert column["name"] == "c"
    assert column["default"] is None
    null, type_ = column["type"]
    assert null == "null"
    return type_


@pytest.mark.parametrize(("declared", "avro"), DERIVED)
def test_declared_type_has_its_type_in_avro(declared: str, avro: Any) -> None:
    assert type_of(derive(arrow_schema(parse_columns(f"c {declared}")))) == avro


def test_moment_without_a_zone_is_a_local_one() -> None:
    assert type_of(derive(pa.schema([("c", pa.timestamp("us"))]))) == LOCAL


@pytest.mark.parametrize(
    ("topic", "name"),
    [("flights_clean", "flights_clean"), ("shop.orders-v2", "shop_orders_v2"), ("2026", "_2026"), ("_a", "_a")],
)
def test_record_has_the_name_of_its_topic_as_far_as_avro_allows(topic: str, name: str) -> None:
    assert derive(pa.schema([]), topic) == {"type": "record", "name": name, "fields": []}


def test_struct_is_a_record_named_by_its_place_wherever_it_lies() -> None:
    place = "struct<at struct<x int>, tags array<struct<x int>>>"
    columns = parse_columns(f"place {place}, places map<string, array<{place}>>")
    found = list(list_records(derive(arrow_schema(columns), "shop.orders")))
    assert found == [
        "shop_orders",
        "shop_orders.place",
        "shop_orders.place.at",
        "shop_orders.place.tags",
        "shop_orders.places",
        "shop_orders.places.at",
        "shop_orders.places.tags",
    ]
    fastavro.parse_schema(derive(arrow_schema(columns), "shop.orders"))


def list_records(schema: Any) -> Any:
    """The full names of all records."""
    if isinstance(schema, list):
        for each in schema:
            yield from list_records(each)
    elif isinstance(schema, Mapping):
        if schema["type"] == "record":
            yield ".".join(filter(None, (schema.get("namespace"), schema["name"])))
            for each in schema["fields"]:
                yield from list_records(each["type"])
        yield from list_records(schema.get("items") or schema.get("values"))


def test_equal_columns_give_the_same_text_and_the_mark_of_json_changes_nothing() -> None:
    columns = pa.schema([("c", pa.string()), ("s", pa.struct([("a", pa.int32())]))])
    assert write_schema("out", columns) == write_schema("out", mark_columns(columns, parse_columns("c jsonb")))


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (("a-b", pa.int32()), "Column 'a-b' has a name that Avro does not allow"),
        (("1a", pa.int32()), "Column '1a' has a name that Avro does not allow"),
        (("é", pa.int32()), "Column 'é' has a name that Avro does not allow"),
        (("", pa.int32()), "Column '' has a name that Avro does not allow"),
        (("s", pa.struct([("a b", pa.int32())])), "Column 's.a b' has a name that Avro does not allow"),
        (("s", pa.struct([("a", pa.int32()), ("a", pa.int32())])), "Column 's.a' is there twice"),
        (("m", pa.map_(pa.int32(), pa.int32())), "Column 'm' has type map<int32, int32>"),
        (("l", pa.list_(pa.duration("us"))), r"Column 'l' has type duration\[us\], for which Avro has no type"),
        (("t", pa.timestamp("ns")), r"Column 't' has type timestamp\[ns\], for which Avro has no type"),
        (("n", pa.null()), "Column 'n' has type null, for which Avro has no type"),
        (("d", pa.decimal128(5, -2)), r"Column 'd' has type decimal128\(5, -2\), for which Avro has no type"),
    ],
)
def test_column_that_avro_cannot_have_is_refused_by_its_name(column: tuple[str, pa.DataType], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        write_schema("out", pa.schema([column]))
    assert "Nothing was staged" in refused.value.message
    assert not refused.value.retryable


def write(*columns: pa.Array) -> tuple[Any, list[bytes | None]]:
    """Schema and values of columns ``c0``, ``c1`` and so on."""
    rows = rows_of(**{f"c{place}": each for place, each in enumerate(columns)})
    schema = pa.schema([rows.schema.field(f"c{place}") for place in range(len(columns))])
    encoder = pickle.loads(pickle.dumps(RecordEncoder((), AvroValues(SCHEMA_ID))))  # noqa: S301
    values = [each for records in encoder.encode(rows) for each in records["value"].to_pylist()]
    return derive(schema), values


def read(schema: Any, value: bytes | None) -> Any:
    """What a Confluent-style reader sees: times and decimals as numbers, since a year may be any."""
    assert value is not None
    assert value.startswith(FRAME)
    datum = io.BytesIO(value[len(FRAME) :])
    found = fastavro.schemaless_reader(datum, without_logic(schema), None)
    assert datum.read() == b""
    return found


def without_logic(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, list):
        return [without_logic(each) for each in schema]
    if isinstance(schema, Mapping):
        return {name: without_logic(each) for name, each in schema.items() if name != "logicalType"}
    return schema


def as_written(value: Any, type_: pa.DataType) -> Any:
    """What a value of Arrow, as Python has it with times as numbers, is in Avro without logical types."""
    match value:
        case Decimal():
            sign, digits, _ = value.as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
            return unscaled.to_bytes(size, "big", signed=True)
        case Mapping():
            return {each.name: as_written(value[each.name], each.type) for each in type_}
        case list() if pa.types.is_map(type_):
            return {name: as_written(each, type_.item_type) for name, each in value}
        case list():
            return [as_written(each, type_.value_type) for each in value]
        case _:
            return value


def with_bits(value: Any) -> Any:
    """A value with its floating point numbers as their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, Mapping):
        return {name: with_bits(each) for name, each in value.items()}
    return [with_bits(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Kind:
    """A type of Arrow, the one whose values Python can hold at any size, and values of the latter."""

    type: pa.DataType
    number: pa.DataType
    values: st.SearchStrategy[Any]


def scalar(type_: pa.DataType, values: st.SearchStrategy[Any], number: pa.DataType | None = None) -> Kind:
    return Kind(type_, number or type_, st.none() | values)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(precision: int, scale: int) -> Kind:
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    return scalar(pa.decimal128(precision, scale), unscaled.map(lambda value: make_decimal(value, scale)))


def make_decimal(unscaled: int, scale: int) -> Decimal:
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((sign, digits, -scale))


SCALARS = st.sampled_from(
    [
        *(scalar(type_, integers(type_.bit_width)) for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        scalar(pa.bool_(), st.booleans()),
        scalar(pa.float32(), st.floats(width=32)),
        scalar(pa.float64(), st.floats()),
        scalar(pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
        scalar(pa.binary(), st.binary()),
        scalar(pa.date32(), integers(32), pa.int32()),
        scalar(pa.timestamp("us", "UTC"), integers(64), pa.int64()),
        scalar(pa.timestamp("us"), integers(64), pa.int64()),
        *(decimals(*size) for size in ((38, 0), (38, 18), (38, 38), (9, 2), (1, 0))),
    ]
)


def list_of(kind: Kind) -> Kind:
    return scalar(pa.list_(kind.type), st.lists(kind.values, max_size=3), pa.list_(kind.number))


def map_of(kind: Kind) -> Kind:
    items = st.dictionaries(st.text("ab", max_size=2), kind.values, max_size=3).map(lambda found: list(found.items()))
    return scalar(pa.map_(pa.string(), kind.type), items, pa.map_(pa.string(), kind.number))


def struct_of(kinds: Sequence[Kind]) -> Kind:
    names = [f"f{place}" for place in range(len(kinds))]
    types, numbers = ([(name, getattr(kind, which)) for name, kind in zip(names, kinds, strict=True)]
                      for which in ("type", "number"))  # fmt: skip
    values = st.fixed_dictionaries({name: kind.values for name, kind in zip(names, kinds, strict=True)})
    return scalar(pa.struct(types), values, pa.struct(numbers))


KINDS = st.recursive(
    SCALARS,
    lambda inner: inner.map(list_of) | inner.map(map_of) | st.lists(inner, min_size=1, max_size=3).map(struct_of),
    max_leaves=4,
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Kind, list[Any]]:
    kind = draw(KINDS)
    return kind, draw(st.lists(kind.values, min_size=1, max_size=8))


def make_array(kind: Kind, values: Sequence[Any]) -> pa.Array:
    return with_type(pa.array(values, kind.number), kind.type)


def with_type(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same numbers as times: Arrow casts nothing that is nested, so the buffers change their name."""
    if pa.types.is_map(type_) or pa.types.is_list(type_) or pa.types.is_struct(type_):
        return pa.Array.from_buffers(
            type_,
            len(values),
            values.buffers()[: type_.num_buffers],
            children=[with_type(*each) for each in zip(children_of(values), children_types(type_), strict=True)],
        )
    return values.view(type_) if values.type != type_ else values


def children_types(type_: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_map(type_):
        return [pa.struct([type_.key_field, type_.item_field])]
    return [type_.field(place).type for place in range(type_.num_fields)]


def children_of(values: pa.Array) -> list[pa.Array]:
    if pa.types.is_map(values.type):
        return [pa.StructArray.from_arrays([values.keys, values.items], fields=[*children_types(values.type)[0]])]
    if pa.types.is_struct(values.type):
        return [values.field(place) for place in range(values.type.num_fields)]
    return [values.values]


@given(columns(), columns(), st.integers(0, 3))
def test_rows_are_read_back_by_a_library_of_others_as_they_were(
    one: tuple[Kind, list[Any]], other: tuple[Kind, list[Any]], skipped: int
) -> None:
    """Also from the middle of longer arrays, and beside another column."""
    count = min(len(one[1]), len(other[1]))
    lists = [(kind, [*values[:1]] * skipped + values[:count]) for kind, values in (one, other)]
    schema, written = write(*(make_array(*each).slice(skipped) for each in lists))
    for place, value in enumerate(written):
        wanted = {f"c{at}": as_written(values[skipped + place], kind.type) for at, (kind, values) in enumerate(lists)}
        assert with_bits(read(schema, value)) == with_bits(wanted)


@given(columns())
def test_bytes_are_those_that_a_library_of_others_writes(column: tuple[Kind, list[Any]]) -> None:
    kind, values = column
    schema, written = write(make_array(kind, values))
    plain = fastavro.parse_schema(without_logic(schema))
    for place, value in enumerate(values):
        out = io.BytesIO(FRAME)
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, plain, {"c0": as_written(value, kind.type)})
        assert written[place] == out.getvalue()


def test_values_mean_what_they_meant_to_a_reader_who_knows_the_logical_types() -> None:
    moment = datetime(2026, 11, 22, 12, 0, 0, 120_000, UTC)
    schema, (value, nothing) = write(
        pa.array([Decimal("-99999999999999999999.999999999999999999"), None], pa.decimal128(38, 18)),
        pa.array([moment, None], pa.timestamp("us", "UTC")),
        pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        pa.array([date(2026, 11, 22), None], pa.date32()),
    )
    assert value is not None
    assert fastavro.schemaless_reader(io.BytesIO(value[len(FRAME) :]), schema, None) == {
        "c0": Decimal("-99999999999999999999.999999999999999999"),
        "c1": moment,
        "c2": moment.replace(tzinfo=None),
        "c3": date(2026, 11, 22),
    }
    assert nothing == FRAME + b"\0\0\0\0"


def test_numbers_keep_every_bit_and_years_need_no_four_digits() -> None:
    payload = struct.unpack("<d", b"\1\2\3\4\5\6\xf8\xff")[0]
    for number in (math.nan, payload, -0.0, math.inf, -math.inf, 5e-324):
        assert write(pa.array([number]))[1] == [FRAME + b"\2" + struct.pack("<d", number)]
    for days in (2_932_897, -719_163, 2**31 - 1, -(2**31)):
        schema, (value,) = write(pa.array([days], pa.int32()).view(pa.date32()))
        assert read(schema, value) == {"c0": days}


def test_deleted_row_has_no_value_and_a_row_without_columns_is_the_frame() -> None:
    encoder = RecordEncoder(("c",), AvroValues(SCHEMA_ID))
    rows = rows_of(c=pa.array([1, 2, 3])).append_column("_deleted", pa.array([True, False, None]))
    (records,) = encoder.encode(rows)
    assert records.select(["key", "value"]).to_pylist() == [
        {"key": b"1", "value": None},
        {"key": b"2", "value": FRAME + b"\2\4"},
        {"key": b"3", "value": FRAME + b"\2\6"},
    ]
    (records,) = RecordEncoder((), AvroValues(SCHEMA_ID)).encode(rows_of(c=pa.array([1])).drop_columns(["c"]))
    assert records["value"].to_pylist() == [FRAME]


@dataclass
class MemoryRegistry:
    """A registry that gives an id to each text, or refuses."""

    registered: list[tuple[str, SchemaType, str]] = field(default_factory=list)
    refusal: BatchledgerError | None = None

    def register(self, subject: str, type_: SchemaType, text: str) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.registered.append((subject, type_, text))
        return 6 + len({text for _, _, text in self.registered})


def test_schema_is_registered_once_and_has_no_column_of_provenance() -> None:
    registry = MemoryRegistry()
    output = RegisteredOutput(registry, "out-value", "out")
    schema = rows_of(c=pa.array([1])).schema.append(pa.field("_deleted", pa.bool_()))
    assert output.open(schema) == output.open(schema) == AvroValues(7)
    assert output.open(pa.schema([("d", pa.int32())])) == AvroValues(8)
    (subject, type_, text), _ = registry.registered
    assert (subject, type_) == ("out-value", SchemaType.AVRO)
    assert [each["name"] for each in json.loads(text)["fields"]] == ["c"]


def test_dry_run_registers_nothing() -> None:
    registry = MemoryRegistry()
    assert (
        RegisteredOutput(registry, "out-value", "out").open(pa.schema([("c", pa.int32())]), is_dry_run=True) is not None
    )
    assert registry.registered == []


def test_refused_schema_is_asked_for_again() -> None:
    registry = MemoryRegistry(refusal=SchemaRefusedError("no"))
    output = RegisteredOutput(registry, "out-value", "out")
    with pytest.raises(SchemaRefusedError):
        output.open(pa.schema([("c", pa.int32())]))
    registry.refusal = None
    assert output.open(pa.schema([("c", pa.int32())])) == AvroValues(7)
