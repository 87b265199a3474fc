"""What the reading tasks witness, without Spark: runs of offsets, and records set aside."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from batchledger.offsets import OffsetRange, TopicPartition, count_offsets, merge_ranges
from batchledger.quarantine import QUARANTINE_SCHEMA, SKIPPED_TOMBSTONE
from batchledger.spark.tasks import Witness, find_runs

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_error", pa.string()),
        ("_key", pa.binary()),
        ("_value", pa.binary()),
        ("_headers", pa.string()),
    ]
)


def batch_of(
    offsets: Sequence[int], bad: Sequence[int] = (), partition: int = 0, skipped: Sequence[int] = ()
) -> pa.RecordBatch:
    rows = [
        {
            "number": offset,
            "_topic": "orders",
            "_partition": partition,
            "_offset": offset,
            "_timestamp": NOW,
            "_error": "broken" if offset in bad else SKIPPED_TOMBSTONE if offset in skipped else None,
            "_key": None,
            "_value": b"raw" if offset in bad else None,
            "_headers": "[]" if offset in bad else None,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def runs_of(offsets: Sequence[int]) -> list[OffsetRange]:
    batch = batch_of(offsets)
    return find_runs(batch["_topic"], batch["_partition"], batch["_offset"])


def test_neighbouring_offsets_are_one_run() -> None:
    partition = TopicPartition("orders", 0)
    assert runs_of([4, 5, 6, 9]) == [OffsetRange(partition, 4, 7), OffsetRange(partition, 9, 10)]
    assert runs_of([]) == []


@given(st.lists(st.integers(0, 60)))
def test_runs_hold_exactly_the_offsets_that_were_seen_in_any_order_and_however_often(offsets: list[int]) -> None:
    merged = merge_ranges(runs_of(offsets))
    assert {offset for run in merged for offset in range(run.start, run.until)} == set(offsets)
    assert count_offsets(merged) == len(set(offsets))


def test_runs_never_cross_a_partition() -> None:
    table = pa.Table.from_batches([batch_of([1, 2]), batch_of([3, 4], partition=1)]).combine_chunks()
    (batch,) = table.to_batches()
    runs = find_runs(batch["_topic"], batch["_partition"], batch["_offset"])
    assert [str(run) for run in runs] == ["orders[0] 1..3", "orders[1] 3..5"]


@given(st.lists(st.booleans(), max_size=40))
def test_every_record_is_either_passed_on_or_set_aside(goodness: list[bool]) -> None:
    """S119."""
    bad = [offset for offset, is_good in enumerate(goodness) if not is_good]
    witness = Witness()
    passed = [row for batch in witness.split(iter([batch_of(range(len(goodness)), bad)])) for row in batch.to_pylist()]
    assert [row["number"] for row in passed] == [offset for offset in range(len(goodness)) if offset not in bad]
    assert all(set(row) == {"number", "_topic", "_partition", "_offset", "_timestamp"} for row in passed)
    quarantined = witness.quarantined
    assert (quarantined is None) == (not bad)
    if quarantined is not None:
        assert quarantined.schema == QUARANTINE_SCHEMA
        assert quarantined["offset"].to_pylist() == bad
    assert count_offsets(merge_ranges(witness.runs)) == len(goodness)


@given(st.lists(st.sampled_from(["good", "bad", "skipped"]), max_size=40))
def test_skipped_tombstones_are_seen_and_neither_passed_on_nor_quarantined(fates: list[str]) -> None:
    by_fate = {fate: [offset for offset, each in enumerate(fates) if each == fate] for fate in ("bad", "skipped")}
    witness = Witness()
    batch = batch_of(range(len(fates)), by_fate["bad"], skipped=by_fate["skipped"])
    passed = [row["number"] for each in witness.split(iter([batch])) for row in each.to_pylist()]
    assert passed == [offset for offset, fate in enumerate(fates) if fate == "good"]
    quarantined = witness.quarantined
    assert ([] if quarantined is None else quarantined["offset"].to_pylist()) == by_fate["bad"]
    assert {offset for run in witness.skipped for offset in range(run.start, run.until)} == set(by_fate["skipped"])
    assert count_offsets(merge_ranges(witness.runs)) == len(fates)
