"""``batchledger docs`` on a real ledger: pages of what was published, blocked and decided, without a record's value."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from batchledger.books.figures import load_figures
from batchledger.interfaces.data_docs.folder import DOCS_VARIABLE
from batchledger.interfaces.upkeep import audit_pipeline
from batchledger.lifecycle import run_batch
from batchledger.looking import ledger_dsn
from batchledger.model.errors import BatchBlockedError
from tests.integration.test_cli import ask
from tests.support import Workplace

POISON = b"\x00{poison"


def test_pages_tell_what_the_ledger_holds_and_are_written_again_after_a_decision(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published batch with a poison record, then one that is blocked by a check of the pipeline file."""
    monkeypatch.setenv(DOCS_VARIABLE, str(tmp_path))
    check = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 9}
    pipeline = workplace.create(checks=[check])
    pipeline.send(10)
    pipeline.send_raw([(0, POISON)])
    first = run_batch.run_once(pipeline.platform(), "first")
    assert first is not None
    pipeline.send(20)
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), "second")
    second = blocked.value.batch_id
    (built,) = ask("docs", pipeline.name)["built"]
    assert (built["written"], built["current"], built["removed"]) == (2, 0, 0)
    pages = {each.name: each.read_text() for each in (tmp_path / pipeline.name).glob("*.html")}
    assert set(pages) == {f"{first.batch_id}.html", f"{second}.html", "index.html"}
    page = pages[f"{second}.html"]
    assert "expect_column_values_to_be_between(number)" in page
    assert f"batchledger records {pipeline.name}" in page
    for text in pages.values():
        assert "poison" not in text
        assert pipeline.sent[0] not in text
    assert "Newest audit" not in pages["index.html"]
    audit_pipeline(pipeline.config, datetime.now(UTC))
    ask("docs", pipeline.name)
    history = (tmp_path / pipeline.name / "index.html").read_text()
    assert f"batchledger audit {pipeline.name}" in history
    assert "poison" not in history
    assert pipeline.sent[0] not in history
    ask("discard", str(second), "--reason", "not wanted")
    (built,) = ask("docs", pipeline.name)["built"]
    assert (built["written"], built["current"]) == (1, 1)
    assert "not wanted" in (tmp_path / pipeline.name / f"{second}.html").read_text()


def test_figures_of_a_batch_are_those_of_its_balance_and_its_newest_checks(workplace: Workplace) -> None:
    pipeline = workplace.create(dedupe={"key": ["message_id"], "remember": "1h"})
    pipeline.send(6)
    pipeline.send_raw([(0, POISON)])
    run_batch.run_once(pipeline.platform(), "first")
    pipeline.send(4)
    run_batch.run_once(pipeline.platform(), "second")
    dsn = ledger_dsn(pipeline.config)
    first, second = load_figures(dsn, pipeline.name, 10)
    assert (first.offsets, first.accepted, first.quarantined, first.duplicates, first.unexplained) == (7, 6, 1, 0, 0)
    assert (first.runs, first.failed, first.checks) == (("first",), 0, first.passed)
    assert (second.accepted, second.planned_by, second.decisions, second.taken_over) == (4, "second", 0, 0)
    assert [each.batch_id for each in load_figures(dsn, pipeline.name, 1)] == [second.batch_id]


def test_figures_tell_how_many_numbers_of_a_producer_are_missing(workplace: Workplace) -> None:
    """A batch without numbers has none to miss."""
    source = {"schema": "device string, seq bigint"}
    sequence = {"key": ["device"], "number": "seq"}
    plain, numbered = workplace.create(source=source), workplace.create(source=source, sequence=sequence)
    for pipeline in (plain, numbered):
        pipeline.send_raw((0, json.dumps({"device": "a", "seq": each}).encode()) for each in (1, 2, 6))
    run_batch.run_once(plain.platform(), "first")
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(numbered.platform(), "first")
    dsn = ledger_dsn(plain.config)
    found = [load_figures(dsn, each.name, 1)[0].missing_numbers for each in (plain, numbered)]
    assert found == [None, 3]
