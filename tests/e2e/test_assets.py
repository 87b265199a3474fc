"""Targets as assets of a real Airflow: one event a published batch, and a DAG that reads exactly these rows."""

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from rich.console import Console

from batchledger.database.datasets import name_database_table
from batchledger.lifecycle import run_batch
from batchledger.local import downstream
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.local.demo import choose_sums
from batchledger.local.downstream import Sums, catch_up_sums
from batchledger.looking import ledger_dsn
from batchledger.model.errors import ServiceUnavailableError
from tests.conftest import TestServices
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, run_to_the_end, task_states, trigger
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
SwitchOn = Callable[[str], None]


def list_events(airflow: AirflowApi, pipeline: TestPipeline) -> list[dict[str, Any]]:
    """The events of the pipeline's runs, the oldest first."""
    query = {"source_dag_id": pipeline.name, "order_by": "timestamp"}
    answer = airflow.client.get("/api/v2/assets/events", params=query).raise_for_status()
    events: list[dict[str, Any]] = answer.json()["asset_events"]
    return events


def uri_of(pipeline: TestPipeline) -> str:
    sink = pipeline.config.sink
    assert sink.type == "postgres"
    return name_database_table(ledger_dsn(pipeline.config), sink.ledger_table).uri


@pytest.fixture
def switch_on_added(airflow: AirflowApi, services: TestServices) -> Iterator[SwitchOn]:
    """Waits for a DAG that the test has added, and switches it on; its file is removed in the end."""
    added: list[str] = []

    def switch_on_added(dag_id: str) -> None:
        added.append(dag_id)
        airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
        airflow.unpause(dag_id)

    yield switch_on_added
    for dag_id in added:
        (services.home.more_dags / f"{dag_id}.py").unlink()


@pytest.fixture
def flights(workplace: Workplace) -> TestPipeline:
    """A pipeline with the columns that the demo's DAG reads."""
    return workplace.create(partitions=1, source={"schema": "message_id string, carrier string, arr_delay double"})


@pytest.fixture
def sums(flights: TestPipeline, services: TestServices, switch_on_added: SwitchOn) -> Sums:
    """The demo's DAG, which the guide shows, after each batch of this pipeline."""
    sums = choose_sums(flights.config)
    assert sums is not None
    sums.add_dag(services.home.more_dags)
    switch_on_added(sums.dag_id)
    return sums


def publish_flights(airflow: AirflowApi, flights: TestPipeline, delays: Sequence[tuple[str, float | None]]) -> None:
    """Write flights, each with its carrier and its delay, and let Airflow publish them."""
    send_flights(flights, delays)
    run_to_the_end(airflow, flights)


def send_flights(flights: TestPipeline, delays: Sequence[tuple[str, float | None]]) -> None:
    for carrier, delay in delays:
        flights.sent.append(f"{flights.name}-{len(flights.sent)}")
        record = {"message_id": flights.sent[-1], "carrier": carrier, "arr_delay": delay}
        flights.send_raw([(0, json.dumps(record).encode())])


def read_sums(flights: TestPipeline, sums: Sums) -> list[tuple[Any, ...]]:
    return flights.query(f"select batch_id, carrier, arrived, minutes_late from public.{sums.dag_id} order by 1, 2")  # noqa: S608


def wait_for_runs(airflow: AirflowApi, dag_id: str, count: int) -> None:
    """Wait until a DAG has had so many runs, and all of them have succeeded."""
    wait_until(
        lambda: [run.state for run in airflow.list_runs(dag_id)] == ["success"] * count, DEADLINE_SECONDS, every=0.5
    )


def test_dag_of_the_guide_runs_once_a_batch_and_reads_exactly_its_rows(
    airflow: AirflowApi, flights: TestPipeline, sums: Sums
) -> None:
    for number, delays in enumerate(([("UA", 7), ("UA", -2), ("F9", 30)], [("UA", None)], [("F9", 4)]), start=1):
        publish_flights(airflow, flights, delays)
        wait_for_runs(airflow, sums.dag_id, number)
    first, second, third = (each.batch_id for each in batches_of(flights))
    assert read_sums(flights, sums) == [
        (first, "F9", 1, 30),
        (first, "UA", 2, 5),
        (second, "UA", 0, None),
        (third, "F9", 1, 4),
    ]
    assert sums.find_differing() == ()
    table, told = sums.show()
    assert "Made from 3 batches" in str(told)
    assert [list(column.cells) for column in table.columns] == [["F9", "UA"], ["2", "2"], ["17.0", "2.5"]]  # type: ignore[union-attr]


