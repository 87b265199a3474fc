"""The routes of the pages: no user without a login, none without the right, nothing from another site."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import PluginResponse
from airflow.plugins_manager import get_plugin_info
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from batchledger.interfaces.page.app import build_app
from tests.pages import HTML, OWN_PAGE, User, let_in, open_browser

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@cache
def list_routes() -> list[tuple[str, str]]:
    """Every method and address that the application knows, with something in the place of each parameter."""
    return sorted(
        (method, re.sub(r"\{[^}]*\}", "1", route.path))
        for route in build_app().routes
        if isinstance(route, APIRoute)
        for method in route.methods
    )


@pytest.fixture
def lets_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TestClient]:
    """Make a browser of a user with these rights, of DAG 1 alone."""

    def lets_in(**rights: bool) -> TestClient:
        user = User("ana", dags=frozenset({"1"}), **rights)
        return open_browser(let_in(monkeypatch, user), user)

    return lets_in


@pytest.mark.parametrize("headers", [{}, OWN_PAGE])
def test_anonymous_visitors_get_nothing_from_any_route(headers: dict[str, str]) -> None:
    """Those with a forged token: tests/e2e, where a real Airflow looks at it."""
    with TestClient(build_app(), follow_redirects=False) as browser:
        for method, address in list_routes():
            answer = browser.request(method, address, headers=headers)
            assert answer.status_code in (401, 403), (method, address)


def test_addresses_that_do_not_exist_and_wrong_methods_need_a_login_too() -> None:
    with TestClient(build_app(), follow_redirects=False) as browser:
        for method in METHODS:
            for address in ("/", "/nothing", "/static/../app.py", "/pipelines/1/batches/abc", "/openapi.json", "/docs"):
                assert browser.request(method, address).status_code in (401, 403), (method, address)


def test_user_without_airflows_website_gets_nothing(lets_in: Any) -> None:
    browser = lets_in(may_enter=False)
    assert {browser.request(*route, headers=OWN_PAGE).status_code for route in list_routes()} == {403}


def test_user_who_may_not_see_a_dag_sees_nothing_of_its_pipeline(lets_in: Any) -> None:
    browser = lets_in(may_read=False)
    of_pipeline = [route for route in list_routes() if re.match(r"/(pipelines|watches|docs)/1", route[1])]
    assert len(of_pipeline) >= 14
    assert {browser.request(*route, headers=OWN_PAGE).status_code for route in of_pipeline} == {403}


def list_orders() -> list[tuple[str, str]]:
    """What changes something."""
    decisions = [
        ("POST", address)
        for prefix in ("/pipelines/1/decisions", "/pipelines/1/dry-runs")
        for address in (f"{prefix}/pause/preview", f"{prefix}/pause")
    ]
    return [*decisions, ("POST", "/pipelines/1/requests/1")]


def test_every_order_is_a_post_below_a_pipeline() -> None:
    """So that the tests below are about all of them."""
    writing = {
        (method, route.path)
        for route in build_app().routes
        if isinstance(route, APIRoute)
        for method in route.methods - {"GET"}
    }
    assert {path for _, path in writing} == {
        "/pipelines/{dag_id}/decisions/{kind}/preview",
        "/pipelines/{dag_id}/decisions/{kind}",
        "/pipelines/{dag_id}/dry-runs/{run_id:path}",
        "/pipelines/{dag_id}/requests/{request_id}",
        "/{anything:path}",
    }


def test_user_who_may_not_trigger_the_dag_can_give_no_order(lets_in: Any) -> None:
    browser = lets_in(may_act=False)
    assert {browser.request(*each, headers=OWN_PAGE).status_code for each in list_orders()} == {403}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HX-Request": "true", "Sec-Fetch-Site": "cross-site"},
        {"HX-Request": "true", "Sec-Fetch-Site": "same-site"},
        {"HX-Request": "true", "Sec-Fetch-Site": "none"},
        {"HX-Request": "true", "Origin": "https://elsewhere.example"},
        {"HX-Request": "true", "Origin": "null"},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
def test_order_from_another_site_is_refused(lets_in: Any, headers: dict[str, str]) -> None:
    browser = lets_in()
    assert {browser.request(*each, headers=headers).status_code for each in list_orders()} == {403}


@pytest.mark.parametrize("headers", [OWN_PAGE, {"HX-Request": "true", "Origin": "http://testserver"}])
def test_order_from_an_own_page_passes_the_guards(lets_in: Any, headers: dict[str, str]) -> None:
    """There is no pipeline of this name, which is the next thing to be looked at."""
    browser = lets_in()
    assert {browser.request(*each, headers=headers).status_code for each in list_orders()} == {404}


def test_static_files_are_those_that_pages_name_and_no_others(lets_in: Any) -> None:
    browser = lets_in()
    for name, kind in (("htmx.min.js", "text/javascript"), ("page.js", "text/javascript"), ("style.css", "text/css")):
        answer = browser.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
    for name in ("..%2fapp.py", "%2e%2e/app.py", "app.py", "htmx.LICENSE", ".", "nothing"):
        assert browser.get(f"/static/{name}").status_code == 404, name


def test_every_answer_forbids_what_no_page_needs(lets_in: Any) -> None:
    browser = lets_in()
    for address in ("/static/page.js", "/nothing", "/pipelines/1", "/pipelines/1/batches/x"):
        answer = browser.get(address, headers=HTML)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert "unsafe-eval" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_person_without_a_login_is_led_to_it_and_a_program_gets_json(lets_in: Any) -> None:
    lets_in()
    with TestClient(build_app(), follow_redirects=False) as browser:
        page = browser.get("/pipelines", headers=HTML)
        assert (page.status_code, "/auth/login" in page.text) == (401, True)
        assert browser.get("/pipelines").json() == {"detail": "Not authenticated"}


def test_link_to_the_login_comes_back_to_the_address_and_names_no_host_that_a_client_has_made_up(lets_in: Any) -> None:
    lets_in()
    with TestClient(build_app(), follow_redirects=False) as browser:
        page = browser.get("/pipelines?page=2", headers={**HTML, "host": "forged.example"})
        assert "forged.example" not in page.text
        assert "next=%2Fpipelines%3Fpage%3D2" in page.text


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "'; drop table x --", "..%2f..%2fetc%2fpasswd", "a%00b"])
def test_what_an_address_says_is_shown_as_text_or_not_at_all(lets_in: Any, text: str) -> None:
    """There is no pipeline 1, so most is refused unread; below a real one: tests/integration/test_page.py."""
    browser = lets_in()
    for address in (
        f"/pipelines/1/runs/{text}",
        f"/pipelines/1/batches/{text}",
        f"/pipelines/1/partitions/{text}/0",
        f"/pipelines/1/partitions/orders/{text}",
        f"/pipelines/1?page={text}",
        f"/pipelines/1/decisions?do={text}&batch={text}",
        f"/{text}",
    ):
        answer = browser.get(address, headers=HTML)
        assert answer.status_code in (404, 422), address
        assert "<script>alert" not in answer.text
        assert "Traceback" not in answer.text


def test_airflow_accepts_what_the_plugin_adds() -> None:
    """One wrong destination of a view would hide the whole plugin."""
    (ours,) = [each for each in get_plugin_info() if each["name"] == "batchledger"]
    accepted = PluginResponse.model_validate(ours)
    assert [(each.name, each.destination) for each in accepted.external_views] == [
        ("Batchledger", "nav"),
        ("Offsets", "dag"),
        ("Batch", "dag_run"),
        ("Data Docs", "nav"),
        ("Data Docs", "dag_run"),
    ]
    assert [each.url_prefix for each in accepted.fastapi_apps] == ["/batchledger"]
    assert len({each.url_route for each in accepted.external_views}) == 5


def test_pages_begin_where_airflow_does_also_behind_a_proxy(lets_in: Any) -> None:
    """Mounted as Airflow does it, which knows of the proxy's prefix by its base URL."""
    airflow = FastAPI(root_path="/airflow")
    airflow.mount("/batchledger", lets_in().app)
    with TestClient(airflow, follow_redirects=False) as browser:
        assert browser.get("/airflow/batchledger/").headers["location"] == "/airflow/batchledger/pipelines"
        page = browser.get("/airflow/batchledger/nothing", headers=HTML).text
    assert 'src="/airflow/batchledger/static/page.js' in page
