"""The page of a pipeline that stands in a person's own DAG, on real services; Airflow is stood in for."""

import pytest

from batchledger.interfaces.trigger_form import OWN_KEY, RunFacts, read_request
from batchledger.lifecycle import run_batch
from batchledger.lifecycle.dry_run import dry_run_replay
from batchledger.model.runs import RunPlace
from batchledger.planning.replay import Replay
from tests.pages import ANA, Desk, User, open_desk, read_approval, words
from tests.support import TestPipeline, Workplace

NIGHTLY, OTHER = User("owner", dags=frozenset({"nightly"})), User("other", dags=frozenset({"hourly"}))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages; Ana may see all DAGs, and the others one each."""
    return open_desk(monkeypatch, ANA, NIGHTLY, OTHER)


def publish_in(pipeline: TestPipeline, run_id: str, group: str = "load") -> int:
    """Publish what waits, as a group of the DAG does; return the batch."""
    batch = run_batch.run_once(pipeline.platform(), RunPlace("nightly", run_id, group).name_for(pipeline.name))
    assert batch is not None
    return batch.batch_id


def test_pipeline_is_seen_by_who_may_see_its_dag_and_by_no_other_user(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    desk.airflow.own.append(("nightly", pipeline.name))
    pipeline.send(4)
    batch_id = publish_in(pipeline, "manual__1")
    for page in ("", f"/batches/{batch_id}", "/decisions"):
        seen = {each.user_id: desk.get(f"/{pipeline.name}{page}", each).status_code for each in (NIGHTLY, OTHER)}
        assert seen == {"owner": 200, "other": 403}, page
    listed = {each.user_id: f"row-{pipeline.name}" in desk.get("", each).text for each in (NIGHTLY, OTHER)}
    assert listed == {"owner": True, "other": False}
    page = desk.get(f"/{pipeline.name}/batches/{batch_id}").text
    assert "/dags/nightly/runs/manual__1" in page
    assert "/dags/nightly" in desk.get(f"/{pipeline.name}", NIGHTLY).text
    # With a DAG of its file, that one decides.
    desk.airflow.known.add(pipeline.name)
    assert desk.get(f"/{pipeline.name}", NIGHTLY).status_code == 403
    assert desk.get(f"/{pipeline.name}", ANA).status_code == 200


def test_tabs_of_a_dag_and_its_run_lead_to_the_pipelines_that_stand_in_it(workplace: Workplace, desk: Desk) -> None:
    first, second = workplace.create(partitions=1), workplace.create(partitions=1)
    desk.airflow.own.append(("nightly", first.name))
    for each in (first, second):
        each.send(4)
    batches = [publish_in(each, "manual__1", group) for each, group in ((first, "load"), (second, "rest.load"))]
    here = "/pipelines"
    assert desk.get("/nightly").headers["location"] == f"{here}/{first.name}"
    assert (
        desk.get("/nightly/runs/manual__1", NIGHTLY).headers["location"] == f"{here}/{first.name}/batches/{batches[0]}"
    )
    waiting = words(desk.get("/nightly/runs/manual__", NIGHTLY))
    assert f"{first.name}: Run manual__ has no batch of its own" in waiting
    desk.airflow.own.append(("nightly", second.name))
    desk.airflow.own.append(("nightly", "gone"))
    assert desk.get("/nightly").headers["location"] == f"{here}?dag=nightly"
    listed = desk.get("?dag=nightly", NIGHTLY).text
    assert [f"row-{each.name}" in listed for each in (first, second)] == [True, True]
    assert 'name="dag" value="nightly"' in listed
    told = desk.get("/nightly/runs/manual__1", NIGHTLY)
    assert all(
        f"{each.name}: batch {batch}" in words(told) for each, batch in zip((first, second), batches, strict=True)
    )
    assert f'href="{here}/{second.name}/batches/{batches[1]}"' in told.text


def test_order_starts_a_run_of_the_dag_for_this_pipeline_alone_and_follows_it(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    desk.airflow.own.append(("nightly", pipeline.name))
    pipeline.send(4, partitions=1)
    publish_in(pipeline, "scheduled__1")
    started = desk.preview(pipeline, "replay", NIGHTLY, ranges=f"{pipeline.name}[0] 0..2")
    (asked,) = desk.asked
    assert asked.dag_id == "nightly"
    fields = asked.fields[OWN_KEY]
    assert (set(asked.fields), fields["pipeline"]) == ({OWN_KEY}, pipeline.name)
    run_id = "manual__1"
    assert f"/dags/nightly/runs/{run_id}" in started.text
    order = read_request(fields, RunFacts(run_id), pipeline.config.source.topics)
    assert isinstance(order.order, Replay)
    place = RunPlace("nightly", run_id, "load")
    dry_run_replay(pipeline.platform(), order.order, place.name_for(pipeline.name), order.by)
    desk.airflow.state_by_run["nightly", run_id] = "success"
    name = f"{run_id}@nightly/"
    found = desk.follow(pipeline, name, read_approval(started), NIGHTLY)
    assert "Would replace 2 rows" in words(found)
    confirmed = desk.confirm(pipeline, "replay", read_approval(found), NIGHTLY, run=name)
    assert confirmed.status_code == 200, words(confirmed)
    assert (desk.asked[-1].dag_id, desk.asked[-1].run_id) == ("nightly", f"{run_id}__replay")
    assert desk.asked[-1].fields[OWN_KEY]["ranges"] == [f"{pipeline.name}[0] 0..2"]
    assert f"/dags/nightly/runs/{run_id}__replay" in confirmed.text


def test_page_follows_no_run_of_a_dag_that_the_pipeline_does_not_stand_in(workplace: Workplace, desk: Desk) -> None:
    """Otherwise a user would see its state who may not see it."""
    pipeline = workplace.create(partitions=1)
    desk.airflow.own.append(("nightly", pipeline.name))
    desk.airflow.state_by_run |= {("nightly", "manual__1"): "running", ("hourly", "manual__1"): "running"}
    assert "running" in words(desk.get(f"/{pipeline.name}/progress/manual__1@nightly/"))
    assert desk.get(f"/{pipeline.name}/progress/manual__1@hourly/").status_code == 404
    assert desk.get(f"/{pipeline.name}/progress/cli__1").status_code == 404


def test_tag_that_names_no_pipeline_leads_nowhere_and_tells_no_name(workplace: Workplace, desk: Desk) -> None:
    """Any author of a DAG can set one: also the DAG's own name, which would lead to itself for ever."""
    secret = workplace.create(partitions=1)
    for tag in ("nightly", "gone", "../../../x", "'\"><img>"):
        desk.airflow.own[:] = [("nightly", tag)]
        for page in ("/nightly", "/nightly/runs/manual__1"):
            answer = desk.get(page, NIGHTLY)
            assert (answer.status_code, secret.name in answer.text) == (404, False), (tag, page)


