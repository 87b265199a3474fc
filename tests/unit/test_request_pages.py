"""What the page says of requests: what would change, who asked, who may confirm, and that nothing is done before."""

import html
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.interfaces.page import requests
from batchledger.interfaces.page.acting import CHANGES_SHOWN
from batchledger.interfaces.page.forms import OFFERS
from batchledger.interfaces.page.pipeline_view import StateView
from batchledger.interfaces.page.rendering import show
from batchledger.interfaces.page.requests import WaitingRequest, list_waiting
from batchledger.interfaces.page.rights import Verb
from batchledger.model.batch import Decided, DecisionRecord
from batchledger.model.findings import PipelineState
from batchledger.model.records.quarantine import NOTHING
from batchledger.monitoring.health import PipelineHealth
from tests.conftest import ROOT
from tests.unit.test_rendering import request_for

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FLIGHTS = read_pipeline_file(ROOT / "include" / "pipelines" / "flights.yaml")
TRUNCATE = DecisionRecord(
    17, "request", "flights", None, "ana", "ticket <812>", NOON,
    {"epoch": 0, "rows": 5}, {"epoch": 1, "rows": 0}, database_role="airflow",
    requested_order={"kind": "rewind", "to": "earliest", "truncate": True, "allow_expired": False},
)  # fmt: skip
OF_A_SHELL = DecisionRecord(
    18, "request", "flights", 4, "eve", "ticket 813", NOON,
    {"state": "blocked"}, {"state": "audited"}, 1000, "host7", "eve_s",
    requested_order={"kind": "accept", "batch": 4},
)  # fmt: skip
ALL = frozenset(Verb)


@pytest.fixture(autouse=True)
def _ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests are open."""
    monkeypatch.setattr(requests, "ledger_dsn", lambda _: "")
    monkeypatch.setattr(requests, "list_requests", lambda *_: [TRUNCATE, OF_A_SHELL])
    monkeypatch.setattr(requests, "build_platform", lambda _: None)
    means = {OF_A_SHELL.decision_id: ("12 rows become visible.",)}
    monkeypatch.setattr(requests.execution, "describe_requested", lambda _, each: means.get(each.decision_id, ()))


def show_text(template: str, **content: Any) -> str:
    return bytes(show(request_for(), template, config=FLIGHTS, **content).body).decode()


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def show_requests(name: str, rights: Collection[Verb] = ALL, opened: str | None = None) -> str:
    return show_text(
        "decisions.html.j2",
        offers=OFFERS,
        opened=opened,
        batch_id=None,
        ranges="",
        quarantined=0,
        losses="",
        state=StateView(PipelineHealth("flights", PipelineState.CAUGHT_UP, "", None, NOTHING), None, None, ()),
        rights=rights,
        switched_off=False,
        requests=list_waiting(FLIGHTS, name, rights),
        changes_shown=CHANGES_SHOWN,
    )


def find_buttons(page: str) -> list[str]:
    """Return what can be pressed, as request and step."""
    forms = re.findall(r'hx-post="/batchledger/pipelines/flights/requests/(\d+)"(.*?)</form>', page, re.DOTALL)
    return [f"{number} {step}" for number, form in forms for step in re.findall(r'name="step" value="(\w+)"', form)]


def test_link_to_one_decision_shows_that_one_alone_and_the_way_to_all() -> None:
    alone = show_requests("ben", opened="accept")
    assert re.findall(r'<details id="([a-z-]+)"( open)?>', alone) == [("accept", " open")]
    assert 'href="/batchledger/pipelines/flights/decisions">All decisions</a>' in alone
    everything = show_requests("ben")
    assert len(re.findall(r'<details id="[a-z-]+">', everything)) == len(OFFERS)
    assert "All decisions" not in everything


def test_request_shows_who_asked_why_and_what_would_change() -> None:
    page = show_requests("ben")
    assert "ticket &lt;812&gt;" in page
    shown = words(page)
    assert "Request 17: rewind ana (role airflow)" in shown
    assert "What would change What Before After epoch 0 1 rows 5 0" in shown
    assert "Request 18: accept, batch 4 eve (uid 1000 @host7, role eve_s)" in shown
    assert shown.count("12 rows become visible.") == 1


def test_another_person_may_confirm_or_withdraw_and_the_one_who_asked_only_withdraw() -> None:
    """The key Enter presses the first button of a form."""
    of_ben = find_buttons(show_requests("ben"))
    assert of_ben == ["17 withdraw", "17 confirm", "18 withdraw"]
    page = show_requests("ana")
    assert find_buttons(page) == ["17 withdraw", "18 withdraw"]
    assert "You cannot confirm it. ana has asked for it." in words(page)
    assert "You cannot confirm it. It was asked for at the command line" in words(page)


def test_request_is_ended_by_people_who_may_give_the_order_alone() -> None:
    """A rewind that empties the table decides and destroys."""
    decides = ALL - {Verb.DESTROY}
    assert find_buttons(show_requests("ben", decides)) == ["18 withdraw"]
    looking = show_requests("ben", {Verb.LOOK})
    assert find_buttons(looking) == []
    assert "Request 17: rewind" in words(looking)


def test_list_follows_what_people_do_and_leaves_alone_what_one_types() -> None:
    """The clock of the page exchanges ``#page``; an answer lies outside of it, and outlives its request."""
    exchanged, *below = re.split(r"</details>\s*</div>\s*(?=<div class=.outcome)", show_requests("ben"))
    assert re.findall(r'<details id="([^"]+)" open hx-morph-skip>', exchanged) == ["request-17", "request-18"]
    assert ('id="page"' in exchanged, 'class="outcome"' in exchanged, len(below)) == (True, False, 1)


