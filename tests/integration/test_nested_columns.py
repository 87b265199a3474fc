"""Columns with values within, and columns from within, through real services into each kind of target."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
import yaml

from batchledger.lifecycle import run_batch
from batchledger.wiring import verify_pipeline
from tests.integration.test_planted_faults import checks_of, take
from tests.meaning import of_section
from tests.support import TestPipeline, Workplace

SCHEMA = (
    "message_id string, customer struct<id bigint, tags array<string>>, amounts array<decimal(6,2)>, "
    "days array<date>, seen array<timestamp>, ratios map<string, double>, extra jsonb, "
    "items array<struct<price decimal(6,2), code binary>>, customer.id as customer_id bigint, order-id as order_id int"
)
DOCUMENTS = [
    b"""{"message_id": "a", "customer": {"id": 5, "tags": ["x", null, "\\"y\\""]}, "amounts": [1.1, null],
    "days": ["2026-11-22"], "seen": ["2026-11-22T01:02:03.5Z"], "ratios": {"b": 0.5, "a": null},
    "extra": {"n": [1.10, "z"]}, "items": [{"price": 1, "code": "AP8="}, null, {}], "order-id": 7}""",
    b"""{"message_id": "b", "customer": {}, "amounts": [], "days": [], "seen": [], "ratios": {}, "extra": [],
    "items": []}""",
    b'{"message_id": "c", "customer": null, "extra": null}',
]
ROWS: list[Mapping[str, Any]] = [
    {
        "message_id": "a",
        "customer": {"id": 5, "tags": ["x", None, '"y"']},
        "amounts": [1.1, None],
        "days": ["2026-11-22"],
        "seen": ["2026-11-22T01:02:03.5+00:00"],
        "ratios": {"b": 0.5, "a": None},
        "extra": {"n": [1.1, "z"]},
        "items": [{"price": 1, "code": "\\x00ff"}, None, {"price": None, "code": None}],
        "customer_id": 5,
        "order_id": 7,
    },
    {
        "message_id": "b",
        "customer": {"id": None, "tags": None},
        **{name: [] for name in ("amounts", "days", "seen", "extra", "items")},
        "ratios": {},
        "customer_id": None,
        "order_id": None,
    },
    {
        "message_id": "c",
        **dict.fromkeys(["customer", "amounts", "days", "seen", "ratios", "extra", "items", "customer_id", "order_id"]),
    },
]


def as_json(value: Any) -> Any:
    """A value of a data frame as JSON has it."""
    match value:
        case bytes():
            return rf"\x{value.hex()}"
        case Decimal():
            return float(value)
        case date():
            return value.isoformat().replace(".500000", ".5")
        case list() as pairs if pairs and isinstance(pairs[0], tuple):
            return as_json(dict(pairs))
        case list() | dict():
            return (
                {n: as_json(each) for n, each in value.items()} if isinstance(value, dict) else [*map(as_json, value)]
            )
        case _:
            return value


def read(pipeline: TestPipeline, into: str) -> list[Mapping[str, Any]]:
    """The declared columns of each row, as JSON, by message id."""
    names = ROWS[0].keys()
    if into == "table":
        found = [json.loads(json.dumps(row)) for (row,) in pipeline.query("select to_jsonb(t) from {target} t")]
    elif into == "lake":
        found = [{name: as_json(row[name]) for name in names} for row in pipeline.read_output()]
        for row in found:
            row["extra"] = row["extra"] and json.loads(row["extra"])
            # Arrow has no names without a map to put them in.
            row["ratios"] = {} if row["ratios"] == [] else row["ratios"]
    else:
        found = pipeline.read_output()
    return sorted(({name: row[name] for name in names} for row in found), key=lambda row: row["message_id"])


@pytest.mark.parametrize("into", ["table", "lake", "topic"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_values_within_reach_the_target(workplace: Workplace, into: str, transform: str | None) -> None:
    pipeline = workplace.create(into=into, partitions=1, source={"schema": SCHEMA}, transform=transform)
    bad = b'{"message_id": "d", "customer": {"id": "five"}}'
    pipeline.send_raw([(0, each) for each in (*DOCUMENTS, bad)])
    run_batch.run_once(pipeline.platform(), "run")
    assert read(pipeline, into) == ROWS
    errors = pipeline.query("select error from batchledger.quarantine where pipeline = %s", pipeline.name)
    assert errors == [("customer.id (bigint) cannot hold a string",)]
    assert verify_pipeline(pipeline.config).holds


def test_table_gets_arrays_of_scalars_and_jsonb(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": SCHEMA})
    pipeline.send_raw([(0, DOCUMENTS[0])])
    run_batch.run_once(pipeline.platform(), "run")
    types: Mapping[str, str] = dict(
        pipeline.query(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass(%s) and attnum > 0",
            f"{pipeline.name}_target",
        )
    )
    assert {name: types[name] for name in ROWS[0] if name != "message_id"} == {
        "customer": "jsonb",
        "amounts": "numeric[]",
        "days": "date[]",
        "seen": "jsonb",
        "ratios": "jsonb",
        "extra": "jsonb",
        "items": "jsonb",
        "customer_id": "bigint",
        "order_id": "integer",
    }


@pytest.mark.parametrize("transform", [None, "tests.transforms:keep_all"], ids=["written at once", "transformed"])
def test_values_within_become_in_the_table_what_the_page_says(workplace: Workplace, transform: str | None) -> None:
    meanings = of_section("Values within a value")
    names = {type_: f"c_{place}" for place, type_ in enumerate(dict.fromkeys(each.type for each in meanings))}
    schema = ", ".join(f"{name} {type_}" for type_, name in names.items())
    pipeline = workplace.create(
        partitions=1, source={"schema": schema}, transform=transform, quarantine={"max_share": 1}
    )
    pipeline.send_raw([(0, f'{{"{names[each.type]}": {each.written}}}'.encode()) for each in meanings])
    run_batch.run_once(pipeline.platform(), "run")
    rows = dict(pipeline.query("select _offset, to_jsonb(t) from {target} t"))
    errors = dict(
        pipeline.query('select "offset", error from batchledger.quarantine where pipeline = %s', pipeline.name)
    )
    for offset, each in enumerate(meanings):
        if each.error is not None:
            assert errors[offset].replace(names[each.type], "field", 1) == each.error, each
            continue
        found = pipeline.query(f"select to_jsonb({names[each.type]}) = %s::jsonb from {{target}} where _offset = %s",  # noqa: S608 -- our own names
            each.value, offset)  # fmt: skip
        assert (found == [(True,)]) or (each.value is None and rows[offset][names[each.type]] is None), each
    assert verify_pipeline(pipeline.config).holds


def test_unknown_fields_within_are_counted_by_their_paths(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": "message_id string, customer struct<id bigint>"})
    values = [b'{"message_id": "a", "customer": {"id": 1, "name": "n"}}', b'{"message_id": "b", "customer": {"id": 2}}']
    pipeline.send_raw([(0, each) for each in values])
    batch = take(pipeline)
    check = checks_of(batch.batch_id)["no_unknown_fields"]
    assert check["observed"]["fields"] == {"customer.name": {"records": 1, "first": f"{pipeline.name}[0]@0"}}


@pytest.mark.parametrize("into", ["table", "lake"])
def test_field_within_a_struct_reaches_a_table_that_has_the_older_one(workplace: Workplace, into: str) -> None:
    older = "message_id string, customer struct<id int>, items array<struct<n int>>"
    pipeline = workplace.create(into=into, partitions=1, source={"schema": older}, sink={"evolve": "widen"})
    pipeline.send_raw([(0, b'{"message_id": "a", "customer": {"id": 1}, "items": [{"n": 1}]}')])
    run_batch.run_once(pipeline.platform(), "first")
    content = yaml.safe_load(pipeline.path.read_text())
    newer = "message_id string, items array<struct<p double, n bigint>>, customer struct<name string, id bigint, a int>"
    content["source"]["schema"] = newer
    pipeline.path.write_text(yaml.safe_dump(content))
    document = {"message_id": "b", "customer": {"id": 2, "name": "n", "a": 3}, "items": [{"p": 0.5, "n": 2**40}]}
    pipeline.send_raw([(0, json.dumps(document).encode())])
    run_batch.run_once(pipeline.platform(), "second")
    rows: Sequence[Mapping[str, Any]] = (
        [row for (row,) in pipeline.query("select to_jsonb(t) from {target} t")]
        if into == "table"
        else [{name: as_json(row[name]) for name in document} for row in pipeline.read_output()]
    )
    by_id = {row["message_id"]: row for row in rows}
    assert {name: by_id["b"][name] for name in document} == document
    assert by_id["a"]["customer"]["id"] == 1
    assert by_id["a"]["customer"].get("name") is None
    assert verify_pipeline(pipeline.config).holds
