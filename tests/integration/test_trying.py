"""``batchledger try`` and a run make the same of the same records: rows, quarantine with its reasons, duplicates."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql
from psycopg.rows import dict_row

from batchledger.formats.records import last_by_name
from batchledger.lifecycle import run_batch
from batchledger.trying.records import read_records
from tests.avro import encode, record_schema
from tests.integration.test_cli import batchledger_from_nothing
from tests.support import TestPipeline, Workplace

ORDER = record_schema(
    message_id="string",
    number=["null", "int"],
    amount={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
)
OUTER: dict[str, Any] = {
    "schema": (
        "message_id string, number int, amount decimal(9,2), at timestamp, day date, raw binary, rest jsonb, f float, "
        "d double, id uuid, many array<bigint>"
    ),
    "key": {"format": "string", "columns": "order_id bigint"},
    "headers": {"tenant": "header tenant string", "trace": "header traceparent bytes"},
}
FULL = (
    '{"message_id": "a", "number": 7, "amount": 1.10, "at": "2026-01-31T12:00:00.5Z", "day": "2026-01-31", '
    '"raw": "AP8=", "rest": {"a": [1, "x"]}, "f": 0.1, "d": 1e300, '
    '"id": "1B4E28BA-2FA1-11D2-883F-0016D3CCA427", "many": [1, null]}'
)
JSON_LINES = [
    f'{{"value": {FULL}, "key": "7", "headers": {{"tenant": "blue", "traceparent": {{"base64": "AP8="}}}}}}',
    '{"value": {"message_id": "b", "amount": 1.105}, "timestamp": "2026-01-02T00:00:00Z"}',
    '{"value": {"message_id": "c", "amount": 1e400}}',
    '{"value": {"message_id": "d", "message_id": "e"}}',
    '{"value": {"message_id": "f"}, "key": "seven"}',
    '{"value": {"message_id": "g"}, "headers": {"tenant": {"base64": "/w=="}}}',
    '{"value": null, "key": "8"}',
    '{"value": "[1"}',
    '{"value": {"message_id": "h", "number": 1.0, "many": []}}',
    '{"value": {"message_id": "a", "number": 8, "unknown": 1}}',
    '{"value": {"message_id": null, "number": 9}}',
    '{"value": {"message_id": null, "number": 10}}',
]
DEDUPE = {"key": ["message_id"], "remember": "7d"}
EVEN = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 8, "on_failure": "quarantine"}

Row = Mapping[str, Any]


def avro_line(**value: Any) -> str:
    return json.dumps({"value": {"base64": base64.b64encode(encode(ORDER, value)).decode()}})


AVRO_LINES = [
    avro_line(message_id="a", number=2, amount=Decimal("1.10")),
    avro_line(message_id="b", number=None, amount=Decimal("-0.05")),
    '{"value": {"base64": "Ag=="}}',
    '{"value": null}',
]


def send(pipeline: TestPipeline, path: Path) -> None:
    """Write the records of a file to the topic, as another program would."""
    producer = Producer({**pipeline.workplace.kafka_options, "linger.ms": 5})
    for each in read_records(path, [pipeline.name]).records.to_pylist():
        headers = list(last_by_name(each["headers"] or "[]").items())
        place = {"partition": each["partition"], "timestamp": each["timestamp_ms"]}
        producer.produce(pipeline.name, each["value"], each["key"], headers=headers, **place)
    assert producer.flush(30) == 0


def write_lines(pipeline: TestPipeline, lines: Sequence[str]) -> Path:
    path = pipeline.path.with_suffix(".jsonl")
    path.write_text("\n".join(lines))
    return path


def attempt(pipeline: TestPipeline, path: Path) -> Any:
    """What the command makes of the file, in a process that has neither a connection nor a service."""
    done = batchledger_from_nothing("try", str(pipeline.path), "--records", str(path), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(value: Any) -> Any:
    """A value of PostgreSQL as the command writes it; JSON and what lies within is compared as JSON."""
    match value:
        case Decimal():
            return str(value)
        case date():
            return value.isoformat()
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case bool() | int() | float() | str() | None | list() | dict():
            return value
    return str(value)


def load(pipeline: TestPipeline) -> dict[str, Any]:
    """What a run has made."""
    with psycopg.connect(pipeline.workplace.dsn, row_factory=dict_row) as connection:
        connection.execute("set time zone 'UTC'")
        target = sql.Identifier(f"{pipeline.name}_target")
        rows = connection.execute(sql.SQL("select * from {} order by _offset").format(target)).fetchall()
    quarantined = pipeline.query(
        'select "offset" + 1, error from batchledger.quarantine where pipeline = %s order by 1', pipeline.name
    )
    duplicates = pipeline.query(
        'select d."offset" + 1, d.first_offset + 1 from batchledger.duplicate d join batchledger.batch b '
        "using (batch_id) where b.pipeline = %s order by 1",
        pipeline.name,
    )
    return {
        "rows": [{name: plain(value) for name, value in row.items() if name != "_batch_id"} for row in rows],
        "quarantined": [{"line": line, "reason": reason} for line, reason in quarantined],
        "duplicates": [{"line": line, "first": first} for line, first in duplicates],
    }


def parse_json(found: Row) -> Row:
    """The same, with what is in the column ``rest`` as JSON."""
    rows = [
        {name: json.loads(value) if name == "rest" and isinstance(value, str) else value for name, value in row.items()}
        for row in found["rows"]
    ]
    return {"rows": rows, "quarantined": found["quarantined"], "duplicates": found["duplicates"]}


def create(workplace: Workplace, **settings: Any) -> TestPipeline:
    """A pipeline whose records are old, and most of them bad, on purpose."""
    return workplace.create(
        partitions=1, topic_config={"retention.ms": "-1"}, quarantine={"max_share": 1.0}, **settings
    )


CASES: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "JSON with key and headers": (JSON_LINES, {"source": OUTER}),
    "duplicates": (JSON_LINES, {"source": OUTER, "dedupe": DEDUPE}),
    "a check that sets rows aside": (JSON_LINES, {"source": OUTER, "dedupe": DEDUPE, "checks": [EVEN]}),
    "a transform": (
        JSON_LINES,
        {"source": OUTER, "transform": "tests.transforms:keep_even", "dedupe": DEDUPE, "checks": [EVEN]},
    ),
    "Avro without a registry": (
        AVRO_LINES,
        {
            "source": {
                "schema": "message_id string, number int, amount decimal(9,2)",
                "format": "avro",
                "framing": "none",
                "schema_file": "order.avsc",
                "tombstones": "keep",
            }
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_of_a_try_are_the_rows_that_a_run_loads_from_the_same_records(workplace: Workplace, case: str) -> None:
    lines, settings = CASES[case]
    (workplace.folder / "order.avsc").write_text(json.dumps(ORDER))
    pipeline = create(workplace, **settings)
    path = write_lines(pipeline, lines)
    send(pipeline, path)
    run_batch.run_once(pipeline.platform(), "run")
    tried, loaded = parse_json(attempt(pipeline, path)), parse_json(load(pipeline))
    assert tried == loaded
    assert tried["rows"]
    assert tried["quarantined"]


def test_run_of_another_record_differs(workplace: Workplace) -> None:
    """The negative control: one digit of one record is another, and one has another key."""
    pipeline = create(workplace, source=OUTER)
    first, *others, last = JSON_LINES[:5]
    send(pipeline, write_lines(pipeline, [first.replace("1.10", "1.11"), *others, last.replace("seven", "7")]))
    run_batch.run_once(pipeline.platform(), "run")
    tried, loaded = attempt(pipeline, write_lines(pipeline, JSON_LINES[:5])), load(pipeline)
    assert (tried["rows"][0]["amount"], loaded["rows"][0]["amount"]) == ("1.10", "1.11")
    assert len(loaded["rows"]) == len(tried["rows"]) + 1


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("keep_all", "dedupe.key names column 'gone'"),
        ("twice", "no_duplicate_offsets"),
        ("nothing", "was not read to its end"),
        ("collect_a_value", "bad a"),
    ],
)
def test_transform_that_a_run_would_refuse_is_refused(workplace: Workplace, transform: str, told: str) -> None:
    key = {"dedupe": {**DEDUPE, "key": ["gone"]}} if transform == "keep_all" else {}
    pipeline = workplace.create(partitions=1, transform=f"tests.transforms:{transform}", **key)
    path = write_lines(pipeline, ['{"value": {"message_id": "a", "number": 1, "amount": 1}}'])
    done = batchledger_from_nothing("try", str(pipeline.path), "--records", str(path), "--json")
    assert told in done.stdout + done.stderr
    if transform == "twice":
        assert json.loads(done.stdout)["blocked"]
    else:
        assert done.returncode in (1, 2), done.stderr
