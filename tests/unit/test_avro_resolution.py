"""A reader's schema beside the writer's: fastavro's schema resolution is the oracle for aliases and defaults."""

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.resolution import ResolvingDecoder
from batchledger.formats.decoding.avro.schema import AvroSchemaError
from batchledger.model.records.columns import parse_columns
from tests.avro import Schema, encode

Fields = Sequence[Mapping[str, Any]]


def record(fields: Fields, name: str = "order") -> Schema:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, *aliases: str, **default: Any) -> Mapping[str, Any]:
    return {"name": name, "type": type_, **({"aliases": list(aliases)} if aliases else {}), **default}


def resolve(writer: Schema, reader: Schema, columns: str) -> ResolvingDecoder:
    return ResolvingDecoder((json.dumps(writer), ()), (json.dumps(reader), ()), parse_columns(columns))


def read(writer: Schema, reader: Schema, columns: str, *values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows, is_decoded, errors = resolve(writer, reader, columns).decode(
        pa.array([encode(writer, each) for each in values])
    )
    assert (is_decoded.all(), errors) == (True, {})
    found: list[Mapping[str, Any]] = rows.to_pylist()
    return found


def read_by_fastavro(writer: Schema, reader: Schema, value: Mapping[str, Any]) -> Any:
    stream = io.BytesIO(encode(writer, value))
    return fastavro.schemaless_reader(stream, fastavro.parse_schema(dict(writer)), fastavro.parse_schema(dict(reader)))


NO_VALUE = "the reader's default of field d is no value of its type"
INNER_OLD = record([field("id", "long")], "customer")
INNER_NEW = record(
    [
        field("number", "long", "id"),
        field("city", "string", default="Oslo"),
        field("note", ["null", "string"], default=None),
    ],
    "customer",
)
LINE_NEW = record([field("count", "int", "n"), field("tax", "double", default=0.5)], "line")
HOME = record([field("street", "string"), field("no", "int")], "home")
WRITER = record(
    [
        field("id", "int"),
        field("customer", ["null", INNER_OLD]),
        field("lines", {"type": "array", "items": record([field("n", "int")], "line")}),
        field("by_name", {"type": "map", "values": "line"}),
    ]
)
READER = record(
    [
        field("order_id", "int", "key", "id"),
        field("client", ["null", INNER_NEW], "customer"),
        field("lines", {"type": "array", "items": LINE_NEW}),
        field("by_name", {"type": "map", "values": "line"}),
        field("tags", {"type": "array", "items": "string"}, default=["a", "b"]),
        field("extra", {"type": "map", "values": "long"}, default={"k": 5}),
        field("home", HOME, default={"street": "x", "no": 8}),
        field("level", {"type": "enum", "name": "level", "symbols": ["low", "high"]}, default="high"),
        field("is_new", "boolean", default=True),
        field("rate", "float", default=0.25),
        field("either", ["string", "null"], default="e"),
    ]
)  # fmt: skip
COLUMNS = (
    "order_id int, client struct<number bigint, city string, note string>, lines array<struct<count int, tax double>>, "
    "by_name map<string, struct<count int, tax double>>, tags array<string>, extra map<string, bigint>, "
    "home struct<street string, no int>, level string, is_new boolean, rate float, either string"
)
VALUES = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**31), 2**31 - 1),
        "customer": st.none() | st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1)}),
        "lines": st.lists(st.fixed_dictionaries({"n": st.integers(0, 9)}), max_size=3),
        "by_name": st.dictionaries(st.sampled_from("abc"), st.fixed_dictionaries({"n": st.integers(0, 9)})),
    }
)


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_columns_have_what_fastavro_reads_with_the_same_two_schemas(values: list[Mapping[str, Any]]) -> None:
    expected = [read_by_fastavro(WRITER, READER, each) for each in values]
    found = [
        {**row, "by_name": dict(row["by_name"]), "extra": dict(row["extra"])}
        for row in read(WRITER, READER, COLUMNS, *values)
    ]
    assert found == expected


