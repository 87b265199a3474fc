"""What ``batchledger schema`` prints: names of records as they are, and files that work as they stand."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.formats.decoding.sampling import look_at, look_at_schemas
from batchledger.interfaces.cli.display.schemas import describe_contract, describe_proposal, differences_table
from batchledger.interfaces.cli.printing import Shown, show
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.contract import Contract, SchemaChange, TableColumn
from batchledger.model.records.writer_schemas import (
    FIRST_MESSAGE,
    SchemaId,
    SchemaType,
    SubjectVersion,
    UsedSchema,
    WriterSchema,
)

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"amount","type":"double"}]}'
WRITTEN = WriterSchema(1, SchemaType.AVRO, ORDER)


def printed(contract: Contract, tmp_path: Path, capsys: pytest.CaptureFixture[str], *used: UsedSchema) -> str:
    """What ``batchledger schema orders`` prints, with single spaces."""
    path = tmp_path / "orders.yaml"
    path.write_text('name: orders\nsource: {topics: [orders], schema: "id bigint"}\nsink: {table: orders}\n')
    show(describe_contract(read_pipeline_file(path), contract, [], used), as_json=False)
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("topic", ["orders", "1Orders.x", "123", "_internal", "a-b.c"])
def test_proposed_file_is_a_pipeline_as_it_stands(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = look_at([json.dumps({"id": 1, "note": "x"}).encode()], ())
    show(describe_proposal(topic, "shop", sample), as_json=False)
    text = capsys.readouterr().out
    file = text[text.index("name: ") :]
    name = file.split("\n", 1)[0].removeprefix("name: ")
    path = tmp_path / f"{name}.yaml"
    path.write_text(file)
    config = read_pipeline_file(path)
    assert (config.source.topics, config.source.connection) == ([topic], "shop")
    assert config.source.columns == parse_columns("id bigint, note string")


def test_names_of_records_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[/b]", "items[red]", "[bold]x", "\x1b[31m"]
    contract = Contract((), look_at([json.dumps(dict.fromkeys(names, 1)).encode()], ()))
    show(Shown(None, [differences_table("Fields", contract.differences)]), as_json=False)
    text = capsys.readouterr().out
    assert [each for each in names if each in text] == names[:3]
    assert r"\u001b[31m" in text


def test_field_with_the_name_of_a_column_of_key_or_headers_is_not_proposed() -> None:
    sample = look_at([b'{"id": 1, "Order_Id": 2, "tax": 3}'], parse_columns("id int"))
    contract = Contract(parse_columns("id int"), sample, taken=["order_id"])
    assert contract.proposal == "id int, tax bigint"


def test_texts_of_digits_are_proposed_as_texts() -> None:
    sample = look_at([b'{"customer": "1001", "zip": "00123", "count": 7}'], ())
    assert Contract((), sample).proposal == "customer string, zip string, count bigint"


def test_column_that_no_schema_has_is_named_and_breaks_nothing() -> None:
    columns = parse_columns("id bigint, ammount double, id.deep as deep bigint")
    contract = Contract(columns, look_at_schemas({(WRITTEN, FIRST_MESSAGE): 3}, columns))
    told = {each.column: each.told for each in contract.differences if each.declare is None}
    assert told["ammount"].startswith("declared, and no schema has it: it is null")
    assert contract.is_broken is True  # deep: a path into a number, which the decoder explains
    columns = parse_columns("id bigint, ammount double")
    contract = Contract(columns, look_at_schemas({(WRITTEN, FIRST_MESSAGE): 3}, columns))
    assert [(each.column, each.change) for each in contract.differences] == [
        ("ammount", SchemaChange.ADDITIVE),
        ("amount", SchemaChange.ADDITIVE),
    ]
    # A record of JSON may lack any field, so a sample of them says nothing of one.
    assert Contract(columns, look_at([b'{"id": 1}'], columns)).differences == []
    assert Contract(columns, look_at_schemas({}, columns)).differences == []


def test_schemas_of_records_are_not_counted_as_their_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = parse_columns("id boolean")
    contract = Contract(columns, look_at_schemas({(WRITTEN, FIRST_MESSAGE): 205}, columns))
    text = printed(contract, tmp_path, capsys)
    assert "205 of 205 records have a schema with it, and it is not declared" in text
    assert "declared as boolean, and 205 of 205 records have a schema that does not fit: " in text
    assert "Compared the schemas that wrote 205 records, the newest of each partition, and looked at no value" in text
    assert "A schema that takes the fields of these schemas, but for what is breaking:" in text
    of_json = printed(Contract(columns, look_at([b'{"id": 1}'], columns)), tmp_path, capsys)
    assert "1 of 1 value does not fit" in of_json
    assert "Looked at 1 record, the newest of each partition." in of_json


def test_agreement_names_what_was_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = parse_columns("id bigint")
    sample, table = look_at([b'{"id": 1}'], columns), [TableColumn("id", "bigint", "bigint", None)]
    agreed = "No difference between source.schema and"
    assert f"{agreed} these records and the table." in printed(Contract(columns, sample, table), tmp_path, capsys)
    text = printed(Contract(columns, sample), tmp_path, capsys)
    assert "The target orders is not compared: it has no columns, or is not there yet." in text
    assert f"{agreed} these records." in text
    assert agreed not in printed(Contract(columns), tmp_path, capsys)


@pytest.mark.parametrize(
    ("schema_id", "parts"),
    [
        (7, [" 7 "]),
        ("3fa85f64-5717-4562-b3fc-2c963f66afa6", ["3fa85f64-5717-4562", "-b3fc-2c963f66afa6"]),
        (SubjectVersion("orders-value", 3), ["orders-value", "version 3"]),
    ],
    ids=["id", "GUID", "version"],
)
def test_list_of_writers_loses_nothing_on_80_columns(
    schema_id: SchemaId,
    parts: Sequence[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    used = UsedSchema("registry_default", schema_id, "f", datetime(2026, 11, 26, 11, 12, tzinfo=UTC), 1, 1234, 1000)
    text = printed(Contract(parse_columns("id bigint")), tmp_path, capsys, used)
    expected = ["registry_default", *parts, "batches", "1,000", "1..1,234", "2026-11-26 11:12"]
    assert [each for each in expected if each not in text] == []


def test_values_that_cannot_be_read_are_named_by_coordinates_and_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    values = [b'{"id": 1}', b"\0\0\0\0\7x", None, *[b'{"id": 1'] * 12]
    sample = look_at(values, (), [f"orders[0]@{number}" for number in range(len(values))])
    named = (
        "orders[0]@1: the value is not exactly one JSON object: byte 1 of 6: invalid character. "
        "It begins like Avro or Protobuf with the id of a schema "
        "orders[0]@3: the value is not exactly one JSON object: it ends early, after 8 bytes orders[0]@4: "
    )
    show(describe_proposal("orders", "shop", sample), as_json=False)
    proposed = " ".join(capsys.readouterr().out.split())
    assert f"Values that cannot be read: 13. {named}" in proposed
    assert ("orders[0]@11" in proposed, "orders[0]@12" in proposed) == (True, False)
    assert named in printed(Contract((), sample), tmp_path, capsys)
    unknown = look_at_schemas({}, (), 1, faults=[("orders[0]@5", "schema 7 is unknown to the registry")])
    assert "orders[0]@5: schema 7 is unknown to the registry" in printed(Contract((), unknown), tmp_path, capsys)
    refused = WriterSchema(8, SchemaType.AVRO, '"int"')
    broken = look_at_schemas({(refused, FIRST_MESSAGE): 3}, ())
    assert broken.faults == (("schema 8", "the writer's schema is not a record, and columns are the fields of one"),)


def test_field_whose_name_no_column_can_have_is_proposed_by_an_alias(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["@timestamp", "timestamp", "trace-id", "7up", "ctid", "#", "a b", "a.b", "it's", 'q"', "_private"]
    sample = look_at([json.dumps(dict.fromkeys(names, 1)).encode()], ())
    contract = Contract((), sample)
    assert contract.proposal == (
        "@timestamp as timestamp_2 bigint, timestamp bigint, trace-id as trace_id bigint, 7up as field_7up bigint, "
        "ctid as ctid_2 bigint, # as field_ bigint, _private as private bigint"
    )
    assert [each.column for each in contract.differences if each.declare is None] == ["a b", "a.b", "it's", 'q"']
    assert "alias: @timestamp as timestamp_2 bigint" in contract.differences[0].told
    show(describe_proposal("orders", "shop", sample), as_json=False)
    text = capsys.readouterr().out
    path = tmp_path / "orders.yaml"
    path.write_text(text[text.index("name: ") :])
    columns = read_pipeline_file(path).source.columns
    assert [(each.name, each.path) for each in columns][:2] == [("timestamp_2", ("@timestamp",)), ("timestamp", ())]


def test_topic_that_is_no_json_gets_no_proposal_and_is_told_how_to_get_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(describe_proposal("orders", "shop", look_at([b"\0\0\0\0\1"], ())), as_json=False)
    assert "schema PIPELINE --from-registry" in " ".join(capsys.readouterr().out.split())
    show(describe_proposal("orders", "shop", look_at([b"\0", b'{"id": 1}'], ())), as_json=False)
    assert "--from-registry" not in capsys.readouterr().out
