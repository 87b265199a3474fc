"""Records that name their schemas: each is decoded by its own, in its order, and what no column declares is named."""

import base64
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.formats.decoding.registered import KEY_HEADER, RegisteredDecoder, find_undeclared
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import (
    FIRST_MESSAGE,
    Framing,
    SchemaId,
    SchemaType,
    SubjectVersion,
    WriterSchema,
)
from tests.avro import encode, frame, record_schema
from tests.protobuf import write_message
from tests.unit.test_meaning import records_of

CUSTOMER = {
    "type": "record",
    "name": "customer",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {
            "name": "cards",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "card",
                    "fields": [{"name": "n", "type": "int"}, {"name": "pin", "type": "int"}],
                },
            },
        },
    ],
}
PLAIN = record_schema(id="int", tax="double")
NESTED = record_schema(id="int", customer=CUSTOMER)
PROTO = """syntax = "proto3";
message Line { int32 n = 1; string note = 2; }
message Order { int32 id = 1; Line line = 2; repeated Line lines = 3; map<string, Line> by_name = 4; }
"""


def avro(schema_id: SchemaId, schema: Mapping[str, Any]) -> WriterSchema:
    return WriterSchema(schema_id, SchemaType.AVRO, json.dumps(schema))


SCHEMAS: Mapping[SchemaId | SubjectVersion, WriterSchema] = {
    1: avro(1, PLAIN),
    2: avro(2, NESTED),
    3: avro(3, record_schema(id="string")),
}


def find(schema_id: SchemaId | SubjectVersion) -> WriterSchema | str:
    return SCHEMAS.get(schema_id, f"schema {schema_id} is unknown")


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ("id int", {"customer"}),
        ("id int, customer struct<id bigint>", {"customer.name", "customer.cards"}),
        ("id int, customer struct<id bigint, name string, cards array<struct<n int>>>", {"customer.cards[].pin"}),
        ("id int, customer.id as customer_id bigint", {"customer.name", "customer.cards"}),
        ("id int, customer string", set()),
        ("id int, customer jsonb, customer.id as customer_id bigint", set()),
    ],
)
def test_fields_of_avro_that_no_column_declares_are_named_by_their_paths(columns: str, missing: set[str]) -> None:
    assert find_undeclared(SCHEMAS[2], parse_columns(columns), (0,)) == missing


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ("id int", {"line", "lines", "by_name"}),
        (
            "line struct<n int>, lines array<struct<n int>>, by_name map<string, struct<note string>>",
            {"id", "line.note", "lines[].note", "by_name[].n"},
        ),
    ],
)
def test_fields_of_protobuf_that_no_column_declares_are_named_by_their_paths(columns: str, missing: set[str]) -> None:
    assert find_undeclared(WriterSchema(1, SchemaType.PROTOBUF, PROTO), parse_columns(columns), (1,)) == missing


def make(schema: str, **more: Any) -> RecordDecoder:
    columns = parse_columns(schema)
    policy = more.pop("unknown_fields", UnknownFieldPolicy.WARN)
    registered = RegisteredDecoder(
        SchemaType.AVRO,
        Framing.CONFLUENT,
        columns,
        find,
        refuses_undeclared=policy is UnknownFieldPolicy.QUARANTINE,
    )
    return RecordDecoder(columns, unknown_fields=policy, registered=registered, **more)


def values() -> Sequence[bytes | None]:
    plain = [frame(1, encode(PLAIN, {"id": number, "tax": 0.5})) for number in (0, 3, 6)]
    nested = [
        frame(2, encode(NESTED, {"id": number, "customer": {"id": 9, "name": None, "cards": []}})) for number in (1, 4)
    ]
    return [plain[0], nested[0], None, plain[1], nested[1], b"bad", plain[2], frame(9), frame(3, b"\2x")]


