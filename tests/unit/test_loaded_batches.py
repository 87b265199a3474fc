"""What a task of one's own DAG gets of the batches whose events have started its run."""

from typing import Any

from batchledger.interfaces.airflow.loaded_batches import collect_batches


def event(batch_id: int, pipeline: str = "orders", **more: Any) -> dict[str, Any]:
    """What the event of a batch says, as far as it is read."""
    alias = f"warehouse/public.{pipeline}"
    return {"pipeline": pipeline, "alias": alias, "batch_id": batch_id, "rows": 10, "lane": "live", **more}


def test_event_that_comes_by_its_asset_and_by_its_alias_counts_once() -> None:
    (found,) = collect_batches([event(18), event(17), event(18)])
    assert (found.batch_ids, found.rows, found.predicate) == ((17, 18), 20, "_batch_id in (17, 18)")
    assert [each["batch_id"] for each in found.events] == [17, 18]


def test_batches_of_each_target_are_told_apart() -> None:
    """A batch of another ledger may have the same number."""
    found = collect_batches([event(17), event(17, "clicks"), event(18, "clicks", alias="lake/shop.clicks")])
    assert [(each.pipeline, each.connection, each.target, each.batch_ids) for each in found] == [
        ("orders", "warehouse", "public.orders", (17,)),
        ("clicks", "warehouse", "public.clicks", (17,)),
        ("clicks", "lake", "shop.clicks", (18,)),
    ]


def test_replay_is_said_because_it_takes_rows_from_older_batches() -> None:
    assert [each.has_replay for each in collect_batches([event(17)])] == [False]
    assert [each.has_replay for each in collect_batches([event(17), event(18, lane="replay")])] == [True]


def test_events_of_other_assets_are_left_out() -> None:
    assert collect_batches([None, {}, {"rows": 3}]) == []