def test_path_goes_through_an_alias_and_ends_in_a_default() -> None:
    columns = (
        "client.number as number bigint, client.city as city string, home.no as no int, home.none as none int, "
        "client.none as absent string"
    )
    found = read(
        WRITER,
        READER,
        columns,
        {"id": 1, "customer": {"id": 5}, "lines": [], "by_name": {}},
        {"id": 2, "customer": None, "lines": [], "by_name": {}},
    )
    assert found == [
        {"number": 5, "city": "Oslo", "no": 8, "none": None, "absent": None},
        {"number": None, "city": None, "no": 8, "none": None, "absent": None},
    ]


def test_without_a_readers_schema_a_field_that_the_writer_lacks_is_null() -> None:
    """The negative control."""
    decoder = AvroDecoder(json.dumps(WRITER), (), parse_columns("order_id int, level string"))
    value = encode(WRITER, {"id": 1, "customer": None, "lines": [], "by_name": {}})
    assert decoder.decode(pa.array([value]))[0].to_pylist() == [{"order_id": None, "level": None}]


@pytest.mark.parametrize(
    ("reader", "columns", "expected"),
    [
        # The writer's field of the name comes before an alias, and a reader's field before an alias of another one.
        ([field("b", "int", "a")], "b int", {"b": 2}),
        ([field("a", "int"), field("c", "int", "a", default=9)], "a int, c int", {"a": 1, "c": 9}),
        # A column that still has the older name reads it, too.
        ([field("c", "int", "a")], "a int, c int", {"a": 1, "c": 1}),
        # Without a default, and without the reader's field, a column is null.
        ([field("c", "int")], "a int, c int, d int", {"a": 1, "c": None, "d": None}),
        # The type of the reader plays no part beside a field of the writer.
        ([field("a", "string")], "a bigint", {"a": 1}),
        ([field("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, default="\u0001\u0000")],
         "d decimal(6,2)", {"d": Decimal("2.56")}),
        ([field("d", {"type": "int", "logicalType": "date"}, default=0)], "d string", {"d": "1970-01-01"}),
        # What fastavro leaves as it is in JSON: bytes are characters, and a default may leave out its fields' own.
        ([field("d", "bytes", default="\u00ff\u0000")], "d binary", {"d": b"\xff\0"}),
        ([field("d", record([field("e", "int"), field("f", "int", default=7)], "r"), default={"e": 1})],
         "d struct<e int, f int>", {"d": {"e": 1, "f": 7}}),
        ([field("d", ["null", "boolean"], default=None)], "d bigint", {"d": None}),
        ([field("d", {"type": "array", "items": "int"}, default=[1])], "d jsonb", {"d": "[1]"}),
    ],
)  # fmt: skip
def test_field_is_found_by_its_name_then_by_an_alias_then_in_the_default(
    reader: Fields, columns: str, expected: Mapping[str, Any]
) -> None:
    writer = record([field("a", "int"), field("b", "int")])
    assert read(writer, record(reader), columns, {"a": 1, "b": 2}) == [expected]


@pytest.mark.parametrize("column", ["jsonb", "string"])
def test_json_of_a_record_is_what_the_writer_wrote(column: str) -> None:
    value = {"id": 1, "customer": {"id": 5}, "lines": [], "by_name": {}}
    assert read(WRITER, READER, f"client {column}", value) == [{"client": '{"id":5}'}]


@pytest.mark.parametrize(
    ("type_", "default", "column", "error"),
    [
        ("int", "x", "int", NO_VALUE),
        ("int", 2**31, "bigint", NO_VALUE),
        ("boolean", 1, "boolean", NO_VALUE),
        ("int", 300, "tinyint", "field d does not fit: d .tinyint. cannot hold a number beyond"),
        ("boolean", True, "int", "the reader's default of field d is boolean, which a column of type int never holds"),
        (record([field("e", "int")], "r"), {}, "struct<e int>", NO_VALUE),
        (record([field("r", "r", default={})], "r"), {}, "string", NO_VALUE),
    ],
)  # fmt: skip
def test_default_that_does_not_fit_is_refused_before_a_record_is_read(
    type_: Any, default: Any, column: str, error: str
) -> None:
    reader = record([field("d", type_, default=default)])
    with pytest.raises(AvroSchemaError, match=error):
        resolve(record([field("a", "int")]), reader, f"d {column}")


def test_recursive_schemas_are_resolved_as_deep_as_columns_go() -> None:
    def node(*more: Mapping[str, Any]) -> Schema:
        return record([field("n", "int"), field("next", ["null", "order"]), *more])

    value = {"n": 1, "next": {"n": 2, "next": None}}
    reader = node(field("tag", "string", default="t"), field("up", ["null", "order"], default=None))
    columns = "tag string, next struct<tag string, n int, next struct<tag string>>, up struct<n int>"
    assert read(node(), reader, columns, value) == [
        {"tag": "t", "next": {"tag": "t", "n": 2, "next": None}, "up": None}
    ]


def test_fields_that_both_schemas_have_alike_stay_what_they_are() -> None:
    types = {"tags": {"type": "array", "items": "string"}, "by_name": {"type": "map", "values": "long"}, "in": LINE_NEW}
    both = record([field(name, type_) for name, type_ in types.items()])
    value = {"tags": ["x"], "by_name": {"k": 5}, "in": {"count": 1, "tax": 0.25}}
    columns = "tags array<string>, by_name map<string, bigint>, in struct<count int, tax double>"
    assert read(both, both, columns, value) == [{**value, "by_name": [("k", 5)]}]


@pytest.mark.parametrize("more", [[], [field("next", ["null", "inner"])]], ids=["side by side", "by the reference"])
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("r struct<old int, new int>", {"old": 5, "new": 5}),
        ("r struct<new string, old int>", {"new": "5", "old": 5}),
        ("r struct<new int, newer string>", {"new": 5, "newer": "5"}),
        ("r struct<new int, lacking int, old bigint>", {"new": 5, "lacking": 9, "old": 5}),
    ],
)
def test_writers_field_becomes_each_field_of_a_struct_whose_name_leads_to_it(
    more: Fields, columns: str, expected: Mapping[str, Any]
) -> None:
    writer = record([field("r", ["null", record([field("old", "int"), *more], "inner")])])

    def make_reader(*newer: Mapping[str, Any]) -> Schema:
        fields = [field("new", "int", "old", default=7), field("lacking", "int", default=9), *newer]
        return record([field("r", ["null", record(fields, "inner")])])

    reader, value = make_reader(field("newer", "int", "old")), {"r": {"old": 5, "next": None}}
    # fastavro lets one name alone lead to a field of the writer.
    assert read_by_fastavro(writer, make_reader(), value) == {"r": {"new": 5, "lacking": 9}}
    assert read(writer, reader, columns, value, {"r": None}) == [{"r": expected}, {"r": None}]


def test_value_that_is_cut_off_is_refused_among_its_neighbours_which_keep_their_defaults() -> None:
    writer, reader = record([field("a", "string")]), record([field("b", "string", "a"), field("c", "int", default=3)])
    good = encode(writer, {"a": "xyz"})
    decoder = resolve(writer, reader, "b string, c int")
    for each in (decoder, pickle.loads(pickle.dumps(decoder))):  # noqa: S301 -- our own bytes
        rows, is_decoded, errors = each.decode(pa.array([good, good[:-1], good]))
        assert rows.to_pylist() == [{"b": "xyz", "c": 3}] * 2
        assert (is_decoded.tolist(), list(errors)) == ([True, False, True], [1])


def test_no_records_become_no_rows() -> None:
    assert resolve(WRITER, READER, COLUMNS).decode(pa.array([], pa.binary()))[0].num_rows == 0
