"""Doing it again as people do it: Airflow's trigger form and its backfills, beside live runs, on a real Airflow."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from batchledger.airflow_api import AirflowApi, Backfill, Run
from batchledger.errors import SetupError
from batchledger.ledger.history import BatchSummary, DecisionRecord, list_batches, load_batch_history
from batchledger.wiring import ledger_dsn
from tests.support import TestPipeline, Workplace, wait_until

DEADLINE_SECONDS = 180
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
KEEP_FOREVER = {"retention.ms": "-1"}


def wait_until_idle(airflow: AirflowApi, pipeline: TestPipeline) -> None:
    """Wait until no run is active, those that runs have started included."""
    wait_until(lambda: not any(run.is_active for run in airflow.list_runs(pipeline.name)), DEADLINE_SECONDS)


def trigger(airflow: AirflowApi, pipeline: TestPipeline, **fields: Any) -> Run:
    """Fill in the form, press the button, wait for the end of everything that follows."""
    run = airflow.trigger(pipeline.name, fields)
    wait_until_idle(airflow, pipeline)
    return next(each for each in airflow.list_runs(pipeline.name) if each.run_id == run.run_id)


def assert_one_after_the_other(runs: Sequence[Run]) -> None:
    """No run was started while another one was active."""
    spans = sorted((run.started_at, run.ended_at) for run in runs if run.started_at and run.ended_at)
    assert len(spans) == len(runs) > 1
    assert all(ended_at <= next_started_at for (_, ended_at), (next_started_at, _) in pairwise(spans))


def batches_of(pipeline: TestPipeline) -> list[BatchSummary]:
    """All batches, the oldest first."""
    return list(reversed(list_batches(ledger_dsn(pipeline.config), pipeline.name, limit=100)))


def decision_on(pipeline: TestPipeline, run_id: str) -> DecisionRecord:
    """What the ledger knows of who asked for the batch of a run."""
    (batch_id,) = (each.batch_id for each in batches_of(pipeline) if each.planned_by == run_id)
    (decision,) = load_batch_history(ledger_dsn(pipeline.config), batch_id).decisions
    return decision


def read_target(pipeline: TestPipeline) -> list[tuple[Any, ...]]:
    """The rows that readers see, whoever wrote them."""
    return pipeline.query("select message_id, number, amount, _partition, _offset from {target} order by 1")


def spoil_target(pipeline: TestPipeline, days: Sequence[int] = (0,)) -> None:
    """Change the rows of some days, and take some away, as a wrong transform would have done."""
    for day in days:
        since, until = FIRST_DAY + day * DAY, FIRST_DAY + (day + 1) * DAY
        of_day = "_timestamp >= %s and _timestamp < %s"
        assert pipeline.query(f"update {{target}} set amount = -1 where {of_day} returning 1", since, until)  # noqa: S608
        pipeline.query(f"delete from {{target}} where {of_day} and number %% 4 = 1 returning 1", since, until)  # noqa: S608


def send_history(pipeline: TestPipeline, days: int, per_day: int = 4) -> None:
    """Write records of days long ago, round robin over two partitions, half of them out of the order of their time."""
    for number in range(days * per_day):
        late = timedelta(hours=12 if number % 4 > 1 else 0)
        moment = FIRST_DAY + number * DAY / per_day - late
        message_id = f"{pipeline.name}-old-{number}"
        value = json.dumps({"message_id": message_id, "number": number, "amount": number / 4}).encode()
        pipeline.send_raw([(number % 2, value)], timestamp=int(moment.timestamp() * 1000))
        pipeline.sent.append(message_id)


def start_backfill_on_the_command_line(pipeline: TestPipeline, *options: str) -> None:
    command = (sys.executable, "-m", "airflow", "backfill", "create", "--dag-id", pipeline.name, *options)
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_form_replays_offsets_and_times_and_the_ledger_knows_who_and_why(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create(topic_config=KEEP_FOREVER)
    send_history(pipeline, days=4)
    airflow.wait_until_known(pipeline.name, DEADLINE_SECONDS)
    trigger(airflow, pipeline, action="catch_up")
    before = read_target(pipeline)
    spoil_target(pipeline, days=(0, 2))
    ranges = [f"{pipeline.name}[0] 0..4", f"{pipeline.name}[1] 0..4", ""]
    by_offsets = trigger(airflow, pipeline, action="replay_ranges", ranges=ranges, reason="wrong rate")
    until = FIRST_DAY + 9 * DAY
    window = {"window_since": (FIRST_DAY + 2 * DAY).isoformat(), "window_until": until.isoformat()}
    by_time = trigger(airflow, pipeline, action="replay_window", **window, reason="wrong rate, second part")
    assert read_target(pipeline) == before
    pipeline.assert_exact()
    assert [(each.lane, each.state) for each in batches_of(pipeline)] == [
        ("live", "published"), ("replay", "published"), ("replay", "published")
    ]  # fmt: skip
    for run, reason in ((by_offsets, "wrong rate"), (by_time, "wrong rate, second part")):
        decision = decision_on(pipeline, run.run_id)
        assert (run.state, decision.decided_by, decision.reason) == ("success", "admin", reason)
        tasks = {task.task_id: task.state for task in airflow.list_tasks(pipeline.name, run.run_id)}
        assert (tasks["publish"], tasks["catch_up"]) == ("success", "skipped")


def test_wrong_input_is_refused_in_the_form_or_by_the_first_task_which_names_the_field(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    airflow.wait_until_known(pipeline.name, DEADLINE_SECONDS)
    with pytest.raises(SetupError, match="Invalid input for param ranges"):
        airflow.trigger(pipeline.name, {"action": "replay_ranges", "ranges": ["0..5"], "reason": "x"})
    run = trigger(airflow, pipeline, action="replay_ranges", ranges=["elsewhere[0] 0..5"], reason="x")
    plan = next(task for task in airflow.list_tasks(pipeline.name, run.run_id) if task.task_id == "plan")
    assert (plan.state, plan.try_number) == ("failed", 1)
    error = airflow.read_error(pipeline.name, run.run_id, plan)
    assert "ranges: elsewhere[0] 0..5: the pipeline does not read this topic" in error
    assert batches_of(pipeline) == []


def test_fourteen_days_are_backfilled_beside_live_runs_and_again(airflow: AirflowApi, workplace: Workplace) -> None:
    """Never read before, then beside live batches; taken again newest first, the runs keep their ids."""
    pipeline = workplace.create(topic_config=KEEP_FOREVER, schedule="@daily", source={"start": "latest"})
    send_history(pipeline, days=14)
    airflow.wait_until_known(pipeline.name, DEADLINE_SECONDS)
    wait_until(lambda: airflow.list_runs(pipeline.name))
    wait_until_idle(airflow, pipeline)
    first = airflow.backfill(pipeline.name, Backfill(FIRST_DAY, FIRST_DAY + 13 * DAY, max_active_runs=4))
    for _ in range(3):
        pipeline.send(10)
        airflow.trigger(pipeline.name)
    wait_until_idle(airflow, pipeline)
    pipeline.assert_exact()
    runs = airflow.list_runs(pipeline.name)
    assert {run.state for run in runs} == {"success"}
    assert_one_after_the_other([run for run in runs if run.kind != "backfill"])
    replays = [each for each in batches_of(pipeline) if each.lane == "replay"]
    assert len(replays) == 14
    decision = decision_on(pipeline, replays[0].planned_by)
    assert decision.decided_by == "admin"
    assert decision.reason.startswith("backfill of 2013-01-")
    before = read_target(pipeline)
    spoil_target(pipeline, days=(4, 6))
    wait_until(lambda: airflow.is_complete(first))
    days = ("--from-date", "2013-01-05", "--to-date", "2013-01-07")
    how = ("--reprocess-behavior", "completed", "--run-backwards", "--max-active-runs", "4")
    start_backfill_on_the_command_line(pipeline, *days, *how)
    wait_until_idle(airflow, pipeline)
    assert read_target(pipeline) == before
    pipeline.assert_exact()
    assert [run.run_id for run in airflow.list_runs(pipeline.name)] == [run.run_id for run in runs]
    assert len([each for each in batches_of(pipeline) if each.lane == "replay"]) == 14 + 3
