"""Each verb needs its own right: what an order needs, how a setting names a right, and what a user may do then."""

from collections.abc import Callable, Collection

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api import security
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from fastapi.testclient import TestClient

from batchledger.interfaces.page import access, app, approval
from batchledger.interfaces.page.access import find_visitor
from batchledger.interfaces.page.app import build_app
from batchledger.interfaces.page.approval import Approval
from batchledger.interfaces.page.forms import list_verbs
from batchledger.interfaces.page.rights import Resource, Right, Verb, parse_right
from batchledger.model.batch import DecisionKind
from batchledger.model.errors import ConfigurationError
from tests.conftest import ROOT
from tests.pages import OWN_PAGE, AirflowDatabase, NoTeams, stand_in

OPERATOR = {Verb.LOOK, Verb.SEE_PAYLOADS, Verb.OPERATE, Verb.DECIDE, Verb.DESTROY}
TRUNCATE = {"to": "earliest", "truncate": "yes", "reason": "agreed"}


@pytest.fixture(autouse=True)
def _airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own auth manager, with nothing in its database, and the pipelines of the demo."""
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(ROOT / "include" / "pipelines"))
    for module in (security, access, app):
        monkeypatch.setattr(module, "get_auth_manager", SimpleAuthManager)
    monkeypatch.setattr(access, "DagModel", NoTeams)
    stand_in(monkeypatch, AirflowDatabase())


@pytest.fixture
def ask_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let Airflow's configuration ask for further rights."""

    def ask_for(**settings: str) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__BATCHLEDGER__{name.upper()}", value)

    return ask_for


def user_of(role: str) -> SimpleAuthManagerUser:
    return SimpleAuthManagerUser(username="ana", role=role)


def post(role: str, address: str, **fields: str) -> int:
    pages = build_app()
    pages.dependency_overrides[get_user] = lambda: user_of(role)
    browser = TestClient(pages, follow_redirects=False, raise_server_exceptions=False)
    return browser.post(f"/pipelines/flights/{address}", headers=OWN_PAGE, data=fields).status_code


def sign(kind: DecisionKind, fields: dict[str, str]) -> str:
    """What a page has shown to ana, when she still had the right."""
    return approval.sign(Approval("ana", "flights", "flights", kind, fields, ""), str(conf.get("api", "secret_key")))


def test_rewind_that_empties_the_target_decides_and_destroys() -> None:
    assert list_verbs(DecisionKind.REWIND, {"to": "earliest"}) == (Verb.DECIDE,)
    assert list_verbs(DecisionKind.REWIND, TRUNCATE) == (Verb.DECIDE, Verb.DESTROY)
    assert list_verbs(DecisionKind.PAUSE, {"truncate": "yes"}) == (Verb.OPERATE,)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("", None),
        (" ", None),
        ("DELETE dag", Right("DELETE", Resource.DAG)),
        (" PUT  connection ", Right("PUT", Resource.CONNECTION)),
        ("POST view Batchledger destroys", Right("POST", Resource.VIEW, "Batchledger destroys")),
    ],
)
def test_setting_names_a_method_and_a_resource(text: str, right: Right | None) -> None:
    assert parse_right(text, "to_destroy") == right


@pytest.mark.parametrize("text", ["admin", "DELETE", "delete dag", "DELETE dags", "POST view", "PUT connection x", "*"])
def test_setting_that_names_no_right_is_refused_and_opens_nothing(text: str, ask_for: Callable[..., None]) -> None:
    with pytest.raises(ConfigurationError, match=r"to_destroy in the section \[batchledger\]"):
        parse_right(text, "to_destroy")
    ask_for(to_destroy=text)
    with pytest.raises(ConfigurationError, match="to_destroy"):
        find_visitor(user_of("op"), "flights")


@pytest.mark.parametrize(
    ("role", "rights"), [("viewer", {Verb.LOOK}), ("user", OPERATOR), ("op", OPERATOR), ("admin", OPERATOR)]
)
def test_right_to_trigger_gives_every_verb_without_settings(role: str, rights: Collection[Verb]) -> None:
    assert find_visitor(user_of(role), "flights").verbs == rights


@pytest.mark.parametrize("verb", [Verb.SEE_PAYLOADS, Verb.DECIDE, Verb.DESTROY])
def test_setting_takes_its_verb_and_no_other_from_whom_it_names_no_right(
    verb: Verb, ask_for: Callable[..., None]
) -> None:
    ask_for(**{f"to_{verb}": "PUT connection"})
    assert find_visitor(user_of("user"), "flights").verbs == OPERATOR - {verb}
    assert find_visitor(user_of("op"), "flights").verbs == OPERATOR


def test_setting_gives_nothing_to_who_may_not_trigger_the_dag(ask_for: Callable[..., None]) -> None:
    """The simple auth manager lets every viewer see each view."""
    ask_for(to_see_payloads="GET view Payloads", to_decide="GET view Payloads", to_destroy="GET dag")
    assert find_visitor(user_of("viewer"), "flights").verbs == {Verb.LOOK}


@pytest.mark.parametrize("fields", [TRUNCATE, {**TRUNCATE, "truncate": ""}])
def test_order_without_its_right_is_refused_shown_or_signed(
    fields: dict[str, str], ask_for: Callable[..., None]
) -> None:
    """Also if the right was taken away after the page has shown what would change."""
    ask_for(to_destroy="PUT connection")
    drop = {"ranges": "flights[0] 1..2", "reason": "agreed"}
    for kind, form in (("rewind", fields), ("quarantine-drop", drop)):
        signed = sign(DecisionKind(kind), form)
        assert post("user", f"decisions/{kind}/preview", **form) == 403
        assert post("user", f"decisions/{kind}", approval=signed) == 403
        assert post("user", "dry-runs/manual__1", approval=signed) == 403


def test_order_with_its_right_passes_the_guards(ask_for: Callable[..., None]) -> None:
    """What is said against it next is about the form."""
    ask_for(to_destroy="PUT connection")
    wrong = {"ranges": "flights", "reason": "agreed"}
    assert post("op", "decisions/quarantine-drop/preview", **wrong) == 409
    assert post("user", "decisions/accept/preview", batch="none", reason="agreed") == 409


def test_look_at_payloads_without_its_right_is_refused(ask_for: Callable[..., None]) -> None:
    ask_for(to_see_payloads="PUT connection")
    pages = build_app()
    pages.dependency_overrides[get_user] = lambda: user_of("user")
    browser = TestClient(pages, follow_redirects=False, raise_server_exceptions=False)
    assert browser.get("/pipelines/flights/batches/1?payloads=yes").status_code == 403
