"""Traces and metrics by OTLP from a real Airflow to a real receiver, and a run whose receiver is silent."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families

from batchledger.local.airflow_api import AirflowApi
from tests.conftest import Kafka, open_workplace
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, run_to_the_end
from tests.e2e.test_upkeep import audit_of
from tests.integration.test_cli import batchledger
from tests.otlp import OtlpReceiver, Series, read_attributes
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT
# They grow while one looks.
AGES = {"batchledger_lag_seconds", "batchledger_freshness_seconds", "batchledger_expiry_seconds"}
WITHIN = {
    "batchledger.plan": "worker.plan",
    "batchledger.stage": "worker.stage",
    "batchledger.stage.read": "batchledger.stage",
    # The rows stream: one task does the work of three.
    "batchledger.audit.judge_rows": "batchledger.stage",
    "batchledger.audit.gather_facts": "batchledger.stage",
    "batchledger.audit.judge_facts": "batchledger.stage",
    "batchledger.audit.store_result": "batchledger.stage",
    "batchledger.publish.transaction": "batchledger.stage",
    "batchledger.audit": "worker.audit",
    "batchledger.publish": "worker.publish",
    "batchledger.publish.rows": "batchledger.publish.transaction",
    "batchledger.publish.clean_up": "batchledger.publish",
}
TASKS = {f"worker.{task}" for task in ("plan", "stage", "audit", "publish", "catch_up", "report")}


@pytest.fixture(scope="module")
def place(kafka: Kafka, warehouse_dsn: str, spark: None) -> Iterator[Workplace]:
    """Where the pipelines of these tests live."""
    with open_workplace(kafka.options, warehouse_dsn) as opened:
        yield opened


@pytest.fixture(scope="module")
def pipeline(airflow: AirflowApi, place: Workplace) -> TestPipeline:
    """One batch is published, with a record in quarantine."""
    pipeline = place.create(partitions=1, deadlines={"lag": "1h"})
    pipeline.send(30, partitions=1)
    pipeline.send_raw([(0, b"{")])
    run_to_the_end(airflow, pipeline)
    return pipeline


@pytest.fixture
def receiver(otlp: OtlpReceiver) -> Iterator[OtlpReceiver]:
    """The receiver, which answers again after the test."""
    yield otlp
    otlp.may_answer.set()


def wait_for_trace(receiver: OtlpReceiver, pipeline: TestPipeline) -> dict[str, Span]:
    """Wait until the span of the run has arrived, and all below it; return the spans by name."""
    wanted = {*WITHIN, *TASKS, f"dag_run.{pipeline.name}"}
    wait_until(lambda: wanted <= {each.name for each in receiver.spans_of(pipeline.name)}, DEADLINE_SECONDS)
    return {each.name: each for each in receiver.spans_of(pipeline.name)}


def read_scraped(pipeline: TestPipeline) -> Mapping[Series, float]:
    """What a scrape would read of the pipeline, under the names that Airflow gives it."""
    text = batchledger("metrics", pipeline.name).stdout
    return {
        (
            f"airflow.{each.name}",
            tuple(sorted(pair for pair in each.labels.items() if pair[0] != "pipeline")),
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if "pipeline" in each.labels
    }


def without_ages(numbers: Mapping[Series, float]) -> Mapping[Series, Any]:
    return {series: series[0].removeprefix("airflow.") in AGES or value for series, value in numbers.items()}


def test_run_is_one_trace_with_steps_and_their_parts_below_the_tasks_and_its_batch_can_be_searched_for(
    pipeline: TestPipeline, receiver: OtlpReceiver
) -> None:
    spans = wait_for_trace(receiver, pipeline)
    (batch,) = batches_of(pipeline)
    assert len({each.trace_id for each in spans.values()}) == 1
    assert {name: by_id(spans)[spans[name].parent_span_id] for name in WITHIN} == WITHIN
    assert spans[f"dag_run.{pipeline.name}"].parent_span_id == b""
    for name in WITHIN:
        attributes = read_attributes(spans[name].attributes)
        assert attributes["batchledger.batch_id"] == batch.batch_id
        assert spans[name].status.code == Status.STATUS_CODE_UNSET
    assert read_attributes(spans["batchledger.publish"].attributes) == {
        "batchledger.pipeline": pipeline.name,
        "batchledger.batch_id": batch.batch_id,
        "batchledger.attempt": 1,
        "batchledger.lane": "live",
        "batchledger.state": "published",
        "batchledger.ranges": [f"{pipeline.name}[0] 0..31"],
        "batchledger.ranges_total": 1,
        "batchledger.offsets": 31,
        "batchledger.accepted": 30,
        "batchledger.duplicates": 0,
        "batchledger.quarantined": 1,
    }


def by_id(spans: Mapping[str, Span]) -> Mapping[bytes, str]:
    return {each.span_id: name for name, each in spans.items()}


def test_report_and_audit_push_the_numbers_that_a_scrape_reads(
    airflow: AirflowApi, pipeline: TestPipeline, receiver: OtlpReceiver
) -> None:
    lag: Series = ("airflow.batchledger_lag_records", ())
    wait_until(lambda: lag in receiver.gauges_of(pipeline.name), DEADLINE_SECONDS)
    assert without_ages(receiver.gauges_of(pipeline.name)) == without_ages(read_scraped(pipeline))
    pipeline.send(13, partitions=1)
    receiver.gauges.clear()
    audit_of(airflow, pipeline)
    wait_until(lambda: lag in receiver.gauges_of(pipeline.name), DEADLINE_SECONDS)
    pushed = receiver.gauges_of(pipeline.name)
    assert without_ages(pushed) == without_ages(read_scraped(pipeline))
    assert (pushed[lag], pushed["airflow.batchledger_batches_total", (("state", "published"),)]) == (13, 1)


def test_run_ends_well_while_the_receiver_takes_everything_and_answers_nothing(
    airflow: AirflowApi, place: Workplace, receiver: OtlpReceiver
) -> None:
    receiver.may_answer.clear()
    pipeline = place.create(partitions=1)
    pipeline.send(10, partitions=1)
    assert [run.state for run in run_to_the_end(airflow, pipeline)] == ["success"]
    pipeline.assert_exact()
    assert "batchledger.publish" in {each.name for each in receiver.spans_of(pipeline.name)}
    assert not receiver.may_answer.is_set()
