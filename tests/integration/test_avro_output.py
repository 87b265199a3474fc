"""Rows into a topic in Avro, by a real registry: what a reader of others finds, and what a refusal leaves undone."""

import io
import json
import struct
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import fastavro
import httpx
import pytest
import yaml

from batchledger.formats.registry.client import Registry
from batchledger.lifecycle import plans, run_batch
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.model.batch import BatchState, Decision
from batchledger.model.errors import ConfigurationError, SchemaRefusedError, ServiceUnavailableError
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.planning.replay import Replay
from batchledger.wiring import verify_pipeline
from tests.avro import encode, frame, record_schema, register
from tests.integration.test_cli import batchledger
from tests.registry_gate import open_gate
from tests.support import TestPipeline, Workplace
from tests.topics import read_messages

AVRO = {"format": "avro", "registry": "registry_default"}
ANA = Decision("ana@host", "the readers were told")


def create(workplace: Workplace, **changes: Any) -> TestPipeline:
    sink = {**AVRO, **changes.pop("sink", {})}
    return workplace.create(into="topic", partitions=1, sink=sink, **changes)


def change(pipeline: TestPipeline, section: str, **keys: Any) -> None:
    content = yaml.safe_load(pipeline.path.read_text())
    content[section] |= keys
    pipeline.path.write_text(yaml.safe_dump(content))


def read(pipeline: TestPipeline, url: str) -> list[tuple[int, Mapping[str, Any] | None]]:
    """What a consumer of Confluent's makes of each record: the id of its schema, and the value; None of a tombstone."""
    registry = Registry(RegistrySettings(url))
    messages = read_messages(pipeline.workplace.kafka_options, f"{pipeline.name}_target")
    return [read_value(registry, message.value()) for message in messages]


def read_value(registry: Registry, value: bytes | None) -> tuple[int, Mapping[str, Any] | None]:
    if value is None:
        return 0, None
    magic, schema_id = struct.unpack(">bI", value[:5])
    assert magic == 0
    found = registry.fetch(schema_id)
    assert found is not None
    datum = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(datum, json.loads(found.text), None)
    assert datum.read() == b""
    assert isinstance(row, Mapping)
    return schema_id, row


def list_versions(url: str, subject: str) -> list[int]:
    answer = httpx.get(f"{url}/subjects/{subject}/versions", trust_env=False)
    versions: list[int] = answer.json() if answer.is_success else []
    return versions


def require_backward(url: str, subject: str) -> None:
    httpx.put(f"{url}/config/{subject}", json={"compatibility": "BACKWARD"}, trust_env=False).raise_for_status()


@pytest.mark.always
def test_rows_arrive_in_the_frame_of_a_schema_that_is_registered_once(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, sink={"key": ["message_id"], "subject": f"{workplace.folder.name}.sold-out"})
    subject = pipeline.config.sink.model_dump()["subject"]
    before = list_versions(registry_url, subject)
    pipeline.send(3, partitions=1)
    run_batch.run_once(pipeline.platform(), "first")
    pipeline.send(2, partitions=1)
    run_batch.run_once(pipeline.platform(), "second")
    found = read(pipeline, registry_url)
    assert [row for _, row in found] == [
        {"message_id": pipeline.sent[at], "number": number, "amount": number / 4}
        for at, number in enumerate([0, 1, 2, 0, 1])
    ]
    assert len({schema_id for schema_id, _ in found}) == 1
    assert len(list_versions(registry_url, subject)) == len(before) + 1
    messages = read_messages(workplace.kafka_options, f"{pipeline.name}_target")
    assert [each.key().decode() for each in messages] == pipeline.sent
    assert dict(messages[0].headers()).keys() == {"_topic", "_partition", "_offset", "_timestamp", "_batch_id"}
    assert verify_pipeline(pipeline.config).holds


def test_subject_is_that_of_the_topic_and_a_replay_has_the_same_schema(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace)
    pipeline.send(3, partitions=1)
    first = run_batch.run_once(pipeline.platform(), "run")
    assert first is not None
    replay = plans.plan_replay(pipeline.platform(), Replay(first.ranges), "again", ANA, "again")
    assert replay is not None
    run_batch.take_through(pipeline.platform(), replay.batch_id, "again")
    ids = [schema_id for schema_id, _ in read(pipeline, registry_url)]
    assert len(ids) == 6
    assert len(set(ids)) == 1
    assert len(list_versions(registry_url, f"{pipeline.name}_target-value")) == 1
    assert verify_pipeline(pipeline.config).holds


def test_dry_run_registers_nothing(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace)
    pipeline.send(3, partitions=1)
    first = run_batch.run_once(pipeline.platform(), "run")
    assert first is not None
    change(pipeline, "source", schema="message_id string, number int")
    assert dry_run_replay(pipeline.platform(), Replay(first.ranges), "what if", ANA) is not None
    assert len(list_versions(registry_url, f"{pipeline.name}_target-value")) == 1
    assert len(read(pipeline, registry_url)) == 3


