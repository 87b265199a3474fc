"""What the ledger keeps of the times of published records, and what it finds by them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from batchledger.model.balance import Balance
from batchledger.model.batch import Attempt, Decision
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.times import RecordTimes, TimedRange, TimeSpan, to_milliseconds
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.life import NOW, ORDERS_0, ORDERS_1
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA

WAREHOUSES = EVERY_SINK

START_MS = to_milliseconds(NOW)
FIRST, SECOND = OffsetRange(ORDERS_0, 0, 3), OffsetRange(ORDERS_0, 3, 6)
OTHER = OffsetRange(ORDERS_1, 10, 12)
NOTHING: Sequence[OffsetRange] = ()

Seconds = Mapping[OffsetRange, Sequence[float | None]]


def span(since: float, until: float) -> TimeSpan:
    return TimeSpan(START_MS + int(since * 1000), START_MS + int(until * 1000))


def times(*seconds: float | None) -> RecordTimes:
    return RecordTimes.of(None if each is None else START_MS + int(each * 1000) for each in seconds)


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOW + timedelta(seconds=seconds)


def rows_at(seconds: Seconds) -> pa.RecordBatch:
    """A row for each offset, written at that second after NOW."""
    rows: list[dict[str, Any]] = [
        {
            "_topic": each.partition.topic, "_partition": each.partition.partition, "_offset": each.start + number,
            "_timestamp": at(second), "message_id": f"{each.partition}@{each.start + number}",
        }
        for each, stamps in seconds.items()
        for number, second in enumerate(stamps)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def publish(warehouse: Warehouse, seconds: Seconds, run: str = "run-1") -> Attempt:
    attempt = life.stage(warehouse, life.store(warehouse, *seconds, run=run), run, rows=rows_at(seconds))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    return attempt


def timed(range_: OffsetRange, found: RecordTimes | None, records: int = 3, unseen: int = 0) -> TimedRange:
    return TimedRange(range_, range_, found, records, unseen)


def find(warehouse: Warehouse, looked_for: TimeSpan, within: Sequence[OffsetRange] = NOTHING) -> list[TimedRange]:
    return list(warehouse.ledger.find_times(warehouse.pipeline, looked_for, within))


def test_ranges_are_found_by_the_smallest_and_the_largest_timestamp_of_their_rows(warehouse: Warehouse) -> None:
    publish(warehouse, {FIRST: (50, 10, 20), OTHER: (5, 7)})
    publish(warehouse, {SECOND: (0.001, 30, 0.001)}, "run-2")
    one, two, other = timed(FIRST, times(10, 50)), timed(SECOND, times(0.001, 30)), timed(OTHER, times(5, 7), 2)
    assert find(warehouse, span(0, 60)) == [one, two, other]
    assert find(warehouse, span(40, 60)) == [one]
    assert find(warehouse, span(50, 50.001)) == [one]
    assert find(warehouse, span(50.001, 60)) == []
    assert find(warehouse, span(0, 0.001)) == []
    assert find(warehouse, span(0.001, 0.002)) == [two]


def test_ranges_of_which_something_is_held_within_named_ones_are_found_whatever_their_times(
    warehouse: Warehouse,
) -> None:
    publish(warehouse, {FIRST: (1, 2, 3), OTHER: (1, 2)})
    publish(warehouse, {SECOND: (4, 5, 6)}, "run-2")
    found = find(warehouse, span(100, 200), [OffsetRange(ORDERS_0, 5, 9), OffsetRange(ORDERS_1, 0, 10)])
    assert found == [timed(SECOND, times(4, 6))]


def test_nothing_is_found_before_it_is_published_nor_of_another_pipeline(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_at({FIRST: (1, 2, 3)}))
    life.audit(warehouse, attempt)
    assert find(warehouse, span(0, 10)) == []
    life.publish(warehouse, attempt)
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(1, 3))]
    assert list(warehouse.ledger.find_times("another", span(0, 10), [FIRST])) == []


def test_records_in_quarantine_count_and_so_do_those_without_a_timestamp(warehouse: Warehouse) -> None:
    """The record in quarantine was written at NOW, before all rows."""
    batch = life.store(warehouse, FIRST)
    rows = rows_at({OffsetRange(ORDERS_0, 0, 2): (5, None)})
    attempt = life.stage(warehouse, batch, poison=[(ORDERS_0, 2)], rows=rows)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    expected = timed(FIRST, times(0, 5, None))
    assert find(warehouse, span(0, 1)) == find(warehouse, span(100, 101)) == [expected]


def test_range_of_which_no_record_has_a_timestamp_is_known_to_have_none(warehouse: Warehouse) -> None:
    publish(warehouse, {FIRST: (None, None, None)})
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(None, None, None))]


def test_records_of_which_no_timestamp_was_seen_are_counted(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_at({OffsetRange(ORDERS_0, 0, 1): (5,)}))
    balance = Balance(FIRST, accepted=1, tombstones=1, filtered=1, times=times(5))
    warehouse.ledger.record_audit(attempt, [balance], [life.PASSED])
    life.publish(warehouse, attempt)
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(5), 1, 2)]


@pytest.mark.table
def test_replay_that_takes_offsets_over_has_their_times_from_then_on(warehouse: Warehouse) -> None:
    publish(warehouse, {FIRST: (1, 2, 3)})
    middle = OffsetRange(ORDERS_0, 1, 2)
    replay = life.stage(warehouse, life.store_replay(warehouse, middle), "again", rows=rows_at({middle: (2,)}))
    life.audit(warehouse, replay)
    life.publish(warehouse, replay)
    assert find(warehouse, span(0, 10)) == [
        TimedRange(OffsetRange(ORDERS_0, 0, 1), FIRST, times(1, 3), 3, 0),
        timed(middle, times(2), 1),
        TimedRange(OffsetRange(ORDERS_0, 2, 3), FIRST, times(1, 3), 3, 0),
    ]


def test_times_that_nobody_has_noted_are_unknown_until_somebody_does(warehouse: Warehouse) -> None:
    """The times of what was published before the migration are like these."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    life_of = [Balance(FIRST, accepted=3), Balance(OTHER, accepted=2)]
    warehouse.ledger.record_audit(attempt, life_of, [life.PASSED])
    life.publish(warehouse, attempt)
    assert find(warehouse, span(100, 200)) == [timed(FIRST, None), timed(OTHER, None, 2)]
    warehouse.ledger.note_times(warehouse.pipeline, {FIRST: times(1, 3), SECOND: times(8)})
    assert find(warehouse, span(100, 200)) == [timed(OTHER, None, 2)]
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(1, 3)), timed(OTHER, None, 2)]
    warehouse.ledger.note_times(warehouse.pipeline, {FIRST: times(100), OTHER: times(None, None)})
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(1, 3)), timed(OTHER, times(None, None), 2)]


def test_times_outlive_a_person_who_accepts_the_batch(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_at({FIRST: (1, 2, 3)}))
    warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), [life.FAILED])
    warehouse.decisions.accept(attempt, Decision("ana", "as it is"))
    life.publish(warehouse, attempt)
    assert find(warehouse, span(0, 10)) == [timed(FIRST, times(1, 3))]


def test_timestamp_beyond_the_years_of_python_is_kept_as_a_number(warehouse: Warehouse) -> None:
    """A producer that writes microseconds into the field of milliseconds."""
    far_ms = 1_700_000_000_000_000
    balance = Balance(FIRST, accepted=3, times=RecordTimes(START_MS, far_ms))
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    warehouse.ledger.record_audit(attempt, [balance], [life.PASSED])
    life.publish(warehouse, attempt)
    assert find(warehouse, TimeSpan(far_ms, far_ms + 1)) == [timed(FIRST, RecordTimes(START_MS, far_ms))]