def test_records_of_several_schemas_keep_their_order_and_places() -> None:
    decoded = make("id int, tax double", tombstones=TombstonePolicy.SKIP).decode(records_of(*values()))
    rows = [row for batch in decoded.rows for row in batch.to_pylist()]
    assert [(row["_offset"], row["id"], row["tax"]) for row in rows] == [
        (0, 0, 0.5), (1, 1, None), (3, 3, 0.5), (4, 4, None), (6, 6, 0.5),
    ]  # fmt: skip
    assert decoded.set_aside is not None
    assert {row["offset"]: row["error"] for row in decoded.set_aside.to_pylist()} == {
        5: "the value is shorter than a schema id",
        7: "schema 9 is unknown",
        8: "schema 3: field id is string, which a column of type int never holds",
    }
    assert decoded.skipped is not None
    assert decoded.skipped["offset"].to_pylist() == [2]


def test_fields_are_counted_for_the_records_that_became_rows() -> None:
    decoder = make("id int", tombstones=TombstonePolicy.SKIP)
    decoded = decoder.decode(records_of(*values()))
    found = {tuple(sorted(names)): (seen.records, seen.first) for names, seen in decoded.undeclared}
    assert found == {("tax",): (3, ("t", 0, 0)), ("customer",): (2, ("t", 0, 1))}


def test_records_with_such_fields_may_be_set_aside() -> None:
    decoder = make("id int, tax double", unknown_fields=UnknownFieldPolicy.QUARANTINE)
    decoded = decoder.decode(records_of(*values()[:2]))
    assert [row["id"] for batch in decoded.rows for row in batch.to_pylist()] == [0]
    assert decoded.set_aside is not None
    assert decoded.set_aside["error"].to_pylist() == ["field customer is not declared"]


def test_message_indexes_stand_before_each_message() -> None:
    columns = parse_columns("id int, n int")
    schema = WriterSchema(1, SchemaType.PROTOBUF, PROTO)
    decoder = RegisteredDecoder(SchemaType.PROTOBUF, Framing.CONFLUENT, columns, lambda _: schema)
    line, order = write_message(PROTO, (0,), n=7), write_message(PROTO, (1,), id=8)
    found = decoder.decode(
        pa.array([frame(1, b"\2\2" + order), frame(1, b"\0" + line), frame(1, b"\2\4"), frame(1, b"\0" + line)]),
        pa.nulls(4, pa.string()),
    )
    assert found.rows.to_pylist() == [{"id": 8, "n": None}, {"id": None, "n": 7}, {"id": None, "n": 7}]
    assert found.is_decoded.tolist() == [True, True, False, True]
    assert dict(found.errors) == {2: "schema 1: the writer's schema has no message with its indexes"}


def test_decoder_is_pickled_with_what_it_knows() -> None:
    columns = parse_columns("id int")
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.NONE, columns, only_schema=SCHEMAS[1])
    datum = pa.array([encode(PLAIN, {"id": 5, "tax": 1.0}), None], pa.binary())
    for each in (decoder, pickle.loads(pickle.dumps(decoder))):  # noqa: S301 -- our own bytes
        assert each.decode(datum, pa.nulls(2, pa.string())).rows.to_pylist() == [{"id": 5}]


GUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
GUID_FRAME = b"\1" + UUID(GUID).bytes


def headed(*contents: bytes | None, name: str = "__value_schema_id") -> str:
    """The headers of a record, as ``RECORD_SCHEMA`` has them."""
    texts = [None if each is None else base64.b64encode(each).decode() for each in contents]
    return json.dumps([{"key": name, "value": each} for each in texts])


def test_last_header_names_the_schema() -> None:
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.HEADER, parse_columns("id int"), find)
    datum = encode(PLAIN, {"id": 5, "tax": 1.0})
    found = decoder.decode(pa.array([datum]), pa.array([headed(frame(3), frame(1))]))
    assert found.rows.to_pylist() == [{"id": 5}]


