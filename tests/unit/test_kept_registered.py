"""``unknown_fields: keep`` for records of Avro and Protobuf: what no column declares stays with its row."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from batchledger.config.sections import SourceConfig
from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.wire import WireReader
from batchledger.formats.decoding.decoder import Decoded, RecordDecoder
from batchledger.formats.decoding.protobuf.decoder import ProtobufDecoder
from batchledger.formats.decoding.registered import RegisteredDecoder
from batchledger.model.records.columns import REST, parse_columns
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import Framing, SchemaType, WriterSchema
from tests.avro import encode, frame, record_schema
from tests.protobuf import write_message
from tests.unit.test_kept_fields import rest_of
from tests.unit.test_meaning import records_of
from tests.unit.test_unknown_fields import errors_of

LINES = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "line",
        "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
    },
}
ORDER = record_schema(id="long", tax="double", lines=LINES, note=["null", "string"])
PLAIN = record_schema(id="long")
PROTO = """syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/struct.proto";
message Line { int32 n = 1; string note = 2; }
message Order {
  int64 id = 1; Line line = 2; repeated Line lines = 3; double tax = 4; google.protobuf.Any any = 5;
  google.protobuf.Value json = 6; string note = 7;
}
"""
ONE, OTHER, MESSAGES = 1, 2, 3
SCHEMAS = {
    ONE: WriterSchema(ONE, SchemaType.AVRO, json.dumps(ORDER)),
    OTHER: WriterSchema(OTHER, SchemaType.AVRO, json.dumps(PLAIN)),
    MESSAGES: WriterSchema(MESSAGES, SchemaType.PROTOBUF, PROTO),
}
COLUMNS = "id bigint, lines array<struct<n int>>"


def keeping(type_: SchemaType, **more: Any) -> RecordDecoder:
    columns = parse_columns(COLUMNS)
    registered = RegisteredDecoder(type_, Framing.CONFLUENT, (*columns, REST), SCHEMAS.__getitem__)
    return RecordDecoder(columns, unknown_fields=UnknownFieldPolicy.KEEP, registered=registered, **more)


def avro(**fields: Any) -> bytes:
    order = {"id": 1, "tax": 0.5, "lines": [], "note": None, **fields}
    return frame(ONE, encode(ORDER, order))


def protobuf(**fields: Any) -> bytes:
    return frame(MESSAGES, b"\2\2" + write_message(PROTO, (1,), **fields))


def decode(type_: SchemaType, values: Sequence[bytes | None], **more: Any) -> Decoded:
    return keeping(type_, **more).decode(records_of(*values))


def test_values_of_several_schemas_of_avro_keep_what_their_own_schema_has() -> None:
    lines = [{"n": 1, "note": "x"}, {"n": 2, "note": None}]
    values = [avro(lines=lines), frame(OTHER, encode(PLAIN, {"id": 2})), avro(note='"\u00e9'), None]
    decoded = decode(SchemaType.AVRO, values, tombstones=TombstonePolicy.KEEP)
    assert rest_of(decoded) == {
        0: '{"tax":0.5,"lines":[{"note":"x"},{"note":null}],"note":null}',
        1: None,
        2: '{"tax":0.5,"note":"\\"\u00e9"}',
        3: None,
    }
    assert errors_of(decoded) == {}
    assert decoded.undeclared == []


def test_messages_keep_what_is_there() -> None:
    lines = [{"n": 1}, {"note": "x"}]
    decoded = decode(
        SchemaType.PROTOBUF,
        [
            protobuf(id=1, lines=lines, line={"n": 5}, tax=0.5),
            protobuf(id=2, lines=lines[:1], tax=0.0),
            protobuf(id=3, line={}, json={"null_value": 0}),
        ],
    )
    assert rest_of(decoded) == {
        0: '{"line":{"n":5},"lines":[null,{"note":"x"}],"tax":0.5}',
        1: None,
        2: '{"json":null,"line":{}}',
    }
    assert errors_of(decoded) == {}


def test_record_whose_other_fields_cannot_be_kept_is_set_aside_and_its_neighbours_become_rows() -> None:
    not_utf8 = avro(note="a!b").replace(b"a!b", b"a\xffb")
    decoded = decode(SchemaType.AVRO, [avro(), avro(note="\0"), not_utf8, avro(id=4)])
    assert list(rest_of(decoded)) == [0, 3]
    assert errors_of(decoded) == {
        1: "_rest (jsonb) cannot hold U+0000",
        2: "_rest (jsonb) cannot hold a text that is not valid UTF-8",
    }
    kept = protobuf(id=1), protobuf(id=4, note="\\u0000")
    refused = protobuf(note="\0"), protobuf(any={"type_url": "type.googleapis.com/Line"})
    decoded = decode(SchemaType.PROTOBUF, [kept[0], *refused, kept[1]])
    assert rest_of(decoded) == {0: None, 3: '{"note":"\\\\u0000"}'}
    assert errors_of(decoded) == {
        1: "_rest (jsonb) cannot hold U+0000",
        2: "_rest (jsonb) cannot hold a google.protobuf.Any",
    }


def test_field_that_the_schema_does_not_know_is_counted() -> None:
    """It has no name, so an object cannot hold it."""
    decoder = keeping(SchemaType.PROTOBUF)
    decoded = decoder.decode(records_of(protobuf(id=1, tax=0.5), protobuf(id=2, tax=0.5) + b"\x48\x01"))
    assert rest_of(decoded) == {0: '{"tax":0.5}', 1: '{"tax":0.5}'}
    ((names, seen),) = decoded.undeclared
    assert (names, seen.records, seen.first[2]) == ({"field number 9"}, 1, 1)


def test_extensions_and_types_within_themselves_are_kept() -> None:
    text = """
        syntax = "proto2";
        message Top { optional int32 id = 1; optional Top inner = 2; extensions 100 to 110; }
        extend Top { optional string note = 100; }
    """
    columns = (*parse_columns("id int, inner struct<id int, inner struct<id int>>"), REST)
    value = b"\x08\x01\x12\x0c\x08\x02\x12\x08\x08\x03\x12\x04\x08\x04\x12\x00\xa2\x06\x01x"
    rows, _, _ = ProtobufDecoder(text, (), (0,), columns).decode(pa.array([value]))
    assert rows["_rest"].to_pylist() == ['{"[note]":"x","inner":{"inner":{"inner":{"id":4,"inner":{}}}}}']
    schema = record_schema(id="int", inner=["null", "order"])
    value = encode(schema, {"id": 1, "inner": {"id": 2, "inner": {"id": 3, "inner": {"id": 4, "inner": None}}}})
    rows, _, _ = AvroDecoder(json.dumps(schema), (), columns).decode(pa.array([value]))
    assert rows["_rest"].to_pylist() == ['{"inner":{"inner":{"inner":{"id":4,"inner":null}}}}']


def _refuse(*arguments: Any) -> None:
    raise AssertionError(arguments)


@pytest.mark.parametrize("columns", ["id bigint", "id bigint, absent date"])
def test_values_of_a_schema_that_is_declared_in_full_are_not_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setattr(WireReader, "read_record", _refuse)
    decoder = AvroDecoder(json.dumps(PLAIN), (), (*parse_columns(columns), REST))
    rows, is_decoded, _ = decoder.decode(pa.array([encode(PLAIN, {"id": 1})] * 300))
    assert (rows["_rest"].null_count, is_decoded.all()) == (300, True)


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_file_may_keep_fields_of_every_format(format_: str) -> None:
    source = {
        "topics": ["orders"], "schema": "id bigint", "unknown_fields": "keep", "format": format_, "registry": "r"
    }  # fmt: skip
    assert SourceConfig.model_validate(source).columns == (*parse_columns("id bigint"), REST)
