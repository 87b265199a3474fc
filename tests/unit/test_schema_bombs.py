"""A schema that a registry or a file may hold costs little to refuse, whatever it holds, and never ends untyped."""

import json
import signal
from collections.abc import Mapping, Sequence
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from batchledger.formats.decoding.avro.decoder import AvroDecoder
from batchledger.formats.decoding.avro.schema import LONGEST_NAME, MOST_DIGITS, MOST_FIELDS, AvroSchemaError
from batchledger.formats.decoding.proposing import propose_columns
from batchledger.formats.decoding.protobuf import compiling
from batchledger.formats.decoding.protobuf.compiling import ProtobufSchemaError, compile_files
from batchledger.formats.decoding.registered import find_shape, find_undeclared, make_datum_decoder
from batchledger.formats.registry.client import MOST_CHARACTERS, MOST_REFERENCES, Registry
from batchledger.model.errors import SchemaRefusedError, ServiceUnavailableError, StagingError
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.writer_schemas import SchemaType, WriterSchema
from tests.registry_gate import Answer, Gate, open_gate

LEVELS = 60
"""Each type is used twice by the one before it: as a tree it has 2 to the power of 60 parts."""

Type = str | Mapping[str, Any] | Sequence[Any]


def avro(*fields: Mapping[str, Any]) -> WriterSchema:
    return WriterSchema(1, SchemaType.AVRO, json.dumps({"type": "record", "name": "Root", "fields": fields}))


def graph(wrap: Any = lambda type_: type_, default: Any = None, leaf: Type = "int") -> WriterSchema:
    """Types that are each used twice by the one before it, the deepest first; ``wrap`` puts something around them."""
    more = {} if default is None else {"default": default}
    inner: Type = {"type": "record", "name": f"T{LEVELS}", "fields": [{"name": "leaf", "type": leaf}]}
    for level in reversed(range(LEVELS)):
        again = wrap(f"T{level + 1}")
        fields = [{"name": "a", "type": wrap(inner), **more}, {"name": "b", "type": again, **more}]
        inner = {"type": "record", "name": f"T{level}", "fields": fields}
    return avro({"name": "top", "type": wrap(inner), **more})


def decode(schema: WriterSchema, columns: str, *values: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    decoder = make_datum_decoder(schema, parse_columns(columns), (0,), None)
    assert isinstance(decoder, AvroDecoder)
    rows, _, errors = decoder.decode(pa.array(values, pa.binary()))
    return rows.to_pylist(), list(errors.values())


@pytest.mark.parametrize(
    ("wrap", "declared"),
    [
        (lambda type_: ["null", type_], "top.a.a.b as deep jsonb"),
        (lambda type_: {"type": "array", "items": type_}, "top array<struct<a string>>"),
    ],
    ids=["optional", "array"],
)
def test_graph_of_optional_types_of_avro_is_proposed_compared_and_read_in_bounded_steps(
    wrap: Any, declared: str
) -> None:
    schema = graph(wrap)
    assert [str(each.type) for each in propose_columns(find_shape(schema, (0,)))] == ["jsonb"]
    assert find_undeclared(schema, parse_columns(declared), (0,)) in ({"top.b", "top.a.b", "top.a.a.a"}, {"top[].b"})
    assert decode(schema, "top jsonb", b"\0", b"\4")[0] in ([{"top": None}], [{"top": "[]"}])


def test_graph_of_required_types_of_avro_is_refused() -> None:
    for columns in ("top jsonb", "other int"):
        with pytest.raises(AvroSchemaError, match=rf"more than {MOST_FIELDS:,} fields"):
            decode(graph(), columns)
    with pytest.raises(AvroSchemaError, match=rf"more than {MOST_FIELDS:,} fields"):
        decode(graph(leaf="null"), "top jsonb", b"")
    assert decode(avro(*({"name": f"f{n}", "type": "null"} for n in range(MOST_FIELDS))), "f1 string", b"")[0]


@pytest.mark.parametrize(
    "schema",
    [
        graph(lambda type_: ["null", type_], default={}),
        graph(lambda type_: [type_, "int"], default={}, leaf={"type": "array", "items": "null"}),
        avro({"name": "top", "type": {"type": "record", "name": "R", "fields": [
            {"name": "again", "type": "R", "default": {}}, {"name": "more", "type": "R", "default": {}}]},
            "default": {}}),
    ],
    ids=["null or a record", "a record or a number", "itself"],
)  # fmt: skip
def test_default_that_grows_with_the_schema_is_refused(schema: WriterSchema) -> None:
    with pytest.raises(AvroSchemaError, match=r"more than 10,000 parts|no value of its type"):
        make_datum_decoder(avro({"name": "id", "type": "int"}), parse_columns("top jsonb"), (0,), schema)


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ({"type": "enum", "name": "E", "symbols": []}, "does not say what 'E' consists of"),
        ({"type": "enum", "name": "E", "symbols": ["\ud800"]}, "not one line of text"),
        ({"type": "enum", "name": "E", "symbols": ["x" * (LONGEST_NAME + 1)]}, "longer than 250 characters"),
        ({"type": "fixed", "name": "F", "size": 2**63}, "does not say what 'F' consists of"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 3_000_000}, "more than 1,000 digits"),
        (["null", {"type": "record", "name": "R", "fields": [{"name": "a\ud800", "type": "int"}]}], "one line of text"),
        ({"type": "array", "items": ["null", "Unknown\ud800"]}, "which it does not define"),
    ],
)  # fmt: skip
def test_what_no_value_can_be_is_refused_with_its_reason(type_: Type, why: str) -> None:
    schema = avro({"name": "top", "type": type_})
    with pytest.raises(AvroSchemaError) as told:
        decode(schema, "top int", b"\0", b"\2")
    assert why in str(told.value)
    assert str(told.value).encode()


