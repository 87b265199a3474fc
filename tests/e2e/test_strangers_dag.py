"""A DAG that a stranger could have written, and all that may happen to it: each row once, and what is said of it.

Its file changes how a platform is built, so that a task dies by SIGKILL, or waits, where a test wants it to.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from batchledger.local.airflow_api import Backfill, Run
from batchledger.local.stack.processes import is_alive
from batchledger.model.batch import DeliveryMode
from tests.e2e.own_dags import OwnDags
from tests.e2e.runs import (
    DAY,
    DEADLINE_SECONDS,
    FIRST_DAY,
    KEEP_FOREVER,
    PATIENT,
    Person,
    batches_of,
    read_target,
    send_history,
    spoil_target,
    wait_until_over,
)
from tests.fakes.crash import crash_points
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
STEPS = ("plan", "stage", "audit", "publish")
POINTS = crash_points(DeliveryMode.EXACTLY_ONCE)

STRUCK = """\
import os
import signal
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, TaskGroup, task

from batchledger import wiring
from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup, expand_groups

build, faults = wiring.build_platform, Path("{faults}")
AT_ONCE = {{"retries": 12, "retry_delay": timedelta(0)}}


def strike(pipeline, point):
    waits, dies = (faults / f"{{pipeline}}.{{point}}.{{fault}}" for fault in ("waits", "dies"))
    while waits.exists():
        waits.with_suffix(".here").write_text(str(os.getpid()))
        time.sleep(0.1)
    if dies.exists():
        dies.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def build_struck(pipeline, *given, **more):
    return build(pipeline, *given, **more, crash=partial(strike, pipeline.name))


wiring.build_platform = build_struck

"""
STRANGERS = (
    STRUCK
    + """\
with DAG("{dag_id}", schedule=None, max_active_runs=5, default_args=AT_ONCE):

    @task
    def prepare() -> None:
        strike("prepare", "begins")

    @task
    def between() -> None: ...

    @task.branch
    def choose() -> str:
        return "straight_on"

    @task
    def straight_on() -> None: ...

    @task(trigger_rule="none_failed")
    def tell(first: dict | None, second: dict | None) -> list:
        return [each and each["rows"] for each in (first, second)]

    load = BatchledgerTaskGroup("load", pipeline="{load}")
    with TaskGroup("outer"):
        inner = BatchledgerTaskGroup("inner", pipeline="{inner}")
    prepare() >> load >> between() >> inner
    tell(load.batch, inner.batch)
    choose() >> [straight_on(), BatchledgerTaskGroup("detour", pipeline="{detour}")]
    expand_groups("many", pipeline=["{first}", "{weak}"])
"""
)
TWO_TIMES = (
    STRUCK
    + """\
daily = CronDataIntervalTimetable("@daily", timezone="UTC")
with DAG(
    "{dag_id}", schedule=daily, start_date=datetime(2013, 1, 1), end_date=datetime(2013, 1, 4), catchup=False,
    max_active_runs=5, default_args=AT_ONCE,
):
    BatchledgerTaskGroup("load", pipeline="{name}") >> BatchledgerTaskGroup("again", pipeline="{name}")
    BatchledgerOperator(task_id="one", pipeline="{name}")
"""
)

FAIL_FAST = (
    STRUCK
    + """\
with DAG("{dag_id}", schedule=None, fail_fast=True, default_args=AT_ONCE):

    @task(retries=0)
    def break_down() -> None:
        while not (faults / "{name}.staged.here").exists():
            time.sleep(0.1)
        if (faults / "{name}.staged.waits").exists():
            raise ValueError

    break_down()
    BatchledgerTaskGroup("load", pipeline="{name}", until_caught_up=True)
