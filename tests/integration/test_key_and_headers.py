"""Columns from a record's key and headers, through real services into each kind of target."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from batchledger.lifecycle import run_batch
from batchledger.wiring import verify_pipeline
from tests.integration.test_cli import batchledger
from tests.support import TestPipeline, Workplace

SOURCE = {
    "schema": "message_id string",
    "key": {"format": "string", "columns": "order_id bigint"},
    "headers": {"tenant": "header tenant string", "trace": "header traceparent bytes"},
}


def send(pipeline: TestPipeline, key: bytes | None, message_id: str | None, *headers: tuple[str, bytes | None]) -> None:
    value = None if message_id is None else json.dumps({"message_id": message_id}).encode()
    pipeline.send_raw([(0, value)], key=key, headers=list(headers))


def read(pipeline: TestPipeline) -> Sequence[tuple[Any, ...]]:
    """The declared columns of every row, by message id."""
    if pipeline.writes_elsewhere:
        rows: Sequence[Mapping[str, Any]] = pipeline.read_output()
        return sorted((row["message_id"], row["order_id"], row["tenant"], row["trace"]) for row in rows)
    return pipeline.query("select message_id, order_id, tenant, trace from {target} order by 1")


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
def test_key_and_headers_become_columns_and_what_does_not_fit_is_set_aside(workplace: Workplace, into: str) -> None:
    pipeline = workplace.create(into=into, partitions=1, source=SOURCE)
    send(pipeline, b"7", "a", ("tenant", b"blue"), ("traceparent", b"\x00\xff"))
    send(pipeline, None, "b", ("tenant", b"red"), ("tenant", b"green"))
    send(pipeline, b"seven", "c")
    send(pipeline, b"8", "d", ("tenant", b"\xff"))
    run_batch.run_once(pipeline.platform(), "run")
    trace = r"\x00ff" if into == "topic" else b"\x00\xff"
    assert read(pipeline) == [("a", 7, "blue", trace), ("b", None, "green", None)]
    errors = pipeline.query(
        'select error from batchledger.quarantine where pipeline = %s order by "offset"', pipeline.name
    )
    assert [error for (error,) in errors] == [
        "its key: order_id (bigint) cannot hold a text that is not its JSON",
        "its header tenant: the value is not valid UTF-8",
    ]
    assert verify_pipeline(pipeline.config).holds


@pytest.mark.parametrize("into", ["table", "lake"])
def test_rows_replace_each_other_by_the_records_key_and_a_tombstone_deletes_by_it(
    workplace: Workplace, into: str
) -> None:
    pipeline = workplace.create(
        into=into,
        partitions=1,
        source={**SOURCE, "tombstones": "delete"},
        sink={"mode": "upsert", "key": ["order_id"]},
        limits={"max_records": 3},
    )
    for key, message_id in [(b"1", "a"), (b"2", "b"), (b"1", "c"), (b"2", None), (b"3", "d"), (None, None)]:
        send(pipeline, key, message_id)
    for run in ("first", "second"):
        run_batch.run_once(pipeline.platform(), run)
    assert [row[:2] for row in read(pipeline)] == [("c", 1), ("d", 3)]
    (error,) = pipeline.query("select error from batchledger.quarantine where pipeline = %s", pipeline.name)
    assert error == ("the record has no value, and its key has no value for a key column",)
    assert verify_pipeline(pipeline.config).holds


def test_record_that_was_set_aside_by_its_key_is_published_again_under_another_schema(workplace: Workplace) -> None:
    """Its key and headers come from quarantine."""
    objects = {"format": "json", "columns": "order_id bigint"}
    pipeline = workplace.create(partitions=1, source={**SOURCE, "key": objects})
    send(pipeline, b"7", "a", ("tenant", b"blue"), ("traceparent", b"\x01"))
    run_batch.run_once(pipeline.platform(), "run")
    assert pipeline.count_target_rows() == 0
    pipeline.path.write_text(pipeline.path.read_text().replace("format: json", "format: string"))
    done = batchledger("quarantine", "replay", pipeline.name, "--all", "--reason", "its key is a text")
    assert done.returncode == 0, done.stderr
    assert read(pipeline) == [("a", 7, "blue", b"\x01")]
