"""What is printed of decisions fits a narrow terminal and says both sides."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from batchledger.interfaces.cli.display.decisions import (
    decision_lines,
    decisions_table,
    describe_decided,
    describe_requests,
    describe_withdrawn,
)
from batchledger.interfaces.cli.printing import show
from batchledger.interfaces.wording import summarise_changes
from batchledger.model.batch import Decided, DecisionKind, DecisionRecord

NOW = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
REWIND = DecisionRecord(
    7,
    "rewind",
    "orders",
    None,
    "ana@host",
    "the transform dropped the [currency]",
    NOW,
    {"epoch": 0, "next_offset": {"orders[0]": 1_250_000}, "rows": 5, "batch": {"12": "staged"}},
    {"epoch": 1, "next_offset": {"orders[0]": 0}, "rows": 0, "batch": {"12": "discarded"}},
)
DISCARD = DecisionRecord(
    8, "discard", "orders", 13, "ben@host", "wrong", NOW, {"state": "staged"}, {"state": "discarded"}
)


REQUEST = DecisionRecord(
    9, "request", "orders", 13, "ana", "ticket 812", NOW, {"state": "blocked"}, {"state": "audited"},
    database_role="ops_ana", requested_order={"kind": "accept", "batch": 13},
)  # fmt: skip
CONFIRMED = DecisionRecord(
    10, "accept", "orders", 13, "ben", "seen", NOW, {"state": "blocked"}, {"state": "audited"},
    request_id=9, requested_by="ana",
)  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_dry_run_shows_both_sides_and_says_that_nothing_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_decided("orders", DecisionKind.REWIND, Decided(REWIND), dry_run=True), as_json=False)
    shown = printed(capsys)
    assert "rewind of orders would change" in shown
    assert "next offset orders[0] 1,250,000 0" in shown
    assert "batch 12 staged discarded" in shown
    assert "Dry run: nothing was changed." in shown


def test_dry_run_says_what_else_comes_of_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    decided = Decided(REWIND, warning="a topic replaces nothing: it would")
    show(describe_decided("orders", DecisionKind.REWIND, decided, dry_run=True), as_json=False)
    assert "A topic replaces nothing: it would. Dry run: nothing was changed." in printed(capsys)
    show(describe_decided("orders", DecisionKind.REWIND, decided, dry_run=False), as_json=False)
    assert "would" not in printed(capsys)


def test_decision_says_where_it_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_decided("orders", DecisionKind.DISCARD, Decided(DISCARD), dry_run=False), as_json=False)
    assert "see: batchledger batch 13" in printed(capsys)
    show(describe_decided("orders", DecisionKind.REWIND, Decided(REWIND), dry_run=False), as_json=False)
    assert "see: batchledger batches orders" in printed(capsys)


def test_repetition_names_who_decided_it_first(capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_decided("orders", DecisionKind.DISCARD, Decided(DISCARD, is_new=False), dry_run=False), as_json=False)
    assert "decided already, nothing was changed. By ben@host, 2026-11-21 10:30 UTC: wrong" in printed(capsys)
    show(describe_decided("orders", DecisionKind.RESUME, Decided(None, is_new=False), dry_run=False), as_json=False)
    assert "resume of orders: there is nothing to change." in printed(capsys)


def test_json_of_a_dry_run_names_no_record_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_decided("orders", DecisionKind.REWIND, Decided(REWIND), dry_run=True), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["decision_id"], told["decided_at"], told["dry_run"], told["is_new"]) == (None, None, True, True)
    assert (told["before"]["epoch"], told["after"]["epoch"]) == (0, 1)
    show(describe_decided("orders", DecisionKind.RESUME, Decided(None, is_new=False), dry_run=False), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "pipeline": "orders",
        "kind": "resume",
        "is_new": False,
        "dry_run": False,
    }


@pytest.mark.parametrize("width", [80, 120])
def test_list_of_decisions_shows_every_reason_whole(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(decisions_table("orders", [DISCARD, REWIND]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    shown = " ".join(" ".join(lines).split())
    assert "the transform dropped the [currency]" in shown
    assert "epoch: 0 → 1" in shown
    assert "ben@host" in shown


def test_what_is_the_same_on_both_sides_is_no_change() -> None:
    same = DecisionRecord(
        9, "accept", "orders", 1, "ana", "x", NOW, {"attempt": 2, "state": "a"}, {"attempt": 2, "state": "b"}
    )
    assert summarise_changes(same) == "state: a → b"


def test_lists_say_of_a_request_what_would_change_and_of_its_decision_what_changed() -> None:
    table = Console(file=io.StringIO(), width=120)
    table.print(decisions_table("orders", [CONFIRMED, REQUEST]))
    lines = Console(file=io.StringIO(), width=120)
    lines.print(*decision_lines([CONFIRMED, REQUEST]), sep="\n")
    for console in (table, lines):
        shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        confirmed, request = shown.split("ticket 812")
        assert "would change" not in confirmed
        assert "state: blocked → audited" in confirmed
        assert "would change: state: blocked → audited" in request
    assert summarise_changes(replace(REQUEST, before={}, after={})) == ""


def test_request_says_that_nothing_was_changed_and_how_another_person_confirms_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(describe_decided("orders", DecisionKind.ACCEPT, Decided(REQUEST), dry_run=False), as_json=False)
    shown = printed(capsys)
    how = "Request 9: nothing was changed. Another person confirms it until 2026-11-22 10:30 UTC: batchledger confirm 9"
    assert "accept of orders, batch 13 would change" in shown
    assert "state blocked audited" in shown
    assert how in shown
    show(describe_decided("orders", DecisionKind.ACCEPT, Decided(REQUEST, is_new=False), dry_run=False), as_json=False)
    again = printed(capsys)
    assert "asked for already, nothing was changed. By ana (role ops_ana), 2026-11-21 10:30 UTC: ticket 812" in again
    assert how in again


def test_confirmed_decision_names_both_people(capsys: pytest.CaptureFixture[str]) -> None:
    decided = Decided(CONFIRMED, is_new=False)
    show(describe_decided("orders", DecisionKind.ACCEPT, decided, dry_run=False), as_json=False)
    assert "By ben, request 9 of ana, 2026-11-21 10:30 UTC: seen" in printed(capsys)
    show(describe_decided("orders", DecisionKind.ACCEPT, Decided(CONFIRMED), dry_run=False), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["decided_by"], told["requested_by"], told["request_id"]) == ("ben", "ana", 9)


def test_list_of_requests_says_who_asked_why_for_what_and_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_requests([REQUEST]), as_json=False)
    shown = printed(capsys)
    for part in ("accept of orders, batch 13", "ana (role ops_ana)", "11-22 10:30", "ticket 812", "would change:"):
        assert all(word in shown for word in part.split())
    show(describe_requests([REQUEST]), as_json=True)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["decision_id"], told["order"], told["before"]) == (9, {"kind": "accept", "batch": 13}, REQUEST.before)
    show(describe_requests([]), as_json=False)
    assert printed(capsys) == "No request waits for a second person."


def test_withdrawal_says_that_the_request_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    withdrawn = DecisionRecord(11, "withdraw", "orders", 13, "ben", "no", NOW, request_id=9, requested_by="ana")
    show(describe_withdrawn(REQUEST, Decided(withdrawn)), as_json=False)
    assert printed(capsys) == "Request 9 of orders is withdrawn. Nothing else was changed."
    show(describe_withdrawn(REQUEST, Decided(withdrawn, is_new=False)), as_json=False)
    assert "was withdrawn already" in printed(capsys)


def test_request_of_an_erasure_shows_the_code_once_and_how_it_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    erasure = replace(REQUEST, requested_order={"kind": "erase", "columns": ["customer"], "sealed": "0a1b"})
    asked = Decided(erasure, code="q3Xv0aYb7Lk2Tz9M")
    show(describe_decided("orders", DecisionKind.ERASE, asked, dry_run=False), as_json=False)
    shown = printed(capsys)
    assert "batchledger confirm 9 --key COLUMN=VALUE --code CODE --reason WHY" in shown
    assert "repeats the key, with this code: q3Xv0aYb7Lk2Tz9M" in shown
    assert "q3Xv0aYb7Lk2Tz9M" not in repr(asked)
    show(describe_decided("orders", DecisionKind.ERASE, asked, dry_run=False), as_json=True)
    assert json.loads(capsys.readouterr().out)["code"] == "q3Xv0aYb7Lk2Tz9M"