def test_union_of_many_types_is_named_by_the_first() -> None:
    union = [{"type": "array", "items": {"type": "fixed", "name": f"F{n}", "size": n}} for n in range(9)]
    with pytest.raises(
        AvroSchemaError, match="a union of an array, an array, an array, an array, an array and 4 more,"
    ):
        decode(avro({"name": "top", "type": union}), "top.within as it int")


def test_union_of_any_number_of_types_is_passed_over_by_the_types_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step costs as much for a type that no value has."""
    looks, find = [], np.flatnonzero
    monkeypatch.setattr("numpy.flatnonzero", lambda found: looks.append(1) or find(found))
    types = ["null", *({"type": "fixed", "name": f"F{n}", "size": 1} for n in range(5_000))]
    schema = avro({"name": "top", "type": types}, {"name": "id", "type": "int"})
    rows, _ = decode(schema, "id int", b"\0\2", b"\2x\4", b"\4y\6")
    assert rows == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert len(looks) < 50


def test_decimal_has_as_many_digits_as_a_column_of_postgresql() -> None:
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": MOST_DIGITS, "scale": MOST_DIGITS}
    (row,), _ = decode(avro({"name": "top", "type": type_}), "top string", b"\2\1")
    assert row["top"] == f"0.{'0' * (MOST_DIGITS - 1)}1"


def test_schema_nested_too_deep_is_refused() -> None:
    deep = WriterSchema(1, SchemaType.AVRO, '{"type":' * 100_000)
    array = '{"type": "array", "items": ' * 5_000 + '"int"' + "}" * 5_000
    for schema in (deep, WriterSchema(1, SchemaType.AVRO, array)):
        with pytest.raises(AvroSchemaError):
            propose_columns(find_shape(schema, (0,)))


PROTO = 'syntax = "proto3";\n'
EMPTY = f"{PROTO}message A {{}}"


def protobuf(text: str) -> WriterSchema:
    return WriterSchema(1, SchemaType.PROTOBUF, f"{PROTO}{text}")


def test_graph_of_messages_is_proposed_compared_and_read_in_bounded_steps() -> None:
    messages = [f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(LEVELS)]
    schema = protobuf("\n".join([*messages, f"message M{LEVELS} {{}}"]))
    assert [str(each.type) for each in propose_columns(find_shape(schema, (0,)))] == ["jsonb", "jsonb"]
    columns = parse_columns("a.a.b as deep jsonb")
    assert find_undeclared(schema, columns, (0,)) == {"b", "a.b", "a.a.a"}
    rows, _, _ = make_datum_decoder(schema, columns, (0,), None).decode(pa.array([b""], pa.binary()))
    assert rows.to_pylist() == [{"deep": None}]


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a/b"),
        ("a/b", "a"),
        ("google/type",),
        ("x" * 300,),
        ("y/" * 3_000,),
        ("\ud800",),
        ("a/\ud800/b",),
        ("/etc/x",),
        ("a/../../b",),
        (".",),
        ("",),
        ("a\0",),
    ],
    ids=ascii,
)
def test_names_that_no_folder_can_hold_are_refused(names: tuple[str, ...]) -> None:
    text = f'{PROTO}import "google/type/date.proto"; message A {{ google.type.Date day = 1; }}'
    with pytest.raises(ProtobufSchemaError, match="the writer's schema") as told:
        compile_files(text, tuple((each, EMPTY) for each in names))
    assert str(told.value).encode()


def test_text_that_is_no_unicode_and_imports_in_a_circle_are_refused() -> None:
    with pytest.raises(ProtobufSchemaError, match="is no text of Unicode"):
        compile_files(f"{EMPTY} // \ud800", ())
    ring = (("b", f'{PROTO}import "c";'), ("c", f'{PROTO}import "b";'))
    with pytest.raises(ProtobufSchemaError, match="not one of Protobuf"):
        compile_files(f'{PROTO}import "b"; message A {{}}', ring)


def test_long_names_of_protobuf_are_refused() -> None:
    for text in (f"message A {{ int32 {'x' * 251} = 1; }}", f"message A {{ enum E {{ {'X' * 251} = 0; }} }}"):
        with pytest.raises(ProtobufSchemaError, match="longer than 250 characters"):
            propose_columns(find_shape(protobuf(text), (0,)))


def test_schema_that_kills_protoc_is_refused_as_the_writers_fault() -> None:
    """An option that lies within itself thousands of times overflows protoc's stack."""
    option = "o:{" * 5_000 + "}" * 5_000
    text = f"""{PROTO}import "google/protobuf/descriptor.proto"; message O {{ O o = 1; }}
        extend google.protobuf.FileOptions {{ O opt = 50000; }} option (opt) = {{ {option} }}; message A {{}}"""
    with pytest.raises(ProtobufSchemaError, match="or crashes protoc"):
        compile_files(text, ())


