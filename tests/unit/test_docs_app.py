"""The pages behind Airflow's login: no route without a user, none out of the folder. The real server: tests/e2e."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import PluginResponse
from airflow.plugins_manager import get_plugin_info
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from batchledger.docs.folder import DOCS_VARIABLE, DocsFolder
from batchledger.docs.site import write_docs
from batchledger.ui.app import build_app
from tests.fakes.docs import figures, history

ADDRESSES = (
    "/docs",
    "/docs/",
    "/docs/index.html",
    "/docs/orders",
    "/docs/orders/",
    "/docs/orders/17",
    "/docs/orders/index.html",
    "/docs/orders/runs/manual__17",
)


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DocsFolder:
    """A folder with the pages of one batch, and a file beside it that nobody may read."""
    folder = DocsFolder(tmp_path / "docs")
    write_docs(folder, "orders", [figures(17)], lambda batch_id: history(figures(batch_id)))
    (tmp_path / "17.html").write_text("secret")
    monkeypatch.setenv(DOCS_VARIABLE, str(folder.path))
    return folder


@pytest.fixture
def client(docs: DocsFolder) -> Iterator[TestClient]:
    """A browser of somebody whom Airflow has let in."""
    app = build_app()
    for route in app.routes:
        assert isinstance(route, APIRoute)
        for each in route.dependant.dependencies:
            assert each.call is not None
            app.dependency_overrides[each.call] = lambda: None
    with TestClient(app, follow_redirects=False) as browser:
        yield browser


@pytest.mark.parametrize("address", ADDRESSES)
def test_nobody_reads_without_a_user(docs: DocsFolder, address: str) -> None:
    with TestClient(build_app(), follow_redirects=False) as browser:
        assert browser.get(address).status_code == 401


def test_every_route_asks_for_a_user_and_those_of_a_pipeline_for_its_dag() -> None:
    routes = [route for route in build_app().routes if isinstance(route, APIRoute)]
    assert len(routes) == len(build_app().routes)
    guards = {route.path: len(route.dependant.dependencies) for route in routes}
    assert guards == {path: 2 if "{dag_id}" in path else 1 for path in guards}
    assert len(guards) == 7


def test_page_of_a_batch_is_found_as_alerts_and_links_name_it(client: TestClient) -> None:
    answer = client.get("/docs/orders/17")
    assert answer.status_code == 200
    assert "batch 17" in answer.text
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'self'"} <= set(policy)


def test_run_leads_to_its_batch_and_folders_to_their_index(client: TestClient) -> None:
    leads = {address: client.get(address).headers["location"] for address in ("/docs", "/docs/orders")}
    leads["run"] = client.get("/docs/orders/runs/manual__17").headers["location"]
    assert leads == {
        "/docs": "/batchledger/docs/index.html",
        "/docs/orders": "/batchledger/docs/orders/index.html",
        "run": "/batchledger/docs/orders/17.html",
    }


@pytest.mark.parametrize(
    "address",
    [
        "/docs/%2e%2e/17",
        "/docs/..%2f17.html",
        "/docs/orders/..%2f..%2f17.html",
        "/docs/orders/%2e%2e%2f17",
        "/docs/orders/summary.json",
        "/docs/orders/18",
        "/docs/other/17",
        "/docs/orders/runs/never",
        "/docs/orders/runs/..%2f..%2f17",
    ],
)
def test_no_address_leads_out_of_the_folder(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_missing_page_says_which_command_writes_it(client: TestClient) -> None:
    assert "batchledger docs orders" in client.get("/docs/orders/18").json()["detail"]


def test_airflow_accepts_what_the_plugin_adds() -> None:
    """One wrong destination of a view would hide the whole plugin."""
    (ours,) = [each for each in get_plugin_info() if each["name"] == "batchledger"]
    accepted = PluginResponse.model_validate(ours)
    assert [each.destination for each in accepted.external_views] == ["nav", "dag_run"]
    assert [each.url_prefix for each in accepted.fastapi_apps] == ["/batchledger"]