def test_ids_and_guids_stand_side_by_side_and_each_record_has_its_own_schema() -> None:
    schemas: Mapping[SchemaId | SubjectVersion, WriterSchema] = {1: avro(1, PLAIN), GUID: avro(GUID, NESTED)}
    decoder = RegisteredDecoder(
        SchemaType.AVRO,
        Framing.HEADER,
        parse_columns("id int"),
        lambda schema_id: schemas.get(schema_id, f"schema {schema_id} is unknown"),
    )
    plain = encode(PLAIN, {"id": 5, "tax": 1.0})
    nested = encode(NESTED, {"id": 6, "customer": {"id": 9, "name": None, "cards": []}})
    values = pa.array([plain, nested, plain, nested, None])
    headers = pa.array([headed(each) for each in (frame(1), GUID_FRAME, frame(1), b"\1" + bytes(16), GUID_FRAME)])
    found = decoder.decode(values, headers)
    assert found.rows.to_pylist() == [{"id": 5}, {"id": 6}, {"id": 5}]
    assert dict(found.errors) == {3: "schema 00000000-0000-0000-0000-000000000000 is unknown"}
    assert [(names, places.tolist()) for names, places in found.undeclared] == [({"tax"}, [0, 2]), ({"customer"}, [1])]
    batch = pa.record_batch({"value": values, "headers": headers})
    counts, faults = decoder.count_schemas([batch, batch])
    assert counts == {(schemas[1], FIRST_MESSAGE): 4, (schemas[GUID], FIRST_MESSAGE): 2}
    assert faults == dict.fromkeys((3, 8), "schema 00000000-0000-0000-0000-000000000000 is unknown")


def test_guid_names_the_schema_of_a_key() -> None:
    decoder = RegisteredDecoder(
        SchemaType.AVRO, Framing.HEADER, parse_columns("id int"), lambda _: avro(GUID, PLAIN), header=KEY_HEADER
    )
    keys = pa.array([encode(PLAIN, {"id": 5, "tax": 1.0})])
    assert decoder.decode(keys, pa.array([headed(GUID_FRAME, name=KEY_HEADER)])).rows.to_pylist() == [{"id": 5}]
    assert dict(decoder.decode(keys, pa.array([headed(GUID_FRAME)])).errors) == {0: "it has no header __key_schema_id"}


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (frame(1, b"junk"), "it is longer than a schema id"),
        (GUID_FRAME + b"\0", "it is longer than a schema id"),
        (GUID_FRAME[:-1], "the value is shorter than a schema id"),
        (b"", "the value is shorter than a schema id"),
        (b"\2" + bytes(16), "it begins with neither the byte 0 of an id nor the byte 1 of a GUID"),
    ],
)
def test_header_with_more_or_less_than_an_id_names_no_schema(header: bytes, error: str) -> None:
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.HEADER, parse_columns("id int"), find)
    found = decoder.decode(pa.array([encode(PLAIN, {"id": 5, "tax": 1.0})]), pa.array([headed(header)]))
    assert dict(found.errors) == {0: f"its header __value_schema_id: {error}"}


def test_header_without_content_is_none() -> None:
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.HEADER, parse_columns("id int"), find)
    found = decoder.decode(pa.array([b"\0", b"\0"]), pa.array([headed(None), None], pa.string()))
    assert dict(found.errors) == dict.fromkeys((0, 1), "it has no header __value_schema_id")


def test_header_names_the_message_of_protobuf_and_the_pipeline_the_one_that_it_does_not_name() -> None:
    schema = WriterSchema(GUID, SchemaType.PROTOBUF, PROTO)
    decoder = RegisteredDecoder(
        SchemaType.PROTOBUF, Framing.HEADER, parse_columns("id int, n int"), lambda _: schema, message="Order"
    )
    line, order = write_message(PROTO, (0,), n=7), write_message(PROTO, (1,), id=8)
    heads = {
        GUID_FRAME + b"\0": line,
        GUID_FRAME + b"\2\2": order,
        frame(1, b"\2\0"): line,
        GUID_FRAME: order,
        GUID_FRAME + b"\2": line,
        GUID_FRAME + b"\0\0": line,
    }
    found = decoder.decode(pa.array(list(heads.values())), pa.array([headed(each) for each in heads]))
    line_row, order_row = {"id": None, "n": 7}, {"id": 8, "n": None}
    assert found.rows.to_pylist() == [line_row, order_row, line_row, order_row]
    assert dict(found.errors) == {
        4: "its header __value_schema_id: its message indexes are cut off or no numbers",
        5: "its header __value_schema_id: it has bytes behind its message indexes",
    }


