"""What ``docs/reference/meaning.md`` says holds on every path of a record, with a real broker, Spark and PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import yaml

from batchledger.lifecycle import plans, run_batch
from batchledger.model.batch import Decision
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Quarantined, Replay
from batchledger.wiring import verify_pipeline
from tests.meaning import Meaning, columns_of_page, literal, of_section
from tests.support import TestPipeline, Workplace

COLUMNS = columns_of_page()
TYPES = list(dict.fromkeys(each.type for each in COLUMNS))
NAME_BY_TYPE = {type_: f"c_{place}" for place, type_ in enumerate(TYPES)}
SCHEMA = ", ".join(f"{name} {type_}" for type_, name in NAME_BY_TYPE.items())

LATE = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
ANY_TIME = {**dict.fromkeys(LATE, str(2**63 - 1)), "retention.ms": "-1"}
"""The settings of a topic that takes records of any timestamp, as older brokers do, and others if they are set so."""


def value_of(meaning: Meaning, also: str = "") -> bytes:
    return f'{{"{NAME_BY_TYPE[meaning.type]}":{meaning.written}{also}}}'.encode()


def outcomes(pipeline: TestPipeline, name_by_offset: Sequence[str]) -> list[tuple[Any, str | None]]:
    """By offset: the value of the column in the target, or the error in quarantine."""
    names = list(dict.fromkeys(name_by_offset))
    found: dict[int, tuple[Any, str | None]] = {}
    if pipeline.count_target_rows():
        rows = pipeline.query(f"select _offset, {', '.join(names)} from {{target}}")  # noqa: S608 -- our own names
        by_offset = {offset: dict(zip(names, values, strict=True)) for offset, *values in rows}
        found |= {offset: (row[name_by_offset[offset]], None) for offset, row in by_offset.items()}
    errors = pipeline.query('select "offset", error from batchledger.quarantine where pipeline = %s', pipeline.name)
    for offset, error in errors:
        assert offset not in found
        found[offset] = (None, error)
    return [found[offset] for offset in range(len(name_by_offset))]


def holds(meaning: Meaning, value: Any) -> bool:
    """Whether a value of the database is the one of the page."""
    match value:
        case None | str():
            return bool(value == meaning.value)
        case datetime():
            return meaning.value == str(value.astimezone(UTC).replace(tzinfo=None))
        case bytes():
            return value.hex() == meaning.value
        case UUID():
            return meaning.type == "uuid" and str(value) == meaning.value
        case float() if meaning.type == "float":
            return np.float32(value) == np.float32(str(meaning.value))
        case bool() | int() | float() | Decimal() | date():
            return str(value) == meaning.value
        case _:
            raise TypeError(value)


def differences(meanings: Sequence[Meaning], found: Sequence[tuple[Any, str | None]]) -> list[str]:
    """What has become another thing than the page says."""
    return [
        f"{meaning}: {value!r} {error}"
        for meaning, (value, error) in zip(meanings, found, strict=True)
        if (error is None) != (meaning.error is None)
        or not (error or "").endswith(meaning.error or "")
        or (error is None and not holds(meaning, value))
    ]


def send(pipeline: TestPipeline, values: Sequence[bytes | None], **more: Any) -> None:
    pipeline.send_raw([(0, value) for value in values], **more)


def create(workplace: Workplace, schema: str, config: Mapping[str, str] | None = None, **changes: Any) -> TestPipeline:
    source = {"schema": schema, **changes.pop("source", {})}
    changes["quarantine"] = {"max_share": 1}
    return workplace.create(partitions=1, topic_config=config, source=source, **changes)


@pytest.mark.parametrize("transform", [None, "tests.transforms:mark_nothing"], ids=["written at once", "transformed"])
def test_values_become_in_the_target_what_the_page_says(workplace: Workplace, transform: str | None) -> None:
    pipeline = create(workplace, SCHEMA, transform=transform)
    send(pipeline, [value_of(each) for each in COLUMNS])
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    assert differences(COLUMNS, outcomes(pipeline, [NAME_BY_TYPE[each.type] for each in COLUMNS])) == []
    assert verify_pipeline(pipeline.config).holds


def test_values_become_the_same_when_they_come_out_of_quarantine(workplace: Workplace) -> None:
    pipeline = create(workplace, f"{SCHEMA}, marker int")
    send(pipeline, [value_of(each, ',"marker":"none"') for each in COLUMNS])
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    assert pipeline.count_target_rows() == 0
    content = yaml.safe_load(pipeline.path.read_text())
    content["source"]["schema"] = SCHEMA
    pipeline.path.write_text(yaml.safe_dump(content))
    replay_quarantine(pipeline, len(COLUMNS))
    assert differences(COLUMNS, outcomes(pipeline, [NAME_BY_TYPE[each.type] for each in COLUMNS])) == []
    assert verify_pipeline(pipeline.config).holds


def replay_quarantine(pipeline: TestPipeline, records: int) -> None:
    platform = pipeline.platform()
    everything = Replay(Quarantined((OffsetRange(TopicPartition(pipeline.name, 0), 0, records),)))
    batch = plans.plan_replay(platform, everything, "again", Decision("ana", "corrected"), "again")
    assert batch is not None
    run_batch.take_through(platform, batch.batch_id, "again")


@pytest.mark.parametrize("schema", ["id bigint", "id bigint, amount decimal(10,2)"], ids=["alone", "decimal"])
def test_whole_values_become_what_the_page_says(workplace: Workplace, schema: str) -> None:
    meanings = of_section("The whole value")
    pipeline = create(workplace, schema)
    send(pipeline, [literal(each.written) for each in meanings])
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    assert differences(meanings, outcomes(pipeline, ["id"] * len(meanings))) == []


TIMESTAMPS = [each for each in of_section("The record's own timestamp") if int(each.written) not in (0, -1)]


@pytest.mark.parametrize("into", ["table", "topic", "lake"])
@pytest.mark.parametrize("transform", [None, "tests.transforms:mark_nothing"], ids=["written at once", "transformed"])
def test_record_of_an_impossible_time_is_set_aside_and_stops_nothing(
    workplace: Workplace, into: str, transform: str | None
) -> None:
    """Nanoseconds are beyond what Spark's source can read; microseconds it reads as the year 57,868."""
    pipeline = create(workplace, "message_id string, number int", ANY_TIME, into=into, transform=transform)
    pipeline.send(20, partitions=1)
    for each in TIMESTAMPS:
        send(pipeline, [b'{"message_id":"%s","number":1}' % each.written.encode()], timestamp=int(each.written))
    pipeline.send(20, partitions=1)
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    good = [each.written for each in TIMESTAMPS if each.error is None]
    pipeline.sent.extend(good)
    pipeline.assert_exact()
    kept = pipeline.query(
        'select timestamp_ms, "timestamp", error from batchledger.quarantine where pipeline = %s order by "offset"',
        pipeline.name,
    )
    bad = [each for each in TIMESTAMPS if each.error is not None]
    assert kept == [(int(each.written), None, each.error) for each in bad]
    replay_quarantine(pipeline, 40 + len(TIMESTAMPS))
    pipeline.assert_exact()
    ((left,),) = pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name)
    assert left == len(bad)


HABITS = {
    "line feed": lambda text: text + "\n",
    "carriage return and line feed": lambda text: text + "\r\n",
    "byte order mark": lambda text: "\ufeff" + text,
    "over lines": lambda text: json.dumps(json.loads(text), indent=2),
}


def test_habits_of_producers_in_other_languages_cost_no_record(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=len(HABITS))
    for partition, habit in enumerate(HABITS.values()):
        ids = [f"{partition}-{number}" for number in range(2_000)]
        texts = [json.dumps({"message_id": each, "number": 1}) for each in ids]
        pipeline.send_raw((partition, habit(text).encode()) for text in texts)
        pipeline.sent.extend(ids)
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    pipeline.assert_exact()
