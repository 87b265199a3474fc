"""Records in Protobuf, by a real registry, into each kind of target."""

import json
from decimal import Decimal
from typing import Any

import pytest

from batchledger.formats.registry.client import RegisteredReference
from batchledger.lifecycle import run_batch
from batchledger.wiring import verify_pipeline
from tests.avro import frame
from tests.integration.test_avro_records import UNKNOWN_ID, errors_of, name, read, read_rests, send
from tests.integration.test_cli import batchledger
from tests.integration.test_planted_faults import checks_of, take
from tests.protobuf import register_file, write_message
from tests.support import TestPipeline, Workplace

FIRST = 'syntax = "proto3"; message Order { string message_id = 1; string amount = 2; }'
SECOND = """syntax = "proto3";
message Other { int32 number = 1; }
message Order { string message_id = 1; string amount = 2; optional string city = 3; repeated string tags = 4; }
"""
IN_SECOND = (1,)
SOURCE = {
    "format": "protobuf",
    "registry": "registry_default",
    "schema": "message_id string, amount decimal(8,2), city string, tags array<string>",
}
ONE, TWO = b"\0", b"\2\2"
"""The indexes of the first and of the second message, as frames have them."""


def create(workplace: Workplace, into: str = "table", **changes: Any) -> TestPipeline:
    source = {**SOURCE, **changes.pop("source", {})}
    return workplace.create(into=into, partitions=1, source=source, quarantine={"max_share": 1}, **changes)


def first(message_id: str) -> bytes:
    return write_message(FIRST, message_id=message_id, amount="1.50")


def second(message_id: str, **more: Any) -> bytes:
    return write_message(SECOND, IN_SECOND, message_id=message_id, amount="1.50", **more)


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_records_of_two_versions_and_messages_are_read_by_their_own(
    workplace: Workplace, registry_url: str, into: str, transform: str | None
) -> None:
    pipeline = create(workplace, into, transform=transform)
    one = register_file(registry_url, f"{pipeline.name}-1", FIRST)
    two = register_file(registry_url, f"{pipeline.name}-2", SECOND)
    send(
        pipeline,
        frame(one, ONE + first("a")),
        frame(two, TWO + second("b", city="Rome", tags=["x", "y"])),
        frame(one, b"\2\0" + first("c")),
        frame(two, TWO + second("d", city="")),
    )
    run_batch.run_once(pipeline.platform(), "run")
    amount = Decimal("1.50")
    assert read(pipeline) == [
        ("a", amount, None, None),
        ("b", amount, "Rome", ["x", "y"]),
        ("c", amount, None, None),
        ("d", amount, "", []),
    ]
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_what_is_no_message_is_set_aside_and_its_neighbours_are_published(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace)
    one = register_file(registry_url, pipeline.name, FIRST)
    good = first("a")
    send(
        pipeline,
        frame(one, ONE + good),
        frame(one, b"\6" + good),
        frame(one, TWO + good),
        frame(one, ONE + good[:-1]),
        frame(one, ONE + good + b"\xff"),
        frame(UNKNOWN_ID, ONE + good),
        frame(one, b""),
        frame(one, ONE + write_message(FIRST, message_id="e", amount="1.505")),
        frame(one, ONE + first("b")),
    )
    run_batch.run_once(pipeline.platform(), "run")
    assert [row[0] for row in read(pipeline)] == ["a", "b"]
    indexes, absent, cut_off, trailing, unknown, empty, unfit = errors_of(pipeline)
    assert indexes == empty == "its message indexes are cut off or no numbers"
    assert absent == f"schema {one}: the writer's schema has no message with its indexes"
    assert cut_off == trailing == "the value is no message of Protobuf: it is cut off, or has bytes that are no field"
    assert unknown == f"schema {UNKNOWN_ID} is unknown to the registry"
    assert unfit == "amount (decimal(8,2)) cannot hold a number with more than 2 decimal places"
    assert verify_pipeline(pipeline.config).holds


