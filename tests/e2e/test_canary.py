"""Nothing that leaves for a catalog, a monitoring or a tracing system holds a value of a record or a password.

Records hold a canary: one that is published, one in quarantine, one that a check refuses, and one that the target
refuses. Afterwards all that was sent is searched for it, and for the passwords of the stack.
"""

import dataclasses
import json
from collections.abc import Mapping

import psycopg
import pytest

from batchledger.local.airflow_api import AirflowApi
from tests.conftest import TestServices
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, switch_on, trigger, wait_until_idle
from tests.e2e.test_assets import list_events
from tests.endpoints import Webhook
from tests.integration.test_cli import batchledger
from tests.otlp import OtlpReceiver
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
CANARY = "canary-4111-1111"
DETAILED = {"airflow/task_span_detail_level": 2}
"""Airflow then has more spans of its own, which hold the words of errors."""


def record(name: str, number: object, amount: float = 1.0) -> tuple[int, bytes]:
    return 0, json.dumps({"message_id": f"{CANARY}-{name}", "number": number, "amount": amount}).encode()


@pytest.fixture
def pipelines(airflow: AirflowApi, workplace: Workplace) -> tuple[TestPipeline, TestPipeline]:
    """The first has published a batch, and the target refuses its next one. A check blocks the batch of the second."""
    check = {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0}
    refused, checked = workplace.create(partitions=1), workplace.create(partitions=1, checks=[check])
    refused.send_raw([record("good", 1), record("quarantined", CANARY)], key=CANARY, headers=[("h", CANARY.encode())])
    checked.send_raw([record("checked", 1, amount=-1.0)])
    run_both(airflow, refused, checked)
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f'alter table "{refused.name}_target" add constraint small check (number < 5) not valid')
    refused.send_raw([record("refused", 9)])
    trigger(airflow, refused)
    return refused, checked


def run_both(airflow: AirflowApi, *pipelines: TestPipeline) -> None:
    for each in pipelines:
        switch_on(airflow, each)
        airflow.trigger(each.name)
    for each in pipelines:
        wait_until_idle(airflow, each)


def has_all_runs(otlp: OtlpReceiver, airflow: AirflowApi, dag_id: str) -> bool:
    """Whether the span of each run has arrived; it comes last."""
    names = [each.name for each in otlp.spans_of(dag_id)]
    return names.count(f"dag_run.{dag_id}") == len(airflow.list_runs(dag_id))


def read_page(viewer: AirflowApi) -> str:
    return viewer.client.get("/batchledger/metrics?partitions=true").raise_for_status().text


def find_any(words: Mapping[str, str], text: str) -> set[str]:
    """The names of the words that are in the text."""
    return {name for name, word in words.items() if word in text}


def test_no_event_no_metric_and_no_span_holds_a_value_of_a_record_or_a_password(
    airflow: AirflowApi,
    viewer: AirflowApi,
    services: TestServices,
    lineage: Webhook,
    otlp: OtlpReceiver,
    pipelines: tuple[TestPipeline, TestPipeline],
) -> None:
    pipeline, checked = pipelines
    words = {"canary": CANARY, **dataclasses.asdict(services.credentials)}
    assert [each.state for each in (*batches_of(pipeline), *batches_of(checked))] == ["published", "blocked", "blocked"]
    blocked = ("airflow.batchledger_open_batches", (("state", "blocked"),))
    for each in pipelines:
        wait_until(lambda name=each.name: blocked in otlp.gauges_of(name), DEADLINE_SECONDS)
        wait_until(lambda name=each.name: has_all_runs(otlp, airflow, name), DEADLINE_SECONDS)
    wait_until(lambda: [e for _, e in lineage.arrived if e["job"]["name"] == f"{pipeline.name}.publish"])
    # The page tells what was found at most some seconds ago.
    wait_until(lambda: pipeline.name in read_page(viewer), DEADLINE_SECONDS, every=1)
    sent = {
        "asset events": str([list_events(airflow, each) for each in pipelines]),
        "lineage": str(lineage.arrived),
        "page of metrics": read_page(viewer),
        "command": batchledger("metrics", "--partitions").stdout,
        "spans and metrics": b"".join(otlp.bodies).decode(errors="replace"),
    }
    assert {place: find_any(words, text) for place, text in sent.items()} == {place: set() for place in sent}
    assert {place for place, text in sent.items() if pipeline.name in text} == set(sent)

    # The negative controls: the words are where they belong, and a search of spans finds what is there.
    assert CANARY in str(pipeline.query("select message_id from {target}"))
    kept = pipeline.query("select value from batchledger.quarantine where pipeline = %s", pipeline.name)
    assert CANARY.encode() in bytes(kept[0][0])
    secrets = {"database_password", "kafka_password", "spark_token"}
    assert find_any(words, services.home.connections_file.read_text()) >= secrets
    otlp.bodies.clear()
    otlp.spans.clear()
    batch_id = batches_of(pipeline)[-1].batch_id
    trigger(airflow, pipeline, action="retry_batch", batch_id=batch_id, reason="a look", **DETAILED)
    wait_until(
        lambda: f"dag_run.{pipeline.name}" in [each.name for each in otlp.spans_of(pipeline.name)], DEADLINE_SECONDS
    )
    detailed = b"".join(otlp.bodies)
    assert b"violates check constraint" in detailed, "the negative control: such spans hold the words of errors"
    assert CANARY.encode() not in detailed
