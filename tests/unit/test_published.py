"""What an event says of a published batch: counts and coordinates, bounded however many partitions there are."""

import json
from datetime import UTC, datetime

from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.datasets import name_table, name_topic
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.published import RANGES_TOLD, PublishedBatch


def published(partitions: int, snapshot_id: int | None = None, lane: Lane = Lane.LIVE) -> PublishedBatch:
    ranges = tuple(OffsetRange(TopicPartition("orders", number), 10, 15) for number in range(partitions))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    batch = Batch(17, "orders", lane, BatchState.PUBLISHED, 1, "run", ranges, 0, moment)
    sources = [name_topic("broker:9092", "orders")]
    target = name_table("db", "5432", "shop", ("public", "orders"))
    return PublishedBatch(batch, target, sources, 4, 1, 0, fingerprint="f00d", snapshot_id=snapshot_id)


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
