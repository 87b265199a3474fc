"""Data Docs in a real Airflow: who may read them, what leads from a run to the page of its batch, and who writes it."""

from collections.abc import Iterator

import httpx
import pytest

from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.local.demo import DATA_DOCS
from tests.conftest import Kafka, open_workplace
from tests.e2e.runs import (
    DEADLINE_SECONDS,
    PATIENT,
    batches_of,
    run_to_the_end,
    switch_on,
    task_states,
    wait_until_idle,
)
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT


def ask(airflow: AirflowApi, address: str, **request: object) -> httpx.Response:
    """Ask without the login that the API has."""
    return httpx.get(f"{airflow.url}{address}", timeout=30, trust_env=False, **request)  # type: ignore[arg-type]


def token_of(airflow: AirflowApi) -> str:
    return airflow.client.headers["Authorization"].removeprefix("Bearer ")


def link_of(airflow: AirflowApi, pipeline: TestPipeline, run: Run) -> str | None:
    """What the button of the audit task leads to."""
    found = airflow.client.get(f"/api/v2/dags/{pipeline.name}/dagRuns/{run.run_id}/taskInstances/audit/links").json()
    link: str | None = found["extra_links"]["Data Docs"]
    return link


def address_of(link: str | None, airflow: AirflowApi) -> str:
    assert link is not None
    return link.removeprefix(airflow.url)


@pytest.fixture(autouse=True, scope="module")
def _pages_are_written(airflow: AirflowApi) -> Iterator[None]:
    """The DAG that writes them is switched on, as a person has to do once.

    It is off in other files, where each run would start one of this DAG.
    """
    airflow.wait_until_known(DATA_DOCS, DEADLINE_SECONDS)
    airflow.unpause(DATA_DOCS)
    yield
    airflow.client.patch(f"/api/v2/dags/{DATA_DOCS}", json={"is_paused": True}).raise_for_status()


def wait_for(airflow: AirflowApi, address: str, text: str = "") -> None:
    """Wait until the page has the text: a run of its own writes it, when the run of the pipeline has reported."""

    def written() -> bool:
        page = ask(airflow, address, cookies={"_token": token_of(airflow)}, follow_redirects=True)
        # Until it is written, the address leads to the ledger's own page.
        is_of_docs = page.url.path.startswith("/batchledger/docs")
        return page.status_code == 200 and is_of_docs and text in page.text

    wait_until(written, DEADLINE_SECONDS, every=0.5)


@pytest.fixture(scope="module")
def published(airflow: AirflowApi, kafka: Kafka, warehouse_dsn: str) -> Iterator[tuple[TestPipeline, Run]]:
    """A pipeline with one batch, published by Airflow."""
    with open_workplace(kafka.options, warehouse_dsn) as workplace:
        pipeline = workplace.create()
        pipeline.send(20)
        (run,) = run_to_the_end(airflow, pipeline)
        assert task_states(airflow, pipeline, run)["report"] == "success"
        # In the order in which they are written. A history without a batch, and the index with it, may have been there
        # before; the address of the run is known last.
        (batch,) = batches_of(pipeline)
        wait_for(airflow, f"/batchledger/docs/{pipeline.name}/{batch.batch_id}")
        wait_for(airflow, f"/batchledger/docs/{pipeline.name}/runs/{run.run_id}")
        wait_for(airflow, "/batchledger/docs/index.html", pipeline.name)
        yield pipeline, run


def test_button_of_the_audit_leads_to_the_page_of_the_batch_which_only_users_can_read(
    airflow: AirflowApi, published: tuple[TestPipeline, Run]
) -> None:
    pipeline, run = published
    (batch,) = batches_of(pipeline)
    page = address_of(link_of(airflow, pipeline, run), airflow)
    assert page == f"/batchledger/docs/{pipeline.name}/{batch.batch_id}"
    history, of_run = f"/batchledger/docs/{pipeline.name}/index.html", f"/batchledger/docs/{pipeline.name}/runs"
    for address in (page, history, f"{of_run}/{run.run_id}", "/batchledger/docs/index.html", "/batchledger/docs"):
        refused = ask(airflow, address)
        assert (refused.status_code, pipeline.name in refused.text) == (401, False)
        forged = ask(airflow, address, headers={"Authorization": "Bearer forged"})
        assert forged.status_code in (401, 403)
        allowed = ask(airflow, address, cookies={"_token": token_of(airflow)}, follow_redirects=True)
        assert (allowed.status_code, pipeline.name in allowed.text) == (200, True)
    shown = ask(airflow, f"{of_run}/{run.run_id}", cookies={"_token": token_of(airflow)}, follow_redirects=True)
    assert f"batch {batch.batch_id}" in shown.text
    assert "Each (topic, partition, offset) is staged once." in shown.text


def test_no_address_reads_a_file_outside_of_the_folder(
    airflow: AirflowApi, published: tuple[TestPipeline, Run]
) -> None:
    pipeline, _ = published
    cookies = {"_token": token_of(airflow)}
    for way in ("..%2f..%2fconnections.json", "%2e%2e/%2e%2e/connections.json", "..%2f..%2fpgpass", "summary.json"):
        answer = ask(airflow, f"/batchledger/docs/{pipeline.name}/{way}", cookies=cookies)
        assert answer.status_code == 404, way
        assert "password" not in answer.text


def test_page_of_a_blocked_batch_is_one_click_from_the_audit_that_failed(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    check = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 3}
    pipeline = workplace.create(checks=[check])
    pipeline.send(20)
    (run,) = run_to_the_end(airflow, pipeline)
    assert task_states(airflow, pipeline, run)["audit"] == "failed"
    address = address_of(link_of(airflow, pipeline, run), airflow)
    # The pages of another pipeline's run may show the batch as it was before its audit.
    wait_for(airflow, address, 'class="state blocked"')
    html = ask(airflow, address, cookies={"_token": token_of(airflow)}).text
    assert "expect_column_values_to_be_between(number)" in html
    assert f"batchledger records {pipeline.name}" in html


def test_runs_into_every_sink_that_report_close_together_are_exact_and_have_their_pages(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    """Airflow hands over only the first of the events that come before their run begins."""
    pipelines = [workplace.create(into=into) for into in ("table", "topic", "lake")]
    for pipeline in pipelines:
        pipeline.send(5)
        switch_on(airflow, pipeline)
    for pipeline in pipelines:
        airflow.trigger(pipeline.name)
    for pipeline in pipelines:
        wait_until_idle(airflow, pipeline)
        wait_for(airflow, f"/batchledger/docs/{pipeline.name}/index.html")
        pipeline.assert_exact()
