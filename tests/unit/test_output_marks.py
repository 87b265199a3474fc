"""What the metadata of a group's offsets says about a batch: the ledger is asked, and no clock decides."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from batchledger.model.batch import Batch, BatchState, Lane
from batchledger.model.errors import TargetRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.topic.commits import Mark, advise, find_foreign, judge

PLACE = TopicPartition("orders", 0)
NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)
HOURS = [-600, -1, 0, 1, 600]


def batch_of(batch_id: int, lane: Lane = Lane.LIVE, hours: int = 0) -> Batch:
    ranges = (OffsetRange(PLACE, 0, 9),)
    return Batch(batch_id, "orders", lane, BatchState.COMMITTING, 1, "run", ranges, 0, NOW + timedelta(hours=hours))


def committed(batch: Batch) -> dict[TopicPartition, str]:
    mark = Mark.of(batch)
    return {PLACE: f"batchledger/1 batch={mark.batch_id} attempt=1 planned={mark.planned}"}


class Book:
    """A ledger with these batches alone."""

    def __init__(self, *batches: Batch) -> None:
        self.known = {(each.batch_id, each.planned_at) for each in batches}

    def __call__(self, batch_id: int, planned_at: datetime) -> bool:
        return (batch_id, planned_at) in self.known


@pytest.mark.parametrize("lane", list(Lane))
@pytest.mark.parametrize("hours", HOURS)
def test_earlier_batch_of_the_ledger_is_its_own_whenever_it_was_planned(lane: Lane, hours: int) -> None:
    earlier, batch = batch_of(1, lane, hours), batch_of(2, lane)
    assert find_foreign(committed(earlier), batch, Book(earlier, batch)) == {}
    assert judge(committed(earlier), batch, Book(earlier, batch)) is False


@pytest.mark.parametrize("lane", list(Lane))
@pytest.mark.parametrize("hours", HOURS)
def test_batch_that_the_ledger_does_not_have_is_another_ones_whenever_it_was_planned(lane: Lane, hours: int) -> None:
    theirs, batch = batch_of(1, lane, hours), batch_of(2, lane)
    own = batch_of(1, lane, hours + 1)
    with pytest.raises(TargetRefusedError, match="restored from a backup"):
        judge(committed(theirs), batch, Book(own, batch))
    assert advise(committed(theirs), batch).startswith("Either another ledger")


def test_live_batch_that_comes_later_is_not_committed_before() -> None:
    """An old copy of the ledger may know it; a replay may overtake another one."""
    later = batch_of(3)
    assert find_foreign(committed(later), batch_of(2), Book(later, batch_of(2))) == committed(later)
    replay = batch_of(3, Lane.REPLAY)
    assert find_foreign(committed(replay), batch_of(2, Lane.REPLAY), Book(replay)) == {}


def test_batch_is_found_by_its_id_and_the_moment_of_its_plan() -> None:
    batch = batch_of(2)
    assert judge(committed(batch), batch, Book()) is True
    of_same_id = replace(batch, planned_at=NOW + timedelta(microseconds=1))
    with pytest.raises(TargetRefusedError):
        judge(committed(of_same_id), batch, Book(batch))


def test_moment_that_no_calendar_has_is_no_batch() -> None:
    text = f"batchledger/1 batch=1 attempt=1 planned={10**30}"
    assert find_foreign({PLACE: text}, batch_of(2), lambda *_: True) == {PLACE: text}
