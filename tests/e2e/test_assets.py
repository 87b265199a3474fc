"""Targets as assets of a real Airflow: one event a published batch, and a DAG that reads exactly these rows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from batchledger.config.datasets import name_database_table
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.wiring import ledger_dsn
from tests.conftest import ROOT, TestServices
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, run_to_the_end, task_states, trigger
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
GUIDE = ROOT / "docs" / "guides" / "downstream.md"


def list_events(airflow: AirflowApi, pipeline: TestPipeline) -> list[dict[str, Any]]:
    """The events of the pipeline's runs, the oldest first."""
    query = {"source_dag_id": pipeline.name, "order_by": "timestamp"}
    answer = airflow.client.get("/api/v2/assets/events", params=query).raise_for_status()
    events: list[dict[str, Any]] = answer.json()["asset_events"]
    return events


def uri_of(pipeline: TestPipeline) -> str:
    sink = pipeline.config.sink
    assert sink.type == "postgres"
    return name_database_table(ledger_dsn(pipeline.config), sink.qualified_table).uri


@pytest.fixture
def add_dag(airflow: AirflowApi, services: TestServices) -> Iterator[Any]:
    """Adds a DAG to a folder that Airflow reads beside the project's own."""
    added: list[Path] = []

    def add(dag_id: str, text: str) -> str:
        path = services.home.local / "dags" / f"{dag_id}.py"
        path.write_text(text)
        added.append(path)
        airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
        airflow.unpause(dag_id)
        return dag_id

    yield add
    for path in added:
        path.unlink()


