"""Backfills as people start them, beside live runs, on a real Airflow: the target ends as the topic has it."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import yaml

from batchledger.local.airflow_api import AirflowApi, Backfill, Run
from batchledger.local.samples.flights import read_flights
from batchledger.local.samples.producer import SampleRecord, produce
from tests.conftest import ROOT
from tests.e2e.runs import (
    DAY,
    DEADLINE_SECONDS,
    FIRST_DAY,
    KEEP_FOREVER,
    PATIENT,
    assert_succeeded,
    batches_of,
    decision_on,
    plan_of,
    read_target,
    send_history,
    spoil_target,
    switch_on,
    trigger,
    wait_until_idle,
)
from tests.support import TestPipeline, Workplace, delete_records, wait_until

pytestmark = PATIENT

FLIGHTS_SCHEMA = yaml.safe_load((ROOT / "include" / "pipelines" / "flights.yaml").read_text())["source"]["schema"]
FLIGHTS_COLUMNS = "carrier, flight, tailnum, origin, dest, sched_dep, dep_delay, distance, _timestamp"
DAYS = 4
LIVE_DAYS = 2


def flights_of(flights: Sequence[SampleRecord], first_day: int, days: int) -> list[SampleRecord]:
    """Those that were to depart on these days, counted from the first of January, in UTC."""
    since, until = (int((FIRST_DAY + day * DAY).timestamp() * 1000) for day in (first_day, first_day + days))
    return [flight for flight in flights if since <= flight.timestamp_ms < until]


def send_flights(pipeline: TestPipeline, flights: Sequence[SampleRecord]) -> None:
    """Write flights with their own keys and moments."""
    assert produce(pipeline.workplace.kafka_options, pipeline.name, 2, flights, lambda _: None) == len(flights) > 0
    pipeline.sent.extend(json.loads(flight.value)["message_id"] for flight in flights)


def start_backfill_on_the_command_line(pipeline: TestPipeline, *options: str) -> None:
    command = (sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", pipeline.name, *options)
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def spans(runs: Sequence[Run]) -> list[tuple[datetime, datetime]]:
    """When the runs were at work, by their start."""
    found = sorted((run.started_at, run.ended_at) for run in runs if run.started_at and run.ended_at)
    assert len(found) == len(runs) > 1
    return found


def assert_one_after_the_other(runs: Sequence[Run]) -> None:
    """No run was started while another one was active."""
    assert all(ended_at <= next_started_at for (_, ended_at), (next_started_at, _) in pairwise(spans(runs)))


def assert_side_by_side(some: Sequence[Run], others: Sequence[Run]) -> None:
    """At least one run was at work while one of the others was."""
    assert any(
        started_at < other_ended_at and other_started_at < ended_at
        for started_at, ended_at in spans(some)
        for other_started_at, other_ended_at in spans(others)
    )


def count_replays(pipeline: TestPipeline) -> int:
    return sum(each.lane == "replay" for each in batches_of(pipeline))


def test_days_of_flights_are_backfilled_beside_live_runs_and_all_again(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Never read before, while later days come in live; then all taken again, newest first, under the same run ids."""
    flights = list(read_flights())
    source = {"start": "latest", "schema": FLIGHTS_SCHEMA}
    pipeline = workplace.create(topic_config=KEEP_FOREVER, schedule="@daily", source=source)
    send_flights(pipeline, flights_of(flights, 0, DAYS))
    switch_on(airflow, pipeline)
    wait_until(lambda: airflow.list_runs(pipeline.name), every=0.5)
    wait_until_idle(airflow, pipeline)
    assert pipeline.count_target_rows() == 0

    first = airflow.backfill(pipeline.name, Backfill(FIRST_DAY, FIRST_DAY + (DAYS - 1) * DAY, max_active_runs=4))
    for day in range(DAYS, DAYS + LIVE_DAYS):
        send_flights(pipeline, flights_of(flights, day, 1))
        airflow.trigger(pipeline.name)
    wait_until_idle(airflow, pipeline)
    pipeline.assert_exact()
    runs = airflow.list_runs(pipeline.name)
    live, backfilled = ([run for run in runs if (run.kind == "backfill") is wanted] for wanted in (False, True))
    assert_succeeded(airflow, pipeline, runs)
    assert (len(backfilled), count_replays(pipeline)) == (DAYS, DAYS)
    assert_one_after_the_other(live)
    assert_side_by_side(live, backfilled)
    decision = decision_on(pipeline, backfilled[0].run_id)
    assert decision.decided_by == "admin"
    assert decision.reason.startswith("backfill of 2013-01-")

    before = read_target(pipeline, FLIGHTS_COLUMNS)
    spoil_target(pipeline, (1, 3), number="flight", amount="distance")
    airflow.end_backfill(first)
    days = ("--from-date", "2013-01-01", "--to-date", f"2013-01-{DAYS:02}")
    how = ("--reprocess-behavior", "completed", "--run-backwards", "--max-active-runs", "4")
    start_backfill_on_the_command_line(pipeline, *days, *how)
    wait_until_idle(airflow, pipeline)
    assert read_target(pipeline, FLIGHTS_COLUMNS) == before
    pipeline.assert_exact()
    assert [run.run_id for run in airflow.list_runs(pipeline.name)] == [run.run_id for run in runs]
    assert count_replays(pipeline) == 2 * DAYS