READER = SubjectVersion("orders-value", 3)
RENAMED = WriterSchema(
    str(READER),
    SchemaType.AVRO,
    json.dumps(
        {
            "type": "record",
            "name": "order",
            "fields": [
                {"name": "number", "type": "int", "aliases": ["id"]},
                {"name": "tax", "type": "double", "default": 0.25},
            ],
        }
    ),
)


def find_with_reader(wanted: SchemaId | SubjectVersion) -> WriterSchema | str:
    return RENAMED if wanted == READER else find(wanted)


def test_reader_schema_fills_each_writers_gaps_and_counts_no_field_that_an_alias_leads_to() -> None:
    columns = parse_columns("number int, tax double")
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.CONFLUENT, columns, find_with_reader, reader=READER)
    found = decoder.decode(pa.array(values()[:2], pa.binary()), pa.nulls(2, pa.string()))
    assert found.rows.to_pylist() == [{"number": 0, "tax": 0.5}, {"number": 1, "tax": 0.25}]
    assert [(names, places.tolist()) for names, places in found.undeclared] == [({"customer"}, [1])]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("schema orders-value version 3 is unknown to the registry", "schema orders-value version 3 is unknown"),
        (WriterSchema(str(READER), SchemaType.PROTOBUF, PROTO), "It is of type PROTOBUF"),
        (WriterSchema(str(READER), SchemaType.AVRO, '"string"'), "The reader's schema is not a record"),
    ],
)
def test_reader_schema_that_is_none_is_an_error_and_sets_no_record_aside(found: WriterSchema | str, why: str) -> None:
    decoder = RegisteredDecoder(
        SchemaType.AVRO,
        Framing.CONFLUENT,
        parse_columns("id int"),
        lambda wanted: found if wanted == READER else SCHEMAS[1],
        reader=READER,
    )
    with pytest.raises(ConfigurationError, match="orders-value version 3 cannot be used") as told:
        decoder.decode(pa.array(values()[:1], pa.binary()), pa.nulls(1, pa.string()))
    assert why in told.value.why


def test_default_that_does_not_fit_sets_the_records_of_its_writer_aside() -> None:
    columns = parse_columns("id int, tax tinyint")
    decoder = RegisteredDecoder(SchemaType.AVRO, Framing.CONFLUENT, columns, find_with_reader, reader=READER)
    found = decoder.decode(pa.array(values()[1:2], pa.binary()), pa.nulls(1, pa.string()))
    assert dict(found.errors) == {
        0: "schema 2: the reader's default of field tax is double, which a column of type tinyint never holds"
    }


def test_fields_are_named_although_only_json_would_hold_their_neighbours() -> None:
    several = {
        "type": "record",
        "name": "customer",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "y", "type": "long"},
            {"name": "u", "type": ["long", "string"]},
        ],
    }
    schema = avro(1, record_schema(customer=several))
    assert find_undeclared(schema, parse_columns("customer struct<id bigint>"), (0,)) == {"customer.y", "customer.u"}
    text = 'syntax = "proto3"; message C { int64 x = 1; int64 y = 2; C parent = 3; } message M { C c = 1; }'
    message = WriterSchema(1, SchemaType.PROTOBUF, text)
    assert find_undeclared(message, parse_columns("c struct<x bigint>"), (1,)) == {"c.y", "c.parent"}
