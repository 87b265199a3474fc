"""What is done from the page, on real services: only what was shown, by whom it was shown to, while it is the same.

The routes are the real ones; Airflow, which says who asks and starts runs, is stood in for (``tests.pages``). A real
one, and a browser: tests/e2e/test_page.py.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from itsdangerous import TimestampSigner

from batchledger import decisions, run_batch
from batchledger.batch import Decision
from batchledger.dry_run import dry_run_replay
from batchledger.errors import BatchBlockedError
from batchledger.trigger_form import Rehearse, RunFacts, read_order
from batchledger.ui import acting
from tests.integration.test_replay_command import change
from tests.pages import ANA, BEN, Desk, offers, open_desk, read_approval, words
from tests.support import TestPipeline, Workplace, delete_records

SOMEBODY = Decision("somebody else", "was faster")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, and two people who may do everything."""
    return open_desk(monkeypatch, ANA, BEN)


def publish(pipeline: TestPipeline) -> int:
    """Publish what waits; return the batch."""
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    return batch.batch_id


def block(workplace: Workplace, run: str = "run") -> tuple[TestPipeline, int]:
    """A pipeline and its blocked batch: of two offsets one is a marker, which the pipeline does not declare."""
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), run)
    return pipeline, int(blocked.value.fields["batch_id"])


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


def rehearse(desk: Desk, pipeline: TestPipeline, kind: str = "replay", **fields: Any) -> tuple[str, str]:
    """Ask for a dry run, let it come to its end as Airflow's task does; return its run id and what was signed then."""
    started = desk.preview(pipeline, kind, **fields)
    assert started.status_code == 200, words(started)
    run_id = f"manual__{len(desk.asked)}"
    order = read_order(desk.asked[-1].fields, RunFacts(run_id), pipeline.config.source.topics)
    assert isinstance(order, Rehearse)
    dry_run_replay(pipeline.platform(), order.replay, run_id, order.decision)
    desk.airflow.state_by_run[pipeline.name, run_id] = "success"
    return run_id, read_approval(started)


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
    for kind, fields in fields_of_each_decision(pipeline, int(blocked.value.fields["batch_id"])).items():
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
            assert (refused.status_code, "give a reason" in words(refused), desk.asked) == (409, True, []), kind


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
        assert (refused.status_code, "something else was shown" in words(refused)) == (409, True), kind
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


