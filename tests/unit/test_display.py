"""What the command line prints is whole on a narrow terminal too."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from rich.color import ColorSystem
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text
from typer.testing import CliRunner

from batchledger import cli
from batchledger.books.history import RangeRecord
from batchledger.interfaces import markup
from batchledger.interfaces.cli.command_line import Commands
from batchledger.interfaces.cli.display.batches import (
    STREAMS,
    balance_table,
    checks_parts,
    describe_pipelines,
    describe_plan,
)
from batchledger.interfaces.cli.display.verifications import describe_verification
from batchledger.interfaces.cli.printing import Shown, label_parts, show, standard_error
from batchledger.model.balance import BALANCE_LINES
from batchledger.model.batch import DeliveryMode, HeldRange
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.errors import ConfigurationError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import ReplacedRows, describe_once_more
from batchledger.model.records.rules import SinkMode
from batchledger.monitoring.health import PipelineHealth, Threats
from batchledger.planning.batch_size import BatchSize
from batchledger.planning.live import Plan
from batchledger.proof.verification import Verification
from tests.conftest import ROOT

EVERY_LINE = RangeRecord("orders", 0, 2749, 2_852_765, 2_745_010, 10, 100_000, 1, 2, 13, 12, 1, 3, 4_977, 0)
FEW_LINES = RangeRecord("orders", 0, 2749, 2_752_759, 2_745_010, 0, 5_000, 0, 0, 0, 0, 0, 0, 0, 0)


def render(balance: RangeRecord, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(balance_table([balance]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return " ".join(text.split())


@pytest.mark.parametrize("balance", [EVERY_LINE, FEW_LINES], ids=["every line", "few lines"])
@pytest.mark.parametrize("width", [80, 120])
def test_every_term_of_a_balance_is_shown_whole_and_the_terms_add_up(balance: RangeRecord, width: int) -> None:
    shown = render(balance, width)
    assert f"{balance.until - balance.start:,}" in shown
    for line in BALANCE_LINES:
        count = getattr(balance, line)
        assert not count or (f"{count:,}" in shown and line.replace("_", " ") in shown)
    assert "unexplained" in shown


@pytest.mark.parametrize(
    ("size", "said"),
    [(BatchSize(20_000, 60.0, "because"), "up to 20,000 records for a target of 60 s: because."), (None, "")],
)
def test_plan_says_which_size_was_chosen_and_why_where_there_is_a_target(
    capsys: pytest.CaptureFixture[str], size: BatchSize | None, said: str
) -> None:
    plan = Plan((OffsetRange(TopicPartition("orders", 0), 0, 20_000),), 7, size=size)
    show(describe_plan("orders", plan, Threats(20_007, (), None, None), datetime.now(UTC)), as_json=False)
    _, _, after = " ".join(capsys.readouterr().out.split()).partition("7 more stay for later batches.")
    assert after.removesuffix(STREAMS).strip().removeprefix("Size: ") == said
    assert after.endswith(STREAMS)


def test_plan_says_why_rows_are_staged(capsys: pytest.CaptureFixture[str]) -> None:
    plan, calm = Plan((OffsetRange(TopicPartition("orders", 0), 0, 7),), 0), Threats(7, (), None, None)
    shown = describe_plan("orders", plan, calm, datetime.now(UTC), staged_because="it is a replay")
    show(shown, as_json=False)
    assert "Rows are staged: it is a replay." in capsys.readouterr().out
    show(shown, as_json=True)
    assert '"staged_because": "it is a replay"' in capsys.readouterr().out


def test_plan_says_what_readers_of_a_topic_would_see_once_more_and_of_a_table_whose_rows_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = HeldRange(3, OffsetRange(TopicPartition("orders", 0), 0, 7))
    plan, calm, now = Plan((held.range,), 0), Threats(7, (), None, None), datetime.now(UTC)
    once_more = describe_once_more([held])
    show(describe_plan("orders", plan, calm, now, replaced=[ReplacedRows(held, 0)], once_more=once_more), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "A topic replaces nothing: its readers would see once more what was produced of 7 offsets." in shown
    assert "would replace" not in shown
    show(describe_plan("orders", plan, calm, now, replaced=[ReplacedRows(held, 7)]), as_json=False)
    assert "Rows that it would replace" in capsys.readouterr().out


def test_proof_of_a_topic_tells_of_what_was_published_again_only_where_something_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for taken_over, said in ((0, ""), (5, "; 5 offsets were published again")):
        proved = Verification("orders", SinkMode.PRODUCE, 1, 1, 5, 5, 0, 0, (), taken_over=taken_over)
        show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
        shown = " ".join(capsys.readouterr().out.split())
        assert f"the target holds what the ledger says{said}" in shown
        assert ("again" in shown) == bool(said)
        show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=True)
        assert "taken_over" not in capsys.readouterr().out


def test_proof_that_holds_names_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    proved = Verification("orders", SinkMode.APPEND, 1, 1, 3, 3, 0, 0, ())
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
    shown = capsys.readouterr().out
    assert all(
        promise in shown for promise in ("(I1)", "(I2)", "(I7)", "(I8)", "the target holds what the ledger says")
    )


def test_proof_by_the_ledger_alone_claims_no_mode_of_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    for why, mode in (("", "append"), ("the pipeline file is gone", None)):
        proved = Verification("orders", SinkMode.APPEND, 1, 1, 3, 3, 0, 0, (), not_compared=why)
        show(describe_verification(proved, None), as_json=True)
        assert json.loads(capsys.readouterr().out)["mode"] == mode


def test_proof_tells_in_which_hash_the_decisions_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A person who notes it elsewhere can tell later whether the chain was made anew."""
    end = "0123456789abcdef" * 4
    proved = Verification("orders", SinkMode.APPEND, 1, 1, 3, 3, 0, 0, (), decisions=2, chain_end=end)
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 decisions stand as they were recorded; the chain ends in 0123456789abcdef." in shown
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=True)
    assert end in capsys.readouterr().out


