"""What an event says of a published batch: counts and coordinates, bounded however many partitions there are."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self

import pytest
from airflow.sdk import AssetAlias

from batchledger.interfaces.airflow import assets
from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.datasets import name_table, name_topic
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.published import RANGES_TOLD, PublishedBatch

TARGET = AssetAlias("warehouse/public.orders")


def published(partitions: int, snapshot_id: int | None = None, lane: Lane = Lane.LIVE) -> PublishedBatch:
    ranges = tuple(OffsetRange(TopicPartition("orders", number), 10, 15) for number in range(partitions))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    batch = Batch(17, "orders", lane, BatchState.PUBLISHED, 1, "run", ranges, 0, moment)
    sources = [name_topic("broker:9092", "orders")]
    target = name_table("db", "5432", "shop", ("public", "orders"))
    return PublishedBatch(
        batch, target, "warehouse/public.orders", sources, 4, 1, 0, fingerprint="f00d", snapshot_id=snapshot_id
    )


def test_event_of_ten_thousand_partitions_names_the_first_ranges_and_counts_all() -> None:
    event = published(10_000).to_event()
    assert len(event["ranges"]) == RANGES_TOLD
    assert event["ranges"][:2] == ["orders[0] 10..15", "orders[1] 10..15"]
    assert (event["ranges_total"], event["offsets"]) == (10_000, 50_000)
    assert len(json.dumps(event)) < 4_000


def test_event_keeps_the_digits_of_a_snapshot_for_readers_whose_numbers_are_floats() -> None:
    event = json.loads(json.dumps(published(1, snapshot_id=2**62 + 1).to_event()), parse_int=float)
    assert int(event["snapshot_id"]) == 2**62 + 1


def test_event_of_a_replay_says_that_it_is_one() -> None:
    assert [published(1, lane=lane).to_event()["lane"] for lane in Lane] == ["live", "replay"]


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)])
def test_batch_has_one_event_also_if_the_clocks_of_ledger_and_airflow_differ(
    monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    """A cleared task announces nothing again, and a first one whose event is not there does."""
    batch = published(1)
    began = batch.batch.planned_at - ahead
    stored = [
        SimpleNamespace(
            timestamp=began + timedelta(minutes=1), asset=SimpleNamespace(uri=batch.target.uri), extra=batch.to_event()
        )
    ]

    class Events(list[Any]):
        """What Airflow has stored with the alias."""

        def after(self, moment: str) -> Self:
            return type(self)(each for each in self if each.timestamp >= datetime.fromisoformat(moment))

    told: list[str] = []
    outlet = SimpleNamespace(add=lambda asset, extra: told.append(asset.uri))
    run = SimpleNamespace(run_after=began)
    context: Any = {"ti": SimpleNamespace(try_number=2), "dag_run": run, "outlet_events": {TARGET: outlet}}
    monkeypatch.setattr(assets, "InletEventsAccessor", lambda alias_name: Events(stored))
    assert not assets.announce(context, TARGET, batch)
    stored.clear()
    assert assets.announce(context, TARGET, batch)
    assert told == [batch.target.uri]
