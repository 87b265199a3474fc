"""Quarantine is not a drain, on real services: a batch says what does not decode, and no topic is emptied into it."""

from pathlib import Path

import pytest

from batchledger.lifecycle import decisions, run_batch
from batchledger.model.batch import BatchState, Decision
from batchledger.model.errors import BatchBlockedError
from tests.conftest import SERVICES
from tests.integration.test_cli import ask, ask_status, batchledger
from tests.pages import ANA, VIEWER, open_desk, words
from tests.support import TestPipeline, Workplace

POISON = b'{"number": "a secret"}'
NOT_DECODED = "number (int) cannot hold a string"


def send_bad(pipeline: TestPipeline, count: int) -> None:
    pipeline.send_raw([(number % 2, POISON) for number in range(count)])


def test_topic_of_which_every_record_is_undecodable_is_blocked_and_not_published_with_no_row(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S118."""
    pipeline = workplace.create()
    send_bad(pipeline, 40)
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), "run")
    told = str(blocked.value)
    assert "quarantine_within_limit: too many of the records would be quarantined: 40; 100.0% of 40" in told
    assert f"for example {pipeline.name}[0]@0 (40 records: {NOT_DECODED}" in told
    assert f'See the records with: batchledger records {pipeline.name} "{pipeline.name}[0] 0..1"' in told
    assert "secret" not in told
    batch_id = blocked.value.batch_id
    assert f"publish what is staged: batchledger accept {batch_id}" in told
    assert pipeline.query("select sum(next_offset) from batchledger.position where pipeline = %s", pipeline.name) == [
        (0,)
    ]
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(0,)]
    desk = open_desk(monkeypatch, ANA, VIEWER)
    assert f"40 records: {NOT_DECODED}" in words(desk.get(f"/{pipeline.name}/batches/{batch_id}", VIEWER))
    decisions.accept(pipeline.platform(), batch_id, Decision("ana", "the producer is gone"))
    batch = run_batch.run_once(pipeline.platform(), "run", batch_id)
    assert batch is not None
    assert batch.state is BatchState.PUBLISHED
    assert pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name) == [(40,)]
    pipeline.assert_exact()


def test_one_bad_record_in_ten_is_published_and_told_until_it_has_left_quarantine(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = workplace.create()
    (tmp_path / pipeline.path.name).write_text(pipeline.path.read_text())
    here = {"BATCHLEDGER_LOCAL": str(SERVICES.home.local), "BATCHLEDGER_PIPELINES": str(tmp_path)}
    pipeline.send(90)
    send_bad(pipeline, 9)
    pipeline.send_raw([(1, None)])
    told = batchledger("run", pipeline.name)
    assert "10 records quarantined: batchledger quarantine list" in " ".join(told.stdout.split())
    pipeline.assert_exact()
    for _ in range(2):
        ask("alerts", "send", pipeline.name)
    found = ask_status(tmp_path)
    (standing,), (told,) = found["pipelines"], found["incidents"]
    assert (standing["state"], standing["quarantine"]["records"]) == ("caught up", 10)
    assert (told["kind"], told["severity"], told["title"]) == ("quarantined", "warning", "10 records in quarantine")
    assert told["lines"][0].startswith(f"9 records: {NOT_DECODED}")
    assert told["lines"][1:] == ["1 record: the record has no value (a tombstone)"]
    shown = " ".join(batchledger("status", **here, COLUMNS="200").stdout.split())
    assert f"10 records in quarantine: 9 records: {NOT_DECODED}" in shown
    desk = open_desk(monkeypatch, ANA, VIEWER)
    for page in (f"/{pipeline.name}", ""):
        for user in (ANA, VIEWER):
            answer = desk.get(page, user)
            assert "10 records in quarantine" in words(answer) or pipeline.name not in answer.text
            assert "secret" not in answer.text
    page = desk.get(f"/{pipeline.name}", ANA)
    assert "1 record: the record has no value (a tombstone)" in words(page)
    assert "do=quarantine-replay#quarantine-replay" in page.text
    ask("quarantine", "drop", pipeline.name, "--all", "--reason", "never to be read")
    ask("alerts", "send", pipeline.name)
    (over,) = ask("alerts", pipeline.name)
    assert (over["ending"], over["ended_at"] is None) == ("nothing is in quarantine any more", False)
    assert "in quarantine" not in words(desk.get(f"/{pipeline.name}", ANA))
