"""What a person sees of records that name their schema, and of these schemas, with their registry and without it."""

import json
from typing import Any

import pytest

from batchledger.interfaces.wording import escape
from batchledger.lifecycle import run_batch
from tests.avro import frame, register
from tests.integration import test_protobuf_records as protobuf
from tests.integration.test_avro_records import FIRST, SECOND, UNKNOWN_ID, create, name, order, send
from tests.integration.test_cli import ask, batchledger
from tests.protobuf import register_file
from tests.registry_gate import open_gate
from tests.support import TestPipeline, Workplace


def looked_at(pipeline: TestPipeline, until: int) -> list[tuple[Any, Any]]:
    """The fields of records, and why others have none; each has its bytes, too."""
    shown = ask("records", pipeline.name, f"{pipeline.name}[0] 0..{until}")["records"]
    assert all(each["value"] for each in shown if each["offset"])
    return [(each["decoded"] and json.loads(each["decoded"]), each["undecoded"]) for each in shown]


def test_ledger_knows_the_schemas_that_batches_have_used_while_the_registry_is_away(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    way, a, b = name(), {"message_id": "a", "amount": 1.5}, {"message_id": "b", "amount": 1.5, "city": "Zürich\x85"}
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        pipeline = create(workplace, source={"registry": way, "schema": "message_id string, ammount double"})
        one, two = (register(registry_url, f"{pipeline.name}-{n}", each) for n, each in enumerate((FIRST, SECOND)))
        send(pipeline, None, frame(one, order(FIRST, "a")), frame(one, order(FIRST, "a")[:-1]))
        run_batch.run_once(pipeline.platform(), "run")
        used = len(gate.asked)
        assert looked_at(pipeline, 3) == [(None, None), (a, None), (None, "the value ends within field amount")]
        shown = ask("schema", pipeline.name, "--from-topic")
        assert [each["column"] for each in shown["differences"]] == ["ammount", "amount"]
        assert len(gate.asked) == used
    assert looked_at(pipeline, 3)[1] == (a, None)
    assert ask("schema", pipeline.name, "--from-topic") == shown
    send(pipeline, frame(two, order(SECOND, "b", city="Zürich\x85")))
    assert looked_at(pipeline, 4)[1] == (a, None)
    (*_, (fields, why)) = looked_at(pipeline, 4)
    assert (fields, "schema registry at" in why) == (None, True)
    assert batchledger("schema", pipeline.name, "--from-topic").returncode == 1
    with open_gate(registry_url) as gate:
        monkeypatch.setenv(f"AIRFLOW_CONN_{way.upper()}", json.dumps({"conn_type": "http", "host": gate.url}))
        assert looked_at(pipeline, 4)[-1] == (b, None)
        shown = ask("schema", pipeline.name, "--from-topic")
        assert [each["column"] for each in shown["differences"]] == ["ammount", "amount", "city"]
    monkeypatch.delenv(f"AIRFLOW_CONN_{way.upper()}")
    assert [fields for fields, _ in looked_at(pipeline, 4)] == [None] * 4


def test_value_is_shown_as_its_fields_and_as_its_bytes(workplace: Workplace, registry_url: str) -> None:
    pipeline = protobuf.create(workplace)
    two = register_file(registry_url, pipeline.name, protobuf.SECOND)
    value = frame(two, protobuf.TWO + protobuf.second("a", city="Oslo\u202e", tags=["x"]))
    send(pipeline, value, frame(UNKNOWN_ID, protobuf.TWO))
    shown = ask("records", pipeline.name, f"{pipeline.name}[0]@0")["records"][0]
    assert json.loads(shown["decoded"]) == {
        "message_id": "a",
        "amount": "1.50",
        "city": "Oslo\u202e",
        "tags": ["x"],
    }
    assert shown["value"] == escape(value)
    text = batchledger("records", pipeline.name, f"{pipeline.name}[0] 0..2").stdout
    seen = "".join(text.split())
    assert r'"city":"Oslo\u202e"' in seen
    assert f"bytes:{escape(value)}" in seen
    assert f"notdecoded:schema{UNKNOWN_ID}isunknowntotheregistry" in seen


def test_message_that_records_are_is_compared(workplace: Workplace, registry_url: str) -> None:
    """The first message of the file has none of the columns."""
    framed = protobuf.create(workplace)
    two = register_file(registry_url, f"{framed.name}-value", protobuf.SECOND)
    send(framed, frame(two, protobuf.TWO + protobuf.second("a")))
    assert ask("schema", framed.name, "--from-topic")["differences"] == []
    named = protobuf.create(workplace, source={"framing": "header", "message": "Order"})
    register_file(registry_url, f"{named.name}-value", protobuf.SECOND)
    send(named, protobuf.second("a"), headers=[("__value_schema_id", frame(two))])
    for way in ("--from-registry", "--from-topic"):
        assert ask("schema", named.name, way)["differences"] == []
