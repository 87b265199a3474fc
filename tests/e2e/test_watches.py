"""Watches in a real Airflow: the DAG of a file, and a look behind a load; wrong, told, proved, over."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from batchledger.ledger.incidents import PostgresIncidents
from batchledger.local.airflow_api import AirflowApi, Run, Task
from batchledger.local.stack.home import write_private
from tests.conftest import Kafka, TestServices
from tests.e2e.own_dags import OwnDags
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT
from tests.endpoints import Webhook, free_port, serve_webhook
from tests.openlineage import require_valid
from tests.support import wait_until
from tests.watched import WatchedTopic, open_shop, write_watch_file

pytestmark = PATIENT

BEHIND_A_LOAD = """\
from airflow.sdk import DAG, task
from airflow.providers.postgres.hooks.postgres import PostgresHook

from batchledger.airflow import WatchTaskGroup

with DAG("{dag_id}", schedule=None):

    @task
    def load(dag_run=None) -> None:
        for each in dag_run.conf["offsets"]:
            PostgresHook("warehouse").run("insert into {name} values (0, %s, 'a row')", parameters=[each])

    @task
    def publish() -> None: ...

    @task(trigger_rule="all_done")
    def tell(look: dict) -> dict:
        return look

    prove = WatchTaskGroup("prove", watch="{name}")
    load() >> prove >> publish()
    tell(prove.look)
"""


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str) -> WatchedTopic:
    """Ten records, and a row for each of nine."""
    return open_shop(kafka.options, warehouse_dsn, lacking={3})


@pytest.fixture
def ops(services: TestServices) -> Iterator[Webhook]:
    """A real endpoint behind the connection ``ops``, and a database behind ``gone`` that is not there."""
    file = services.home.connections_file
    before = file.read_text()
    with serve_webhook() as endpoint:
        own = {
            "ops": {"conn_type": "http", "host": endpoint.url},
            "gone": {"conn_type": "postgres", "host": "127.0.0.1", "port": free_port(), "login": "x", "schema": "x"},
        }
        write_private(file, json.dumps(json.loads(before) | own))
        try:
            yield endpoint
        finally:
            write_private(file, before)


@pytest.fixture
def own(own_dags: OwnDags, services: TestServices, shop: WatchedTopic) -> Iterator[OwnDags]:
    """A person's own DAGs; the watch file is gone after the test."""
    yield own_dags
    (services.home.pipelines / f"{shop.name}.yaml").unlink()


def look(own: OwnDags, dag_id: str, **fields: object) -> tuple[Run, Task]:
    """Trigger the DAG of a watch file; return its run and its task when they are over."""
    run = own.wait(dag_id, own.airflow.trigger(dag_id, fields))
    (task,) = own.airflow.list_tasks(dag_id, run.run_id)
    return run, task


def wait_for_proof(lineage: Webhook, shop: WatchedTopic) -> list[dict[str, Any]]:
    """Wait until the end of a task of the watch was sent; return all such events, which are valid."""

    def sent() -> list[dict[str, Any]]:
        of_task = [each for _, each in lineage.arrived if each["job"]["name"] == f"{shop.name}.look"]
        return [each for each in of_task if each["eventType"] != "START"]

    wait_until(lambda: bool(sent()), DEADLINE_SECONDS)
    for each in sent():
        require_valid(each)
    return sent()


def switch_on(airflow: AirflowApi, dag_id: str) -> None:
    airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
    airflow.unpause(dag_id)


def test_dag_of_a_watch_file_fails_once_in_words_tells_it_once_and_its_end_when_the_table_is_proved(
    own: OwnDags, services: TestServices, shop: WatchedTopic, ops: Webhook, lineage: Webhook
) -> None:
    write_watch_file(services.home.pipelines, shop, alerts=["ops"], recheck=0)
    switch_on(own.airflow, shop.name)
    run, task = look(own, shop.name)
    assert (task.task_id, task.state, task.try_number) == ("look", "failed", 1)
    assert f"missing 1: {shop.name}[0] 3..4" in own.airflow.read_error(shop.name, run.run_id, task)
    told = own.xcom(shop.name, run, "look")
    assert (told["outcome"], told["proved"], told["found"]) == ("wrong", 9, {"missing": 1})
    title = f"[batchledger] {shop.name}: the table is wrong — missing"
    assert ops.titles == [title]
    assert run.run_id in unquote(str(ops.received[0]["run_url"]))
    assert str(ops.received[0]["page_url"]).endswith(f"/watches/{shop.name}")
    assert look(own, shop.name)[1].state == "failed"
    assert ops.titles == [title]
    shop.insert([3])
    run, task = look(own, shop.name)
    assert (task.state, own.xcom(shop.name, run, "look")["outcome"]) == ("success", "proved")
    assert ops.titles[1].startswith(f"{title}: over after ")
    (complete,) = wait_for_proof(lineage, shop)
    assert [each["name"] for each in complete["inputs"]] == [shop.name, f"warehouse.public.{shop.name}"]
    assert complete["run"]["facets"]["airflow"]["dagRun"]["run_id"] == run.run_id
    # What is proved is read again only if the form asks for it here: the file says recheck: 0.
    shop.delete([5])
    assert look(own, shop.name)[1].state == "success"
    run, task = look(own, shop.name, everything=True)
    assert (task.state, own.xcom(shop.name, run, "look")["found"]) == ("failed", {"deleted": 1})
    assert len(ops.titles) == 3


def test_table_that_does_not_answer_is_tried_again_and_what_is_wrong_is_not(
    own: OwnDags, services: TestServices, shop: WatchedTopic, ops: Webhook
) -> None:
    table = {"connection": "gone", "name": shop.name}
    write_watch_file(services.home.pipelines, shop, table=table, dag={"retries": 1, "retry_delay": "1s"})
    switch_on(own.airflow, shop.name)
    _, task = look(own, shop.name)
    assert (task.state, task.try_number) == ("failed", 2)
    (told,) = PostgresIncidents(shop.dsn).list_open(shop.name)
    assert told.condition.title == "the table cannot be looked at"
    assert ops.titles == []


def test_what_follows_a_load_waits_for_the_proof_of_its_rows(
    own: OwnDags, services: TestServices, shop: WatchedTopic
) -> None:
    write_watch_file(services.home.pipelines, shop, dag={"tasks": "none"})
    dag_id = own.add(BEHIND_A_LOAD, name=shop.name)
    wrong = own.wait(dag_id, own.airflow.trigger(dag_id, {"offsets": []}))
    states = own.states(dag_id, wrong)
    assert (states["load"], states["prove.look"], states["publish"]) == ("success", "failed", "upstream_failed")
    assert own.xcom(dag_id, wrong, "tell")["outcome"] == "wrong"
    (told,) = PostgresIncidents(shop.dsn).list_open(shop.name)
    assert told.condition.run == f"{wrong.run_id}@{dag_id}/prove"
    right = own.wait(dag_id, own.airflow.trigger(dag_id, {"offsets": [3]}))
    assert set(own.states(dag_id, right).values()) == {"success"}
    assert PostgresIncidents(shop.dsn).list_open(shop.name) == []
    assert own.airflow.client.get(f"/api/v2/dags/{shop.name}").status_code == 404
