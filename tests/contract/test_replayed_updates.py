"""The contract of ``mode: upsert`` under replays: each key's newest record wins, whichever batch published it (I8)."""

import logging
import random
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from batchledger.model.errors import KeyConflictError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Upsert, VersionBy
from tests.contract import life
from tests.contract.conftest import EVERY_TABLE
from tests.contract.updates import BY_OFFSET, BY_TIMESTAMP, KEYS, P0, P1, Record, Story
from tests.contract.warehouses import Warehouse, open_postgres

WAREHOUSES = EVERY_TABLE
pytestmark = pytest.mark.rules


@pytest.fixture
def story(warehouse: Warehouse) -> Story:
    """A sink that updates (carrier, flight), newest by offset."""
    return Story(warehouse.with_rules(upsert=BY_OFFSET))


@pytest.fixture
def timed(warehouse: Warehouse) -> Story:
    """The same, newest by timestamp."""
    return Story(warehouse.with_rules(upsert=BY_TIMESTAMP))


def p0(start: int, until: int) -> OffsetRange:
    return OffsetRange(P0, start, until)


def test_i8_replay_changes_nothing_but_the_batch_of_its_rows_however_often_it_runs(story: Story) -> None:
    first = story.publish(Record("AA", 1), Record("DL", 2), Record("UA", 3))
    story.publish(Record("AA", 4), Record("DL", None))
    for _ in range(2):
        again = story.replay(p0(1, 4))
        assert story.state() == {("AA", 1): 4, ("UA", 1): 3}
        assert story.owners() == {"AA": again.batch.batch_id, "UA": again.batch.batch_id}
        assert story.warehouse.count_deleted_keys() == 1
    assert first.batch.batch_id not in story.owners().values()


def test_replay_of_an_older_range_does_not_overwrite_a_newer_row(story: Story) -> None:
    story.publish(Record("AA", 1))
    newer = story.publish(Record("AA", 2))
    story.replay(p0(0, 1))
    assert story.state() == {("AA", 1): 2}
    assert story.owners() == {"AA": newer.batch.batch_id}


def test_replay_of_an_older_range_does_not_bring_back_a_deleted_key(story: Story) -> None:
    story.publish(Record("AA", 1))
    story.publish(Record("AA", None))
    for ranges in (p0(0, 1), p0(0, 2), p0(1, 2), p0(0, 1)):
        story.replay(ranges)
        assert story.state() == {}
        assert story.warehouse.count_deleted_keys() == 1


def test_replay_of_an_older_tombstone_does_not_delete_a_newer_row(story: Story) -> None:
    story.publish(Record("AA", 1), Record("AA", None))
    story.publish(Record("AA", 3))
    story.replay(p0(1, 2))
    assert story.state() == {("AA", 1): 3}
    assert story.warehouse.count_deleted_keys() == 0


def test_tombstone_that_a_new_transform_makes_a_row_brings_its_key_back(story: Story) -> None:
    story.publish(Record("AA", 1), Record("AA", None))
    story.replay(p0(1, 2), changed={(P0, 1): Record("AA", 5)})
    assert story.state() == {("AA", 1): 5}
    assert story.warehouse.count_deleted_keys() == 0


def test_record_that_a_new_transform_makes_a_tombstone_deletes_its_key(story: Story) -> None:
    story.publish(Record("AA", 1))
    story.publish(Record("AA", 2))
    story.replay(p0(1, 2), changed={(P0, 1): Record("AA", None)})
    assert story.state() == {}
    story.replay(p0(0, 1))
    assert story.state() == {}


def test_row_takes_the_values_that_a_new_transform_makes(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 2))
    story.replay(p0(0, 1), changed={(P0, 0): Record("AA", 10)})
    assert story.state() == {("AA", 1): 10, ("DL", 1): 2}


def test_record_that_gets_another_key_leaves_its_old_one(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 2))
    story.replay(p0(0, 1), changed={(P0, 0): Record("UA", 1)})
    assert story.state() == {("UA", 1): 1, ("DL", 1): 2}


def test_record_that_gets_the_key_of_a_newer_one_is_older(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 2))
    story.replay(p0(0, 1), changed={(P0, 0): Record("DL", 1)})
    assert story.state() == {("DL", 1): 2}


def test_newest_by_timestamp_wins_whatever_is_published_again(timed: Story) -> None:
    timed.publish(Record("AA", 1, P0, minute=5), Record("DL", 7, P0, minute=1), Record("AA", 2, P1, minute=3))
    timed.publish(Record("DL", None, P1, minute=2), Record("AA", 3, P0, minute=4))
    expected = {("AA", 1): 1}
    for ranges in ([OffsetRange(P1, 0, 1)], [p0(0, 1)], [p0(2, 3)], [p0(0, 2), OffsetRange(P1, 1, 2)], [p0(1, 2)]):
        timed.replay(*ranges)
        assert timed.state() == expected == timed.newest(VersionBy.TIMESTAMP)


def test_known_limit_older_state_of_a_key_comes_back_only_when_it_is_published_again(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 2))
    story.publish(Record("AA", 3))
    story.replay(p0(2, 3), changed={(P0, 2): None})
    assert story.state() == {("DL", 1): 2}
    story.replay(p0(0, 1))
    assert story.state() == {("AA", 1): 1, ("DL", 1): 2}


