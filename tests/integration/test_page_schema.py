"""The page of a schema: differences, and which batches used which version."""

import json

import pytest

from batchledger.interfaces.page import lookout
from batchledger.lifecycle import run_batch
from tests.avro import encode, frame, record_schema, register
from tests.pages import ANA, VIEWER, Desk, open_desk, words
from tests.support import Workplace

DECLARED = "message_id string, number int"


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, which look again only when a test lets them."""
    monkeypatch.setattr(lookout, "FRESH_SECONDS", 3600.0)
    return open_desk(monkeypatch, ANA, VIEWER)


def test_page_shows_differences_and_versions_and_reads_records_only_if_asked(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": DECLARED}, sink={"evolve": "add"})
    address = f"/{pipeline.name}/schema"
    assert f"pipelines{address}" in desk.get(f"/{pipeline.name}").text
    assert "No record was decoded yet" in words(desk.get(address))
    for schema in (DECLARED, f"{DECLARED}, tax double"):
        pipeline.path.write_text(pipeline.path.read_text().replace(DECLARED, schema))
        record = {"message_id": "a", "number": 1, "tax": 0.5, "<b>": 1}
        pipeline.send_raw([(0, json.dumps(record).encode())])
        run_batch.run_once(pipeline.platform(), schema)
    page = desk.get(address)
    assert (page.status_code, "There is none." in words(page)) == (200, True)
    assert "tax double is new" in words(page)
    asked = desk.get(f"{address}?from_topic=true")
    assert "2 of 2 records have it, and it is not declared" in words(asked)
    assert "&lt;b&gt;" in asked.text
    assert "<b>" not in asked.text.replace("<b></b>", "")
    assert "hx-trigger" not in asked.text.split('<div id="page"')[1].split(">")[0]


def test_target_that_does_not_answer_leaves_the_versions(
    workplace: Workplace, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(into="lake", partitions=1, source={"schema": DECLARED})
    pipeline.send_raw([(0, b'{"message_id": "a", "number": 1}')])
    run_batch.run_once(pipeline.platform(), "first")
    pipeline.path.write_text(pipeline.path.read_text().replace("sink:\n", "sink:\n  catalog: no_such_lake\n"))
    page = desk.get(f"/{pipeline.name}/schema")
    assert (page.status_code, "no_such_lake" in words(page)) == (200, True)
    assert DECLARED in words(page)


def test_page_lists_the_schemas_that_records_were_written_with(
    workplace: Workplace, desk: Desk, registry_url: str
) -> None:
    schema = record_schema(message_id="string", number="int")
    source = {"format": "avro", "registry": "registry_default", "schema": DECLARED}
    pipeline = workplace.create(partitions=1, source=source)
    schema_id = register(registry_url, f"{pipeline.name}-value", schema)
    pipeline.send_raw([(0, frame(schema_id, encode(schema, {"message_id": "a", "number": 1})))])
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    page = desk.get(f"/{pipeline.name}/schema?from_topic=true")
    assert "Schemas that records were written with" in words(page)
    assert f"registry_default {schema_id} 1" in words(page)
    assert f"/{pipeline.name}/batches/{batch.batch_id}" in page.text
    assert "There is none." in words(page)
