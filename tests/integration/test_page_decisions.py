"""What is done from the page, on real services: only what was shown, by whom it was shown to, while it is the same.

The routes are the real ones; Airflow, which says who asks and starts runs, is stood in for (``tests.pages``). A real
one, and a browser: tests/e2e/test_page.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from batchledger.lifecycle import decisions, run_batch
from batchledger.model.batch import Decision
from batchledger.model.errors import BatchBlockedError
from tests.pages import ANA, BEN, Desk, block, offers, open_desk, publish, read_approval, words
from tests.support import TestPipeline, Workplace

SOMEBODY = Decision("somebody else", "was faster")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, and two people who may do everything."""
    return open_desk(monkeypatch, ANA, BEN)


def read_ledger(pipeline: TestPipeline) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a decision may change."""
    statements = {
        "positions": "select topic, partition, next_offset from batchledger.position where pipeline = %s order by 1, 2",
        "epoch": "select epoch from batchledger.pipeline where name = %s",
        "batches": "select batch_id, state, attempt from batchledger.batch where pipeline = %s order by 1",
        "quarantine": 'select "offset" from batchledger.quarantine where pipeline = %s order by 1',
        "decisions": "select kind, decided_by, reason from batchledger.decision "
        "where pipeline = %s order by decided_at",
    }
    return {name: pipeline.query(statement, pipeline.name) for name, statement in statements.items()}


def list_decided(pipeline: TestPipeline) -> list[tuple[Any, ...]]:
    return read_ledger(pipeline)["decisions"]


def fields_of_each_decision(pipeline: TestPipeline, blocked: int) -> dict[str, dict[str, Any]]:
    """What a person may ask for while a batch is blocked, and records lie behind it."""
    return {
        "accept": {"batch": blocked},
        "discard": {"batch": blocked},
        "retry": {"batch": blocked},
        "skip": {"ranges": f"{pipeline.name}[0] 4..5", "discard_batch": blocked},
        "rewind": {"to": "earliest"},
        "pause": {},
        "quarantine-drop": {"ranges": f"{pipeline.name}[0] 0..3"},
    }


def test_what_is_previewed_changes_nothing(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw([(0, b"not json"), (0, b"nor this"), (0, b"{}"), (0, b"{}")])
    publish(pipeline)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    with pytest.raises(BatchBlockedError) as blocked:
        publish(pipeline)
    before = read_ledger(pipeline)
    assert len(before["quarantine"]) == 2
    for kind, fields in fields_of_each_decision(pipeline, blocked.value.batch_id).items():
        shown = desk.preview(pipeline, kind, **fields)
        assert (shown.status_code, offers(shown)) == (200, True), (kind, words(shown))
        assert read_ledger(pipeline) == before, kind
    desk.preview(pipeline, "replay", ranges=f"{pipeline.name}[0] 0..2")
    assert read_ledger(pipeline) == before
    assert [each.fields["dry_run"] for each in desk.asked] == [True]
    # Asked for and carried out, the ledger differs: it is not blind.
    desk.confirm(pipeline, "pause", read_approval(desk.preview(pipeline, "pause")))
    assert read_ledger(pipeline) != before


def test_every_decision_is_carried_out_in_the_users_name_and_for_his_reason(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw([(0, b"not json"), (0, b"{}")])
    publish(pipeline)
    pipeline.send(4, partitions=1)
    name = pipeline.name
    orders: list[tuple[str, dict[str, Any]]] = [
        ("skip", {"ranges": f"{name}[0] 2..4"}),
        ("quarantine-drop", {"ranges": f"{name}[0] 0..1"}),
        ("pause", {}),
        ("resume", {}),
        ("rewind", {"to": f"{name}[0]@1"}),
    ]
    for kind, fields in orders:
        shown = desk.preview(pipeline, kind, user=BEN, reason=f" to try {kind} ", **fields)
        done = desk.confirm(pipeline, kind, read_approval(shown), user=BEN, reason="another one")
        assert "done" in words(done), (kind, words(done))
    assert list_decided(pipeline) == [(kind, "ben of operations", f"to try {kind}") for kind, _ in orders]
    found = read_ledger(pipeline)
    assert (found["positions"], found["quarantine"]) == ([(name, 0, 1)], [])


def test_order_for_a_reason_of_spaces_is_refused_before_anything_is_asked(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    for reason in ("", "   ", "\t\n", "\u00a0"):
        for kind in ("pause", "rewind", "replay", "quarantine-replay"):
            refused = desk.preview(pipeline, kind, reason=reason, ranges=f"{pipeline.name}[0] 0..1", to="earliest")
            assert (refused.status_code, "Give a reason" in words(refused), desk.asked) == (409, True, []), kind


def take_again(pipeline: TestPipeline, batch_id: int) -> None:
    with pytest.raises(BatchBlockedError):
        run_batch.run_once(pipeline.platform(), "another run", batch_id)


Meddle = Callable[[TestPipeline, int], object]
MEDDLED: dict[str, tuple[str, Meddle]] = {
    "accepted meanwhile": ("accept", lambda pipeline, batch: decisions.accept(pipeline.platform(), batch, SOMEBODY)),
    "accepted, to be discarded": (
        "discard",
        lambda pipeline, batch: pipeline.platform().decisions.discard(batch, SOMEBODY),
    ),
    "another attempt, to be accepted": ("accept", take_again),
    "another attempt, to be taken again": ("retry", take_again),
    "paused meanwhile": ("pause", lambda pipeline, _: decisions.pause(pipeline.platform(), SOMEBODY)),
}


@pytest.mark.parametrize("what", MEDDLED)
def test_what_has_changed_since_it_was_shown_is_shown_anew_and_not_carried_out(
    workplace: Workplace, desk: Desk, what: str
) -> None:
    kind, meddle = MEDDLED[what]
    pipeline, blocked = block(workplace)
    shown = desk.preview(pipeline, kind, batch=blocked)
    assert offers(shown)
    meddle(pipeline, blocked)
    before = read_ledger(pipeline)
    anew = desk.confirm(pipeline, kind, read_approval(shown))
    assert "Since you looked something has changed" in words(anew)
    assert "done" not in words(anew)
    assert (read_ledger(pipeline), desk.asked) == (before, [])


def test_what_is_shown_anew_can_be_confirmed_and_then_is_done(workplace: Workplace, desk: Desk) -> None:
    pipeline, blocked = block(workplace)
    shown = desk.preview(pipeline, "accept", batch=blocked)
    take_again(pipeline, blocked)
    anew = desk.confirm(pipeline, "accept", read_approval(shown))
    assert "done" in words(desk.confirm(pipeline, "accept", read_approval(anew)))
    assert pipeline.count_target_rows() == 1
    assert list_decided(pipeline)[-1][0] == "accept"


def test_approval_of_one_decision_carries_out_no_other(workplace: Workplace, desk: Desk) -> None:
    pipeline, blocked = block(workplace)
    before = read_ledger(pipeline)
    approval = read_approval(desk.preview(pipeline, "pause", batch=blocked))
    for kind in ("discard", "accept", "rewind", "retry", "replay", "resume"):
        refused = desk.confirm(pipeline, kind, approval, batch=blocked)
        assert (refused.status_code, "This was not shown to you" in words(refused)) == (409, True), kind
    assert (read_ledger(pipeline), desk.asked) == (before, [])


def forge(approval: str) -> list[str]:
    """The approval with one letter of its content, of its time or of its signature changed.

    A letter from the middle of each: the last letter of a signature has two bits that base64 ignores.
    """
    parts = approval.rsplit(".", 2)
    forged = []
    for at, part in enumerate(parts):
        middle = len(part) // 2
        letter = "B" if part[middle] == "A" else "A"
        forged.append(".".join([*parts[:at], part[:middle] + letter + part[middle + 1 :], *parts[at + 1 :]]))
    return forged


def test_approval_of_somebody_else_or_of_another_pipeline_or_none_is_refused(workplace: Workplace, desk: Desk) -> None:
    pipeline, other = workplace.create(partitions=1), workplace.create(partitions=1)
    approval = read_approval(desk.preview(pipeline, "pause"))
    attempts = [
        desk.confirm(pipeline, "pause", approval, user=BEN),
        desk.confirm(other, "pause", approval),
        *(desk.confirm(pipeline, "pause", forged) for forged in forge(approval)),
        desk.confirm(pipeline, "pause", ""),
        desk.confirm(pipeline, "pause", json.dumps({"user_id": "ana", "pipeline": pipeline.name, "kind": "pause"})),
    ]
    assert [each.status_code for each in attempts] == [409] * len(attempts)
    assert [list_decided(each) for each in (pipeline, other)] == [[], []]
    # It was good for what it was signed for.
    assert "done" in words(desk.confirm(pipeline, "pause", approval))


def test_batch_of_another_pipeline_is_none_of_this_one(workplace: Workplace, desk: Desk) -> None:
    other, blocked = block(workplace)
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    pipeline.send(4, partitions=1)
    before = [read_ledger(each) for each in (pipeline, other)]
    for kind in ("accept", "discard", "retry"):
        refused = desk.preview(pipeline, kind, batch=blocked)
        assert (refused.status_code, offers(refused)) == (409, False), kind
        assert f"{pipeline.name} has no batch {blocked}" in words(refused)
    skip = desk.preview(pipeline, "skip", ranges=f"{pipeline.name}[0] 4..6", discard_batch=blocked)
    if offers(skip):
        desk.confirm(pipeline, "skip", read_approval(skip))
    assert read_ledger(other) == before[1]
    assert desk.asked == []


def test_batch_that_is_discarded_with_a_loss_has_to_be_the_open_one(workplace: Workplace, desk: Desk) -> None:
    other, foreign = block(workplace)
    pipeline, blocked = block(workplace)
    ranges = f"{pipeline.name}[0] 0..1"
    refused = desk.preview(pipeline, "skip", ranges=ranges, discard_batch=foreign)
    assert (refused.status_code, offers(refused)) == (409, False)
    desk.confirm(pipeline, "skip", read_approval(desk.preview(pipeline, "skip", ranges=ranges, discard_batch=blocked)))
    states = [read_ledger(each)["batches"] for each in (pipeline, other)]
    assert [[state for _, state, _ in each] for each in states][1] == ["blocked"]
    assert (blocked, "discarded", 1) in states[0]


def test_retry_that_is_confirmed_twice_asks_for_one_run_and_the_next_one_for_another(
    workplace: Workplace, desk: Desk
) -> None:
    pipeline, blocked = block(workplace)
    approval = read_approval(desk.preview(pipeline, "retry", batch=f" {blocked} "))
    for _ in range(2):
        assert desk.confirm(pipeline, "retry", approval).status_code == 200
    again = read_approval(desk.preview(pipeline, "retry", batch=blocked))
    desk.confirm(pipeline, "retry", again)
    assert len({each.run_id for each in desk.asked}) == 1
    run_id = desk.asked[0].run_id
    assert run_id is not None
    # Airflow takes no other characters for the id of a run.
    assert " " not in run_id
    assert desk.asked[0].fields == {"action": "retry_batch", "batch_id": blocked, "reason": "agreed"}
    take_again(pipeline, blocked)
    desk.confirm(pipeline, "retry", read_approval(desk.preview(pipeline, "retry", batch=blocked)))
    assert desk.asked[-1].run_id != run_id
