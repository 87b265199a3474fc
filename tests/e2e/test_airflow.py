"""The pipelines as people run them: a real Airflow, triggered through the API that its Trigger button uses."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from batchledger.local.airflow_api import AirflowApi
from batchledger.model.batch import BatchState
from tests.conftest import TestServices
from tests.e2e.runs import PATIENT, read_logs, run_to_the_end, task_states
from tests.endpoints import free_port, serve_webhook
from tests.support import TestPipeline, Workplace

pytestmark = PATIENT


def test_one_trigger_catches_up_in_as_many_runs_as_the_limit_needs_and_their_logs_tell_the_offsets(
    airflow: AirflowApi, workplace: Workplace, services: TestServices
) -> None:
    pipeline = workplace.create(limits={"max_records": 200})
    pipeline.send(500)
    runs = run_to_the_end(airflow, pipeline)
    assert [run.state for run in runs] == ["success"] * 3
    done = dict.fromkeys(("plan", "stage", "audit", "publish", "report"), "success")
    assert [task_states(airflow, pipeline, run) for run in runs] == [
        done | {"catch_up": "success"},
        done | {"catch_up": "success"},
        done | {"catch_up": "skipped"},
    ]
    pipeline.assert_exact()
    told = read_logs(services.home.local, pipeline.name, runs[0])
    planned = f"planned: {pipeline.name}[0] 0..100"
    for event in (planned, "has streamed into its target: 200 rows", "audited: 9 of 9 checks passed", "published: "):
        assert event in told
    assert "preloaded" not in told


def test_run_without_new_records_is_skipped(airflow: AirflowApi, workplace: Workplace) -> None:
    pipeline = workplace.create()
    (run,) = run_to_the_end(airflow, pipeline)
    assert run.state == "success"
    assert {name for name, state in task_states(airflow, pipeline, run).items() if state != "skipped"} == {"report"}


def connect(airflow: AirflowApi, urls: Mapping[str, str]) -> None:
    """Define connections for webhooks, as a person does in Airflow."""
    for connection_id, url in urls.items():
        connection = {"connection_id": connection_id, "conn_type": "http", "host": url}
        airflow.client.post("/api/v2/connections", json=connection).raise_for_status()


def read_ledger(pipeline: TestPipeline) -> dict[str, list[tuple[Any, ...]]]:
    """What the ledger holds of the only batch of a pipeline, but for names, numbers and times."""
    statements = {
        "batch": "select state, attempt, reported_rows, published_at is not null from batchledger.batch "
        "where pipeline = %s",
        "attempt": "select a.number, a.outcome, a.error from batchledger.attempt a "
        "join batchledger.batch using (batch_id) where pipeline = %s",
        "range": "select partition, offsets::text, published_live, accepted, unexplained from batchledger.batch_range "
        "where pipeline = %s order by 1",
        "check": "select c.name, c.outcome, c.severity, c.attempt from batchledger.check_result c "
        "join batchledger.batch using (batch_id) where pipeline = %s order by 1",
        "position": "select partition, next_offset from batchledger.position where pipeline = %s order by 1",
    }
    return {name: pipeline.query(statement, pipeline.name) for name, statement in statements.items()}


def test_run_beside_endpoints_that_fail_leaves_what_a_run_without_alerts_leaves(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """One endpoint is down, one holds the connection as long as one likes, one answers 500; another gets the alert."""
    check = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 5, "severity": "warning"}
    with serve_webhook() as working, serve_webhook() as slow, serve_webhook() as broken:
        slow.may_answer.clear()
        broken.status = 500
        urls = {
            "e2e_down": f"http://127.0.0.1:{free_port()}/",
            "e2e_slow": slow.url,
            "e2e_broken": broken.url,
            "e2e_working": working.url,
        }
        connect(airflow, urls)
        alone = workplace.create(checks=[check])
        beside = workplace.create(checks=[check], alerts=list(urls))
        for pipeline in (alone, beside):
            pipeline.send(30)
            (run,) = run_to_the_end(airflow, pipeline)
            assert (run.state, task_states(airflow, pipeline, run)["report"]) == ("success", "success")
            pipeline.assert_exact()
        assert read_ledger(beside) == read_ledger(alone)
        assert [state for state, *_ in read_ledger(beside)["batch"]] == ["published"]
        title = f"[batchledger] {beside.name}: check failed — expect_column_values_to_be_between(number)"
        assert (working.titles, slow.titles, broken.titles) == ([title], [], [])


def test_failing_audit_blocks_the_batch_the_task_says_why_an_alert_arrives_and_no_secret_is_told(
    airflow: AirflowApi, workplace: Workplace, services: TestServices
) -> None:
    """S139: a commit marker on a topic that declares no holes; the audit is not retried, the next run is refused.

    The connections are Airflow's; one of them leads nowhere, which fails no task.
    """
    with serve_webhook() as endpoint:
        urls = {"e2e_ops": endpoint.url, "e2e_gone": f"http://127.0.0.1:{free_port()}/"}
        connect(airflow, urls)
        pipeline = workplace.create(alerts=list(urls))
        pipeline.send(10)
        run_to_the_end(airflow, pipeline)
        pipeline.send_in_transaction([b"{}"] * 5, partition=0, commit=True)
        pipeline.send(2)
        run = run_to_the_end(airflow, pipeline)[-1]
        (told,) = endpoint.received
    assert told["title"] == f"[batchledger] {pipeline.name}: blocked — no_unexplained_holes, balance_closes"
    assert told["run_url"] == f"{airflow.url}/dags/{pipeline.name}/runs/{quote(run.run_id, safe='')}"
    tasks = {task.task_id: task for task in airflow.list_tasks(pipeline.name, run.run_id)}
    assert (run.state, tasks["audit"].state, tasks["audit"].try_number) == ("failed", "failed", 1)
    assert tasks["report"].state == "success"
    error = airflow.read_error(pipeline.name, run.run_id, tasks["audit"])
    assert "no_unexplained_holes: offsets without a visible record, which source.holes does not allow for: 1" in error
    assert f"{pipeline.name}[0] " in error
    assert pipeline.count_target_rows() == 10
    batch = pipeline.platform().ledger.find_open_batch(pipeline.name)
    assert batch is not None
    assert batch.state is BatchState.BLOCKED
    refused = run_to_the_end(airflow, pipeline)[-1]
    plan = next(task for task in airflow.list_tasks(pipeline.name, refused.run_id) if task.task_id == "plan")
    assert (plan.state, plan.try_number) == ("failed", 1)
    assert f"batch {batch.batch_id} of {pipeline.name} is blocked" in airflow.read_error(
        pipeline.name, refused.run_id, plan
    )
    assert_no_secret_is_told(pipeline, services)


def assert_no_secret_is_told(pipeline: TestPipeline, services: TestServices) -> None:
    """None is in the logs of the pipeline's tasks, or in the ledger."""
    logs = list((services.home.local / "airflow" / "logs").rglob(f"*{pipeline.name}*/**/*.log"))
    assert len(logs) >= 8
    for secret in dataclasses.astuple(services.credentials):
        assert not [path for path in logs if secret in path.read_text()]
        for table in ("pipeline", "batch", "attempt", "check_result", "batch_range"):
            assert pipeline.query(f"select 1 from batchledger.{table} t where t::text like %s", f"%{secret}%") == []  # noqa: S608


def test_refused_pipeline_file_says_so_where_people_look_and_harms_no_other(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    pipeline.path.write_text(pipeline.path.read_text().replace("topics", "topcs"))
    (run,) = run_to_the_end(airflow, pipeline)
    (task,) = airflow.list_tasks(pipeline.name, run.run_id)
    assert task.state == "failed"
    error = airflow.read_error(pipeline.name, run.run_id, task)
    assert f"{pipeline.path}:" in error
    assert ": source.topcs: unknown key 'topcs'; did you mean 'topics'?" in error


@pytest.mark.usefixtures("airflow")
def test_scheduler_imports_the_heavy_libraries_before_it_forks(services: TestServices) -> None:
    assert "preloaded batchledger.interfaces.upkeep" in services.home.log_file("scheduler").read_text()