def test_replay_needs_a_dry_run_that_has_come_to_its_end(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    ranges = f"{pipeline.name}[0] 0..2"
    unfinished = desk.preview(pipeline, "replay", ranges=ranges)
    assert not offers(unfinished)
    failed = desk.preview(pipeline, "replay", ranges=ranges)
    desk.airflow.state_by_run[pipeline.name, "manual__2"] = "failed"
    for run_id, shown in (("manual__1", unfinished), ("manual__2", failed)):
        refused = desk.confirm(pipeline, "replay", read_approval(shown), run=run_id)
        assert (refused.status_code, "no dry run of this" in words(refused)) == (409, True)
        assert not offers(desk.follow(pipeline, run_id, read_approval(shown)))
    # Neither is one that has published something a dry run.
    assert desk.confirm(pipeline, "replay", read_approval(unfinished), run="run").status_code == 409
    assert [each.run_id for each in desk.asked] == [None, None]
    assert all(each.fields["dry_run"] for each in desk.asked)


def test_replay_publishes_no_dry_run_but_the_one_that_was_signed(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    one, approval = rehearse(desk, pipeline, ranges=f"{pipeline.name}[0] 0..2")
    other, _ = rehearse(desk, pipeline, ranges=f"{pipeline.name}[0] 2..4")
    refused = desk.confirm(pipeline, "replay", approval, run=other)
    assert (refused.status_code, "no dry run of this" in words(refused)) == (409, True)
    refused = desk.follow(pipeline, other, approval)
    assert (refused.status_code, "another dry run was asked for" in words(refused)) == (409, True)
    assert len(desk.asked) == 2
    assert desk.confirm(pipeline, "replay", approval, run=one).status_code == 200
    assert desk.asked[-1].fields["ranges"] == [f"{pipeline.name}[0] 0..2"]


def test_replay_with_objections_is_not_started(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    rule = {"type": "expect_column_values_to_be_between", "column": "number", "max_value": 0}
    change(pipeline, checks=[rule])
    run_id, approval = rehearse(desk, pipeline, ranges=f"{pipeline.name}[0] 0..4")
    found = desk.follow(pipeline, run_id, approval)
    assert ("It would not be published" in words(found), offers(found)) == (True, False)
    refused = desk.confirm(pipeline, "replay", approval, run=run_id)
    assert (refused.status_code, "would not be published" in words(refused)) == (409, True)
    assert len(desk.asked) == 1


def test_replay_of_a_window_names_exactly_what_its_dry_run_has_compared_and_what_had_expired(
    workplace: Workplace, desk: Desk
) -> None:
    """Records arrive in the window afterwards: they were not compared, so they are not published again."""
    pipeline = workplace.create(partitions=2)
    pipeline.send(20)
    publish(pipeline)
    delete_records(workplace.kafka_options, pipeline.name, partition=1, before_offset=3)
    window = {"since": "2020-01-01", "until": "2100-01-01", "allow_expired": "yes"}
    run_id, approval = rehearse(desk, pipeline, **window)
    pipeline.send(20)
    publish(pipeline)
    found = desk.follow(pipeline, run_id, approval)
    assert ("Kafka no longer has" in words(found), offers(found)) == (True, True)
    for signed in (approval, read_approval(found)):
        started = desk.confirm(pipeline, "replay", signed, run=run_id, **window)
        assert f"Run {run_id}__replay queued" in words(started)
    name = pipeline.name
    assert [(each.run_id, each.fields) for each in desk.asked[1:]] == [
        (
            f"{run_id}__replay",
            {
                "action": "replay_ranges",
                "ranges": [f"{name}[0] 0..10", f"{name}[1] 3..10", f"{name}[1] 0..3"],
                "allow_expired": True,
                "reason": "agreed",
            },
        )
    ] * 2


def test_replay_without_anything_expired_allows_nothing_to_be_left_out(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    run_id, approval = rehearse(desk, pipeline, ranges=f"{pipeline.name}[0] 0..4", allow_expired="yes")
    desk.confirm(pipeline, "replay", approval, run=run_id)
    assert "allow_expired" not in desk.asked[-1].fields


def test_replay_of_quarantine_names_exactly_the_records_of_its_dry_run(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1, source={"schema": "message_id string, number int"})
    large = b'{"message_id": "large", "number": 3000000000}'
    pipeline.send_raw([(0, large), (0, b'{"message_id": "small", "number": 1}'), (0, large)])
    publish(pipeline)
    change(pipeline, source={"schema": "message_id string"})
    run_id, approval = rehearse(desk, pipeline, "quarantine-replay", ranges=f"{pipeline.name}[0] 0..10")
    pipeline.send_raw([(0, b"not json")])
    publish(pipeline)
    for wrong in ("replay", "quarantine-drop"):
        assert desk.confirm(pipeline, wrong, approval, run=run_id).status_code == 409
    assert desk.confirm(pipeline, "quarantine-replay", approval, run="run").status_code == 409
    assert len(desk.asked) == 1
    for _ in range(2):
        assert desk.confirm(pipeline, "quarantine-replay", approval, run=run_id).status_code == 200
    name = pipeline.name
    assert [(each.run_id, each.fields) for each in desk.asked[1:]] == [
        (
            f"{run_id}__quarantine-replay",
            {"action": "replay_quarantine", "ranges": [f"{name}[0] 0..1", f"{name}[0] 2..3"], "reason": "agreed"},
        )
    ] * 2


def test_dry_run_that_cannot_come_to_anything_is_not_started(workplace: Workplace, desk: Desk) -> None:
    """A partition that is not there, offsets that are not, and a quarantine that is empty are told at once."""
    pipeline = workplace.create(partitions=1)
    for kind, ranges, told in (
        ("replay", f"{pipeline.name}[9] 0..2", "cannot be read"),
        ("replay", f"{pipeline.name}[0] 0..2", "ends at 0"),
        ("quarantine-replay", f"{pipeline.name}[0] 0..2", "nothing to publish again"),
    ):
        refused = desk.preview(pipeline, kind, ranges=ranges)
        assert (refused.status_code, told in words(refused)) == (409, True)
    assert desk.asked == []


def have_replay_shown(workplace: Workplace, desk: Desk) -> tuple[TestPipeline, str]:
    """A pipeline, and what was signed when the dry run of a replay was begun."""
    pipeline = workplace.create(partitions=1)
    pipeline.send(2, partitions=1)
    return pipeline, read_approval(desk.preview(pipeline, "replay", ranges=f"{pipeline.name}[0] 0..2"))


def test_dry_run_is_signed_anew_each_time_it_is_looked_at(
    workplace: Workplace, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the hour counts from what was found, however long the dry run took."""
    pipeline, first = have_replay_shown(workplace, desk)
    now = TimestampSigner.get_timestamp(TimestampSigner("x"))
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: now + 3500)
    second = read_approval(desk.follow(pipeline, "manual__1", first))
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _: now + 7000)
    assert desk.follow(pipeline, "manual__1", first).status_code == 409
    assert desk.follow(pipeline, "manual__1", second).status_code == 200


def test_dry_run_is_looked_at_further_although_the_ledger_does_not_answer(
    workplace: Workplace, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, approval = have_replay_shown(workplace, desk)
    desk.airflow.state_by_run[pipeline.name, "manual__1"] = "success"
    monkeypatch.setattr(acting, "ledger_dsn", lambda _: "host=127.0.0.1 port=1 user=nobody dbname=none")
    silent = desk.follow(pipeline, "manual__1", approval)
    assert "the warehouse database says" in words(silent)
    poller = f'hx-post="/pipelines/{pipeline.name}/dry-runs/manual__1"'
    assert (silent.status_code, poller in silent.text, offers(silent)) == (200, True, False)


def test_range_of_no_topic_of_the_pipeline_starts_no_dry_run(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    for ranges in ("other[0] 0..2", "nonsense", f"{pipeline.name}[0] 2..2", f"{pipeline.name}[0] 0..{2**70}"):
        refused = desk.preview(pipeline, "replay", ranges=ranges)
        assert (refused.status_code, offers(refused)) == (409, False), ranges
    assert desk.asked == []
