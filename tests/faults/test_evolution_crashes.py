"""A table that a publication changes, killed for real at every crash point: columns and rows at once, or neither."""

import json

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import DeliveryMode
from tests.fakes.crash import AFTER_COMMIT, crash_points
from tests.faults.run_and_die import run_until_killed
from tests.support import TestPipeline, Workplace

SCHEMA = "message_id string, number int"
CRASHES = [
    (into, point)
    for into in ("table", "lake")
    for point in crash_points(DeliveryMode.EXACTLY_ONCE, is_foreign=into == "lake")
]
ALWAYS = {("table", "before_commit"), ("lake", "rows_moved")}
LARGE = 2**40


def send(pipeline: TestPipeline, count: int, number: int) -> None:
    """Write records that have what both schemas name."""
    ids = [f"{pipeline.name}-{len(pipeline.sent) + index}" for index in range(count)]
    pipeline.send_raw((0, json.dumps({"message_id": each, "number": number, "note": "new"}).encode()) for each in ids)
    pipeline.sent.extend(ids)


def columns_of(pipeline: TestPipeline) -> dict[str, str]:
    """Type by name, of the two columns that change."""
    return {name: type_ for name, type_ in pipeline.read_columns().items() if name in {"number", "note"}}


@pytest.mark.parametrize(
    ("into", "point"),
    [pytest.param(*each, marks=pytest.mark.always if each in ALWAYS else ()) for each in CRASHES],
)
def test_killed_at_every_point_the_table_has_changed_with_the_rows_or_not_at_all(
    workplace: Workplace, into: str, point: str
) -> None:
    pipeline = workplace.create(
        into=into, partitions=1, source={"schema": SCHEMA, "unknown_fields": "ignore"}, sink={"evolve": "widen"}
    )
    send(pipeline, 3, number=1)
    run_batch.run_once(pipeline.platform(), "before")
    before = columns_of(pipeline)
    assert before == {"number": "int" if into == "lake" else "integer"}
    text = pipeline.path.read_text().replace(SCHEMA, "message_id string, number bigint, note string")
    pipeline.path.write_text(text)
    send(pipeline, 2, number=LARGE)
    run_until_killed(pipeline.name, "killed", point)
    (position,) = pipeline.platform().ledger.load_positions(pipeline.name)
    is_visible = point in (*AFTER_COMMIT, "sink_committed")
    assert pipeline.count_target_rows() == (5 if is_visible else 3)
    assert (columns_of(pipeline) != before) is is_visible
    assert position.next_offset == (5 if point in AFTER_COMMIT else 3)
    run_batch.run_once(pipeline.platform(), "next")
    pipeline.assert_exact()
    wide, text = ("long", "string") if into == "lake" else ("bigint", "text")
    assert columns_of(pipeline) == {"number": wide, "note": text}
    rows = pipeline.read_output() if into == "lake" else None
    values = (
        [(row["number"], row["note"]) for row in rows] if rows else pipeline.query("select number, note from {target}")
    )
    assert sorted(values, key=str) == sorted([(1, None)] * 3 + [(LARGE, "new")] * 2, key=str)
