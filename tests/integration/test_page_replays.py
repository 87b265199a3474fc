"""Replays from the page, on real services: of exactly what a dry run has compared, and of no other one.

As in ``test_page_decisions``, Airflow is stood in for.
"""

from typing import Any

import pytest
from itsdangerous import TimestampSigner

from batchledger.interfaces.page import acting
from batchledger.interfaces.trigger_form import RunFacts, read_request
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.planning.replay import Replay
from tests.integration.test_replay_command import change
from tests.pages import ANA, Desk, offers, open_desk, publish, read_approval, words
from tests.support import TestPipeline, Workplace, delete_records


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, and a user who may do everything."""
    return open_desk(monkeypatch, ANA)


def rehearse(desk: Desk, pipeline: TestPipeline, kind: str = "replay", **fields: Any) -> tuple[str, str]:
    """Ask for a dry run, let it come to its end as Airflow's task does; return its run id and what was signed then."""
    started = desk.preview(pipeline, kind, **fields)
    assert started.status_code == 200, words(started)
    run_id = f"manual__{len(desk.asked)}"
    asked = read_request(desk.asked[-1].fields, RunFacts(run_id), pipeline.config.source.topics)
    assert asked.is_dry_run
    assert isinstance(asked.order, Replay)
    dry_run_replay(pipeline.platform(), asked.order, run_id, asked.by)
    desk.airflow.state_by_run[pipeline.name, run_id] = "success"
    return run_id, read_approval(started)


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
        assert (refused.status_code, "No dry run of this" in words(refused)) == (409, True)
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
    assert (refused.status_code, "No dry run of this" in words(refused)) == (409, True)
    refused = desk.follow(pipeline, other, approval)
    assert (refused.status_code, "is not the dry run that you started" in words(refused)) == (409, True)
    assert len(desk.asked) == 2
    assert desk.confirm(pipeline, "replay", approval, run=one).status_code == 200
    assert desk.asked[-1].fields["ranges"] == [f"{pipeline.name}[0] 0..2"]


def test_page_of_a_pipeline_into_a_topic_never_speaks_of_replacing(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    forms = words(desk.get(f"/{pipeline.name}/decisions"))
    assert "A topic replaces nothing: readers see them once more." in forms
    assert "replaces exactly" not in forms
    assert "empty the table" not in forms
    shown = words(desk.preview(pipeline, "rewind", to=f"{pipeline.name}[0]@1"))
    assert "its readers would see once more what was produced of 3 offsets." in shown
    run_id, approval = rehearse(desk, pipeline, ranges=f"{pipeline.name}[0] 0..2")
    found = words(desk.follow(pipeline, run_id, approval))
    assert "Once more 2 records" in found
    assert "Would replace" not in found
    for into, can_be_emptied in (("table", True), ("lake", False)):
        forms = words(desk.get(f"/{workplace.create(into=into, partitions=1).name}/decisions"))
        assert ("replaces exactly" in forms, "empty the table" in forms) == (True, can_be_emptied)


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
    """The page names a partition that is not there, offsets that are not, and an empty quarantine at once."""
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
    assert "The warehouse database says" in words(silent)
    poller = f'hx-post="/pipelines/{pipeline.name}/dry-runs/manual__1"'
    assert (silent.status_code, poller in silent.text, offers(silent)) == (200, True, False)


def test_range_of_no_topic_of_the_pipeline_starts_no_dry_run(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    for ranges in ("other[0] 0..2", "nonsense", f"{pipeline.name}[0] 2..2", f"{pipeline.name}[0] 0..{2**70}"):
        refused = desk.preview(pipeline, "replay", ranges=ranges)
        assert (refused.status_code, offers(refused)) == (409, False), ranges
    assert desk.asked == []