def test_user_follows_runs_of_the_dags_that_he_may_read_alone(workplace: Workplace, desk: Desk) -> None:
    pipeline = workplace.create(partitions=1)
    desk.airflow.own += [("nightly", pipeline.name), ("hourly", pipeline.name)]
    desk.airflow.state_by_run |= {("nightly", "manual__1"): "running", ("hourly", "manual__1"): "running"}
    answers = [desk.get(f"/{pipeline.name}/progress/manual__1@{each}/", NIGHTLY) for each in ("nightly", "hourly")]
    assert [each.status_code for each in answers] == [200, 404]


def test_what_was_shown_for_one_dag_is_not_carried_out_in_another(workplace: Workplace, desk: Desk) -> None:
    """A DAG that comes before it by its name, and was made meanwhile."""
    pipeline = workplace.create(partitions=1)
    desk.airflow.own.append(("nightly", pipeline.name))
    shown = desk.preview(pipeline, "pause", ANA)
    assert desk.confirm(pipeline, "pause", read_approval(shown), ANA).status_code == 200
    shown = desk.preview(pipeline, "resume", ANA)
    desk.airflow.own.append(("aaa", pipeline.name))
    # As Airflow's query has them, by their names.
    desk.airflow.own.sort()
    refused = desk.confirm(pipeline, "resume", read_approval(shown), ANA)
    assert (refused.status_code, "It was for nightly, and now aaa gives you the right" in words(refused)) == (409, True)
