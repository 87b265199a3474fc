"""A replay that is killed for real leaves old rows or new ones, never something between; readers never see a gap."""

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.batch import DeliveryMode
from batchledger.model.errors import ExpiredError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.planning.replay import Replay, Window
from batchledger.wiring import verify_pipeline
from tests.fakes.crash import replay_crash_points
from tests.faults.run_and_die import publish_again, run_until_killed
from tests.support import TestPipeline, Workplace, delete_records

SINKS = {"append": {}, "upsert": {"mode": "upsert", "key": ["message_id"]}}


def everything(pipeline: TestPipeline) -> Replay:
    """The whole topic of a pipeline with two partitions."""
    half = len(pipeline.sent) // 2
    return Replay(tuple(OffsetRange(TopicPartition(pipeline.name, number), 0, half) for number in range(2)))


def read_owners(pipeline: TestPipeline) -> dict[str, int]:
    """Which batch wrote the row of each record."""
    return dict(pipeline.query("select message_id, _batch_id from {target}"))


@pytest.mark.parametrize("mode", SINKS)
def test_replay_killed_at_every_point_leaves_old_rows_or_new_ones(workplace: Workplace, mode: str) -> None:
    """I8: after each SIGKILL the target is in one of two states, and the same run, repeated, ends in the new one."""
    pipeline = workplace.create(sink=SINKS[mode])
    pipeline.send(40)
    run_batch.run_once(pipeline.platform(), "live")
    positions = pipeline.platform().ledger.load_positions(pipeline.name)
    for point in replay_crash_points():
        before = read_owners(pipeline)
        run_until_killed(pipeline.name, f"killed at {point}", point, everything(pipeline))
        after = read_owners(pipeline)
        assert after == before or len(set(after.values())) == 1, point
        assert (after == before) == (point != "committed")
        pipeline.assert_exact()
        batch = publish_again(pipeline.platform(), everything(pipeline), f"killed at {point}")
        assert set(read_owners(pipeline).values()) == {batch.batch_id}
        pipeline.assert_exact()
    assert pipeline.platform().ledger.load_positions(pipeline.name) == positions
    assert pipeline.list_staging() == []


def test_readers_see_every_row_once_while_replays_replace_them(workplace: Workplace) -> None:
    """A reader counts as fast as it can; the number never changes."""
    pipeline = workplace.create()
    pipeline.send(2000)
    run_batch.run_once(pipeline.platform(), "live")
    seen: Counter[tuple[int, ...]] = Counter()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.update(pipeline.query("select count(*), count(distinct message_id) from {target}"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(3):
            publish_again(pipeline.platform(), everything(pipeline), f"again-{number}")
    finally:
        is_over.set()
        reader.join()
    assert seen.keys() == {(2000, 2000)}
    assert seen.total() > 10


def test_rows_that_a_crash_lost_in_at_most_once_come_back_by_a_replay(workplace: Workplace) -> None:
    pipeline = workplace.create(delivery=str(DeliveryMode.AT_MOST_ONCE))
    pipeline.send(40)
    run_until_killed(pipeline.name, "killed", "between_commits")
    assert not verify_pipeline(pipeline.config).holds
    publish_again(pipeline.platform(), everything(pipeline), "again")
    pipeline.assert_exact()


def test_replay_of_what_retention_partly_removed_is_refused_or_exact_about_the_rest(workplace: Workplace) -> None:
    pipeline = workplace.create()
    pipeline.send(40)
    run_batch.run_once(pipeline.platform(), "live")
    before = read_owners(pipeline)
    delete_records(workplace.kafka_options, pipeline.name, 0, 7)
    asked = everything(pipeline)
    with pytest.raises(ExpiredError, match="7 offsets of these") as refused:
        publish_again(pipeline.platform(), asked, "refused")
    assert refused.value.ranges == (OffsetRange(TopicPartition(pipeline.name, 0), 0, 7),)
    assert read_owners(pipeline) == before
    batch = publish_again(pipeline.platform(), Replay(asked.what, allow_expired=True), "allowed")
    assert Counter(read_owners(pipeline).values()) == {min(before.values()): 7, batch.batch_id: 33}
    pipeline.assert_exact()


def test_window_that_retention_partly_removed_is_refused_or_exact_about_the_rest(workplace: Workplace) -> None:
    """The ledger has the rows that are gone from Kafka; they stay as they are."""
    pipeline = workplace.create(topic_config={"retention.ms": "-1"})
    for number in range(40):
        moment = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(hours=number)
        value = json.dumps({"message_id": f"{pipeline.name}-{number}", "number": number, "amount": 0.5}).encode()
        pipeline.send_raw([(0, value)], timestamp=int(moment.timestamp() * 1000))
        pipeline.sent.append(f"{pipeline.name}-{number}")
    run_batch.run_once(pipeline.platform(), "live")
    before = read_owners(pipeline)
    delete_records(workplace.kafka_options, pipeline.name, 0, 7)
    first_day = Window(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC))
    with pytest.raises(ExpiredError, match="may belong to the window") as refused:
        publish_again(pipeline.platform(), Replay(first_day), "refused")
    assert refused.value.ranges == (OffsetRange(TopicPartition(pipeline.name, 0), 0, 7),)
    assert read_owners(pipeline) == before
    batch = publish_again(pipeline.platform(), Replay(first_day, allow_expired=True), "allowed")
    again = {f"{pipeline.name}-{number}" for number in range(7, 24)}
    assert {message_id for message_id, owner in read_owners(pipeline).items() if owner == batch.batch_id} == again
    second_day = Window(first_day.until, first_day.until + timedelta(days=1))
    publish_again(pipeline.platform(), Replay(second_day), "the next day has lost nothing")
    pipeline.assert_exact()
