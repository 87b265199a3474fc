"""What Airflow's OpenLineage provider sends of a batch, and that no batch waits for the server that it sends it to."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from batchledger.interfaces.published import describe_published
from batchledger.local.airflow_api import AirflowApi
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT, batches_of, run_to_the_end, trigger
from tests.endpoints import Webhook
from tests.openlineage import require_valid
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT


def events_of(lineage: Webhook, pipeline: TestPipeline) -> list[tuple[datetime, dict[str, Any]]]:
    """What has arrived of the pipeline's tasks, and when; each valid by the specification."""
    found = [(at, each) for at, each in lineage.arrived if each["job"]["name"].startswith(f"{pipeline.name}.")]
    for _, event in found:
        require_valid(event)
    return found


def wait_for(lineage: Webhook, pipeline: TestPipeline, *types: str) -> list[dict[str, Any]]:
    """Wait until events of exactly these types have arrived of the pipeline's tasks."""
    wait_until(lambda: [each["eventType"] for _, each in events_of(lineage, pipeline)] == list(types), DEADLINE_SECONDS)
    return [each for _, each in events_of(lineage, pipeline)]


@pytest.fixture
def reachable(lineage: Webhook) -> Iterator[Webhook]:
    """The server, which answers again after the test."""
    yield lineage
    lineage.may_answer.set()
    lineage.status = 200


@pytest.mark.parametrize("into", ["table", "lake"])
def test_batch_is_sent_with_exact_offsets_rows_and_checks_under_the_run_of_airflows_events(
    airflow: AirflowApi, workplace: Workplace, lineage: Webhook, into: str
) -> None:
    pipeline = workplace.create(partitions=1, into=into)
    pipeline.send(30, partitions=1)
    pipeline.send_raw([(0, b'{"message_id": "s3cret", "number": "s3cret"}')])
    (run,) = run_to_the_end(airflow, pipeline)
    start, complete = wait_for(lineage, pipeline, "START", "COMPLETE")
    (batch,) = batches_of(pipeline)
    published = describe_published(pipeline.config, batch.batch_id)
    for event in (start, complete):
        assert event["job"]["name"] == f"{pipeline.name}.publish"
        assert event["run"]["runId"] == start["run"]["runId"]
    (topic,), (target,) = complete["inputs"], complete["outputs"]
    assert (topic["namespace"], topic["name"]) == (published.sources[0].namespace, pipeline.name)
    assert topic["inputFacets"]["batchledger_offsets"]["ranges"] == [{"partition": 0, "start": 0, "until": 31}]
    judged = topic["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {each["success"] for each in judged} == {True}
    assert (target["namespace"], target["name"]) == (published.target.namespace, published.target.name)
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 30
    assert ("version" in target["facets"]) == (into == "lake")
    of_run = [each for _, each in lineage.arrived if each["job"]["name"] == pipeline.name]
    for event in of_run:
        require_valid(event)
    (run_id,) = {each["run"]["runId"] for each in of_run}
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == run_id
    assert complete["run"]["facets"]["airflow"]["dagRun"]["run_id"] == run.run_id
    assert "s3cret" not in str(events_of(lineage, pipeline))


@pytest.mark.parametrize("server", ["silent", "failing"])
def test_batches_are_published_while_the_server_does_not_answer_and_are_sent_only_afterwards(
    airflow: AirflowApi, workplace: Workplace, reachable: Webhook, server: str
) -> None:
    """Silent: it takes every event and answers none until all batches are published and their runs are over."""
    if server == "silent":
        reachable.may_answer.clear()
    else:
        reachable.status = 503
    pipeline = workplace.create(partitions=1)
    for count in (10, 20):
        pipeline.send(count, partitions=1)
        run = run_to_the_end(airflow, pipeline)[-1] if count == 10 else trigger(airflow, pipeline)
        assert run.state == "success"
    pipeline.assert_exact()
    wait_until(lambda: events_of(reachable, pipeline), DEADLINE_SECONDS)
    answered = [each for each in reachable.received if each["job"]["name"].startswith(pipeline.name)]
    assert answered == []
    first = batches_of(pipeline)[0].published_at
    assert first is not None
    assert all(at >= first for at, _ in events_of(reachable, pipeline))