def test_schema_that_takes_much_of_protocs_time_or_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field is compared with each number that is reserved."""
    fields = "".join(f"int32 a{n} = {n};" for n in range(1, 18_000))
    reserved = "".join(f"reserved {200_000 + 3 * n};" for n in range(40_000))
    monkeypatch.setattr(compiling, "CPU_SECONDS", 1)
    with pytest.raises(ProtobufSchemaError, match="more than 1 s of CPU"):
        compile_files(f"{PROTO}message A {{ {reserved} {fields} }}", ())
    monkeypatch.undo()
    monkeypatch.setattr(compiling, "MEMORY_BYTES", 2**27)
    assert compile_files(f"{PROTO}message Abcdefghijklmnopqrstuvwxyz {{}}", ()), "there is room for protoc itself"
    messages = "".join(f"message Abcdefghijklmnopqrstuvwxyz{n} {{}}" for n in range(150_000))
    with pytest.raises(ProtobufSchemaError, match="20 s of CPU"):
        compile_files(f"{PROTO}{messages}", ())


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
def test_protoc_that_the_machine_has_ended_says_nothing_of_the_schema(
    ended_by: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CompletedProcess[bytes]([], -ended_by, b"", b"")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    with pytest.raises(StagingError, match="no reason"):
        compile_files(f"{EMPTY} // {ended_by}", ())


def test_machine_without_room_says_nothing_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    with pytest.raises(StagingError, match="protoc could not be run"):
        compile_files(f"{EMPTY} // no room", ())


@pytest.fixture
def gate() -> Any:
    with open_gate("http://127.0.0.1:1") as opened:
        yield opened


def answer(schema: str = '"int"', **more: Any) -> Answer:
    return Answer(200, json.dumps({"id": 1, "schema": schema, **more}))


def reference(name: str, subject: str | None = None, version: Any = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject or name, "version": version}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([answer("x" * (MOST_CHARACTERS + 1))], "more than 4 MiB, with what it refers to"),
        ([answer(references=[reference(str(n), "one") for n in range(9)]), answer("x" * 2**19)], "more than 4 MiB"),
        ([answer(references=[reference(str(n + 1))]) for n in range(600)], f"more than {MOST_REFERENCES} references"),
        ([answer(references=[reference("a")]), answer(references=[reference("a")])], "refers to itself: 'a'"),
        ([answer(references=[reference("a", "\ud800")])], "refers to the subject '\\ud800', which is no text"),
        ([answer(schemaType=["AVRO"])], "a schema of type ['AVRO']"),
    ],
    ids=["long", "long by names", "long chain", "circle", "surrogate", "type"],
)
def test_schema_without_an_end_is_refused_as_the_registrys_own(gate: Gate, answers: list[Any], why: str) -> None:
    gate.answers = answers
    with pytest.raises(SchemaRefusedError) as told:
        Registry(RegistrySettings(gate.url, timeout_seconds=60)).fetch(1)
    assert why in told.value.why
    assert str(told.value).encode()


def test_version_that_is_no_number_is_an_answer_of_no_registry(gate: Gate) -> None:
    gate.answers = [answer(references=[reference("a", version=float("inf"))])]
    with pytest.raises(ServiceUnavailableError, match="references that cannot be read"):
        Registry(RegistrySettings(gate.url, timeout_seconds=60)).fetch(1)


def test_all_requests_for_a_schema_have_one_deadline(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.answers = [answer(references=[reference(str(n + 1))]) for n in range(600)]
    monkeypatch.setattr("batchledger.formats.registry.requests.SESSION_TIMEOUTS", 0.002)
    with pytest.raises(ServiceUnavailableError, match=r"did not answer all requests within 0\.1 s"):
        Registry(RegistrySettings(gate.url, timeout_seconds=50)).fetch(1)
    assert len(gate.asked) < MOST_REFERENCES
