"""What is printed of replays and of quarantine fits 80 columns, and shows no payload that was not asked for."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from batchledger.books.history import (
    BatchHistory,
    BatchSummary,
    QuarantineLine,
    QuarantineList,
    RangeRecord,
    ReplacementRecord,
)
from batchledger.formats.decoding.objects import NOT_ONE_OBJECT
from batchledger.interfaces.cli.commands.quarantine import describe_quarantine
from batchledger.interfaces.cli.commands.replays import describe_dry_run, describe_replayed
from batchledger.interfaces.cli.display.batches import describe_batch, describe_batches
from batchledger.interfaces.cli.printing import show
from batchledger.interfaces.wording import escape
from batchledger.lifecycle.delivery_steps import plan_delivery
from batchledger.lifecycle.dry_run import DryRun, summarise_dry_run
from batchledger.model.batch import (
    Batch,
    BatchState,
    DecisionRecord,
    DeliveryMode,
    HeldRange,
    Lane,
    RecordOrigin,
)
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import ChangedRow, Comparison, ReplacedRows, describe_replaced

ORDERS_0 = TopicPartition("orders", 0)
MIDDLE = OffsetRange(ORDERS_0, 4, 8)
NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
BATCH = Batch(14, "orders", Lane.REPLAY, BatchState.PUBLISHED, 1, "run", (MIDDLE,), 0, NOW)
HISTORY = BatchHistory(BATCH, (), (), (), (), (), (ReplacementRecord(14, 3, "orders", 0, 4, 8, 1_234_567, 1, 0),))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    return " ".join(text.split())


def summary(batch_id: int, lane: Lane, is_dry_run: bool = False) -> BatchSummary:
    counts = (234_567, 12.5, 4, 234_567, 12_345)
    return BatchSummary(batch_id, lane, "discarded", 1, "run", NOW, NOW, *counts, is_dry_run)


def test_list_of_batches_tells_lanes_and_who_asked_where_there_are_replays(
    narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    live, replay = summary(12, Lane.LIVE), summary(13, Lane.REPLAY)
    asked = DecisionRecord(1, "replay", "orders", 13, "ana@host", "it was wrong", NOW)
    show(describe_batches("orders", [summary(14, Lane.REPLAY, is_dry_run=True), replay, live], [asked]), as_json=False)
    text = shown(capsys)
    assert "14 dry run discarded" in text
    assert "13 replay" in text
    assert "replay 13 ana@host it was wrong" in text
    show(describe_batches("orders", [live], []), as_json=False)
    assert "lane" not in shown(capsys)


def test_rows_that_were_erased_are_said_of_their_batch_in_the_list_and_after_a_replay(
    narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = replace(summary(12, Lane.LIVE), rows_erased=1_079), replace(summary(13, Lane.REPLAY), rows_erased=26)
    show(describe_batches("orders", [again, first, summary(11, Lane.LIVE)], []), as_json=False)
    assert "Erased of these rows: batch 13: 26, batch 12: 1,079." in shown(capsys)
    balance = RangeRecord("orders", 0, 4, 8, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    some = replace(HISTORY, ranges=(replace(balance, rows_erased=1), replace(balance, rows_erased=2), balance))
    for describe in (describe_batch, describe_replayed):
        show(describe(some), as_json=False)
        assert "3 accepted rows were erased." in shown(capsys)
        show(describe(replace(HISTORY, ranges=(balance,))), as_json=False)
        assert "erased" not in shown(capsys)


def test_dry_run_shows_whose_rows_would_go_and_how_they_differ(
    narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = ChangedRow(ORDERS_0, 5, tuple(f"column_{number}" for number in range(20)))
    comparison = Comparison(1, 2, 3, 4, (changed,), ("note",))
    replaced = (ReplacedRows(HeldRange(3, MIDDLE), 9),)
    objections = (CheckResult("it_fails", Outcome.FAILED, "because"),)
    delivery = plan_delivery(DeliveryMode.EXACTLY_ONCE, takes_over=True, shares_transaction=False)
    found = DryRun(BATCH, (OffsetRange(ORDERS_0, 0, 4),), replaced, comparison, objections, delivery=delivery)
    show(describe_dry_run(found, HISTORY), as_json=False)
    of_the_command = shown(capsys)
    assert "Its publication would be: announce; then withdraw, positions, rows, numbers, commit of the sink." in (
        of_the_command
    )
    kept = replace(HISTORY, dry_run=summarise_dry_run(found))
    show(describe_batch(kept), as_json=False)
    for text in (of_the_command, shown(capsys)):
        assert "1 added, 2 removed, 3 changed, 4 unchanged" in text
        assert "orders[0]@5 column_0, column_1" in text
        assert "default: note" in text
        assert "orders[0] 0..4" in text
        assert "It would not be published: it_fails: because" in text
    show(describe_dry_run(found, HISTORY), as_json=True)
    said = json.loads(capsys.readouterr().out)
    show(describe_batch(kept), as_json=True)
    assert json.loads(capsys.readouterr().out)["dry_run"].items() <= said.items()
    show(describe_batch(HISTORY), as_json=True)
    assert json.loads(capsys.readouterr().out)["dry_run"] is None


@pytest.mark.parametrize(("added", "stay", "said"), [(3, 1, "would differ: 3 added"), (0, 4, "No row would be added")])
def test_dry_run_of_quarantine_says_how_many_records_would_leave_it(
    narrow: None, capsys: pytest.CaptureFixture[str], added: int, stay: int, said: str
) -> None:
    batch = replace(BATCH, origin=RecordOrigin.QUARANTINE)
    balance = RangeRecord("orders", 0, 4, 8, added, 0, stay, 0, 0, 0, 0, 0, 0, 0, 0)
    found = DryRun(batch, (), (), Comparison(added=added), ())
    show(describe_dry_run(found, replace(HISTORY, batch=batch, ranges=(balance,))), as_json=False)
    text = shown(capsys)
    assert f"{added} of 4 records would be published, {stay} would stay in quarantine." in text
    assert said in text
    show(describe_dry_run(replace(found, batch=BATCH), HISTORY), as_json=False)
    assert "quarantine" not in shown(capsys)


def test_replay_shows_what_it_has_replaced(narrow: None, capsys: pytest.CaptureFixture[str]) -> None:
    show(describe_replayed(HISTORY), as_json=False)
    text = shown(capsys)
    assert "3 orders[0] 4..8 1,234,567 1 0" in text
    assert "Replaced" in text


def test_replay_into_a_topic_is_never_said_to_replace(narrow: None, capsys: pytest.CaptureFixture[str]) -> None:
    held = (ReplacedRows(HeldRange(3, MIDDLE), 0),)
    show(describe_dry_run(DryRun(BATCH, (), held, Comparison(repeated=4), ()), HISTORY), as_json=False)
    assert shown(capsys).endswith("A topic replaces nothing: 4 records would be produced once more.")
    show(describe_dry_run(DryRun(BATCH, (), held, None, ()), HISTORY), as_json=False)
    assert "eplaced" not in shown(capsys)
    taken = ReplacementRecord(14, 3, "orders", 0, 4, 8, 0, 0, 0)
    again = replace(HISTORY, replaced=(taken,))
    before = replace(HISTORY, batch=replace(BATCH, batch_id=3), replaced=(), replaced_by=(taken,))
    show(describe_replayed(again), as_json=False)
    of_the_command = shown(capsys)
    show(describe_batch(again), as_json=False)
    for text in (of_the_command, shown(capsys)):
        assert "Published again batch range" in text
        assert text.endswith("3 orders[0] 4..8")
        assert "eplaced" not in text
    show(describe_batch(before), as_json=False)
    assert shown(capsys).endswith("14 orders[0] 4..8")


def test_replaced_rows_are_summed_by_batch() -> None:
    of_batches = [(3, 4), (5, 3), (3, 1)]
    replaced = [ReplacedRows(HeldRange(batch_id, MIDDLE), rows) for batch_id, rows in of_batches]
    assert describe_replaced(replaced) == "8 rows: batch 3: 5, batch 5: 3"
    assert describe_replaced([]) == "nothing: no batch holds these offsets"
    assert describe_replaced([ReplacedRows(HeldRange(3, MIDDLE), 0)]) == "no rows"


def test_payload_is_shown_only_when_asked_for_and_cannot_command_a_terminal(
    narrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    line = QuarantineLine(
        "orders", 0, 5, None, "does not decode " * 6, 3, NOW, None, b"\x1b[31m[bold]secret", payload_kept=True
    )
    found = QuarantineList([line], 1_000)
    show(describe_quarantine("orders", found, show_payload=False), as_json=False)
    text = shown(capsys)
    assert "secret" not in text
    assert "orders[0]@5 3 11-21 10:00 17" in text
    assert "1 of 1,000" in text
    show(describe_quarantine("orders", found, show_payload=False), as_json=True)
    assert "secret" not in capsys.readouterr().out
    show(describe_quarantine("orders", found, show_payload=True), as_json=False)
    assert r"\x1b[31m[bold]secret" in shown(capsys)
    long = replace(line, value=b'{"note": "' + b"x" * 200, error=NOT_ONE_OBJECT)
    show(describe_quarantine("orders", QuarantineList([long], 1), show_payload=True), as_json=False)
    printed = capsys.readouterr().out
    assert f'\norders[0]@5\n{{"note": "{"x" * 200}\n' in printed
    assert f"{NOT_ONE_OBJECT}: it ends early, after 210 bytes" in " ".join(printed.split())
    assert escape("é\x9b".encode()) == r"\xc3\xa9\xc2\x9b"
    assert escape(None) == "(no value)"
