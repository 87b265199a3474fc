"""Pipelines in DAGs of a person's own: task groups, one task for all steps, mapped groups; each row once, wherever."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from batchledger.books.history import load_batch_history
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.looking import ledger_dsn
from tests.conftest import TestServices
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, read_logs, run_to_the_end
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
SMALL = {"max_records": 40}

NIGHTLY = """\
from airflow.sdk import DAG, task

from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup, expand_groups

with DAG("{dag_id}", schedule=None, max_active_runs=5) as dag:

    @task
    def prepare() -> None: ...

    @task(trigger_rule="none_failed")
    def tell(batch: dict) -> dict:
        return batch

    load = BatchledgerTaskGroup("load", pipeline="{load}")
    prepare() >> load
    tell.override(task_id="tell_load")(load.batch)
    tell.override(task_id="tell_backlog")(
        BatchledgerTaskGroup("backlog", pipeline="{backlog}", until_caught_up=True).batch
    )
    one = BatchledgerOperator(task_id="one", pipeline="{one}", until_caught_up=True)
    tell.override(task_id="tell_one")(one.output)
    tell.override(task_id="tell_idle")(BatchledgerTaskGroup("idle", pipeline="{idle}").batch)
    expand_groups("many", pipeline=["{first}", "{second}"])
"""
DOWNSTREAM = """\
from airflow.sdk import DAG, AssetAlias, AssetWatcher, Asset, task

from batchledger.airflow import BatchledgerOperator, BatchPublishedSensor, RecordsTrigger

watched = Asset(
    "{dag_id}_records", watchers=[AssetWatcher(name="records", trigger=RecordsTrigger("{name}", dag_id="{dag_id}"))]
)

with DAG("{dag_id}", schedule=[watched]):
    BatchledgerOperator(task_id="load", pipeline="{name}")
    BatchPublishedSensor(task_id="here", pipeline="{name}", poke_interval=1)
    BatchPublishedSensor(task_id="there", pipeline="{name}", poke_interval=1, deferrable=True)

with DAG("{dag_id}_after", schedule=[AssetAlias("warehouse/public.{name}_target")]):

    @task.ledger_batch
    def add_up(batches: list) -> list:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        return [
            [list(each.batch_ids), PostgresHook(each.connection).get_first(
                f"select count(*) from {{each.target}} where {{each.predicate}}"
            )[0]]
            for each in batches
        ]

    add_up()
"""
TWICE = """\
from airflow.sdk import DAG, TaskGroup

from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup

with DAG("{dag_id}", schedule=None, max_active_runs=5):
    with TaskGroup("outer"):
        BatchledgerTaskGroup("load", pipeline="{name}", until_caught_up=True)
    BatchledgerTaskGroup("load", pipeline="{name}", until_caught_up=True)
    BatchledgerOperator(task_id="one", pipeline="{name}", until_caught_up=True)
"""


class OwnDags:
    """The folder of a person's own DAGs, and a running Airflow that reads it."""

    def __init__(self, airflow: AirflowApi, services: TestServices) -> None:
        self.airflow, self.services = airflow, services
        self.added: list[str] = []

    def add(self, text: str, **names: str) -> str:
        """Write the file of a DAG, wait until Airflow knows it, switch it on, and return its id."""
        dag_id = f"nightly-{uuid4().hex[:8]}"
        (self.services.home.more_dags / f"{dag_id}.py").write_text(text.format(dag_id=dag_id, **names))
        self.added.append(dag_id)
        self.airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
        self.airflow.unpause(dag_id)
        return dag_id

    def run(self, *dag_ids: str) -> list[Run]:
        """Trigger a run of each, all at once, and return them when they are over."""
        asked = [(each, self.airflow.trigger(each, {}).run_id) for each in dag_ids]

        def find() -> list[Run]:
            runs = {(dag_id, run.run_id): run for dag_id in {*dag_ids} for run in self.airflow.list_runs(dag_id)}
            return [runs[each] for each in asked]

        wait_until(lambda: not any(run.is_active for run in find()), DEADLINE_SECONDS, every=0.5)
        return find()

    def states(self, dag_id: str, run: Run) -> dict[str, str | None]:
        return {each.task_id: each.state for each in self.airflow.list_tasks(dag_id, run.run_id)}

    def xcom(self, dag_id: str, run: Run, task_id: str) -> Any:
        address = f"/api/v2/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.airflow.client.get(address, params={"deserialize": True}).raise_for_status().json()["value"]


@pytest.fixture
def own_dags(airflow: AirflowApi, services: TestServices) -> Iterator[OwnDags]:
    own = OwnDags(airflow, services)
    yield own
    for dag_id in own.added:
        (services.home.more_dags / f"{dag_id}.py").unlink()


def runs_of(pipeline: TestPipeline) -> set[str]:
    """The names by which the ledger knows who has worked on the batches."""
    histories = [load_batch_history(ledger_dsn(pipeline.config), each.batch_id) for each in batches_of(pipeline)]
    return {attempt.run for history in histories for attempt in history.attempts}


