"""The decoders that are tried, each with the values that are made for it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from batchledger.formats.decoding.decoder import RecordDecoder
from batchledger.formats.decoding.registered import VALUE_HEADER, RegisteredDecoder
from batchledger.formats.records import RECORD_SCHEMA, write_headers
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.outer import KeyFormat, OuterColumns, parse_headers, parse_key
from batchledger.model.records.rules import TombstonePolicy, UnknownFieldPolicy
from batchledger.model.records.writer_schemas import Framing, SchemaId, SchemaType, SubjectVersion, WriterSchema
from tests.fuzzing import values

Record = Mapping[str, bytes | str | None]
"""The value, key and headers of a record, as far as it has them."""

JSON_TYPES = (
    "string", "boolean", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,0)", "decimal(38,38)", "date",
    "timestamp", "timestamp_ms", "binary", "uuid", "jsonb", "array<decimal(6,2)>", "array<array<string>>",
    "map<string, bigint>", "map<string, decimal(6,2)>", "struct<a decimal(6,2), b string>",
    "map<string, array<double>>",
)  # fmt: skip
AVRO = {
    '"string"': "string", '"bytes"': "binary", '"boolean"': "boolean", '"int"': "decimal(12,2)", '"long"': "int",
    '"float"': "double", '"double"': "double", '["null", "long", "string"]': "string",
    '{"type": "array", "items": "null"}': "jsonb", '{"type": "map", "values": "long"}': "map<string, bigint>",
    '{"type": "array", "items": {"type": "array", "items": "string"}}': "array<array<string>>",
    '{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}': "decimal(38,2)",
    '{"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 9}':
        "decimal(38,9)",
    '{"type": "fixed", "name": "F", "size": 0}': "jsonb",
    '{"type": "enum", "name": "E", "symbols": ["A", "B"]}': "string",
    '{"type": "long", "logicalType": "timestamp-micros"}': "timestamp",
    '{"type": "int", "logicalType": "date"}': "date",
    '{"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}': "uuid",
    '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}': "jsonb",
    '{"type": "record", "name": "S", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "double"}]}':
        "struct<a string, b double>",
}  # fmt: skip
"""Types of a field in the writer's schema, and of a column that takes it."""
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": %s}, {"name": "z", "type": "int"}]}'
READER = """{"type": "record", "name": "R", "fields": [{"name": "y", "aliases": ["a"], "type": "double"},
  {"name": "x", "type": ["null", "R"], "default": null}]}"""