def read_guide(pipeline: TestPipeline, dag_id: str) -> str:
    """The DAG of the guide, for this pipeline's table and a table of its own."""
    (text,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    uri = uri_of(pipeline)
    renamed = re.sub(r'Asset\("[^"]+"\)', f'Asset("{uri}")', text).replace("orders_by_batch", dag_id)
    return renamed.replace("public.orders", f"public.{pipeline.name}_target")


def test_dag_of_the_guide_runs_once_a_batch_and_reads_exactly_its_rows(
    airflow: AirflowApi, workplace: Workplace, add_dag: Any
) -> None:
    pipeline = workplace.create(partitions=1)
    downstream = add_dag(f"{pipeline.name}_by_batch", read_guide(pipeline, f"{pipeline.name}_by_batch"))
    for number, count in enumerate((30, 20, 5), start=1):
        pipeline.send(count, partitions=1)
        run_to_the_end(airflow, pipeline)

        def is_done(expected: int = number) -> bool:
            states = [run.state for run in airflow.list_runs(downstream)]
            return states == ["success"] * expected

        wait_until(is_done, DEADLINE_SECONDS, every=0.5)
    batches = batches_of(pipeline)
    summed = pipeline.query(f"select batch_id, orders from {downstream} order by 1")  # noqa: S608
    assert summed == [(each.batch_id, count) for each, count in zip(batches, (30, 20, 5), strict=True)]


def clear_publish(airflow: AirflowApi, pipeline: TestPipeline, run: Run) -> None:
    """Let the task run a second time, as a person may, and wait until it has succeeded."""
    clear = {"dry_run": False, "task_ids": ["publish"], "dag_run_id": run.run_id, "only_failed": False}
    airflow.client.post(f"/api/v2/dags/{pipeline.name}/clearTaskInstances", json=clear).raise_for_status()

    def is_done_again() -> bool:
        (publish,) = [each for each in airflow.list_tasks(pipeline.name, run.run_id) if each.task_id == "publish"]
        return (publish.state, publish.try_number) == ("success", 2)

    wait_until(is_done_again, DEADLINE_SECONDS, every=0.5)


def test_event_tells_the_batch_and_a_cleared_task_emits_no_second_one(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(30, partitions=1)
    pipeline.send_raw([(0, b"{")])
    (run,) = run_to_the_end(airflow, pipeline)
    (batch,) = batches_of(pipeline)
    (event,) = list_events(airflow, pipeline)
    assert (event["uri"], event["source_task_id"]) == (uri_of(pipeline), "publish")
    fingerprint = event["extra"].pop("schema_fingerprint")
    assert re.fullmatch(r"[0-9a-f]+", fingerprint)
    assert event["extra"] == {
        "pipeline": pipeline.name,
        "batch_id": batch.batch_id,
        "lane": "live",
        "sources": [f"kafka://{pipeline.workplace.kafka_options['bootstrap.servers']}/{pipeline.name}"],
        "ranges": [f"{pipeline.name}[0] 0..31"],
        "ranges_total": 1,
        "offsets": 31,
        "rows": 30,
        "duplicates": 0,
        "quarantined": 1,
        "snapshot_id": None,
    }
    clear_publish(airflow, pipeline, run)
    assert len(list_events(airflow, pipeline)) == 1


def test_skipped_blocked_and_dry_runs_emit_nothing_and_a_replay_says_that_it_is_one(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create(partitions=1)
    (idle,) = run_to_the_end(airflow, pipeline)
    assert task_states(airflow, pipeline, idle)["publish"] == "skipped"
    assert list_events(airflow, pipeline) == []
    pipeline.send(10, partitions=1)
    trigger(airflow, pipeline)
    replay = {"action": "replay_ranges", "ranges": [f"{pipeline.name}[0] 2..5"], "reason": "again"}
    dry = trigger(airflow, pipeline, **replay | {"dry_run": True})
    assert task_states(airflow, pipeline, dry)["publish"] == "skipped"
    trigger(airflow, pipeline, **replay)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    blocked = trigger(airflow, pipeline)
    assert task_states(airflow, pipeline, blocked)["audit"] == "failed"
    told = [(each["extra"]["lane"], each["extra"]["rows"]) for each in list_events(airflow, pipeline)]
    assert told == [("live", 10), ("replay", 3)]


LOSES_ROWS = """
create function {name}_lose() returns trigger language plpgsql as $$ begin
    if exists (select from batchledger.batch where batch_id = new._batch_id and state = 'published') then
        raise exception 'the second commit fails';
    end if;
    return new;
end $$;
create trigger lose before insert on "{name}_target" for each row execute function {name}_lose()
"""
"""The rehearsal in the commit of the positions finds no fault, and the commit of the rows fails."""


def test_at_most_once_batch_that_has_lost_its_rows_emits_nothing_although_its_task_succeeds_in_the_end(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """A downstream DAG would read nothing. The batches before and after it have their events."""
    pipeline = workplace.create(partitions=1, delivery="at_most_once")
    pipeline.send(3, partitions=1)
    run_to_the_end(airflow, pipeline)
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(LOSES_ROWS.format(name=pipeline.name))
    pipeline.send(4, partitions=1)
    lost = trigger(airflow, pipeline)
    assert task_states(airflow, pipeline, lost)["publish"] == "failed"
    clear_publish(airflow, pipeline, lost)
    assert [each.state for each in batches_of(pipeline)] == ["published"] * 2
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f"drop function {pipeline.name}_lose() cascade")
    pipeline.send(5, partitions=1)
    trigger(airflow, pipeline)
    assert [each["extra"]["rows"] for each in list_events(airflow, pipeline)] == [3, 5]
    assert pipeline.count_target_rows() == 8


@pytest.mark.parametrize("into", ["topic", "lake"])
def test_other_targets_are_assets_too_and_an_alias_starts_a_dag_whatever_their_uri(
    airflow: AirflowApi, workplace: Workplace, add_dag: Any, into: str
) -> None:
    pipeline = workplace.create(into=into)
    alias, location = {
        "topic": (f"kafka_default/{pipeline.name}_target", rf"kafka://127\.0\.0\.1:\d+/{pipeline.name}_target"),
        "lake": (f"lake/tests.{pipeline.name}_target", rf"file:///.+/tests/{pipeline.name}_target-[0-9a-f]+"),
    }[into]
    dag_id = f"{pipeline.name}_by_alias"
    text = f"""
from airflow.sdk import AssetAlias, dag, task
TARGET = AssetAlias("{alias}")
@dag("{dag_id}", schedule=[TARGET], catchup=False)
def by_alias():
    @task
    def read(triggering_asset_events=None):
        return [event.extra["batch_id"] for event in triggering_asset_events[TARGET]]
    read()
by_alias()
"""
    add_dag(dag_id, text)
    pipeline.send(4)
    run_to_the_end(airflow, pipeline)
    (event,) = list_events(airflow, pipeline)
    (batch,) = batches_of(pipeline)
    assert re.fullmatch(location, event["uri"])
    assert (event["extra"]["snapshot_id"] is not None) == (into == "lake")
    wait_until(lambda: [run.state for run in airflow.list_runs(dag_id)] == ["success"], DEADLINE_SECONDS, every=0.5)
    (run,) = airflow.list_runs(dag_id)
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances/read/xcomEntries/return_value"
    assert str(batch.batch_id) in str(airflow.client.get(path).raise_for_status().json()["value"])