@pytest.mark.parametrize(("dropped", "said"), [(0, "0 quarantined."), (1, "0 quarantined, 1 dropped from quarantine.")])
def test_proof_adds_up_where_records_were_dropped_from_quarantine(
    capsys: pytest.CaptureFixture[str], dropped: int, said: str
) -> None:
    proved = Verification("orders", SinkMode.APPEND, 1, 1, 3, 3 - dropped, 0, 0, (), quarantine_dropped=dropped)
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"1 batch, 1 range, 3 offsets, {3 - dropped} rows, {said}" in shown
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=True)
    assert "dropped" not in capsys.readouterr().out


def test_proof_adds_up_if_rows_were_erased(capsys: pytest.CaptureFixture[str]) -> None:
    proved = Verification("orders", SinkMode.APPEND, 1, 1, 3, 1, 0, 0, (), rows_erased=2)
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 batch, 1 range, 3 offsets, 1 row, 0 quarantined, 2 erased." in shown


@pytest.mark.parametrize(("outcome", "said"), [(Outcome.NOT_RUN, "could not run"), (Outcome.EMPTY, "nothing to judge")])
def test_terminal_and_pages_say_of_a_check_the_same(
    capsys: pytest.CaptureFixture[str], outcome: Outcome, said: str
) -> None:
    check = CheckResult("odd", outcome, "because")
    show(Shown([check], list(checks_parts("Checks", [check]))), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{said} odd because" in shown or f"odd: {said}, critical, block because" in shown
    assert markup.load_templates(markup.__package__ or "").filters["outcome"](outcome).endswith(f" {said}")
    show(Shown([check]), as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == outcome.value


def test_failed_check_comes_first_and_its_command_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    command = 'See the records with: batchledger records payments "payments[1] 658..659", one for each coordinate'
    failed = CheckResult("expect_column_values_to_be_between(amount)", Outcome.FAILED, f"1 of 8.\n{command}")
    show(Shown([], list(checks_parts("Checks", [CheckResult("good", Outcome.PASSED, "so"), failed]))), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "expect_column_values_to_be_between(amount): failed, critical, block"
    assert f"  {command}" in lines
    assert lines.index(f"  {command}") < next(number for number, line in enumerate(lines) if "good" in line)


def test_missing_local_services_are_told_once_however_many_pipelines_miss_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    of_each = [
        PipelineHealth(name, PipelineState.UNKNOWN, f"{name}.yaml: Airflow knows no", None, missing_service="warehouse")
        for name in ("flights", "orders")
    ]
    show(describe_pipelines(of_each, datetime.now(UTC)), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("see below") == 2
    assert shown.count("The local services are not running: Airflow knows no connection 'warehouse'.") == 1
    assert "Start them with: batchledger up." in shown
    show(describe_pipelines(of_each, datetime.now(UTC)), as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["detail"] == "flights.yaml: Airflow knows no"


def test_numbers_are_not_broken_up_by_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = _find_log_handler(monkeypatch)
    record = logging.LogRecord("batchledger", logging.INFO, "", 0, "10,000 records", None, None)
    for console, print_sentence in (
        (standard_error, lambda: standard_error.print("10,000 records")),
        (handler.console, lambda: handler.emit(record)),
    ):
        # Not `file`: what that property answers is this test's standard error, and undoing would keep it for ever.
        monkeypatch.setattr(console, "_file", io.StringIO())
        monkeypatch.setattr(console, "_force_terminal", True)
        monkeypatch.setattr(console, "_color_system", ColorSystem.STANDARD)
        print_sentence()
        assert "10,000 records" in console.file.getvalue()  # type: ignore[attr-defined]


def _find_log_handler(monkeypatch: pytest.MonkeyPatch) -> RichHandler:
    own = logging.getLogger("batchledger")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(own, name, getattr(own, name))
    cli._configure_logging()
    (handler,) = own.handlers
    assert isinstance(handler, RichHandler)
    return handler


def test_scripts_get_one_document_and_people_its_parts_without_those_that_are_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    orders_0 = OffsetRange(TopicPartition("orders", 0), 1, 5)
    address = "http://localhost:8080/pipelines"
    shown = Shown({"range": orders_0}, ["[bold]first[/] [x", None, Text(address, no_wrap=True)])
    show(shown, as_json=False)
    assert capsys.readouterr().out.splitlines() == ["first [x", address]
    document = {"range": {"topic": "orders", "partition": 0, "start": 1, "until": 5}}
    show(shown, as_json=True)
    assert json.loads(capsys.readouterr().out) == document
    show(iter([shown, shown]), as_json=True)
    assert json.loads(capsys.readouterr().out) == [document, document]


def test_people_see_each_of_several_before_the_next_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def make() -> Iterator[Shown]:
        for text in ("first", "second"):
            seen.append(capsys.readouterr().out)
            yield Shown(text, [text])

    show(make(), as_json=False)
    assert seen == ["", "first\n"]


def test_command_that_returns_what_it_shows_has_json_and_ends_with_the_lowest_exit_code_that_is_not_0() -> None:
    group = Commands(add_completion=False)

    @group.command("look")
    def look(name: str) -> list[Shown]:
        return [Shown(name, [name], exit_code=3), Shown(2, ["two"], exit_code=1), Shown(3, ["three"])]

    told, written = (CliRunner().invoke(group, ["orders", *more]) for more in ((), ("--json",)))
    assert (told.exit_code, told.stdout) == (1, "orders\ntwo\nthree\n")
    assert (written.exit_code, json.loads(written.stdout)) == (1, ["orders", 2, 3])


def test_only_one_place_chooses_between_text_and_json() -> None:
    """``status`` and ``up`` of a developer's machine tell people something more."""
    choice = re.compile(r"\bif (?:not )?as_json\b")
    texts = {path: path.read_text() for path in (ROOT / "include" / "batchledger").rglob("*.py")}
    found = {"/".join(path.parts[-2:]): choice.findall(text) for path, text in texts.items() if choice.search(text)}
    assert found == {
        "cli/printing.py": ["if as_json"],
        "local/commands.py": ["if not as_json"],
        "stack/commands.py": ["if not as_json"],
    }


def test_the_list_of_commands_says_what_the_help_of_each_command_begins_with() -> None:
    group: Any = typer.main.get_command(cli.app)
    listed = {name: group.get_command(None, name) for name in group.commands}
    helped = {name: cli.load_command(name).help.partition("\n\n")[0] for name in listed}
    assert {name: each.help for name, each in listed.items()} == {
        name: " ".join(text.split()) for name, text in helped.items()
    }


def test_list_of_commands_imports_nothing_that_takes_long() -> None:
    heavy = (
        "airflow",
        "batchledger.interfaces.cli.commands",
        "batchledger.model.batch",
        "confluent_kafka",
        "great_expectations",
        "psycopg",
        "pyarrow",
        "pydantic",
        "pyspark",
        "sqlalchemy",
    )
    code = f"import sys, batchledger.cli; sys.exit(', '.join(set({heavy}) & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numbers_of_a_proof_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    proved = Verification("orders", SinkMode.APPEND, 11, 33, 148, 127, 5, 6, (), quarantine_dropped=1)
    show(describe_verification(proved, DeliveryMode.EXACTLY_ONCE), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    said = "5 quarantined, 1 dropped from quarantine, 6 accepted as lost, 9 without a row (holes, tombstones,"
    assert f"148 offsets, 127 rows, {said}" in shown


def test_long_error_goes_on_below_its_beginning_and_its_commands_stay_whole() -> None:
    """In a terminal; what a pipe gets has a line for each line of the error."""
    command = "Look at it: batchledger batch 12 --connection a-warehouse-with-a-long-name"
    error = ConfigurationError("batch 12 of orders is blocked.", why="one two three four five", advice=command)
    told = ["error: batch 12 of", "       orders is", "       blocked."]
    why = ["why:   one two", "       three four", "       five"]
    assert [line.plain for line in label_parts(error, width=18)] == [*told, *why, f"do:    {command}"]
    assert [line.plain for line in label_parts(error)][1:] == ["why:   one two three four five", f"do:    {command}"]
