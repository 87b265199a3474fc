"""``batchledger alerts``: listing is the default, and what is shown is whole."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from batchledger.cli import app
from batchledger.config.pipeline_file import DEFAULT_PIPELINES_FOLDER, find_pipeline_files
from batchledger.interfaces.cli.commands import alerts as alert_commands
from batchledger.interfaces.cli.display.alerts import describe_open, describe_told
from batchledger.interfaces.cli.printing import Shown, show
from batchledger.ledger.incidents import AlertRecord, DeliveryRecord
from batchledger.model.checks import Severity
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.findings import IncidentKind, PipelineState
from batchledger.model.incidents import Condition, Incident, Settlement
from batchledger.monitoring.alerting import Report, Told
from batchledger.monitoring.health import PipelineHealth

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONDITION = Condition(
    "flights",
    IncidentKind.BLOCKED,
    "batch 17",
    Severity.CRITICAL,
    "blocked — no_unexplained_holes",
    ("no_unexplained_holes: 2 offsets, for example flights[0]@1201 [and more]",),
    "batchledger batch 17",
)
OPEN = AlertRecord(
    Incident(5, CONDITION, NOON, NOON),
    [
        DeliveryRecord("ops", "opened", 1, NOON, None),
        DeliveryRecord("pager", "opened", 3, None, "answered 500"),
        DeliveryRecord("mail", "opened", 0, None, None),
        DeliveryRecord("chat", "opened", 99, None, "answered 400", NOON),
    ],
)
ENDED = AlertRecord(Incident(4, CONDITION, NOON, NOON, NOON + timedelta(minutes=14)), [])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which pipelines the ledger is asked about, and for how many incidents."""
    asked: list[tuple[str, int]] = []

    def list_alerts(dsn: str, pipeline: str, limit: int) -> Sequence[AlertRecord]:
        asked.append((pipeline, limit))
        return [OPEN, ENDED]

    monkeypatch.setattr("batchledger.ledger.incidents.list_alerts", list_alerts)
    monkeypatch.setattr("batchledger.looking.ledger_dsn", lambda _: "")
    monkeypatch.delenv("BATCHLEDGER_PIPELINES", raising=False)
    return asked


@pytest.mark.parametrize("arguments", [["flights"], ["list", "flights"]])
def test_listing_is_the_default(asked: list[tuple[str, int]], arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["alerts", *arguments])
    assert (done.exit_code, asked) == (0, [("flights", 20)])


@pytest.mark.parametrize("arguments", [[], ["list"]])
def test_every_pipeline_is_listed_unless_one_is_named(asked: list[tuple[str, int]], arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["alerts", *arguments])
    assert (done.exit_code, asked) == (0, [(path.stem, 20) for path in find_pipeline_files(DEFAULT_PIPELINES_FOLDER)])


def test_options_of_the_default_need_no_name(asked: list[tuple[str, int]]) -> None:
    assert CliRunner().invoke(app, ["alerts", "--limit", "3", "flights"]).exit_code == 0
    assert asked == [("flights", 3)]


def test_incident_is_shown_with_what_became_of_its_messages(asked: list[tuple[str, int]]) -> None:
    shown = " ".join(CliRunner().invoke(app, ["alerts", "flights"], env={"COLUMNS": "200"}).stdout.split())
    for part in (
        "flights: blocked — no_unexplained_holes incident 5, since 2026-11-21 12:00 UTC",
        "2 offsets, for example flights[0]@1201 [and more]",
        "batchledger batch 17",
        "ops: opened, sent at 2026-11-21 12:00 UTC",
        "pager: opened, tried 3 times: answered 500",
        "mail: opened, to be sent",
        "chat: opened, given up at 2026-11-21 12:00 UTC after 99 tries: answered 400",
        "incident 4, since 2026-11-21 12:00, over since 2026-11-21 12:14 UTC",
    ):
        assert part in shown


def test_pipeline_without_incidents_says_so(asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchledger.ledger.incidents.list_alerts", lambda *_: [])
    said = " ".join(CliRunner().invoke(app, ["alerts", "flights"]).stdout.split())
    assert said.startswith("No incident has been found. Only runs in Airflow and these commands look for incidents: ")
    assert "batchledger alerts send" in said
    assert CliRunner().invoke(app, ["alerts", "flights", "--json"]).stdout == "[]\n"


Describe = Callable[[], Shown]


@pytest.mark.parametrize(
    ("describe", "parts"),
    [
        (
            lambda: describe_open([OPEN.incident]),
            ["flights", "blocked — no_unexplained_holes", "11-21 12:00"],
        ),
        (
            lambda: describe_told(
                {"flights": Told(Settlement((CONDITION,), (), ()), 2, (("ops", "answered 500"),))}, {}
            ),
            ["flights 1 1 0 2 ops: answered 500"],
        ),
    ],
    ids=["status", "send"],
)
def test_what_else_is_shown(describe: Describe, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    show(describe(), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert not [part for part in parts if part not in shown]


@pytest.mark.parametrize("command", ["list", "send"])
def test_ledger_that_does_not_answer_keeps_no_other_from_being_looked_at(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """What was done of the others is printed; one that is named fails as a whole."""
    pipelines = [SimpleNamespace(name=name) for name in ("clicks", "flights")]

    def visit(pipeline: str, result: object) -> Any:
        if pipeline == "clicks":
            raise ServiceUnavailableError("the warehouse does not answer")
        return result

    monkeypatch.setattr(
        alert_commands,
        "select_pipelines",
        lambda names: [each for each in pipelines if each.name in (names or each.name)],
    )
    monkeypatch.setattr("batchledger.ledger.incidents.list_alerts", lambda _, name, limit: visit(name, [OPEN]))
    report = Report(PipelineHealth("flights", PipelineState.UNREAD, "", None), Told(Settlement(), 2))
    monkeypatch.setattr("batchledger.monitoring.alerting.report", lambda make, _: visit(make(), report))
    monkeypatch.setattr("batchledger.looking.ledger_dsn", lambda _: "")
    monkeypatch.setattr("batchledger.wiring.build_platform", lambda each: each.name)
    monkeypatch.setattr("batchledger.wiring.build_alerting", lambda _: None)
    done = CliRunner().invoke(app, ["alerts", command, "--json"])
    flights, clicks = json.loads(done.stdout)
    assert (done.exit_code, flights["pipeline"]) == (1, "flights")
    assert clicks == {"pipeline": "clicks", "error": "the warehouse does not answer"}
    assert "clicks could not be looked at" in " ".join(CliRunner().invoke(app, ["alerts", command]).stdout.split())
    assert CliRunner().invoke(app, ["alerts", command, "clicks"]).exit_code == 1
    assert CliRunner().invoke(app, ["alerts", command, "flights"]).exit_code == 0
