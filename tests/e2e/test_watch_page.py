"""The page of a watch in a real Airflow: a person's own DAG, in which the watch stands, opens it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from batchledger.local.airflow_api import AirflowApi
from tests.chromium import OpenPage
from tests.conftest import Kafka, TestServices
from tests.e2e.own_dags import OwnDags
from tests.e2e.runs import PATIENT
from tests.watched import WatchedTopic, open_shop, write_watch_file

pytestmark = PATIENT

STANDS_IN = """\
from airflow.sdk import DAG, task

with DAG("{dag_id}", schedule=None, tags=["batchledger:{name}"]):

    @task
    def load() -> None: ...

    load()
"""


@pytest.fixture
def shop(kafka: Kafka, warehouse_dsn: str, services: TestServices) -> Iterator[WatchedTopic]:
    """A watch that has found one row missing of ten."""
    made = open_shop(kafka.options, warehouse_dsn, lacking={3})
    made.look()
    path = write_watch_file(services.home.pipelines, made, schedule=None)
    yield made
    path.unlink()


def test_tab_of_the_dag_and_the_list_lead_to_the_watch(
    shop: WatchedTopic, own_dags: OwnDags, airflow: AirflowApi, open_page: OpenPage, pictures: Path
) -> None:
    dag_id = own_dags.add(STANDS_IN, name=shop.name)
    address = f"{airflow.url}/batchledger/watches/{shop.name}"
    assert httpx.get(address).status_code == 401
    cookies = {"_token": airflow.client.headers["Authorization"].removeprefix("Bearer ")}
    allowed = ("net::ERR_ABORTED", "escape its sandboxing")
    with open_page(width=1280, own=(airflow.url,), cookies=cookies, allowed=allowed) as page:
        page.goto(f"{airflow.url}/dags/{dag_id}/plugin/batchledger-pipeline")
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1)).to_contain_text(f"{shop.name} wrong", timeout=60_000)
        expect(frame.locator("#page")).to_contain_text(f"{shop.name}[0] 3")
        page.screenshot(path=pictures / "page-watch-airflow.png")
        page.goto(f"{airflow.url}/batchledger/pipelines?dag={dag_id}")
        expect(page.locator(f"#row-{shop.name}")).to_contain_text("missing 1", timeout=60_000)
        page.locator(f"#row-{shop.name}").get_by_role("link").click()
        expect(page).to_have_url(address)