"""
)


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """The folder in which a file says where a task dies or waits."""
    return tmp_path


def strike(faults: Path, pipeline: TestPipeline, fault: str, *points: str) -> None:
    """Let a task of a pipeline die once at each of the points, or wait there as long as the file exists."""
    for point in points:
        (faults / f"{pipeline.name}.{point}.{fault}").touch()


def wait_until_dead(here: Path) -> None:
    """Wait until Airflow has ended the process that has written its number there."""
    number = int(here.read_text())
    wait_until(lambda: not psutil.pid_exists(number) or not is_alive(psutil.Process(number)), DEADLINE_SECONDS)


def tries_of(own_dags: OwnDags, dag_id: str, run: Run, group: str) -> int:
    """How often the steps of a group were begun in a run."""
    return sum(
        each.try_number
        for each in own_dags.airflow.list_tasks(dag_id, run.run_id)
        if each.task_id.startswith(f"{group}.") and not each.task_id.endswith("report")
    )


def test_strangers_dag_whose_tasks_die_at_every_crash_point_has_each_row_once_in_one_run(
    own_dags: OwnDags, workplace: Workplace, faults: Path
) -> None:
    """The negative control is a pipeline that delivers at least once: killed between its commits, it has rows twice."""
    found = {each: workplace.create() for each in ("load", "inner", "detour", "first")}
    found["weak"] = workplace.create(delivery="at_least_once")
    for each in found.values():
        each.send(20)
    for name in ("load", "inner", "first"):
        strike(faults, found[name], "dies", *POINTS)
    strike(faults, found["weak"], "dies", "between_commits")
    dag_id = own_dags.add(STRANGERS, faults=str(faults), **{name: each.name for name, each in found.items()})
    (run,) = own_dags.run(dag_id)
    states = own_dags.states(dag_id, run)
    assert run.state == "success", states
    assert [*faults.iterdir()] == []
    for name in ("load", "inner", "first"):
        found[name].assert_exact()
        assert [each.state for each in batches_of(found[name])] == ["published"]
    assert {tries_of(own_dags, dag_id, run, group) for group in ("load", "outer.inner")} == {4 + len(POINTS)}
    assert set(found["weak"].count_copies().values()) == {2}
    assert own_dags.xcom(dag_id, run, "tell") == [20, 20]
    assert {states[f"detour.{step}"] for step in STEPS} == {"skipped"}
    assert batches_of(found["detour"]) == []


def test_tasks_that_a_person_clears_or_marks_add_no_row_and_hide_none(
    own_dags: OwnDags, workplace: Workplace, faults: Path
) -> None:
    found = {each: workplace.create() for each in ("load", "inner", "detour", "first", "weak")}
    load = found["load"]
    load.send(20)
    dag_id = own_dags.add(STRANGERS, faults=str(faults), **{name: each.name for name, each in found.items()})
    (run,) = own_dags.run(dag_id)
    person = Person(own_dags.airflow, dag_id, run)

    def clear(*steps: str) -> Sequence[str | None]:
        person.clear(*(f"load.{step}" for step in steps))
        states = own_dags.states(dag_id, run)
        return [states[f"load.{step}"] for step in STEPS]

    assert clear("publish") == ["success"] * 4
    assert own_dags.xcom(dag_id, run, "load.publish")["rows"] == 20
    assert clear("plan") == ["skipped", "success", "success", "success"]
    load.assert_exact()
    assert len(batches_of(load)) == 1

    load.send(20)
    assert clear(*STEPS) == ["success"] * 4
    load.assert_exact()

    load.send(20)
    assert clear("plan") == ["success"] * 4
    assert len(load.find_differences()) == 20, "the control: only plan has run"
    (beside,) = own_dags.run(dag_id)
    assert own_dags.states(dag_id, beside)["load.plan"] == "skipped"
    assert f"is left to run {run.run_id}@{dag_id}/load " in own_dags.logs(dag_id, beside)
    assert clear("stage", "audit", "publish") == ["success"] * 4
    load.assert_exact()
    assert [each.state for each in batches_of(load)] == ["published"] * 3

    found["first"].send(10)
    person.clear(*(f"many.{step}" for step in STEPS))
    found["first"].assert_exact()
    assert found["first"].count_target_rows() == 10


def test_task_marked_before_it_runs_or_while_it_runs_publishes_nothing_and_the_rows_come_once(
    own_dags: OwnDags, workplace: Workplace, faults: Path
) -> None:
    found = {each: workplace.create() for each in ("load", "inner", "detour", "first", "weak")}
    load = found["load"]
    load.send(20)
    prepares = faults / "prepare.begins.waits"
    prepares.touch()
    dag_id = own_dags.add(STRANGERS, faults=str(faults), **{name: each.name for name, each in found.items()})
    early = own_dags.airflow.trigger(dag_id)
    person = Person(own_dags.airflow, dag_id, early)
    wait_until(prepares.with_suffix(".here").exists, DEADLINE_SECONDS)
    person.press("load.publish", "success")
    prepares.unlink()
    assert own_dags.wait(dag_id, early).state == "success"
    assert load.count_target_rows() == 0
    assert "Its publish task was marked as a success by hand" in str(person.read_note())
    (beside,) = own_dags.run(dag_id)
    assert f"is left to run {early.run_id}@{dag_id}/load " in own_dags.logs(dag_id, beside)
    person.clear("load.publish")
    load.assert_exact()

    load.send(20)
    strike(faults, load, "waits", "before_commit")
    waits = faults / f"{load.name}.before_commit.waits"
    late = own_dags.airflow.trigger(dag_id)
    wait_until(waits.with_suffix(".here").exists, DEADLINE_SECONDS)
    Person(own_dags.airflow, dag_id, late).press("load.stage", "failed")
    wait_until_dead(waits.with_suffix(".here"))
    assert own_dags.wait(dag_id, late).state == "failed"
    assert load.count_target_rows() == 20
    waits.unlink()
    (after,) = own_dags.run(dag_id)
    assert own_dags.states(dag_id, after)["load.publish"] == "success"
    load.assert_exact()
    assert [each.state for each in batches_of(load)] == ["published"] * 2


def test_dag_that_fails_fast_ends_the_step_at_work_and_its_next_run_publishes_the_batch(
    own_dags: OwnDags, workplace: Workplace, faults: Path
) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    strike(faults, pipeline, "waits", "staged")
    dag_id = own_dags.add(FAIL_FAST, faults=str(faults), name=pipeline.name)
    (broken,) = own_dags.run(dag_id)
    states = own_dags.states(dag_id, broken)
    assert (broken.state, states["load.stage"]) == ("failed", "failed"), states
    wait_until_dead(faults / f"{pipeline.name}.staged.here")
    assert pipeline.count_target_rows() == 0
    (faults / f"{pipeline.name}.staged.waits").unlink()
    runs = [*own_dags.run(dag_id), *own_dags.run(dag_id)]
    assert [each.state for each in runs] == ["success"] * 2
    pipeline.assert_exact()
    assert [each.state for each in batches_of(pipeline)] == ["published"]
    assert own_dags.states(dag_id, runs[-1])["load.catch_up"] == "skipped"


def test_backfill_of_a_dag_in_which_a_pipeline_stands_three_times_publishes_each_interval_once(
    own_dags: OwnDags, workplace: Workplace, faults: Path
) -> None:
    """One place carries the interval out, also after a kill; the others are skipped, and their logs name it."""
    pipeline = workplace.create(topic_config=KEEP_FOREVER)
    send_history(pipeline, days=3)
    dag_id = own_dags.add(TWO_TIMES, faults=str(faults), name=pipeline.name)
    own_dags.run(dag_id)
    before = read_target(pipeline)
    spoil_target(pipeline, (0, 1, 2))
    assert read_target(pipeline) != before
    strike(faults, pipeline, "dies", "staged", "before_commit")
    own_dags.airflow.backfill(dag_id, Backfill(FIRST_DAY, FIRST_DAY + 2 * DAY, max_active_runs=2))
    wait_until_over(own_dags.airflow, dag_id)
    runs = [each for each in own_dags.airflow.list_runs(dag_id) if each.kind == "backfill"]
    assert [each.state for each in runs] == ["success"] * 3
    assert read_target(pipeline) == before
    pipeline.assert_exact()
    replays = [each for each in batches_of(pipeline) if each.lane == "replay"]
    assert [each.state for each in replays] == ["published"] * 3
    for run in runs:
        states = own_dags.states(dag_id, run)
        places = sorted(str(states[each]) for each in ("load.publish", "again.publish", "one"))
        assert places == ["skipped", "skipped", "success"], states
        place = rf"run {re.escape(run.run_id)}@{dag_id}/\S+"
        assert re.search(rf"is left to {place}|of {place} has it published", own_dags.logs(dag_id, run))
