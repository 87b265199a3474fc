"""A window of time from the command line, on real services and a topic whose timestamps are out of order."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import yaml

from batchledger.local.samples.flights import read_flights
from batchledger.local.samples.producer import SampleRecord, produce
from tests.conftest import ROOT
from tests.integration.test_cli import ask, batchledger
from tests.support import TestPipeline, Workplace

KEEP_FOREVER = {"retention.ms": "-1"}
FLIGHTS_SCHEMA = yaml.safe_load((ROOT / "include" / "pipelines" / "flights.yaml").read_text())["source"]["schema"]
MARCH = datetime(2013, 3, 1, tzinfo=UTC)
WHY = ("--reason", "the amounts of these days were wrong")


def flights_in_the_order_of_the_file(*months: int, days: int) -> list[SampleRecord]:
    """The first days of each month, as the demo writes them: October before March."""
    spans = [(datetime(2013, month, 1, tzinfo=UTC), timedelta(days=days)) for month in months]
    bounds = [(int(since.timestamp() * 1000), int((since + length).timestamp() * 1000)) for since, length in spans]
    return [each for each in read_flights() if any(since <= each.timestamp_ms < until for since, until in bounds)]


def send_at(pipeline: TestPipeline, *minutes: int, partition: int = 0) -> None:
    """Write one record for each minute after the first of March, in this order."""
    for minute in minutes:
        message_id = f"{pipeline.name}-{partition}-{len(pipeline.sent)}"
        value = json.dumps({"message_id": message_id, "number": minute, "amount": minute / 4}).encode()
        moment = MARCH + timedelta(minutes=minute)
        pipeline.send_raw([(partition, value)], timestamp=int(moment.timestamp() * 1000))
        pipeline.sent.append(message_id)


def window(since: int, until: int) -> Sequence[str]:
    bounds = (MARCH + timedelta(minutes=minute) for minute in (since, until))
    return [
        part for name, bound in zip(("--from", "--until"), bounds, strict=True) for part in (name, bound.isoformat())
    ]


def owners(pipeline: TestPipeline) -> dict[tuple[int, int], int]:
    rows: list[Any] = pipeline.query("select _partition, _offset, _batch_id from {target}")
    return {(partition, offset): batch_id for partition, offset, batch_id in rows}


def test_two_weeks_of_the_demo_are_published_again_although_later_months_came_before(workplace: Workplace) -> None:
    """On the parts of the log that Kafka has for these moments there is nothing: October came first."""
    pipeline = workplace.create(
        topic_config=KEEP_FOREVER, source={"schema": FLIGHTS_SCHEMA}, limits={"max_records": 1500}
    )
    flights = flights_in_the_order_of_the_file(1, 10, 3, days=2)
    assert produce(workplace.kafka_options, pipeline.name, 2, flights, lambda _: None) == len(flights)
    pipeline.sent.extend(json.loads(each.value)["message_id"] for each in flights)
    ask("run", pipeline.name, "--until-caught-up")
    before = owners(pipeline)
    of_march = "select count(*) from {target} where _timestamp >= %s and _timestamp < %s"
    days = (MARCH, MARCH + timedelta(days=14))
    ((wanted,),) = pipeline.query(of_march, *days)
    assert wanted > 1_000

    done = ask("replay", pipeline.name, "--from", "2013-03-01", "--until", "2013-03-15", *WHY)
    assert pipeline.query(f"{of_march} and _batch_id = %s", *days, done["batch_id"]) == [(wanted,)]
    changed = [place for place, batch_id in owners(pipeline).items() if before[place] != batch_id]
    assert len(changed) == wanted
    pipeline.assert_exact()
    assert ask("verify", pipeline.name)["holds"]


def test_records_that_come_along_are_told_before_and_kept_with_the_dry_run(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, topic_config=KEEP_FOREVER)
    send_at(pipeline, 0, 500, 1, 900, 2, 700)
    (first,) = ask("run", pipeline.name)
    told = "2 records from outside of the window come along, written from 2013-03-01T08:20:00"
    done = batchledger("replay", pipeline.name, *window(0, 60), "--dry-run")
    assert told in " ".join(done.stderr.split())
    assert told in " ".join(done.stdout.split())
    said = ask("replay", pipeline.name, *window(0, 60), "--dry-run")
    assert said["notes"][0].startswith(told)
    assert ask("batch", str(said["batch_id"]))["dry_run"]["notes"] == said["notes"]
    replayed = batchledger("replay", pipeline.name, *window(0, 60), *WHY)
    assert told in " ".join(replayed.stderr.split())
    assert [offset for (_, offset), batch_id in owners(pipeline).items() if batch_id == first["batch_id"]] == [5]
    pipeline.assert_exact()


def test_window_of_a_history_from_before_the_ledger_kept_times_is_found_all_the_same(workplace: Workplace) -> None:
    pipeline = workplace.create(topic_config=KEEP_FOREVER, limits={"max_records": 4})
    send_at(pipeline, 0, 1, 500, 501, 2, 3)
    send_at(pipeline, 500, 2, partition=1)
    ask("run", pipeline.name, "--until-caught-up")
    times = "select timestamps is null, untimed is null from batchledger.batch_range where pipeline = %s"
    assert set(pipeline.query(times, pipeline.name)) == {(False, False)}
    with psycopg.connect(workplace.dsn) as connection:
        forget = "update batchledger.batch_range set timestamps = null, untimed = null where pipeline = %s"
        connection.execute(forget, [pipeline.name])

    done = ask("replay", pipeline.name, *window(2, 60), *WHY)
    again = {place for place, batch_id in owners(pipeline).items() if batch_id == done["batch_id"]}
    assert again == {(0, 4), (0, 5), (1, 1)}
    pipeline.assert_exact()
    assert (False, False) in set(pipeline.query(times, pipeline.name))


def test_window_finds_what_is_in_quarantine_too(workplace: Workplace) -> None:
    pipeline = workplace.create(partitions=1, topic_config=KEEP_FOREVER)
    send_at(pipeline, 500)
    pipeline.send_raw([(0, b"{poison")], timestamp=int(MARCH.timestamp() * 1000))
    send_at(pipeline, 501)
    ask("run", pipeline.name)
    done = ask("replay", pipeline.name, *window(0, 1), *WHY)
    assert [(each["start"], each["until"]) for each in done["ranges"]] == [(1, 2)]
    assert [each["quarantined"] for each in done["replaced"]] == [1]
    assert ask("replay", pipeline.name, *window(1, 2), *WHY)["batch_id"] is None