def test_incompatible_change_blocks_the_batch_in_the_words_of_the_registry_and_a_compatible_one_goes_through(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace)
    subject = f"{pipeline.name}_target-value"
    pipeline.send(2, partitions=1)
    run_batch.run_once(pipeline.platform(), "first")
    require_backward(registry_url, subject)
    change(pipeline, "source", schema="message_id string, number string, amount double")
    pipeline.send(2, partitions=1)
    with pytest.raises(SchemaRefusedError, match="reader union lacking writer type: INT") as refused:
        run_batch.run_once(pipeline.platform(), "second")
    assert subject in refused.value.message
    assert refused.value.batch_id is not None
    assert (refused.value.retryable, refused.value.exit_code) == (False, 3)
    assert pipeline.list_staging() == []
    by_command = batchledger("run", pipeline.name)
    assert by_command.returncode == 3, by_command.stderr
    assert "reader union lacking writer type: INT" in " ".join(by_command.stderr.split())
    assert pipeline.list_staging() == []
    assert len(read(pipeline, registry_url)) == 2
    assert len(list_versions(registry_url, subject)) == 1
    change(pipeline, "source", schema="message_id string, amount double, city string, number bigint")
    published = run_batch.run_once(pipeline.platform(), "third")
    assert published is not None
    assert (published.batch_id, published.state) == (refused.value.batch_id, BatchState.PUBLISHED)
    old, new = (schema_id for schema_id, _ in read(pipeline, registry_url)[1:3])
    assert old != new
    assert read(pipeline, registry_url)[2][1] == {
        "message_id": pipeline.sent[2],
        "amount": 0.0,
        "city": None,
        "number": 0,
    }
    assert len(list_versions(registry_url, subject)) == 2
    assert verify_pipeline(pipeline.config).holds


def test_registry_that_is_away_is_asked_again_by_the_next_attempt(
    workplace: Workplace, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_gate(registry_url) as gate:
        away = gate.url
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps({"conn_type": "http", "host": away}))
    pipeline = create(workplace, sink={"registry": "away"})
    pipeline.send(2, partitions=1)
    with pytest.raises(ServiceUnavailableError, match="cannot be reached") as refused:
        run_batch.run_once(pipeline.platform(), "first")
    assert refused.value.retryable
    assert pipeline.list_staging() == []
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps({"conn_type": "http", "host": registry_url}))
    run_batch.run_once(pipeline.platform(), "second")
    assert len(read(pipeline, registry_url)) == 2


def test_rows_of_a_transform_have_the_types_that_it_makes(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, transform="tests.transforms:with_more_types")
    pipeline.send(1, partitions=1)
    run_batch.run_once(pipeline.platform(), "run")
    ((_, row),) = read(pipeline, registry_url)
    parts = {"n": 0, "amounts": [0.0, None]}
    assert row == {
        "message_id": pipeline.sent[0],
        "number": 0,
        "amount": 0.0,
        "local": datetime(2026, 11, 22, 12, 0, 0, 500_000),  # noqa: DTZ001
        "whole": Decimal(0),
        "parts": parts,
        "by_name": {"k": parts},
    }


def test_column_that_avro_cannot_name_is_refused_before_anything_is_registered(
    workplace: Workplace, registry_url: str
) -> None:
    pipeline = create(workplace, transform="tests.transforms:with_a_dash")
    pipeline.send(1, partitions=1)
    with pytest.raises(ConfigurationError, match="Column 'a-b' has a name that Avro does not allow"):
        run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.list_staging() == []
    assert list_versions(registry_url, f"{pipeline.name}_target-value") == []


def test_tombstone_stays_one(workplace: Workplace, registry_url: str) -> None:
    pipeline = create(workplace, source={"tombstones": "delete"}, sink={"key": ["message_id"]})
    pipeline.send_keyed([(0, b"a", b'{"message_id": "a", "number": 1}'), (0, b"a", None)])
    run_batch.run_once(pipeline.platform(), "run")
    messages = read_messages(workplace.kafka_options, f"{pipeline.name}_target")
    assert [each.key() for each in messages] == [b"a", b"a"]
    assert [row for _, row in read(pipeline, registry_url)] == [
        {"message_id": "a", "number": 1, "amount": None},
        None,
    ]
    assert verify_pipeline(pipeline.config).holds


def test_records_in_avro_become_records_in_avro_over_one_registry(workplace: Workplace, registry_url: str) -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}
    schema = record_schema(message_id="string", amount=amount, tags={"type": "array", "items": "string"})
    source = {
        **AVRO,
        "schema": "message_id string, amount decimal(38,18), tags array<string>, note jsonb",
    }
    pipeline = create(workplace, source=source)
    written = register(registry_url, f"{pipeline.name}-value", schema)
    value = {"message_id": "a", "amount": Decimal("99999999999999999999.999999999999999999"), "tags": ["x", "ä"]}
    pipeline.send_raw([(0, frame(written, encode(schema, value)))])
    run_batch.run_once(pipeline.platform(), "run")
    ((schema_id, row),) = read(pipeline, registry_url)
    assert row == {**value, "note": None}
    assert schema_id != written
    assert verify_pipeline(pipeline.config).holds
