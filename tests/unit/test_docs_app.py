"""The pages behind Airflow's login: no route without a user, none out of the folder. The real server: tests/e2e."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from batchledger.interfaces.data_docs.folder import DOCS_VARIABLE, DocsFolder
from batchledger.interfaces.data_docs.site import write_docs
from batchledger.interfaces.page import access
from batchledger.interfaces.page.app import build_app
from tests.fakes.docs import figures, history
from tests.pages import AirflowDatabase, stand_in


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DocsFolder:
    """A folder with the pages of one batch, and a file beside it that no user may read."""
    folder = DocsFolder(tmp_path / "docs")
    write_docs(folder, "orders", [figures(17)], lambda batch_id: history(figures(batch_id)))
    (tmp_path / "17.html").write_text("secret")
    monkeypatch.setenv(DOCS_VARIABLE, str(folder.path))
    return folder


@pytest.fixture
def client(docs: DocsFolder) -> Iterator[TestClient]:
    """A browser of a user whom Airflow has let in."""
    pages = build_app()
    for route in pages.routes:
        assert isinstance(route, APIRoute)
        for each in route.dependant.dependencies:
            assert each.call is not None
            pages.dependency_overrides[each.call] = lambda: None
    with TestClient(pages, follow_redirects=False) as browser:
        yield browser


def test_page_of_a_batch_is_found_as_alerts_and_links_name_it(client: TestClient) -> None:
    answer = client.get("/docs/orders/17")
    assert answer.status_code == 200
    assert "batch 17" in answer.text
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'self'"} <= set(policy)


@pytest.mark.parametrize("prefix", ["", "/airflow"])
def test_run_leads_to_its_batch_and_folders_to_their_index_also_behind_a_proxy(client: TestClient, prefix: str) -> None:
    """Mounted as Airflow does it, which knows of the proxy's prefix by its base URL."""
    airflow = FastAPI(root_path=prefix)
    airflow.mount("/batchledger", client.app)
    ways = ("/docs", "/docs/", "/docs/orders", "/docs/orders/", "/docs/orders/runs/manual__17")
    with TestClient(airflow, follow_redirects=False) as browser:
        leads = [browser.get(f"{prefix}/batchledger{way}").headers["location"] for way in ways]
    docs = f"{prefix}/batchledger/docs"
    assert leads == [
        f"{docs}/{page}" for page in ("index.html",) * 2 + ("orders/index.html",) * 2 + ("orders/17.html",)
    ]


class Doorman:
    """Lets a user see some DAGs."""

    def __init__(self, *readable: str) -> None:
        self.readable = set(readable)

    def get_authorized_dag_ids(self, *, user: object) -> set[str]:
        assert user == "ana"
        return self.readable


@pytest.mark.parametrize("readable", [("orders",), ("clicks",), ("orders", "clicks"), ()])
def test_page_over_all_pipelines_tells_of_those_alone_whose_dag_the_user_may_see(
    docs: DocsFolder, client: TestClient, monkeypatch: pytest.MonkeyPatch, readable: tuple[str, ...]
) -> None:
    """Neither their names nor which of their checks fail."""
    clicks = figures(9, failed=1, failing=("clicks_are_few",))
    write_docs(docs, "clicks", [clicks], lambda batch_id: history(figures(batch_id)))
    client.app.dependency_overrides[get_user] = lambda: "ana"  # type: ignore[attr-defined]
    monkeypatch.setattr(access, "get_auth_manager", lambda: Doorman(*readable))
    stand_in(monkeypatch, AirflowDatabase())
    text = client.get("/docs/index.html").text
    assert [name for name in ("orders", "clicks") if name in text] == [
        each for each in ("orders", "clicks") if each in readable
    ]
    assert ("clicks_are_few" in text) is ("clicks" in readable)


def test_ways_from_airflows_pages_begin_where_airflow_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for base_url, prefix in (("http://127.0.0.1:18080", ""), ("https://host/airflow/", "/airflow")):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
        plugin = runpy.run_module("batchledger.interfaces.plugin")["BatchledgerPlugin"]
        assert [each["href"] for each in plugin.external_views] == [
            f"{prefix}/batchledger/pipelines",
            f"{prefix}/batchledger/pipelines/{{DAG_ID}}",
            f"{prefix}/batchledger/pipelines/{{DAG_ID}}/runs/{{RUN_ID}}",
            f"{prefix}/batchledger/docs/index.html",
            f"{prefix}/batchledger/docs/{{DAG_ID}}/runs/{{RUN_ID}}",
        ]


@pytest.mark.parametrize(
    "address",
    [
        "/docs/%2e%2e/17",
        "/docs/..%2f17.html",
        "/docs/orders/..%2f..%2f17.html",
        "/docs/orders/%2e%2e%2f17",
        "/docs/orders/summary.json",
    ],
)
def test_no_address_leads_out_of_the_folder(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("/docs/orders/18", "/pipelines/orders/batches/18"),
        ("/docs/orders/18.html", "/pipelines/orders/batches/18"),
        ("/docs/other/17", "/pipelines/other/batches/17"),
        ("/docs/orders/runs/never", "/pipelines/orders/runs/never"),
        ("/docs/orders/runs/..%2f..%2f17", "/pipelines/orders/runs/..%2F..%2F17"),
    ],
)
def test_page_of_a_batch_that_was_not_written_leads_to_what_the_ledger_has_of_it(
    client: TestClient, address: str, leads_to: str
) -> None:
    """The DAG that writes the pages may be switched off, and an alert links to them all the same."""
    answer = client.get(address)
    assert (answer.status_code, answer.headers["location"]) == (307, leads_to)


def test_missing_page_says_which_command_writes_it(client: TestClient) -> None:
    assert "batchledger docs other" in client.get("/docs/other/index").json()["detail"]