def test_fields_that_no_column_has_or_no_schema_knows_are_counted(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, source={"schema": "message_id string, amount decimal(8,2)"})
    one = register_file(registry_url, f"{pipeline.name}-1", FIRST)
    two = register_file(registry_url, f"{pipeline.name}-2", SECOND)
    send(pipeline, frame(one, ONE + first("a")), frame(one, ONE + second("b", city="Rome")))
    send(pipeline, frame(two, TWO + second("c")))
    check = checks_of(take(pipeline).batch_id)["no_unknown_fields"]
    assert check["observed"]["fields"] == {
        "city": {"records": 1, "first": f"{pipeline.name}[0]@2"},
        "field number 3": {"records": 1, "first": f"{pipeline.name}[0]@1"},
        "tags": {"records": 1, "first": f"{pipeline.name}[0]@2"},
    }


def test_fields_that_no_column_has_are_kept_and_those_without_a_name_are_counted(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace, source={"schema": "message_id string", "unknown_fields": "keep"})
    one = register_file(registry_url, f"{pipeline.name}-1", FIRST)
    two = register_file(registry_url, f"{pipeline.name}-2", SECOND)
    send(pipeline, frame(two, TWO + second("a", city="Rome", tags=["x"])), frame(two, TWO + second("b")))
    assert "no_unknown_fields" not in checks_of(take(pipeline).batch_id)
    send(pipeline, frame(one, ONE + second("c", city="Rome")), frame(one, ONE + first("d")))
    check = checks_of(take(pipeline).batch_id)["no_unknown_fields"]
    assert (check["severity"], check["outcome"]) == ("warning", "failed")
    assert check["observed"]["fields"] == {"field number 3": {"records": 1, "first": f"{pipeline.name}[0]@2"}}
    amount = {"amount": "1.50"}
    assert read_rests(pipeline) == {
        "a": {**amount, "city": "Rome", "tags": ["x"]},
        "b": amount,
        "c": amount,
        "d": amount,
    }
    assert errors_of(pipeline) == []
    assert verify_pipeline(pipeline.config).holds


def test_record_with_a_field_that_its_schema_does_not_know_can_be_set_aside(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace, source={"unknown_fields": "quarantine"})
    one = register_file(registry_url, pipeline.name, FIRST)
    send(pipeline, frame(one, ONE + first("a")), frame(one, ONE + second("b", city="Rome")))
    run_batch.run_once(pipeline.platform(), "run")
    assert [row[0] for row in read(pipeline)] == ["a"]
    assert errors_of(pipeline) == ["field field number 3 is not declared"]


def test_file_that_is_imported_comes_from_the_registry(workplace: Workplace, registry_url: str) -> None:
    imported = f'syntax = "proto3"; package {name()}; message Money {{ string amount = 1; }}'
    package = imported.split()[4].rstrip(";")
    path = f"{package}.proto"
    text = f'syntax = "proto3"; import "{path}"; message Order {{ string message_id = 1; {package}.Money price = 2; }}'
    pipeline = create(workplace, source={"schema": "message_id string, price.amount as amount decimal(8,2)"})
    register_file(registry_url, path, imported)
    one = register_file(registry_url, pipeline.name, text, RegisteredReference(path, path, 1))
    value = write_message(text, (0,), ((path, imported),), message_id="a", price={"amount": "1.50"})
    send(pipeline, frame(one, ONE + value))
    run_batch.run_once(pipeline.platform(), "run")
    assert errors_of(pipeline) == []
    assert pipeline.query("select message_id, amount from {target}") == [("a", Decimal("1.50"))]


def test_message_is_named_if_values_name_none(workplace: Workplace) -> None:
    (workplace.folder / "order.proto").write_text(SECOND)
    source = {**SOURCE, "framing": "none", "schema_file": "order.proto", "message": "Order"}
    del source["registry"]
    pipeline = workplace.create(partitions=1, source=source)
    send(pipeline, second("a", city="Rome"))
    run_batch.run_once(pipeline.platform(), "run")
    assert read(pipeline) == [("a", Decimal("1.50"), "Rome", [])]


def test_schemas_are_compared_with_what_is_declared(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, source={"schema": "message_id string, amount boolean"})
    register_file(registry_url, f"{pipeline.name}-value", FIRST.replace("}", "map<string, int64> counts = 3; }"))
    shown = batchledger("schema", pipeline.name, "--from-registry", "--json")
    assert shown.returncode == 3, shown.stderr
    found = {each["column"]: (each["change"], each["declare"]) for each in json.loads(shown.stdout)["differences"]}
    assert found == {"amount": ("breaking", None), "counts": ("additive", "counts map<string, bigint>")}