def test_dag_of_the_guide_that_runs_twice_or_after_a_replay_counts_no_row_twice(
    airflow: AirflowApi, flights: TestPipeline, sums: Sums
) -> None:
    publish_flights(airflow, flights, [("UA", 7), ("UA", -2), ("F9", 30)])
    wait_for_runs(airflow, sums.dag_id, 1)
    (run,), before = airflow.list_runs(sums.dag_id), read_sums(flights, sums)
    clear_task(airflow, sums.dag_id, run, "add_up")
    assert read_sums(flights, sums) == before
    trigger(airflow, flights, action="replay_ranges", ranges=[f"{flights.name}[0] 1..3"], reason="again")
    wait_for_runs(airflow, sums.dag_id, 2)
    live, replay = (each.batch_id for each in batches_of(flights))
    assert read_sums(flights, sums) == [(live, "UA", 1, 7), (replay, "F9", 1, 30), (replay, "UA", 1, -2)]
    assert sums.find_differing() == ()


def test_batch_without_an_event_is_named_and_added_up_by_a_run_that_the_demo_triggers(
    airflow: AirflowApi, flights: TestPipeline, sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_flights(airflow, flights, [("UA", 7)])
    wait_for_runs(airflow, sums.dag_id, 1)
    send_flights(flights, [("UA", 8)])
    batch = run_batch.run_once(flights.platform(), "by hand")
    assert sums.find_differing() == (batch.batch_id,)
    monkeypatch.setattr(downstream, "QUIET_SECONDS", 0)
    told = io.StringIO()
    catch_up_sums(airflow, sums, Console(file=told))
    assert f"No run of {sums.dag_id} has added up batch {batch.batch_id}." in told.getvalue()
    assert sums.find_differing() == ()
    assert len(airflow.list_runs(sums.dag_id)) == 2
    # The negative control: sums that are wrong are found, and the demo fails if no run mends them.
    flights.query(f"update public.{sums.dag_id} set arrived = 9 where batch_id = {batch.batch_id} returning 1")  # noqa: S608
    assert sums.find_differing() == (batch.batch_id,)
    airflow.client.patch(f"/api/v2/dags/{sums.dag_id}", json={"is_paused": True}).raise_for_status()
    monkeypatch.setattr(downstream, "STALL_SECONDS", 0)
    with pytest.raises(ServiceUnavailableError, match=rf"differs from {sums.table} in batch {batch.batch_id}, and"):
        catch_up_sums(airflow, sums, Console(file=told))


def clear_task(airflow: AirflowApi, dag_id: str, run: Run, task_id: str) -> None:
    """Let the task run a second time, as a person may, and wait until it has succeeded."""
    clear = {"dry_run": False, "task_ids": [task_id], "dag_run_id": run.run_id, "only_failed": False}
    airflow.client.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=clear).raise_for_status()

    def is_done_again() -> bool:
        (task,) = [each for each in airflow.list_tasks(dag_id, run.run_id) if each.task_id == task_id]
        return (task.state, task.try_number) == ("success", 2)

    wait_until(is_done_again, DEADLINE_SECONDS, every=0.5)


def test_event_tells_the_batch_airflow_shows_its_graph_and_a_cleared_task_emits_no_second_one(
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
        "alias": f"warehouse/public.{pipeline.name}_target",
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
    node = {"node_id": f"asset:{event['asset_id']}", "dependency_type": "scheduling"}
    graph = airflow.client.get("/ui/dependencies", params=node).raise_for_status().json()
    assert any(each["type"] == "asset" for each in graph["nodes"])
    clear_task(airflow, pipeline.name, run, "publish")
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
    clear_task(airflow, pipeline.name, lost, "publish")
    assert [each.state for each in batches_of(pipeline)] == ["published"] * 2
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f"drop function {pipeline.name}_lose() cascade")
    pipeline.send(5, partitions=1)
    trigger(airflow, pipeline)
    assert [each["extra"]["rows"] for each in list_events(airflow, pipeline)] == [3, 5]
    assert pipeline.count_target_rows() == 8


@pytest.mark.parametrize("into", ["topic", "lake"])
def test_other_targets_are_assets_too_and_an_alias_starts_a_dag_whatever_their_uri(
    airflow: AirflowApi, workplace: Workplace, services: TestServices, switch_on_added: SwitchOn, into: str
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
    (services.home.more_dags / f"{dag_id}.py").write_text(text)
    switch_on_added(dag_id)
    pipeline.send(4)
    run_to_the_end(airflow, pipeline)
    (event,) = list_events(airflow, pipeline)
    (batch,) = batches_of(pipeline)
    assert re.fullmatch(location, event["uri"])
    assert (event["extra"]["snapshot_id"] is not None) == (into == "lake")
    wait_for_runs(airflow, dag_id, 1)
    (run,) = airflow.list_runs(dag_id)
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run.run_id}/taskInstances/read/xcomEntries/return_value"
    assert str(batch.batch_id) in str(airflow.client.get(path).raise_for_status().json()["value"])