PROTOBUF = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
enum E { ZERO = 0; ONE = 1; }
message R {
  string a = 1; repeated int64 b = 2; map<string, R> c = 3; R d = 4; google.protobuf.Value e = 5; bytes f = 6;
  repeated fixed64 g = 7; double h = 8; google.protobuf.Timestamp i = 9; E k = 11;
  google.protobuf.Int64Value l = 12; oneof m { sint32 n = 13; uint64 o = 14; } optional bool p = 15; int32 q = 16;
}"""
PROTOBUF_FIELDS = {
    1: "text", 2: "packed", 3: "map", 4: "message", 5: "value", 6: "text", 7: "packed", 8: "fixed64", 9: "timestamp",
    11: "varint", 12: "wrapper", 13: "varint", 14: "varint", 15: "varint", 16: "varint",
}  # fmt: skip
PROTOBUF_COLUMNS = (
    "a string, b array<bigint>, d jsonb", "c jsonb, f binary", "e jsonb, h double", "g jsonb, k string", "i timestamp",
    "l bigint, n int, o decimal(20,0), p boolean, q bigint",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A decoder, and what makes records for it."""

    name: str
    decoder: RecordDecoder
    make: Callable[[Random], Record]


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Return the records, at the offsets from 0 on."""
    empty = {"topic": "t", "partition": 0, "timestamp_ms": 0, "key": None, "value": None, "headers": None}
    rows = [{**empty, **each, "offset": offset} for offset, each in enumerate(records)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def make_subjects() -> list[Subject]:
    """Return all, with their schemas compiled: a process that is forked then compiles none."""
    subjects = [*_json(), *_outer(), *_avro(), *_protobuf()]
    for subject in subjects:
        subject.decoder.prepare(batch_of([subject.make(Random(number)) for number in range(20)]))  # noqa: S311
    return subjects


def _json() -> Iterator[Subject]:
    policies = list(UnknownFieldPolicy)
    for number, type_ in enumerate(JSON_TYPES):
        others = {"a": type_, "b": "bigint", "c": JSON_TYPES[number - 1]}
        types = dict(list(others.items())[: 1 + number % 3])
        columns = parse_columns(", ".join(f"{name} {types[name]}" for name in types))
        decoder = RecordDecoder(columns, unknown_fields=policies[number % len(policies)])
        yield Subject(f"JSON {type_}", decoder, partial(_json_value, types=types))


def _json_value(random: Random, types: Mapping[str, str], part: str = "value") -> Record:
    return {part: values.damage(random, values.json_record(random, types))}


def _outer() -> Iterator[Subject]:
    """Keys and headers, also keys of tombstones that delete."""
    types = {"a": "decimal(10,2)", "b": "string"}
    key = parse_key(KeyFormat.JSON, "a decimal(10,2), b string")
    decoder = RecordDecoder(parse_columns("c string"), outer=OuterColumns(key))
    make = partial(_json_value, types=types, part="key")
    yield Subject("key JSON", decoder, lambda random: {"value": b"{}", **make(random)})
    decoder = RecordDecoder(parse_columns("a decimal(10,2), b string"), TombstonePolicy.DELETE, ("a", "b"))
    yield Subject("key of a tombstone", decoder, make)
    headers = {"h": "header a decimal(10,2)", "i": "header b timestamp", "j": "header c bytes"}
    decoder = RecordDecoder(parse_columns("d string"), outer=OuterColumns(headers=parse_headers(headers)))
    yield Subject("headers", decoder, _headers)


def _headers(random: Random) -> Record:
    texts = (values.json_number(random), values.text(random), None)
    return {"value": b"{}", "headers": write_headers([(name, random.choice(texts)) for name in "abcaa"])}


def _avro() -> Iterator[Subject]:
    for inner, type_ in AVRO.items():
        schema = WriterSchema(1, SchemaType.AVRO, RECORD % inner)
        make = partial(_datum, make=partial(values.avro_value, schema=json.loads(schema.text)))
        for column in dict.fromkeys((type_, "jsonb")):
            yield Subject(f"Avro {inner} as {column}", _registered(schema, f"a {column}, z int"), make)
    schema, version = WriterSchema(1, SchemaType.AVRO, RECORD % '"int"'), SubjectVersion("s", 1)
    found = {1: schema, version: WriterSchema(2, SchemaType.AVRO, READER)}
    datum = partial(values.avro_value, schema=json.loads(schema.text))
    columns = parse_columns("y double, x jsonb")
    for framing in (Framing.CONFLUENT, Framing.HEADER):
        registered = RegisteredDecoder(schema.type, framing, columns, partial(_find, found), reader=version)
        make = partial(_framed, make=datum, framing=framing)
        yield Subject(f"Avro, {framing}, a reader's schema", RecordDecoder(columns, registered=registered), make)


def _protobuf() -> Iterator[Subject]:
    schema = WriterSchema(1, SchemaType.PROTOBUF, PROTOBUF)
    fields = partial(values.protobuf_value, fields=PROTOBUF_FIELDS)
    for text in PROTOBUF_COLUMNS:
        yield Subject(f"Protobuf {text}", _registered(schema, text, "R"), partial(_datum, make=fields))
    columns = parse_columns("a string, d jsonb")
    registered = RegisteredDecoder(schema.type, Framing.CONFLUENT, columns, partial(_find, {1: schema}))
    make = partial(_framed, make=fields, framing=Framing.CONFLUENT, has_indexes=True)
    yield Subject("Protobuf, confluent", RecordDecoder(columns, registered=registered), make)


def _find(known: Mapping[Any, WriterSchema], schema_id: SchemaId | SubjectVersion) -> WriterSchema | str:
    return known.get(schema_id, "there is no such schema")


def _registered(schema: WriterSchema, text: str, message: str | tuple[int, ...] = (0,)) -> RecordDecoder:
    columns = parse_columns(text)
    registered = RegisteredDecoder(schema.type, Framing.NONE, columns, only_schema=schema, message=message)
    return RecordDecoder(columns, registered=registered)


def _datum(random: Random, make: Callable[[Random], bytes]) -> Record:
    return {"value": values.damage(random, make(random))}


def _framed(random: Random, make: Callable[[Random], bytes], framing: Framing, *, has_indexes: bool = False) -> Record:
    datum = make(random)
    if framing is Framing.CONFLUENT:
        return {"value": values.damage(random, values.framed(random, datum, has_indexes=has_indexes))}
    header = values.damage(random, values.framed(random, b"", has_indexes=has_indexes))
    return {"value": datum, "headers": write_headers([(VALUE_HEADER, header)])}
