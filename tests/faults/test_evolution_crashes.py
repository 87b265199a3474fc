"""A table that a publication changes, killed for real at every crash point: columns and rows at once, or neither."""

import json
import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from batchledger.lifecycle import run_batch
from batchledger.lifecycle.at_work import wait_until_left
from batchledger.model.batch import DeliveryMode
from batchledger.model.presence import Patience
from tests.fakes.crash import AFTER_COMMIT, BEFORE_PUBLISHING, crash_points
from tests.faults.run_and_die import run_until_killed, start_run
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, number int, customer struct<id int>, items array<struct<price int>>"
WIDER = (
    "message_id string, number bigint, note string, customer struct<id bigint, name string>, "
    "items array<struct<price bigint, code string>>"
)
BEFORE, AFTER = (
    {
        "table": {"number": "integer", "customer": "jsonb", "items": "jsonb"},
        "lake": {
            "number": "int",
            "customer": "struct<id: optional int>",
            "items": "list<struct<price: optional int>>",
        },
    },
    {
        "table": {"number": "bigint", "customer": "jsonb", "items": "jsonb", "note": "text"},
        "lake": {
            "number": "long",
            "customer": "struct<id: optional long, name: optional string>",
            "items": "list<struct<price: optional long, code: optional string>>",
            "note": "string",
        },
    },
)
"""Type by name of the columns that change. A struct of a PostgreSQL table is jsonb, which takes any fields."""
CRASHES = [
    (into, point)
    for into in ("table", "lake")
    for point in crash_points(DeliveryMode.EXACTLY_ONCE, is_foreign=into == "lake")
    if point not in BEFORE_PUBLISHING or point == "staged"
]
"""No step changes the target before its publication, so of the points before it one is enough."""
ALWAYS = {("table", "before_commit"), ("lake", "rows_moved")}
LARGE = 2**40
STALLED = Patience(stalled_seconds=0.5)


def create(workplace: Workplace, into: str) -> TestPipeline:
    """A pipeline whose table holds three rows of the older schema, and whose topic has two records of the wider one."""
    pipeline = workplace.create(
        into=into, partitions=1, source={"schema": SCHEMA, "unknown_fields": "ignore"}, sink={"evolve": "widen"}
    )
    send(pipeline, 3, number=1)
    run_batch.run_once(pipeline.platform(), "before")
    assert columns_of(pipeline) == BEFORE[into]
    content = yaml.safe_load(pipeline.path.read_text())
    content["source"]["schema"] = WIDER
    pipeline.path.write_text(yaml.safe_dump(content))
    send(pipeline, 2, number=LARGE)
    return pipeline


def send(pipeline: TestPipeline, count: int, number: int) -> None:
    """Write records that have what both schemas name."""
    ids = [f"{pipeline.name}-{len(pipeline.sent) + index}" for index in range(count)]
    fields = {"customer": {"id": number, "name": "n"}, "items": [{"price": number, "code": "c"}]}
    documents = [{"message_id": each, "number": number, "note": "new", **fields} for each in ids]
    pipeline.send_raw((0, json.dumps(each).encode()) for each in documents)
    pipeline.sent.extend(ids)


def columns_of(pipeline: TestPipeline) -> Mapping[str, str]:
    """Type by name of the columns that change, without the numbers that a table of Iceberg gives its fields."""
    return {
        name: re.sub(r"\b\d+: ", "", type_) for name, type_ in pipeline.read_columns().items() if name in AFTER["lake"]
    }


def values_of(pipeline: TestPipeline) -> Sequence[tuple[Any, ...]]:
    """The values of the rows in these columns: number, note, and each field within, None if a row has none."""
    rows = (
        pipeline.read_output()
        if pipeline.writes_elsewhere
        else [row for (row,) in pipeline.query("select to_jsonb(t) from {target} t")]
    )
    return sorted(
        (
            row["number"],
            row["note"],
            row["customer"]["id"],
            row["customer"].get("name"),
            *((each["price"], each.get("code")) for each in row["items"]),
        )
        for row in rows
    )


ALL_VALUES = [(1, None, 1, None, (1, None))] * 3 + [(LARGE, "new", LARGE, "n", (LARGE, "c"))] * 2


@pytest.mark.parametrize(
    ("into", "point"),
    [pytest.param(*each, marks=pytest.mark.always if each in ALWAYS else ()) for each in CRASHES],
)
def test_killed_at_every_point_the_table_has_changed_with_the_rows_or_not_at_all(
    workplace: Workplace, into: str, point: str
) -> None:
    """Columns at the top, and in an Iceberg table also fields within a struct and within the structs of an array."""
    pipeline = create(workplace, into)
    run_until_killed(pipeline.name, "killed", point)
    (position,) = pipeline.platform().ledger.load_positions(pipeline.name)
    is_visible = point in (*AFTER_COMMIT, "sink_committed")
    assert pipeline.count_target_rows() == (5 if is_visible else 3)
    assert columns_of(pipeline) == (AFTER if is_visible else BEFORE)[into]
    assert position.next_offset == (5 if point in AFTER_COMMIT else 3)
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()
    assert columns_of(pipeline) == AFTER[into]
    assert values_of(pipeline) == ALL_VALUES


SUPERSEDED = {
    "audited": ("FencedError: ", "Attempt 2 of run overtaking has taken it over and has it published"),
    "before_commit": ("ServiceUnavailableError: could not publish ", "terminating connection"),
}
"""How the error of the superseded run begins, and what it says, by the point at which it was paused."""


@pytest.mark.parametrize("point", SUPERSEDED)
def test_superseded_attempt_that_adds_the_same_fields_as_its_successor_changes_nothing(
    workplace: Workplace, point: str
) -> None:
    """Both have staged rows for fields that the table lacks. The later one has the table first."""
    pipeline = create(workplace, "lake")
    paused = start_run(pipeline.name, "paused", point, signal.SIGSTOP)
    paused.wait_until_paused()
    # At the second point it holds the ledger's locks. The server ends such a session after a minute, and here at once.
    ended = pipeline.query(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where state = 'idle in transaction' and datname = current_database()"
    )
    platform = pipeline.platform(patience=STALLED)
    left = platform.ledger.find_open_batch(pipeline.name)
    assert left is not None
    assert wait_until_left(platform, left.batch_id, seconds=60)
    run_batch.run_once(platform, "overtaking")
    columns = pipeline.read_columns()
    paused.wake()
    error, (kind, why) = paused.wait(), SUPERSEDED[point]
    assert error.startswith(kind)
    assert why in error
    assert len(ended) == (point == "before_commit")
    assert columns_of(pipeline) == AFTER["lake"]
    assert pipeline.read_columns() == columns
    assert values_of(pipeline) == ALL_VALUES
    pipeline.assert_exact()