def test_backfill_of_a_day_that_retention_has_partly_removed_is_refused_unless_it_is_allowed(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """The refusal names what is gone; with ``allow_expired`` what is left is published again and its rows stay."""
    pipeline = workplace.create(topic_config=KEEP_FOREVER, schedule="@daily")
    send_history(pipeline, days=2)
    switch_on(airflow, pipeline)
    wait_until(lambda: pipeline.count_target_rows() == 8, DEADLINE_SECONDS)
    wait_until_idle(airflow, pipeline)
    before = read_target(pipeline)
    pipeline.query("update {target} set amount = -1 returning 1")
    delete_records(workplace.kafka_options, pipeline.name, 0, before_offset=1)
    spoilt = read_target(pipeline)

    refused = airflow.backfill(pipeline.name, Backfill(FIRST_DAY, FIRST_DAY))
    wait_until_idle(airflow, pipeline)
    (run,) = (each for each in airflow.list_runs(pipeline.name) if each.kind == "backfill")
    state, tries, error = plan_of(airflow, pipeline, run)
    assert (state, tries) == ("failed", 1)
    assert f"Kafka has removed 1 offset that may belong to the window: {pipeline.name}[0] 0..1" in error
    assert (read_target(pipeline), count_replays(pipeline)) == (spoilt, 0)

    airflow.end_backfill(refused)
    allowed = Backfill(FIRST_DAY, FIRST_DAY, reprocess="failed", fields={"allow_expired": True})
    airflow.backfill(pipeline.name, allowed)
    wait_until_idle(airflow, pipeline)
    published_again = {(0, 1), (1, 0), (1, 1)}
    expected = [then if then[1:3] in published_again else now for then, now in zip(before, spoilt, strict=True)]
    assert read_target(pipeline) == expected
    pipeline.assert_exact()
    assert [each.run_id for each in airflow.list_runs(pipeline.name) if each.kind == "backfill"] == [run.run_id]


def test_backfill_of_a_day_that_was_written_after_later_days_fails_and_names_the_replay_that_finds_it(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Its part of the log is empty: nothing would be done, and look like a success."""
    pipeline = workplace.create(partitions=1, topic_config=KEEP_FOREVER, schedule="@daily")
    for day in (0, 5, 2):
        moment = FIRST_DAY + day * DAY
        value = json.dumps({"message_id": f"{pipeline.name}-{day}", "number": day, "amount": 1.0}).encode()
        pipeline.send_raw([(0, value)], timestamp=int(moment.timestamp() * 1000))
        pipeline.sent.append(f"{pipeline.name}-{day}")
    switch_on(airflow, pipeline)
    wait_until(lambda: pipeline.count_target_rows() == 3, DEADLINE_SECONDS)
    wait_until_idle(airflow, pipeline)
    since, until = FIRST_DAY + 2 * DAY, FIRST_DAY + 3 * DAY

    airflow.backfill(pipeline.name, Backfill(since, since))
    wait_until_idle(airflow, pipeline)
    (run,) = (each for each in airflow.list_runs(pipeline.name) if each.kind == "backfill")
    state, tries, error = plan_of(airflow, pipeline, run)
    assert (run.state, state, tries) == ("failed", "failed", 1)
    assert f"its part of the log is empty.\nTimestamps of {pipeline.name} are out of order" in error
    bounds = f"--from {since.isoformat()} --until {until.isoformat()}"
    assert f"in {pipeline.name}[0] 2..3" in error
    assert f"batchledger replay {pipeline.name} {bounds}" in error
    assert count_replays(pipeline) == 0

    moments = {"window_since": since.isoformat(), "window_until": until.isoformat()}
    found = trigger(airflow, pipeline, action="replay_window", reason="as it said", **moments)
    assert found.state == "success"
    (replay,) = (each for each in batches_of(pipeline) if each.lane == "replay")
    assert pipeline.query("select number from {target} where _batch_id = %s", replay.batch_id) == [(2,)]
    pipeline.assert_exact()
