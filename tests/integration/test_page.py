"""What the pages say, on real services: as much as the user may see, and of every offset what has become of it."""

import re
import threading
from typing import Any

import pytest
from markupsafe import escape

from batchledger.interfaces.page import lookout, pipeline_view
from batchledger.interfaces.page.batch_list import BatchQuery
from batchledger.interfaces.page.partition_list import PartitionQuery
from batchledger.interfaces.page.pipeline_view import PipelineView, look_at_pipeline
from batchledger.interfaces.page.ribbon import COLUMNS
from batchledger.interfaces.surveys import Standing
from batchledger.ledger.looks import list_looks
from batchledger.lifecycle import decisions, plans, run_batch
from batchledger.lifecycle.erasing import erase
from batchledger.model.batch import Decision, Step, StepFailure
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import BatchBlockedError
from batchledger.model.findings import PipelineState
from batchledger.model.offsets import LARGEST_OFFSET, LARGEST_PARTITION, OffsetRange
from batchledger.planning.replay import Replay
from batchledger.proof.coverage import Kind
from tests.integration.test_replay_command import change
from tests.pages import ANA, PATIENT_SECONDS, VIEWER, Desk, User, block, open_desk, publish, words
from tests.support import TestPipeline, Workplace, delete_records, wait_until

BANNER = 'class="banner bad" role="alert"'
WHY = Decision("ana", "agreed")
MARKUP = "<script>alert(1)</script>"
EVIL = (MARKUP, '"><img src=x onerror=alert(1)>', "'; drop table x --", "..%2f..%2fetc%2fpasswd", "a%00b", "%c3%28")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, which look again only when a test lets them."""
    monkeypatch.setattr(lookout, "FRESH_SECONDS", 3600.0)
    return open_desk(monkeypatch, ANA, VIEWER)


def look_again(desk: Desk, pipeline: TestPipeline) -> PipelineView:
    desk.pages.state.lookout.expire(pipeline.name)
    return look_at_pipeline(desk.pages.state.lookout, pipeline.config, PartitionQuery(), BatchQuery())


def count(view: PipelineView) -> dict[Kind, int]:
    """What the page says of the only partition: all of its offsets, and none twice."""
    (strip,) = view.strips
    assert sum(strip.counts.values()) == len(strip.frame)
    assert min(strip.counts.values(), default=1) > 0
    return dict(strip.counts)


def test_dag_that_is_no_pipeline_is_told_so(desk: Desk) -> None:
    for page in ("", "/batches/1", "/runs/manual__1", "/decisions", "/progress/manual__1", "/partitions/orders/0"):
        answer = desk.get(f"/a_dag_of_somebody{page}")
        assert answer.status_code == 404, page
        assert "The DAG a_dag_of_somebody is no pipeline: there is no pipeline file of this name" in words(answer)


def test_batch_and_run_are_found_below_their_own_pipeline_only(workplace: Workplace, desk: Desk) -> None:
    pipeline, other = workplace.create(partitions=1), workplace.create(partitions=1)
    batches = []
    for each in (pipeline, other):
        each.send(2, partitions=1)
        batch = run_batch.run_once(each.platform(), f"scheduled__{each.name}")
        assert batch is not None
        batches.append(batch.batch_id)
    own, foreign = batches
    for batch_id in (foreign, 10**9):
        answer = desk.get(f"/{pipeline.name}/batches/{batch_id}")
        assert (answer.status_code, "There is no such batch" in words(answer)) == (404, True)
        assert other.name not in answer.text
    assert f"{other.name}[0]" not in desk.get(f"/{pipeline.name}/decisions?batch={foreign}").text
    assert f"{pipeline.name}[0] 0..2" in desk.get(f"/{pipeline.name}/decisions?batch={own}").text
    found = desk.get(f"/{pipeline.name}/runs/scheduled__{pipeline.name}")
    assert (found.status_code, found.headers["location"]) == (307, f"/pipelines/{pipeline.name}/batches/{own}")
    for run in (f"scheduled__{other.name}", "manual__2026-11-22T10:00:00+00:00"):
        none = desk.get(f"/{pipeline.name}/runs/{run}")
        assert (none.status_code, f"Run {run} has no batch of its own" in words(none)) == (200, True)


def test_errors_keys_and_values_are_shown_to_who_may_act_and_to_no_other_user(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw([(0, b"secret value")], key=b"secret key")
    with_quarantine = publish(pipeline)
    pipeline.send(2, partitions=1)
    platform = pipeline.platform()
    failed = plans.plan(platform, "manual__1")
    assert failed is not None
    attempt = platform.ledger.open_attempt(failed.batch_id, "manual__1")
    platform.ledger.mark_failed(attempt, StepFailure(Step.STAGE, "refused: secret error", quoted="secret text"))
    payloads, whole = (f"/batches/{each}?payloads=yes" for each in (with_quarantine, failed.batch_id))
    pages = (payloads, whole, f"/batches/{failed.batch_id}", "", "/decisions", "/progress/manual__1")
    seen = {
        user.user_id: "".join(desk.get(f"/{pipeline.name}{each}", user).text for each in pages)
        for user in (ANA, VIEWER)
    }
    secrets = ("secret value", "secret key", "secret error", "secret text")
    assert [text for text in secrets if text not in seen["ana"]] == []
    assert "secret" not in seen["viewer"]
    looks = list_looks(workplace.dsn, pipeline.name, 20)
    assert [(each.batch_id, each.records, each.errors) for each in looks] == [
        (failed.batch_id, 0, 1),
        (with_quarantine, 1, 0),
    ]
    assert "its newest attempt has failed" in seen["viewer"]
    assert "secret" not in desk.get("", User("ana", dags=frozenset({pipeline.name}))).text


def test_look_at_keys_and_values_is_asked_for_and_recorded_once(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw([(0, b"secret value"), (0, b"secret too")])
    batch = publish(pipeline)
    usual = desk.get(f"/{pipeline.name}/batches/{batch}")
    assert ("secret" in usual.text, "Show keys and values" in words(usual)) == (False, True)
    desk.get(f"/{pipeline.name}/batches/{batch}?payloads=yes", VIEWER)
    assert list_looks(workplace.dsn, pipeline.name, 20) == []
    shown = desk.get(f"/{pipeline.name}/batches/{batch}?payloads=yes")
    assert "secret too" in shown.text
    assert 'hx-trigger="tick' in usual.text
    assert 'hx-trigger="tick' not in shown.text
    (look,) = list_looks(workplace.dsn, pipeline.name, 20)
    assert (look.actor.name, look.batch_id, look.records) == (ANA.get_name(), batch, 2)
    assert look.ranges == [f"{pipeline.name}[0] 0..2"]


def test_loss_is_told_line_by_line_with_the_ways_on(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(2, partitions=1)
    publish(pipeline)
    pipeline.send(3, partitions=1)
    delete_records(workplace.kafka_options, pipeline.name, 0, 4)
    desk.pages.state.lookout.expire(pipeline.name)
    detail = look_again(desk, pipeline).state.health.detail
    assert detail.count("\n") >= 2
    for page in ("", "/decisions"):
        text = desk.get(f"/{pipeline.name}{page}").text
        assert [line for line in detail.splitlines() if f"<p>{escape(line)}</p>" not in text] == [], page


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """A connection to a warehouse that does not answer."""
    monkeypatch.setenv("AIRFLOW_CONN_ELSEWHERE", "postgres://nobody:none@127.0.0.1:1/secret_warehouse")
    return "elsewhere"


def test_problem_of_a_connection_is_told_only_to_who_may_see_a_pipeline_that_uses_it(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    mine, other = workplace.create(partitions=1), workplace.create(partitions=1, sink={"connection": elsewhere})
    all_of_them = User("ana", dags=frozenset({mine.name, other.name}))
    only_mine = User("ben", dags=frozenset({mine.name}))
    desk = open_desk(monkeypatch, all_of_them, only_mine)
    told = desk.get("", all_of_them)
    assert (BANNER in told.text, "port 1" in words(told), other.name in told.text) == (True, True, True)
    kept = desk.get("", only_mine)
    assert (BANNER in kept.text, "port 1" in words(kept), other.name in kept.text) == (False, False, False)
    assert mine.name in kept.text
    assert desk.get(f"/{other.name}", only_mine).status_code == 403
    assert desk.get(f"/{other.name}", all_of_them).status_code == 503


def test_no_address_of_a_real_pipeline_breaks_a_page(workplace: Workplace, desk: Desk) -> None:
    """Numbers that are none, too small or too large are refused or ignored; what is text is shown as text."""
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    here, where = f"/{pipeline.name}", f"/{pipeline.name}/partitions/{pipeline.name}"
    numbers = ("", "0", "-1", "1.5", "1e3", "abc", "NaN", str(LARGEST_OFFSET), str(LARGEST_OFFSET + 1), "9" * 40, "٣")
    addresses = [f"{where}/{each}" for each in (*numbers, *EVIL, str(LARGEST_PARTITION), str(LARGEST_PARTITION + 1))]
    for each in (*numbers, *EVIL):
        addresses += [f"{where}/0?{name}={each}" for name in ("start", "until")]
        addresses += [f"{where}/0?start={each}&until=2", f"{where}/0?start=3&until={each}"]
        addresses += [f"{here}?page={each}", f"{here}?before={each}", f"?page={each}", f"?q={each}", f"?state={each}"]
        addresses += [f"{here}/batches/{each}", f"{here}/decisions?batch={each}", f"{here}/decisions?do={each}"]
        addresses += [f"{here}/runs/{each}", f"{here}/progress/{each}", f"{here}/partitions/{each}/0", f"/{each}"]
    for address in addresses:
        answer = desk.get(address)
        assert answer.status_code in (200, 307, 404, 422), (address, answer.status_code)
        for text in ("<script>alert", "<img", "Traceback"):
            assert text not in answer.text, address
    # They are there, so that something could have been wrong with them.
    shown = desk.get(f"{here}/runs/{MARKUP}")
    assert (shown.status_code, f"Run {MARKUP} has no batch" in words(shown)) == (200, True)
    assert f"Run {MARKUP}" in words(desk.get(f"{here}/progress/{MARKUP}"))
    assert desk.get(f"{where}/0?start=&until=").status_code == 200
    assert [desk.get(f"{where}/0?start={each}").status_code for each in ("-1", "abc", LARGEST_OFFSET + 1)] == [422] * 3
    assert desk.get(f"{here}/runs/a%00b").status_code == 404
    assert desk.get(f"{where}/7").status_code == 404


def test_fields_of_a_form_are_refused_or_shown_as_text_and_break_nothing(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    texts = (
        "",
        "abc",
        "-1",
        "9" * 40,
        MARKUP,
        "9999-12-31T23:59:59-14:00",
        f"{pipeline.name}[0]@{2**64}",
    )
    for kind in decisions_of_the_page(desk, pipeline):
        for text in texts:
            fields = dict.fromkeys(("batch", "discard_batch", "ranges", "to", "since", "until"), text)
            answer = desk.preview(pipeline, kind, **fields)
            assert answer.status_code in (200, 409), (kind, text, answer.status_code)
            assert "<script>alert" not in answer.text
        assert desk.preview(pipeline, kind, reason="a\0b").status_code == 400
    shown = desk.preview(pipeline, "pause", reason=MARKUP)
    approval = re.findall(r'name="approval" value="([^"]+)"', shown.text)[0]
    assert MARKUP not in desk.confirm(pipeline, "pause", approval).text
    page = desk.get(f"/{pipeline.name}")
    assert (MARKUP in words(page), MARKUP in page.text) == (True, False)


def decisions_of_the_page(desk: Desk, pipeline: TestPipeline) -> list[str]:
    """The kinds that there is a form for."""
    kinds = re.findall(r'<details id="([^"]+)"', desk.get(f"/{pipeline.name}/decisions").text)
    assert len(kinds) == 10
    return kinds


def test_ribbon_tells_what_has_become_of_every_offset(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send_raw((0, value) for value in (b"{}", b"not json", b"{}", b"{}", b"nor this", b"{}"))
    publish(pipeline)
    pipeline.send_raw([(0, b"{}")] * 2)
    decisions.skip(pipeline.platform(), [OffsetRange.parse(f"{pipeline.name}[0] 6..8")], WHY)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    with pytest.raises(BatchBlockedError) as blocked:
        publish(pipeline)
    pipeline.send_raw([(0, b"{}")] * 3)
    view = look_again(desk, pipeline)
    known = {Kind.QUARANTINED: 2, Kind.ACCEPTED_LOSS: 2, Kind.PUBLISHED: 4}
    assert (count(view), view.missing) == ({**known, Kind.BLOCKED: 2, Kind.UNREAD: 3}, [])
    label = "quarantined 2, accepted loss 2, published 4, blocked 2, unread 3"
    assert f'aria-label="{label}"' in desk.get(f"/{pipeline.name}").text
    assert f'aria-label="{label}"' in desk.get(f"/{pipeline.name}/partitions/{pipeline.name}/0").text
    closer = desk.get(f"/{pipeline.name}/partitions/{pipeline.name}/0?start=4&until=7")
    assert 'aria-label="quarantined 1, accepted loss 1, published 1"' in closer.text
    decisions.discard(pipeline.platform(), blocked.value.batch_id, WHY)
    assert plans.plan(pipeline.platform(), "run") is not None
    assert count(look_again(desk, pipeline)) == {**known, Kind.IN_FLIGHT: 5}


def test_page_asks_again_each_second_while_the_first_answers_are_on_their_way(
    workplace: Workplace, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    may_answer, find = threading.Event(), lookout._find_source

    def find_late(name: str, before: lookout.Source | None) -> lookout.Source:
        assert may_answer.wait(PATIENT_SECONDS)
        return find(name, before)

    monkeypatch.setattr(lookout, "_find_source", find_late)
    monkeypatch.setattr(pipeline_view, "_PATIENCE_SECONDS", 0.0)
    waiting = desk.get(f"/{pipeline.name}")
    assert ("Kafka is being asked" in words(waiting), waiting.text.count("every 1s")) == (True, 1)
    may_answer.set()
    wait_until(lambda: "every 1s" not in desk.get(f"/{pipeline.name}").text)
    assert "Kafka is being asked" not in words(desk.get(f"/{pipeline.name}"))


def test_error_of_kafka_is_told_once_beside_what_the_ledger_knows(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    publish(pipeline)
    change(pipeline, source={"connection": "nowhere"})
    view = look_again(desk, pipeline)
    assert (view.state.health.state, count(view)) == (PipelineState.UNKNOWN, {Kind.PUBLISHED: 4})
    told = desk.get(f"/{pipeline.name}")
    assert (told.status_code, told.text.count(BANNER)) == (200, 1)
    assert words(told).count("knows no connection 'nowhere'") == 1
    assert 'aria-label="published 4"' in told.text


def test_more_records_in_quarantine_than_a_ribbon_has_columns_are_all_counted(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1, quarantine={"max_share": 1})
    bad = COLUMNS + 100
    pipeline.send_raw((0, value) for _ in range(bad) for value in (b"not json", b"{}"))
    pipeline.send_raw([(0, b"not json")] * 7)
    publish(pipeline)
    pipeline.send_raw([(0, b"{}")] * 5)
    assert count(look_again(desk, pipeline)) == {Kind.QUARANTINED: bad + 7, Kind.PUBLISHED: bad, Kind.UNREAD: 5}


def test_what_is_published_after_the_look_at_the_history_is_no_gap_and_a_position_moved_by_hand_is(
    workplace: Workplace, desk: Desk
) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(10, partitions=1)
    publish(pipeline)
    assert count(look_again(desk, pipeline)) == {Kind.PUBLISHED: 10}
    pipeline.send(10, partitions=1)
    publish(pipeline)
    here = desk.pages.state.lookout
    here.source(pipeline.name).expire()
    later = look_at_pipeline(here, pipeline.config, PartitionQuery(), BatchQuery())
    assert (count(later), later.missing) == ({Kind.PUBLISHED: 10, Kind.UNREAD: 10}, [])
    assert 'aria-label="published 10, unread 10"' in desk.get(f"/{pipeline.name}/partitions/{pipeline.name}/0").text
    assert count(look_again(desk, pipeline)) == {Kind.PUBLISHED: 20}
    pipeline.send(5, partitions=1)
    pipeline.query(
        "update batchledger.position set next_offset = next_offset + 3 where pipeline = %s returning 1", pipeline.name
    )
    moved = look_again(desk, pipeline)
    assert (count(moved), list(map(str, moved.missing))) == (
        {Kind.PUBLISHED: 20, Kind.GAP: 3, Kind.UNREAD: 2},
        [f"{pipeline.name}[0] 20..23"],
    )
    assert "1 gap: the position has passed offsets that no batch holds" in words(desk.get(f"/{pipeline.name}"))


def stand(desk: Desk) -> dict[str, Standing]:
    """How all pipelines stand now, in the order of the page."""
    overview = desk.pages.state.lookout.overview
    overview.expire()
    sight = overview.look(PATIENT_SECONDS)
    assert sight.error is None
    # The shared ledger also has pipelines of other tests, whose files are elsewhere.
    return {each.name: each for each in sight.value.standings if each.health.state is not PipelineState.FILE_GONE}


def test_pipeline_whose_file_is_gone_stays_in_the_list_with_its_open_batch_and_the_way_on(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, batch_id = block(workplace)
    platform = pipeline.platform()
    monkeypatch.setattr(lookout, "FRESH_SECONDS", 3600.0)
    desk = open_desk(monkeypatch, User("owner", dags=frozenset({pipeline.name})))
    pipeline.path.unlink()
    stand(desk)
    owner = User("owner")
    shown = desk.get(f"?q={pipeline.name}", owner)
    told = words(shown)
    assert "file gone" in told.lower()
    assert f"open is batch {batch_id} (blocked)" in told
    assert f"batchledger retire {pipeline.name} --reason WHY" in told
    assert f"/pipelines/{pipeline.name}" not in shown.text
    assert desk.get(f"/{pipeline.name}", owner).status_code == 404
    platform.decisions.retire(pipeline.name, WHY, discard=[batch_id])
    stand(desk)
    assert "file gone" not in words(desk.get(f"?q={pipeline.name}", owner)).lower()


def test_batch_says_who_has_published_it_again(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    first = publish(pipeline)
    platform, here = pipeline.platform(), f"/{pipeline.name}/batches"
    assert "Published again" not in words(desk.get(f"{here}/{first}"))
    ranges = (OffsetRange.parse(f"{pipeline.name}[0] 0..2"),)
    replay = plans.plan_replay(platform, Replay(ranges), "manual__1", WHY, key="again")
    assert replay is not None
    run_batch.take_through(platform, replay.batch_id, "manual__1")
    told = words(desk.get(f"{here}/{first}"))
    assert f"Published again by batch {replay.batch_id}" in told
    assert f"Batch {replay.batch_id} took {pipeline.name}[0] 0..2 over: 2 rows" in told


def test_pages_say_how_many_rows_of_a_batch_were_erased(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    batch_id = publish(pipeline)
    ((message_id,),) = pipeline.query("select message_id from {target} limit 1")
    erase(pipeline.platform(), ErasureKey.parse([f"message_id={message_id}"]), WHY)
    assert "1 accepted row was erased." in words(desk.get(f"/{pipeline.name}/batches/{batch_id}"))
    assert f"{batch_id} live published 4 4 1 erased 0" in words(desk.get(f"/{pipeline.name}"))


def wait_as_replay(pipeline: TestPipeline) -> int:
    """Let a replay be blocked by a check that the pipeline did not have before; return its batch."""
    change(pipeline, checks=[{"type": "expect_column_values_to_be_between", "column": "number", "max_value": 0}])
    platform = pipeline.platform()
    ranges = (OffsetRange.parse(f"{pipeline.name}[0] 0..4"),)
    batch = plans.plan_replay(platform, Replay(ranges), "manual__1", WHY, key=None)
    assert batch is not None
    with pytest.raises(BatchBlockedError):
        run_batch.take_through(platform, batch.batch_id, "manual__1")
    return batch.batch_id


def test_overview_lists_the_worst_first_and_says_what_else_is_to_be_known(workplace: Workplace, desk: Desk) -> None:
    blocked, batch = block(workplace)
    (workplace.folder / "refused.yaml").write_text("name: refused\n")
    names = ("paused", "little", "much", "caught_up")
    paused, little, much, caught_up = (workplace.create(partitions=1, name=f"{blocked.name}_{each}") for each in names)
    for each in (little, much, caught_up):
        each.send(4, partitions=1)
        publish(each)
    little.send(1, partitions=1)
    much.send(9, partitions=1)
    decisions.pause(paused.platform(), WHY)
    waiting = wait_as_replay(caught_up)
    desk.airflow.switched_off.add(much.name)
    found = stand(desk)
    assert [(each.name, each.health.state.value) for each in found.values()] == [
        (blocked.name, "blocked"),
        (paused.name, "paused"),
        ("refused", "unknown"),
        (much.name, "unread records"),
        (little.name, "unread records"),
        (caught_up.name, "caught up"),
    ]
    assert found[blocked.name].health.detail == f"batch {batch} of {blocked.name} waits for a person"
    assert "refused.yaml" in found["refused"].health.detail
    notes = {each.name: each.notes for each in found.values() if each.notes}
    assert notes == {
        much.name: ("its DAG is switched off in Airflow",),
        caught_up.name: (f"a replay waits for a person: batch {waiting}",),
    }
    caught_up.query("update batchledger.batch set is_dry_run = true where batch_id = %s returning 1", waiting)
    assert stand(desk)[caught_up.name].notes == ()
    (workplace.folder / "refused.yaml").unlink()
    assert "refused" not in stand(desk)


def test_pipeline_that_has_read_nothing_yet_tells_how_old_its_first_record_is(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(2, partitions=1)
    desk.pages.state.lookout.finder.want([pipeline.name])
    threats = stand(desk)[pipeline.name].health.threats
    assert threats is not None
    assert threats.oldest_unread is not None
    assert threats.oldest_unread.next_offset == 0


def test_attempt_of_a_run_that_is_over_is_not_at_work(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    pipeline.send(4, partitions=1)
    platform = pipeline.platform()
    batch = plans.plan(platform, "manual__1")
    assert batch is not None

    def state() -> Any:
        told = stand(desk)[pipeline.name].health.state.value
        assert f">{told}<" in desk.get(f"/{pipeline.name}").text
        return told

    assert state() == "unread records"
    platform.ledger.open_attempt(batch.batch_id, "manual__1")
    run = (pipeline.name, "manual__1")
    for airflow_says, told in (
        ("running", "running"),
        ("queued", "running"),
        ("failed", "unread records"),
        ("success", "unread records"),
    ):
        desk.airflow.state_by_run[run] = airflow_says
        assert state() == told, airflow_says
    # Airflow knows a run of this id, of another DAG.
    desk.airflow.state_by_run = {("another_dag", "manual__1"): "running"}
    assert state() == "unread records"
    # Airflow knows no run of the command line.
    platform.ledger.open_attempt(batch.batch_id, "cli__2026-11-22T10:00:00__ana@host")
    assert state() == "running"


def test_batch_that_is_committing_says_that_its_sink_is_asked_first(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(into="topic", partitions=1)
    pipeline.send(4, partitions=1)

    def crash(point: str) -> None:
        if point == "sink_committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_batch.run_once(pipeline.platform(crash=crash), "manual__1")
    ((batch,),) = pipeline.query("select batch_id from batchledger.batch where pipeline = %s", pipeline.name)
    told = "No attempt has confirmed that yet"
    assert told in words(desk.get(f"/{pipeline.name}/batches/{batch}"))
    run_batch.run_once(pipeline.platform(), "manual__2", batch)
    assert told not in words(desk.get(f"/{pipeline.name}/batches/{batch}"))
    pipeline.assert_exact()