def test_older_state_is_there_at_once_when_both_ranges_are_published_again(story: Story) -> None:
    story.publish(Record("AA", 1), Record("DL", 2))
    story.publish(Record("AA", 3))
    story.replay(p0(0, 3), changed={(P0, 2): None})
    assert story.state() == {("AA", 1): 1, ("DL", 1): 2}


@pytest.mark.parametrize(("dropped", "lost"), [([], 0), ([3], 1), ([4], 1), ([3, 4, 5], 3), ([1], 0)], ids=str)
def test_keys_that_lose_their_newest_record_are_counted_in_one_warning(
    warehouse_dsn: str, caplog: pytest.LogCaptureFixture, dropped: Sequence[int], lost: int
) -> None:
    with contextmanager(open_postgres)(warehouse_dsn) as warehouse:
        story = Story(warehouse.with_rules(upsert=BY_OFFSET))
        story.publish(Record("AA", 1), Record("DL", 2), Record("UA", 3))
        story.publish(Record("AA", 4), Record("DL", None), Record("UA", 5))
        with caplog.at_level(logging.WARNING):
            story.replay(p0(1, 6), changed={(P0, each): None for each in dropped})
        warnings = [each.getMessage() for each in caplog.records if "brings no such record" in each.msg]
        assert [f"newest record of {lost} keys" in each for each in warnings] == [True] * bool(lost)


def test_rows_that_are_replaced_do_not_divide_a_key(story: Story) -> None:
    story.publish(Record("AA", 1, P0), Record("DL", 2, P1))
    both = [p0(0, 1), OffsetRange(P1, 0, 1)]
    story.replay(*both, changed={(P0, 0): Record("DL", 1, P0), (P1, 0): Record("AA", 2, P1)})
    assert story.state() == {("DL", 1): 1, ("AA", 1): 2}


@pytest.mark.parametrize("delay", [1, None], ids=["row", "tombstone"])
def test_row_or_tombstone_out_of_the_ranges_does_divide_a_key(story: Story, delay: int | None) -> None:
    story.publish(Record("AA", delay, P0), Record("DL", 2, P1))
    state = story.state()
    replay = story.stage_replay(OffsetRange(P1, 0, 1), changed={(P1, 0): Record("AA", 2, P1)})
    with pytest.raises(KeyConflictError, match="two partitions"):
        life.publish(story.warehouse, replay)
    assert story.state() == state


def test_live_batch_takes_rows_and_tombstones_over_from_a_replay_that_read_ahead(story: Story) -> None:
    story.publish(Record("AA", 1))
    ahead = [Record("AA", None), Record("DL", 2), Record("AA", 3), Record("DL", None)]
    story.records += [(record, offset) for offset, record in enumerate(ahead, start=1)]
    story.replay(p0(0, 5))
    assert story.state() == {("AA", 1): 3}
    del story.records[1:]
    live = story.publish(*ahead[:3])
    assert story.owners() == {"AA": live.batch.batch_id}
    assert story.state() == {("AA", 1): 3}
    story.publish(*ahead[3:])
    assert story.state() == {("AA", 1): 3}
    assert story.warehouse.count_deleted_keys() == 1
    assert story.warehouse.prove().findings == ()


Round = tuple[Sequence[Record], Sequence[tuple[int, int, int, int]]]


def follow(story: Story, alone: Story, rules: Upsert, history: Sequence[Round]) -> None:
    """After every publication the target, and what is known of deleted keys, is what live batches leave ``alone``."""
    for records, replays in history:
        for each in (story, alone):
            each.publish(*records)
        for one, other, third, fourth in replays:
            ranges = [*_between(story, P0, one, other), *_between(story, P1, third, fourth)]
            if ranges:
                story.replay(*ranges)
            assert _without_batch(story) == _without_batch(alone)
            assert story.state() == story.newest(rules.version)
            assert story.warehouse.count_deleted_keys() == alone.warehouse.count_deleted_keys()


def _between(story: Story, partition: TopicPartition, one: int, other: int) -> list[OffsetRange]:
    end = life.next_offsets(story.warehouse).get(partition, 0)
    start, until = sorted((min(one, end), min(other, end)))
    return [OffsetRange(partition, start, until)] if start < until else []


def _without_batch(story: Story) -> list[tuple[Any, ...]]:
    rows = story.warehouse.read_target()
    return sorted(tuple((name, value) for name, value in sorted(row.items()) if name != "_batch_id") for row in rows)


@pytest.mark.parametrize("rules", [BY_OFFSET, BY_TIMESTAMP], ids=["offset", "timestamp"])
@pytest.mark.parametrize("seed", range(2))
def test_any_history_with_replays_gives_the_newest_state(warehouse_dsn: str, rules: Upsert, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311

    def draw() -> Record:
        carrier = chance.choice(sorted(KEYS))
        anywhere = rules.version is VersionBy.TIMESTAMP
        partition = chance.choice([P0, P1]) if anywhere else KEYS[carrier]
        return Record(carrier, chance.choice([None, chance.randrange(99)]), partition, chance.randrange(4))

    history = [
        ([draw() for _ in range(chance.randint(1, 6))], [tuple(chance.choices(range(20), k=4)) for _ in range(2)])
        for _ in range(4)
    ]
    opened = contextmanager(open_postgres)
    with opened(warehouse_dsn) as one, opened(warehouse_dsn) as other:
        follow(Story(one.with_rules(upsert=rules)), Story(other.with_rules(upsert=rules)), rules, history)  # type: ignore[arg-type]
