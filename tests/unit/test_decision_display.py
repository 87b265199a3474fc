"""What is printed of decisions fits a narrow terminal and says both sides."""

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from batchledger.interfaces.cli.display.decisions import decisions_table, describe_decided
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
