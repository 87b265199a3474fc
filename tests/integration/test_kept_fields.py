"""Fields that no column declares reach every kind of target in the column ``_rest``, and stay with their record."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import yaml

from batchledger.lifecycle import run_batch
from batchledger.model.errors import TargetChangedError
from batchledger.wiring import verify_pipeline
from tests.conftest import ROOT
from tests.integration.test_cli import ask, batchledger
from tests.integration.test_planted_faults import checks_of, take
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, customer struct<id bigint>"
KEPT = {"schema": SCHEMA, "unknown_fields": "keep"}
DOCUMENTS = [
    b'{"message_id": "a", "customer": {"id": 1}}',
    b'{"message_id": "b", "tax": 1.10, "ship": {"to": ["x", null], "n": 12345678901234567890123}}',
    b'{"message_id": "c", "customer": {"id": 3, "name": "n"}, "note": "\\u00e9\\"", "Tax": null}',
]
RESTS = {
    "a": None,
    "b": '{"tax":1.10,"ship":{"to": ["x", null], "n": 12345678901234567890123}}',
    "c": '{"customer":{"name":"n"},"note":"\\u00e9\\"","Tax":null}',
}
TWICE = b'{"message_id": "d", "tax": 1, "tax": 1}'


def send(pipeline: TestPipeline, values: Iterable[bytes]) -> None:
    pipeline.send_raw((0, each) for each in values)


def rewrite(pipeline: TestPipeline, *, sink: Mapping[str, Any] | None = None, **source: Any) -> None:
    """Change keys of the pipeline file."""
    content = yaml.safe_load(pipeline.path.read_text())
    content["source"] |= source
    content["sink"] |= sink or {}
    pipeline.path.write_text(yaml.safe_dump(content))


def read(pipeline: TestPipeline) -> Mapping[str, Any]:
    """What is kept, by message id; as JSON where the target knows JSON."""
    if pipeline.config.sink.type == "postgres":
        return dict(pipeline.query("select message_id, _rest from {target}"))
    return {row["message_id"]: row["_rest"] for row in pipeline.read_output()}


def as_json(rests: Mapping[str, str | None]) -> Mapping[str, Any]:
    return {name: None if rest is None else json.loads(rest) for name, rest in rests.items()}


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_undeclared_fields_reach_the_target(workplace: Workplace, into: str, transform: str | None) -> None:
    pipeline = workplace.create(into=into, partitions=1, source=KEPT, transform=transform, quarantine={"max_share": 1})
    send(pipeline, [*DOCUMENTS, TWICE])
    batch = take(pipeline)
    assert read(pipeline) == (RESTS if into == "lake" else as_json(RESTS))
    query = 'select "offset", error from batchledger.quarantine where pipeline = %s'
    assert pipeline.query(query, pipeline.name) == [(3, "_rest (jsonb) cannot hold a name that is given twice")]
    assert verify_pipeline(pipeline.config).holds
    # Nothing is lost, so nothing warns.
    checks = checks_of(batch.batch_id)
    assert "no_unknown_fields" not in checks
    assert {each["outcome"] for each in checks.values()} == {"passed"}
    assert ask("batch", str(batch.batch_id))["attempts"][-1]["schema"] == f"{SCHEMA}, _rest jsonb"


def test_table_has_jsonb_and_a_lake_a_text(workplace: Workplace) -> None:
    for into, type_ in (("table", "jsonb"), ("lake", "string")):
        pipeline = workplace.create(into=into, partitions=1, source=KEPT)
        send(pipeline, DOCUMENTS)
        take(pipeline)
        assert pipeline.read_columns()["_rest"] == type_


def test_transform_reads_and_changes_what_is_kept(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source=KEPT, transform="tests.transforms:take_tax")
    send(pipeline, DOCUMENTS)
    take(pipeline)
    assert pipeline.query("select message_id, tax, _rest from {target} order by 1") == [
        ("a", None, None),
        ("b", "1.1", {"was": ["tax"]}),
        ("c", None, {"was": ["tax"]}),
    ]


def test_check_on_the_column_counts_the_records_that_have_such_fields(workplace: Workplace) -> None:
    check = {"type": "expect_column_values_to_be_null", "column": "_rest", "severity": "warning"}
    pipeline = workplace.create(partitions=1, source=KEPT, checks=[check])
    send(pipeline, DOCUMENTS)
    checks = checks_of(take(pipeline).batch_id)
    (found,) = [each for name, each in checks.items() if "null" in name]
    assert (found["outcome"], found["severity"], found["observed"]["unexpected_count"]) == ("failed", "warning", 2)
    assert pipeline.count_target_rows() == 3


@pytest.mark.parametrize("into", ["table", "lake"])
def test_newest_state_of_a_key_has_the_other_fields_of_its_newest_record(workplace: Workplace, into: str) -> None:
    pipeline = workplace.create(
        into=into,
        partitions=1,
        source={**KEPT, "tombstones": "delete"},
        sink={"mode": "upsert", "key": ["message_id"]},
    )
    send(pipeline, [*DOCUMENTS, b'{"message_id": "b", "tax": 2}', b'{"message_id": "c"}'])
    take(pipeline)
    newest = {"a": None, "b": '{"tax":2}', "c": None}
    assert read(pipeline) == (newest if into == "lake" else as_json(newest))
    pipeline.send_raw([(0, None)], key=b"b")
    take(pipeline)
    assert sorted(read(pipeline)) == ["a", "c"]
    assert verify_pipeline(pipeline.config).holds


def test_duplicates_are_dropped_and_replays_bring_the_same(workplace: Workplace) -> None:
    pipeline = workplace.create(
        partitions=1, source={**KEPT, "tombstones": "keep"}, dedupe={"key": ["message_id"], "remember": "30d"}
    )
    send(pipeline, [*DOCUMENTS, b'{"message_id": "b", "other": 1}'])
    pipeline.send_raw([(0, None)])
    take(pipeline)
    expected = {**as_json(RESTS), None: None}
    assert read(pipeline) == expected
    bounds = ["--range", f"{pipeline.name}[0] 0..5"]
    said = ask("replay", pipeline.name, *bounds, "--dry-run")
    ask("replay", pipeline.name, *bounds, "--reason", "to see it")
    assert read(pipeline) == expected, said
    assert verify_pipeline(pipeline.config).holds


def test_record_from_quarantine_keeps_its_other_fields(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source=KEPT, quarantine={"max_share": 1})
    send(pipeline, [DOCUMENTS[0], b'{"message_id": "e", "customer": {"id": "five"}, "tax": 1.10}', TWICE])
    take(pipeline)
    assert read(pipeline) == {"a": None}
    rewrite(pipeline, schema="message_id string, customer.id as customer_id string")
    pipeline.path.write_text(pipeline.path.read_text().replace("table:", "evolve: add\n  table:"))
    (done,) = ask("quarantine", "replay", pipeline.name, "--all", "--reason", "ids are texts")
    assert (done["published"], done["still_quarantined"]) == (1, 1)
    assert read(pipeline) == {"a": None, "e": {"tax": 1.1}}
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("into", ["table", "lake"])
def test_table_without_the_column_refuses_the_batch_until_it_may_be_added(workplace: Workplace, into: str) -> None:
    pipeline = workplace.create(into=into, partitions=1, source={"schema": SCHEMA, "unknown_fields": "ignore"})
    send(pipeline, DOCUMENTS[:1])
    take(pipeline)
    rewrite(pipeline, unknown_fields="keep")
    send(pipeline, DOCUMENTS[1:])
    (told,) = ask("schema", pipeline.name)["differences"]
    assert (told["column"], told["change"], "_rest" in told["statement"]) == ("_rest", "additive", True)
    assert "_rest" in json.dumps(ask("plan", pipeline.name))
    with pytest.raises(TargetChangedError, match="_rest"):
        take(pipeline)
    assert pipeline.count_target_rows() == 1
    rewrite(pipeline, sink={"evolve": "add"})
    run_batch.run_once(pipeline.platform(), "again")
    assert read(pipeline) == (RESTS if into == "lake" else as_json(RESTS))
    # Off again: the column stays, and newer rows have nothing there. Then on once more.
    for number, policy in enumerate(("ignore", "keep")):
        rewrite(pipeline, unknown_fields=policy)
        send(pipeline, [b'{"message_id": "%d", "tax": 2}' % number])
        take(pipeline)
    newest = {"0": None, "1": '{"tax":2}'}
    found = {name: each for name, each in read(pipeline).items() if name in newest}
    assert found == (newest if into == "lake" else as_json(newest))
    assert verify_pipeline(pipeline.config).holds
    shown = " ".join(batchledger("schema", pipeline.name).stdout.split())
    assert "_rest jsonb is gone" in shown or "_rest jsonb is new" in shown


def test_field_that_is_declared_later_can_be_moved_as_the_guide_says(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source=KEPT, sink={"evolve": "add"})
    send(pipeline, [*DOCUMENTS, b'{"message_id": "e", "tax": 5}'])
    take(pipeline)
    rewrite(pipeline, schema=f"{SCHEMA}, tax decimal(6,2)")
    send(pipeline, [b'{"message_id": "f", "tax": 2, "other": 1}'])
    take(pipeline)
    guide = (ROOT / "docs/guides/schema.md").read_text()
    (statement,) = re.findall(r"`(UPDATE orders SET [^`]+)`", guide)
    pipeline.query(statement.replace("orders", "{target}", 1) + " returning 1")
    rest = {**as_json(RESTS)}
    rest["b"] = {name: each for name, each in rest["b"].items() if name != "tax"}
    assert read(pipeline) == {**rest, "e": None, "f": {"other": 1}}
    taxes = dict(pipeline.query("select message_id, tax::text from {target} where tax is not null"))
    assert taxes == {"b": "1.10", "e": "5", "f": "2.00"}