def test_groups_and_operators_in_ones_own_dag_load_each_row_once_and_say_what_they_have_loaded(
    own_dags: OwnDags, workplace: Workplace
) -> None:
    names = ("load", "backlog", "one", "idle", "first", "second")
    found = {each: workplace.create(limits=SMALL) for each in names}
    for name, count in {"load": 30, "backlog": 100, "one": 100, "first": 10, "second": 20}.items():
        found[name].send(count)
    dag_id = own_dags.add(NIGHTLY, **{name: each.name for name, each in found.items()})
    (run,) = own_dags.run(dag_id)
    states = own_dags.states(dag_id, run)
    assert run.state == "success", states
    for each in found.values():
        each.assert_exact()
    told = {name: own_dags.xcom(dag_id, run, f"tell_{name}") for name in ("load", "backlog", "one", "idle")}
    assert {name: (each["rows"], len(each["batch_ids"])) for name, each in told.items()} == {
        "load": (30, 1), "backlog": (100, 3), "one": (100, 3), "idle": (0, 0),
    }  # fmt: skip
    assert [name for name, each in told.items() if each["nothing_to_do"]] == ["idle"]
    assert {name for name, state in states.items() if state == "skipped"} == {
        "idle.plan", "idle.stage", "idle.audit", "idle.publish",
    }  # fmt: skip
    places = {name: run.run_id + f"@{dag_id}/{name}" for name in ("load", "one")}
    assert {name: runs_of(found[name]) for name in places} == {name: {place} for name, place in places.items()}
    many = {f"{run.run_id}@{dag_id}/many[{index}]" for index in (0, 1)}
    assert runs_of(found["first"]) | runs_of(found["second"]) == many
    note = own_dags.airflow.client.get(f"/api/v2/dags/{dag_id}/dagRuns/{run.run_id}").json()["note"]
    for name in ("load", "first", "second"):
        (batch,) = batches_of(found[name])
        assert f"batch {batch.batch_id}: " in note


def test_own_dag_begins_when_records_are_there_sensors_wait_for_the_batch_and_another_dag_reads_its_rows(
    own_dags: OwnDags, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    dag_id = own_dags.add(DOWNSTREAM, name=pipeline.name)
    own_dags.airflow.wait_until_known(f"{dag_id}_after", DEADLINE_SECONDS)
    own_dags.airflow.unpause(f"{dag_id}_after")
    pipeline.send(30)

    def runs(dag: str) -> list[Run]:
        return [run for run in own_dags.airflow.list_runs(dag) if run.state == "success"]

    wait_until(lambda: bool(runs(dag_id) and runs(f"{dag_id}_after")), DEADLINE_SECONDS, every=0.5)
    pipeline.assert_exact()
    (batch,) = batches_of(pipeline)
    first = runs(dag_id)[-1]
    assert {own_dags.xcom(dag_id, first, each)["batch_ids"][0] for each in ("here", "there")} == {batch.batch_id}
    assert own_dags.xcom(f"{dag_id}_after", runs(f"{dag_id}_after")[-1], "add_up") == [[[batch.batch_id], 30]]
    assert {run.kind for run in own_dags.airflow.list_runs(dag_id)} == {"asset_triggered"}


def test_pipeline_file_with_one_task_takes_the_backlog_in_one_run(own_dags: OwnDags, workplace: Workplace) -> None:
    pipeline = workplace.create(limits=SMALL, dag={"tasks": "one"})
    pipeline.send(100)
    (run,) = run_to_the_end(own_dags.airflow, pipeline)
    assert own_dags.states(pipeline.name, run) == {"batch": "success", "report": "success"}
    pipeline.assert_exact()
    assert runs_of(pipeline) == {run.run_id}
    assert own_dags.xcom(pipeline.name, run, "batch")["rows"] == 100
    idle = own_dags.run(pipeline.name)
    assert own_dags.states(pipeline.name, *idle) == {"batch": "skipped", "report": "success"}


def test_pipeline_in_two_dags_twice_in_each_and_in_many_runs_at_once_has_each_row_once(
    own_dags: OwnDags, workplace: Workplace
) -> None:
    pipeline = workplace.create(limits=SMALL)
    pipeline.send(200)
    dag_ids = [own_dags.add(TWICE, name=pipeline.name) for _ in range(2)]
    runs = own_dags.run(*dag_ids, *dag_ids)
    states = [own_dags.states(dag_id, run) for dag_id, run in zip(dag_ids * 2, runs, strict=True)]
    assert {run.state for run in runs} == {"success"}, states
    pipeline.assert_exact()
    reports = [state for each in states for task_id, state in each.items() if task_id.endswith("report")]
    assert set(reports) == {"success"}
    logs = "".join(
        read_logs(own_dags.services.home.local, pipeline, run, dag_id)
        for dag_id, run in zip(dag_ids * 2, runs, strict=True)
    )
    assert "is left to run " in logs
