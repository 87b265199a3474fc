"""Pipelines in DAGs of a person's own: task groups, one task for all steps, mapped groups; each row once, wherever."""

from collections.abc import Sequence

import psycopg

from batchledger.books.history import load_batch_history
from batchledger.lifecycle import run_batch
from batchledger.local.airflow_api import Run
from batchledger.local.stack.defaults import AIRFLOW_DATABASE, AIRFLOW_DATABASE_USER
from batchledger.local.stack.postgres_server import connection_string
from batchledger.looking import ledger_dsn
from tests.conftest import TestServices
from tests.e2e.own_dags import OwnDags
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, run_to_the_end, second
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
APPROVED = """\
from airflow.sdk import DAG, task

from batchledger.airflow import BatchledgerTaskGroup

with DAG("{dag_id}", schedule=None) as dag:

    @task
    def approve() -> int:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        return PostgresHook("warehouse").get_first("select count(*) from {table}")[0]

    gated = BatchledgerTaskGroup("gated", pipeline="{gated}")
    gated.get_child_by_label("audit") >> approve() >> gated.get_child_by_label("publish")
    BatchledgerTaskGroup("free", pipeline="{free}")
"""
DOWNSTREAM = """\
from airflow.sdk import DAG, AssetAlias, AssetWatcher, Asset, task

from batchledger.airflow import BatchledgerOperator, BatchPublishedSensor, RecordsTrigger

watched = Asset(
    "{dag_id}_records", watchers=[AssetWatcher(name="records", trigger=RecordsTrigger("{name}", dag_id="{dag_id}"))]
)

with DAG("{dag_id}", schedule=[watched]):
    BatchledgerOperator(task_id="load", pipeline="{name}")

with DAG("{dag_id}_waits", schedule=None):
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
    for each in (f"{dag_id}_after", f"{dag_id}_waits"):
        own_dags.airflow.wait_until_known(each, DEADLINE_SECONDS)
        own_dags.airflow.unpause(each)
    waiting = own_dags.airflow.trigger(f"{dag_id}_waits")
    both_wait = {"here": "running", "there": "deferred"}
    wait_until(lambda: own_dags.states(f"{dag_id}_waits", waiting) == both_wait, DEADLINE_SECONDS, every=0.5)
    pipeline.send(30)

    def runs(dag: str) -> list[Run]:
        return [run for run in own_dags.airflow.list_runs(dag) if run.state == "success"]

    wait_until(lambda: bool(runs(dag_id) and runs(f"{dag_id}_after")), DEADLINE_SECONDS, every=0.5)
    pipeline.assert_exact()
    (batch,) = batches_of(pipeline)
    assert own_dags.wait(f"{dag_id}_waits", waiting).state == "success"
    found = [own_dags.xcom(f"{dag_id}_waits", waiting, each) for each in both_wait]
    assert [each["batch_ids"] for each in found] == [[batch.batch_id]] * 2
    assert own_dags.xcom(f"{dag_id}_after", runs(f"{dag_id}_after")[-1], "add_up") == [[[batch.batch_id], 30]]
    assert {run.kind for run in own_dags.airflow.list_runs(dag_id)} == {"asset_triggered"}


def test_rows_become_visible_behind_an_approval_and_the_tasks_say_what_stage_has_done_without_one(
    own_dags: OwnDags, workplace: Workplace
) -> None:
    gated, free = workplace.create(), workplace.create()
    for each in (gated, free):
        each.send(30)
        run_batch.run_once(each.platform(), "first")
        each.send(12)
    dag_id = own_dags.add(APPROVED, gated=gated.name, table=f"{gated.name}_target", free=free.name)
    (run,) = own_dags.run(dag_id)
    assert run.state == "success", own_dags.states(dag_id, run)
    assert own_dags.xcom(dag_id, run, "approve") == 30
    for each in (gated, free):
        each.assert_exact()
    logs = own_dags.logs(dag_id, run)
    assert f"{gated.name} attempt 1 is staged, because of what comes before publish: approve" in logs
    assert [f"{each.name} attempt 1 has streamed into its target" in logs for each in (gated, free)] == [False, True]
    assert f"of {free.name} is published already, stage " in logs
    assert f"of {gated.name} is published already" not in logs


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


def count_schedulers(services: TestServices, dag_ids: Sequence[str]) -> list[tuple[int, int]]:
    """How many tasks of the DAGs each scheduler has queued, by the number of its process in Airflow's database."""
    dsn = connection_string(services.ports, services.credentials, AIRFLOW_DATABASE, AIRFLOW_DATABASE_USER)
    query = "select queued_by_job_id, count(*) from task_instance where dag_id = any(%s) and queued_by_job_id > 0"
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"{query} group by 1", [[*dag_ids]]).fetchall()


def test_pipeline_in_two_dags_twice_in_each_and_in_many_runs_at_once_has_each_row_once_under_two_schedulers(
    own_dags: OwnDags, workplace: Workplace, services: TestServices
) -> None:
    pipeline = workplace.create(limits=SMALL)
    pipeline.send(200)
    dag_ids = [own_dags.add(TWICE, name=pipeline.name) for _ in range(2)]
    living = {"job_type": "SchedulerJob", "is_alive": True}
    jobs = lambda: own_dags.airflow.client.get("/api/v2/jobs", params=living).json()["jobs"]  # noqa: E731
    with second(services, "scheduler"):
        wait_until(lambda: len(jobs()) == 2, DEADLINE_SECONDS, every=0.5)
        runs = own_dags.run(*dag_ids, *dag_ids)
    states = [own_dags.states(dag_id, run) for dag_id, run in zip(dag_ids * 2, runs, strict=True)]
    assert {run.state for run in runs} == {"success"}, states
    pipeline.assert_exact()
    reports = [state for each in states for task_id, state in each.items() if task_id.endswith("report")]
    assert set(reports) == {"success"}
    logs = "".join(map(own_dags.logs, dag_ids * 2, runs))
    assert "is left to run " in logs
    assert len(count_schedulers(services, dag_ids)) == 2
