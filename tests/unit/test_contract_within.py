"""What ``batchledger schema`` says of values within values: each difference by its path; docs/guides/schema.md."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.decoding.avro.schema import AvroSchemaError
from batchledger.formats.decoding.registered import make_datum_decoder
from batchledger.formats.decoding.sampling import MOST_FIELDS, look_at, look_at_schemas
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.contract import Contract, SchemaChange, TableColumn
from batchledger.model.records.writer_schemas import FIRST_MESSAGE, SchemaType, WriterSchema
from tests.avro import record_schema

ADDITIVE, WIDENING, BREAKING = SchemaChange.ADDITIVE, SchemaChange.WIDENING, SchemaChange.BREAKING
Found = Mapping[str, tuple[SchemaChange, str | None]]


def compare(schema: str, *documents: Any) -> Contract:
    """A schema beside records."""
    columns = parse_columns(schema)
    return Contract(columns, look_at([json.dumps(each).encode() for each in documents], columns))


def compare_schemas(schema: str, *written: WriterSchema) -> Contract:
    """A schema beside schemas of a registry."""
    columns = parse_columns(schema)
    return Contract(columns, look_at_schemas(dict.fromkeys(((each, FIRST_MESSAGE) for each in written), 1), columns))


def found_in(contract: Contract) -> Found:
    """Change and line of the file by path."""
    return {each.column: (each.change, each.declare) for each in contract.differences}


@pytest.mark.parametrize(
    ("schema", "document", "found"),
    [
        (
            "c struct<id int>",
            {"c": {"id": 1, "name": "n"}},
            {"c.name": (ADDITIVE, "c struct<id int, name string>")},
        ),
        (
            "c struct<address struct<city string>>",
            {"c": {"address": {"city": "Rome", "zip": 1}}},
            {"c.address.zip": (ADDITIVE, "c struct<address struct<city string, zip bigint>>")},
        ),
        (
            "items array<struct<price int>>",
            {"items": [{"price": 1}, None, {"price": 2**40, "code": "c"}]},
            {
                "items[].price": (WIDENING, "items array<struct<price bigint, code string>>"),
                "items[].code": (ADDITIVE, "items array<struct<price bigint, code string>>"),
            },
        ),
        ("n array<array<int>>", {"n": [[1], [2**40]]}, {"n[][]": (WIDENING, "n array<array<bigint>>")}),
        (
            "m map<string, struct<n decimal(4,2)>>",
            {"m": {"a.b": {"n": 123.45}}},
            {"m[].n": (WIDENING, "m map<string, struct<n decimal(5,2)>>")},
        ),
        ("c struct<id int>", {"c": {"id": "one"}}, {"c.id": (BREAKING, None)}),
        (
            "c struct<id int, n int>",
            {"c": {"id": "one", "n": 2**40}},
            {"c.id": (BREAKING, None), "c.n": (WIDENING, "c struct<id int, n bigint>")},
        ),
        ("c struct<id int>", {"c": [1]}, {"c": (BREAKING, None)}),
        ("items array<struct<n int>>", {"items": [{"n": 1}, 5]}, {"items[]": (BREAKING, None)}),
        ("m map<string, int>", {"m": {"\0": 1}}, {"m": (BREAKING, None)}),
        ("c struct<id int>", {"c": {"id": 1, "a b": 2}}, {"c.a b": (ADDITIVE, None)}),
        ("c struct<id int>", {"c": {"id": 1, "ID": 2}}, {"c.ID": (ADDITIVE, None)}),
        ("c struct<id int>", {"c": {"id": 1, "_x": {"y": 1}}}, {"c._x": (ADDITIVE, "c struct<id int, _x string>")}),
        ("c struct<id int>", {"c": {"t": "\0"}}, {"c.t": (ADDITIVE, None)}),
        ("c struct<id int>", {"c": {"id": None}}, {}),
        ("c struct<id int>", {"c": None}, {}),
        ("c string", {"c": {"id": 1}}, {}),
        ("c jsonb", {"c": {"id": [1]}}, {}),
        ("c.id as c_id int", {"c": {"id": 2**40}}, {"c_id": (WIDENING, "c.id as c_id bigint")}),
        ("c.id as c_id int", {"c": {"id": 1, "name": "n"}}, {"c": (ADDITIVE, "c string")}),
        ("c.id as c_id int, c.d.n as n int", {"c": {"id": 1, "d": {"n": 1}}}, {}),
        ("c.id as c_id int, c.d.n as n int", {"c": {"id": 1, "d": {"n": 1, "m": 2}}}, {"c": (ADDITIVE, "c string")}),
        ("c.id as c_id int", {"c": {"": {"": 1}}}, {"c": (ADDITIVE, "c string")}),
        ("c.id as c_id int", {"c": None}, {}),
        ("c.id as c_id int", {"c": 5}, {"c_id": (BREAKING, None)}),
        (
            "c.d as e struct<n int>",
            {"c": {"d": {"n": 1, "m": 2}}},
            {"e.m": (ADDITIVE, "c.d as e struct<n int, m bigint>")},
        ),
        (
            "c.d as e struct<n int>, c jsonb",
            {"c": {"d": {"n": 1, "m": 2}}},
            {"e.m": (ADDITIVE, "c.d as e struct<n int, m bigint>")},
        ),
        ("c.d as e struct<n int>, c jsonb", {"c": 5}, {"e": (BREAKING, None)}),
        ("order-id as order_id int", {"order-id": 1}, {}),
        ("order-id as order_id int", {"order-id": 1, "order_id": 2}, {"order_id": (ADDITIVE, None)}),
    ],
)
def test_difference_of_a_record_within_a_value_has_its_path(schema: str, document: Any, found: Found) -> None:
    contract = compare(schema, document)
    assert found_in(contract) == found
    assert contract.is_broken is (BREAKING in {change for change, _ in found.values()})


def test_name_that_is_given_twice_belongs_to_the_value_that_has_it() -> None:
    columns = parse_columns("c struct<d struct<id int>>")
    contract = Contract(columns, look_at([b'{"c": {"d": {"id": 1, "id": 1}}}'], columns))
    assert found_in(contract) == {"c.d": (BREAKING, None)}


def test_records_are_counted_once_and_values_each() -> None:
    items = [{"price": 1}, {"price": 2**40, "code": 1}, {"price": 2**40, "code": 2}]
    price, code = compare("items array<struct<price int>>", {"items": items}, {"items": []}).differences
    assert price.told.startswith("declared as int, and 2 of 3 values do not fit: items[].price (int) cannot hold")
    assert code.told == "1 of 2 records has it, and it is not declared"


def test_names_within_without_end_do_not_fill_the_memory() -> None:
    documents = [{"c": {f"n{number}": 1}} for number in range(MOST_FIELDS + 500)]
    contract = compare("c struct<id int>", *documents, {"c": {"id": "one"}})
    assert contract.sample is not None
    assert len(contract.sample.columns["c"].within) == MOST_FIELDS + 1
    assert found_in(contract)["c.id"] == (BREAKING, None)


def test_proposal_has_what_fits_and_keeps_what_does_not() -> None:
    schema = "id int, c struct<id int, at date>, c.id as c_id int, n array<int>"
    contract = compare(schema, {"id": 1, "c": {"id": 2**40, "at": "soon", "tax": 0.5}, "n": []})
    assert contract.proposal == "id int, c struct<id bigint, at date, tax double>, c.id as c_id bigint, n array<int>"


LEAVES = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(-1e9, 1e9) | st.dates().map(str)
NAMES = st.sampled_from(["id", "a", "b", "A"])
OBJECTS = st.dictionaries(NAMES, LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(NAMES, LEAVES), max_size=3)


DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={"c": OBJECTS, "items": st.lists(st.none() | OBJECTS, max_size=3), "m": st.dictionaries(NAMES, OBJECTS)},
)


@given(st.lists(DOCUMENTS, max_size=4))
def test_schema_that_is_proposed_is_one_and_leaves_what_no_line_mends(documents: list[Any]) -> None:
    """Pasted once, it has no difference any more but what is breaking, and fields that cannot be declared."""
    contract = compare("c struct<id int>, items array<struct<id int>>, m map<string, struct<id int>>", *documents)
    before = found_in(contract)
    after = found_in(compare(contract.proposal, *documents))
    assert after == {path: found for path, found in before.items() if found[1] is None}


ADDRESS = {"type": "record", "name": "address", "fields": [{"name": "zip", "type": "string"}]}
ODD = {"name": "odd", "type": ["int", "string"]}
ITEM = {
    "type": "record",
    "name": "item",
    "fields": [{"name": "price", "type": "boolean"}, {"name": "to", "type": ["null", ADDRESS]}, ODD],
}


def avro(**fields: Any) -> WriterSchema:
    return WriterSchema(1, SchemaType.AVRO, json.dumps(record_schema(**fields)))


@pytest.mark.parametrize(
    ("schema", "fields", "found"),
    [
        ("to struct<zip string>", {"to": ADDRESS}, {}),
        (
            "to struct<street string>",
            {"to": ADDRESS},
            {"to.street": (ADDITIVE, None), "to.zip": (ADDITIVE, "to struct<street string, zip string>")},
        ),
        (
            "to struct<lines array<struct<n int>>, zip string>",
            {"to": ["null", ADDRESS]},
            {"to.lines": (ADDITIVE, None)},
        ),
        ("to struct<street string>", {"to": "string"}, {"to": (BREAKING, None)}),
        ("to struct<zip double>", {"to": ADDRESS}, {"to.zip": (BREAKING, None)}),
        ("to array<string>", {"to": ADDRESS}, {"to": (BREAKING, None)}),
        (
            "items array<struct<price int, to struct<street string>>>",
            {"items": {"type": "array", "items": ITEM}},
            {
                "items[].price": (BREAKING, None),
                "items[].to.street": (ADDITIVE, None),
                "items[].to.zip": (
                    ADDITIVE,
                    "items array<struct<price int, to struct<street string, zip string>, odd string>>",
                ),
                "items[].odd": (
                    ADDITIVE,
                    "items array<struct<price int, to struct<street string, zip string>, odd string>>",
                ),
            },
        ),
        (
            "m map<string, struct<price boolean>>, m.a.price as n int",
            {"m": {"type": "map", "values": ["null", ITEM]}},
            {
                "m[].to": (ADDITIVE, "m map<string, struct<price boolean, to struct<zip string>, odd string>>"),
                "m[].odd": (ADDITIVE, "m map<string, struct<price boolean, to struct<zip string>, odd string>>"),
                "n": (BREAKING, None),
            },
        ),
        ("to struct<zip string>, to.zip as zip bigint", {"to": ADDRESS}, {"zip": (BREAKING, None)}),
        ("to struct<zip string>, to.city as city string", {"to": ADDRESS}, {"city": (ADDITIVE, None)}),
        ("to.zip as zip string", {"to": ADDRESS}, {}),
        (
            "to.city as city string",
            {"to": ADDRESS},
            {"city": (ADDITIVE, None), "to": (ADDITIVE, "to struct<zip string>")},
        ),
        (
            "item.to as to struct<street string>",
            {"item": ITEM},
            {
                "to.street": (ADDITIVE, None),
                "to.zip": (ADDITIVE, "item.to as to struct<street string, zip string>"),
                "item": (ADDITIVE, "item jsonb"),
            },
        ),
        ("id int", {"id": "int", "odd": ITEM}, {"odd": (ADDITIVE, "odd jsonb")}),
        ("to string", {"to": ADDRESS}, {}),
    ],
)
def test_difference_of_an_avro_schema_within_a_value_has_its_path(
    schema: str, fields: Mapping[str, Any], found: Found
) -> None:
    assert found_in(compare_schemas(schema, avro(**fields))) == found


TOWN = {"name": "town", "type": "string", "aliases": ["city"], "default": "Bern"}
LINE = {"type": "record", "name": "line", "fields": [TOWN, {"name": "cost", "type": "int", "aliases": ["price"]}]}
READER = WriterSchema(
    "orders-value version 1",
    SchemaType.AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "order",
            "fields": [
                TOWN,
                {"name": "lines", "type": {"type": "array", "items": LINE}, "aliases": ["items"]},
                {"name": "line", "type": LINE, "aliases": ["item"], "default": {"town": "Bern", "cost": 1}},
            ],
        }
    ),
)
OLD_LINE = {"type": "record", "name": "line", "fields": [{"name": "price", "type": "int"}, ODD]}


@pytest.mark.parametrize(
    ("schema", "fields", "found"),
    [
        ("town string", {"city": "string"}, {}),
        ("town decimal(8,2)", {"city": "boolean"}, {"town": (BREAKING, None)}),
        ("town string", {"town": "string", "city": "string"}, {"city": (ADDITIVE, "city string")}),
        ("city string", {"city": "string"}, {}),
        ("town string", {"tax": "int"}, {"town": (ADDITIVE, None), "tax": (ADDITIVE, "tax int")}),
        ("town date", {"tax": "int"}, {"town": (BREAKING, None), "tax": (ADDITIVE, "tax int")}),
        (
            "line struct<town string, cost int>",
            {"item": OLD_LINE},
            {"line.town": (ADDITIVE, None), "line.odd": (ADDITIVE, "line struct<town string, cost int, odd string>")},
        ),
        (
            "line struct<cost boolean>",
            {"item": OLD_LINE},
            {
                "line.cost": (BREAKING, None),
                "line.odd": (ADDITIVE, "line struct<cost boolean, odd string>"),
            },
        ),
        (
            "line struct<town date>",
            {"item": OLD_LINE},
            {"line": (BREAKING, None), "item": (ADDITIVE, "item jsonb")},
        ),
        (
            "lines array<struct<cost date>>",
            {"items": {"type": "array", "items": OLD_LINE}},
            {
                "lines[].cost": (BREAKING, None),
                "lines[].odd": (ADDITIVE, "lines array<struct<cost date, odd string>>"),
            },
        ),
        ("line.cost as cost int", {"item": {**OLD_LINE, "fields": OLD_LINE["fields"][:1]}}, {}),
        (
            "line.cost as cost date",
            {"item": OLD_LINE},
            {
                "cost": (BREAKING, None),
                "item": (ADDITIVE, "item jsonb"),
            },
        ),
        (
            "line.town as town string, line.cost as cost int",
            {"item": {**OLD_LINE, "fields": OLD_LINE["fields"][:1]}},
            {"town": (ADDITIVE, None)},
        ),
        (
            "line.town as town date, line.cost as cost int",
            {"item": {**OLD_LINE, "fields": OLD_LINE["fields"][:1]}},
            {
                "town": (BREAKING, None),
            },
        ),
    ],
)
def test_difference_of_an_avro_schema_is_found_by_the_names_of_the_readers_schema(
    schema: str, fields: Mapping[str, Any], found: Found
) -> None:
    """A difference is breaking if, and only if, the decoder refuses every record of the schema."""
    columns, written = parse_columns(schema), avro(**fields)
    contract = Contract(columns, look_at_schemas({(written, FIRST_MESSAGE): 1}, columns, reader=READER))
    assert found_in(contract) == found
    with pytest.raises(AvroSchemaError) if contract.is_broken else nullcontext():
        make_datum_decoder(written, columns, FIRST_MESSAGE, READER)


def test_schemas_that_name_a_field_differently_are_compared_as_one() -> None:
    """The proposal takes what the newer schema has beside it."""
    written = {
        (
            avro(line={**LINE, "fields": [TOWN, {"name": "cost", "type": "int"}, {"name": "tax", "type": "int"}]}),
            (0,),
        ): 2,
        (avro(item=OLD_LINE), (0,)): 3,
    }
    columns = parse_columns("line struct<cost date>")
    contract = Contract(columns, look_at_schemas(written, columns, reader=READER))
    assert contract.sample is not None
    (cost, *others) = contract.differences
    assert (cost.column, cost.told[:52]) == ("line.cost", "declared as date, and 5 of 5 records have a schema t")
    assert [(each.column, each.told[:16]) for each in others] == [
        ("line.town", "2 of 5 records h"),
        ("line.tax", "2 of 5 records h"),
        ("line.odd", "3 of 5 records h"),
    ]


def test_schemas_are_summed_up_at_each_place() -> None:
    old, new = avro(to=ADDRESS), avro(to={**ADDRESS, "fields": [{"name": "zip", "type": "boolean"}]})
    (found,) = compare_schemas("to struct<zip boolean>", old, new).differences
    assert found.column == "to.zip"
    assert found.told == (
        "declared as boolean, and 1 of 2 records has a schema that does not fit: "
        "field to.zip is string, which a column of type boolean never holds"
    )


def test_type_within_itself_is_proposed_as_json() -> None:
    tree = {
        "type": "record",
        "name": "tree",
        "fields": [{"name": name, "type": ["null", "tree"]} for name in ("left", "right")],
    }
    assert found_in(compare_schemas("id int", avro(id="int", tree=tree))) == {"tree": (ADDITIVE, "tree jsonb")}
    text = 'syntax = "proto3"; message Tree { Tree left = 1; repeated Tree right = 2; int32 n = 3; }'
    contract = compare_schemas("left struct<n int>", WriterSchema(1, SchemaType.PROTOBUF, text))
    assert contract.proposal == "left struct<n int>, right jsonb, n int"


PROTO = """syntax = "proto3";
message Order { Customer customer = 1; repeated Item items = 2; map<string, Item> by_name = 3; }
message Customer { int64 id = 1; Address address = 2; }
message Address { string zip = 1; string city = 2; }
message Item { string price = 1; bytes code = 2; }
"""


def test_difference_of_a_protobuf_schema_within_a_value_has_its_path() -> None:
    schema = (
        "customer struct<id int, address struct<city string>>, items array<struct<price boolean>>, "
        "by_name map<string, struct<code binary>>"
    )
    found = found_in(compare_schemas(schema, WriterSchema(1, SchemaType.PROTOBUF, PROTO)))
    customer = "customer struct<id int, address struct<city string, zip string>>"
    assert found == {
        "customer.address.zip": (ADDITIVE, customer),
        "items[].price": (BREAKING, None),
        "items[].code": (ADDITIVE, "items array<struct<price boolean, code binary>>"),
        "by_name[].price": (ADDITIVE, "by_name map<string, struct<code binary, price string>>"),
    }


def test_message_of_a_file_that_records_are_is_compared() -> None:
    columns, written = (
        parse_columns("id bigint, address struct<zip string, city string>"),
        WriterSchema(1, SchemaType.PROTOBUF, PROTO),
    )
    messages: tuple[tuple[int, ...] | str, ...] = ((1,), "Customer")
    contract = Contract(columns, look_at_schemas({(written, each): 1 for each in messages}, columns))
    assert contract.differences == []
    others = Contract(columns, look_at_schemas({(written, FIRST_MESSAGE): 1}, columns)).differences
    assert [each.column for each in others] == ["id", "address", "customer", "items", "by_name"]


def test_table_that_lacks_a_field_within_is_told_so() -> None:
    table = [TableColumn("c.zip", None, "string", ADDITIVE, "alter table t add column c.zip string")]
    (found,) = Contract(parse_columns("c struct<zip string>"), table=table).differences
    assert (found.column, found.told) == ("c.zip", "declared, and the table has no such field")
