"""Orders that need two people, from the page, on real services: ana asks, ben confirms what was shown to her."""

from typing import Any

import pytest

from batchledger.wiring import verify_pipeline
from tests.pages import ANA, BEN, VIEWER, Desk, offers, open_desk, publish, read_approval, words
from tests.support import TestPipeline, Workplace


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The pages, two people who may do everything, and one who only looks."""
    return open_desk(monkeypatch, ANA, BEN, VIEWER)


@pytest.fixture
def pipeline(workplace: Workplace) -> TestPipeline:
    """One record is in quarantine, and one is published. Dropping and emptying need two people."""
    pipeline = workplace.create(partitions=1, second_person=["quarantine-drop", "truncate"])
    pipeline.send_raw([(0, b"not json")])
    pipeline.send(1, partitions=1)
    publish(pipeline)
    return pipeline


def ask(desk: Desk, pipeline: TestPipeline, kind: str, **fields: Any) -> int:
    """Let ana ask for an order; return the number of the request."""
    shown = desk.preview(pipeline, kind, **fields)
    assert "This needs a second person" in words(shown)
    done = words(desk.confirm(pipeline, kind, read_approval(shown)))
    assert "not done yet" in done
    return int(done.rsplit("request ", 1)[1])


def ask_to_drop(desk: Desk, pipeline: TestPipeline) -> int:
    return ask(desk, pipeline, "quarantine-drop", ranges=f"{pipeline.name}[0] 0..1")


def count_quarantined(pipeline: TestPipeline) -> int:
    ((found,),) = pipeline.query("select count(*) from batchledger.quarantine where pipeline = %s", pipeline.name)
    return int(found)


def test_request_is_confirmed_by_another_person_in_both_names(desk: Desk, pipeline: TestPipeline) -> None:
    number = ask_to_drop(desk, pipeline)
    assert count_quarantined(pipeline) == 1
    page = desk.get(f"/{pipeline.name}/decisions", user=BEN)
    assert f"Request {number}: quarantine-drop" in words(page)
    overview = desk.get(f"/{pipeline.name}", user=VIEWER)
    assert "1 request waits for a second person. See what would change" in words(overview)
    assert f'href="/pipelines/{pipeline.name}/decisions#requests"' in overview.text
    assert f"agreed would change: quarantined {pipeline.name}[0] 0..1: 1 → 0" in words(overview)
    own = desk.end(pipeline, number, "confirm", user=ANA)
    assert (own.status_code, "has asked for it" in words(own), count_quarantined(pipeline)) == (409, True, 1)
    assert desk.end(pipeline, number, "confirm", user=VIEWER).status_code == 403
    assert "done" in words(desk.end(pipeline, number, "confirm", user=BEN))
    assert count_quarantined(pipeline) == 0
    decided = pipeline.query(
        "select kind, decided_by, requested_by from batchledger.decision where pipeline = %s order by decision_id",
        pipeline.name,
    )
    assert decided == [
        ("request", "ana of operations", None),
        ("quarantine-drop", "ben of operations", "ana of operations"),
    ]
    assert "Waits for a second person" not in words(desk.get(f"/{pipeline.name}/decisions"))
    assert "for a second person" not in words(desk.get(f"/{pipeline.name}"))
    assert verify_pipeline(pipeline.config).holds


def test_table_is_emptied_by_two_people_or_not_at_all_once_it_has_grown(desk: Desk, pipeline: TestPipeline) -> None:
    fields = {"to": "earliest", "truncate": "yes"}
    outdated = ask(desk, pipeline, "rewind", **fields)
    pipeline.send(1, partitions=1)
    publish(pipeline)
    refused = desk.end(pipeline, outdated, "confirm", user=BEN)
    assert (refused.status_code, "would not change any more" in words(refused)) == (409, True)
    assert pipeline.count_target_rows() == 2
    assert "done" in words(desk.end(pipeline, outdated, "withdraw", user=BEN))
    number = ask(desk, pipeline, "rewind", **fields)
    assert "done" in words(desk.end(pipeline, number, "confirm", user=BEN))
    assert pipeline.count_target_rows() == 0
    assert verify_pipeline(pipeline.config).holds


def test_order_that_is_not_named_needs_one_person(desk: Desk, pipeline: TestPipeline) -> None:
    """The negative control."""
    shown = desk.preview(pipeline, "rewind", to="earliest")
    assert (offers(shown), "second person" in words(shown)) == (True, False)
    assert "done" in words(desk.confirm(pipeline, "rewind", read_approval(shown)))


def test_confirmation_needs_a_reason_and_a_request_of_this_pipeline(
    desk: Desk, pipeline: TestPipeline, workplace: Workplace
) -> None:
    number = ask_to_drop(desk, pipeline)
    assert "needs a reason" in words(desk.end(pipeline, number, "confirm", user=BEN, reason=" "))
    other = workplace.create(partitions=1)
    assert desk.end(other, number, "confirm", user=BEN).status_code == 404
    assert desk.end(pipeline, 9_000_000_000, "confirm", user=BEN).status_code == 409
    assert desk.end(pipeline, number, "accept", user=BEN).status_code == 400
    assert count_quarantined(pipeline) == 1
