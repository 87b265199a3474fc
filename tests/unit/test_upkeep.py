"""What the audit task and both commands make of what was found: exit codes, reports, and what fails the task."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from typer.testing import CliRunner

from batchledger import cli
from batchledger.interfaces import upkeep
from batchledger.interfaces.airflow import tasks
from batchledger.interfaces.cli.commands import upkeep as upkeep_commands
from batchledger.model.batch import TopicIdentity
from batchledger.model.checks import CheckResult, Outcome, Severity, Suite
from batchledger.model.errors import ConfigurationError, ServiceUnavailableError
from batchledger.model.findings import IncidentKind, LedgerCheck, PipelineState
from batchledger.model.housekeeping import Housekeeping, Leftover, Removal
from batchledger.model.incidents import Condition, Findings
from batchledger.monitoring.health import PipelineHealth
from batchledger.monitoring.ledger_audit import LedgerAudit
from batchledger.proof.newest import Coverage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IDENTITY = TopicIdentity("cluster", "topic")


def audit_with(check: LedgerCheck, outcome: Outcome, coverage: Coverage | None = None) -> LedgerAudit:
    result = CheckResult(check, outcome, "what was found", {}, Severity.CRITICAL, Suite.LEDGER)
    failed = outcome is Outcome.FAILED
    condition = Condition(
        "orders", IncidentKind.LEDGER_FINDING, check, Severity.CRITICAL, "wrong", (), "batchledger verify"
    )
    told = (condition,) if failed else ()
    health = PipelineHealth("orders", PipelineState.UNREAD, "", None)
    return LedgerAudit("orders", NOW, coverage or Coverage(), (result,), Findings(told), health)


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch) -> dict[str, LedgerAudit | ServiceUnavailableError]:
    """What the audit of each pipeline ends with."""
    found: dict[str, LedgerAudit | ServiceUnavailableError] = {}

    def audit(pipeline: SimpleNamespace, newest: int | None = None) -> LedgerAudit:
        outcome = found[pipeline.name]
        if isinstance(outcome, ServiceUnavailableError):
            raise outcome
        return outcome

    for module in (upkeep_commands, tasks):
        monkeypatch.setattr("batchledger.config.pipeline_file.load_pipeline", lambda name: SimpleNamespace(name=name))
        monkeypatch.setattr(module, "load_pipeline", lambda name: SimpleNamespace(name=name), raising=False)
    names = lambda: [SimpleNamespace(stem=name) for name in found]  # noqa: E731
    monkeypatch.setattr("batchledger.config.pipeline_file.find_pipeline_files", names)
    monkeypatch.setattr(upkeep, "audit_and_tell", audit)
    return found


@pytest.mark.parametrize(
    ("check", "outcome", "code"),
    [
        (LedgerCheck.TARGET, Outcome.PASSED, 0),
        (LedgerCheck.TARGET, Outcome.EMPTY, 0),
        (LedgerCheck.TARGET, Outcome.FAILED, 1),
        (LedgerCheck.TARGET, Outcome.NOT_RUN, 1),
        (LedgerCheck.STALE_ATTEMPT, Outcome.FAILED, 1),
        (LedgerCheck.BLOCKED, Outcome.FAILED, 3),
        (LedgerCheck.LOSS, Outcome.FAILED, 3),
        (LedgerCheck.LOSS, Outcome.NOT_RUN, 1),
    ],
)
def test_exit_code_tells_nothing_found_from_something_wrong_and_from_what_waits_for_a_person(
    audits: dict[str, LedgerAudit], check: LedgerCheck, outcome: Outcome, code: int
) -> None:
    audits["orders"] = audit_with(check, outcome)
    assert CliRunner().invoke(cli.app, ["audit", "orders"]).exit_code == code


def test_pipeline_that_cannot_be_audited_keeps_no_other_from_being_audited(
    audits: dict[str, LedgerAudit | ServiceUnavailableError],
) -> None:
    audits["clicks"] = ServiceUnavailableError("the warehouse does not answer")
    audits["orders"] = audit_with(LedgerCheck.TARGET, Outcome.PASSED)
    done = CliRunner().invoke(cli.app, ["audit", "--json"])
    orders, clicks = json.loads(done.stdout)
    assert (orders["pipeline"], orders["exit_code"], orders["whole_history"]) == ("orders", 0, True)
    assert clicks == {"pipeline": "clicks", "error": "the warehouse does not answer"}
    assert done.exit_code == 1


def test_what_was_not_proved_is_printed_with_what_was(audits: dict[str, LedgerAudit]) -> None:
    audits["orders"] = audit_with(LedgerCheck.TARGET, Outcome.FAILED, Coverage(NOW))
    done = CliRunner().invoke(cli.app, ["audit", "orders"])
    assert "Not proved: batches published before 2026-01-01 00:00:00 UTC" in done.stdout
    assert "batchledger verify" in done.stdout


def test_audit_task_fails_for_good_where_a_check_has_not_passed(audits: dict[str, LedgerAudit]) -> None:
    """Tried again it would find the same."""
    audits["orders"] = audit_with(LedgerCheck.TARGET, Outcome.PASSED)
    tasks.audit_ledger("orders")
    audits["orders"] = audit_with(LedgerCheck.TARGET, Outcome.NOT_RUN)
    with pytest.raises(AirflowFailException, match="orders: 1 of 1 check not passed"):
        tasks.audit_ledger("orders")


def test_housekeeping_says_what_it_removed_what_is_left_and_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removals = (
        Removal(Leftover.STAGING, "b1_a1_rows", 1, size_bytes=3 * 2**20),
        Removal(Leftover.STAGING, "b1_a1_visible", 1, size_bytes=2**20),
        Removal(Leftover.MESSAGE_KEY, "orders", 5_000_000, is_complete=False),
        Removal(Leftover.SMALL_FILE, "table lake.shop.orders", 1_234),
    )
    asked = []

    def keep(*, is_dry_run: bool) -> list[Housekeeping]:
        asked.append(is_dry_run)
        return [Housekeeping(("orders",), removals, ("b99_a1_rows",), ("table lake.shop.clicks is not maintained.",))]

    monkeypatch.setattr(upkeep, "keep_house", keep)
    done = CliRunner().invoke(cli.app, ["housekeeping"])
    assert "staging table" in done.stdout
    assert "5,000,000" in done.stdout
    assert "the rest is for the next run" in done.stdout
    assert "4.0 MiB of staging are free" in done.stdout
    assert "knows no such attempt: b99_a1_rows" in done.stdout
    assert re.search(r"small file\W+table lake.shop.orders\W+1,234", done.stdout)
    assert "lake.shop.clicks is not maintained" in done.stdout
    (ledger,) = json.loads(CliRunner().invoke(cli.app, ["housekeeping", "--dry-run", "--json"]).stdout)
    assert (ledger["is_dry_run"], ledger["is_complete"], len(ledger["removed"])) == (True, False, 4)
    assert ledger["left_out"] == ["table lake.shop.clicks is not maintained."]
    assert asked == [False, True]


@dataclass(frozen=True)
class SinkOf:
    """The sink of one pipeline; the one of ``clicks`` does not answer."""

    pipeline: str
    asked: list[tuple[str, bool]]

    def tidy(self, *, is_dry_run: bool = False) -> Housekeeping:
        self.asked.append((self.pipeline, is_dry_run))
        if self.pipeline == "clicks":
            raise ServiceUnavailableError("Spark does not answer")
        return Housekeeping((), [Removal(Leftover.BRANCH, self.pipeline, 2), Removal(Leftover.SNAPSHOT, "it", 0)])


def test_refused_file_and_a_ledger_that_does_not_answer_keep_no_other_ledger_from_being_tidied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files that share a ledger are one pass, then come their sinks; the error comes when the others are done."""
    dsn_by_name = {"clicks": "ledger a", "orders": "ledger a", "payments": "down", "visits": "ledger b"}

    def read(path: SimpleNamespace) -> SimpleNamespace:
        if path.stem == "broken":
            raise ConfigurationError("not a pipeline")
        quarantine = SimpleNamespace(keep=3600.0) if path.stem == "orders" else None
        history = SimpleNamespace(keep=86400.0 if path.stem == "visits" else None)
        return SimpleNamespace(name=path.stem, quarantine=quarantine, history=history)

    tidied, asked, joined = [], list[tuple[str, bool]](), []

    def join(house: SimpleNamespace, pipeline: str, sink: SinkOf, keep: timedelta) -> Housekeeping:
        joined.append((house.dsn, pipeline, sink.pipeline, keep))
        return Housekeeping()

    def tidy(house: SimpleNamespace, pipelines: list[str], keeps: dict[str, float]) -> Housekeeping:
        if house.dsn == "down":
            raise ServiceUnavailableError("the warehouse does not answer")
        tidied.append((house.dsn, pipelines, keeps))
        return Housekeeping(tuple(pipelines))

    files = [SimpleNamespace(stem=name) for name in ("broken", *dsn_by_name)]
    monkeypatch.setattr(upkeep, "find_pipeline_files", lambda: files)
    monkeypatch.setattr(upkeep, "read_pipeline_file", read)
    monkeypatch.setattr(upkeep, "ledger_dsn", lambda pipeline: dsn_by_name[pipeline.name])
    monkeypatch.setattr(upkeep, "tidy", tidy)
    monkeypatch.setattr(upkeep, "join_history", join)
    monkeypatch.setattr(upkeep, "has_freed_target", lambda dsn, pipeline: False)
    monkeypatch.setattr(upkeep, "build_sink", lambda pipeline, dsn: SinkOf(pipeline.name, asked))
    with pytest.raises(ServiceUnavailableError, match="Spark does not answer"):
        upkeep.keep_house(is_dry_run=True)
    assert tidied == [("ledger a", ["clicks", "orders"], {"orders": 3600.0}), ("ledger b", ["visits"], {})]
    assert asked == [("clicks", True), ("orders", True), ("visits", True)]
    del dsn_by_name["clicks"], dsn_by_name["payments"]
    files[:] = [each for each in files if each.stem in dsn_by_name]
    done = upkeep.keep_house()
    assert joined == [("ledger b", "visits", "visits", timedelta(days=1))] * 2
    assert [[(each.kind, each.subject) for each in ledger.removals] for ledger in done] == [
        [(Leftover.BRANCH, "orders")],
        [(Leftover.BRANCH, "visits")],
    ]