def test_page_says_which_buttons_act_at_once() -> None:
    shown = words(show_requests("ben"))
    assert "The buttons here act at once." in shown
    assert "Each button below shows first what would change" in shown
    assert "act at once" not in words(show_requests("ben", {Verb.LOOK}))


def test_page_without_a_request_has_no_such_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "list_requests", lambda *_: [])
    assert "second person" not in words(show_requests("ben"))


def test_order_that_needs_a_second_person_says_so_before_it_is_given() -> None:
    content = {
        "kind": "rewind", "title": "Rewind", "decided": Decided(TRUNCATE), "changes": [], "changes_shown": 1,
        "means": [], "has_changed": False, "approval": "signed",
    }  # fmt: skip
    of_two = words(show_text("effect.html.j2", **content, is_of_two=True))
    assert "This needs a second person." in of_two
    assert "Ask a second person for it" in of_two
    of_one = words(show_text("effect.html.j2", **content, is_of_two=False))
    assert "second person" not in of_one


def test_what_was_asked_for_is_not_done_yet_and_what_was_confirmed_names_both() -> None:
    asked = words(show_text("done.html.j2", kind="rewind", decided=Decided(TRUNCATE)))
    assert asked == ("not done yet request of rewind by ana (role airflow). Another person confirms it: request 17")
    confirmed = DecisionRecord(19, "rewind", "flights", None, "ben", "seen", NOON, request_id=17, requested_by="ana")
    done = words(show_text("done.html.j2", kind="rewind", decided=Decided(confirmed)))
    assert done.startswith("done rewind by ben, request 17 of ana.")


def test_request_expires_a_day_after_it_was_made() -> None:
    waiting = WaitingRequest(TRUNCATE, may_end=True, obstacle="")
    assert (waiting.expires_at - NOON).days == 1


def test_request_of_an_erasure_can_only_be_withdrawn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    erasure = replace(OF_A_SHELL, requested_order={"kind": "erase", "columns": ["customer"], "sealed": "0a1b"})
    monkeypatch.setattr(requests, "list_requests", lambda *_: [erasure])
    assert find_buttons(show_requests("ben")) == ["18 withdraw"]
    assert find_buttons(show_requests("ben", ALL - {Verb.DESTROY})) == []
