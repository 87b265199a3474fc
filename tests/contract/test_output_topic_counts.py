"""Counting an output topic finds what its readers find, and says what may be missing."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.model.balance import TargetCount
from batchledger.model.batch import Lane
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import HeaderForm
from batchledger.sinks.topic import log
from batchledger.sinks.topic.counts import OffsetBits
from batchledger.sinks.topic.records import EVERY_BATCH
from batchledger.source.kafka import range_reader
from tests.contract.outputs import PARTITIONS, Output, OutputRecord, die
from tests.support import add_partitions, delete_records, wait_until


@pytest.fixture
def output(kafka: object) -> Output:
    return Output(kafka.options)  # type: ignore[attr-defined]


def place(output: Output, partition: int) -> TopicPartition:
    return TopicPartition(output.source, partition)


def expect(output: Output, counts: Mapping[int, TargetCount], batch_id: int = 1) -> dict[object, TargetCount]:
    return {(batch_id, place(output, partition)): count for partition, count in counts.items()}


def test_rows_are_counted_by_batch_and_source_partition(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(1), output.records(301), 301)
    output.topic().commit(output.attempt(2, until=200), output.records(3, start=301), 3)
    found = output.topic().count()
    assert dict(found.count_by_batch) == {
        **expect(output, {0: TargetCount(101, 101, 0, 100), 1: TargetCount(100, 100, 0, 99)}, 1),
        **expect(output, {2: TargetCount(100, 100, 0, 99)}, 1),
        **expect(output, {1: TargetCount(1, 1, 100, 100), 2: TargetCount(1, 1, 100, 100)}, 2),
        **expect(output, {0: TargetCount(1, 1, 101, 101)}, 2),
    }
    assert (found.foreign, found.incomplete_until, found.held_back) == (0, 0, 0)


def test_rows_of_one_offset_are_told_from_rows_of_several(output: Output) -> None:
    output.create()
    records = [OutputRecord(b"%d" % each, b"", output.source, 0, each // 3, None) for each in range(9)]
    output.topic().commit(output.attempt(1), records, 9)
    assert output.topic().count().count_by_batch == expect(output, {0: TargetCount(9, 3, 0, 2)})


def test_only_offsets_within_the_ranges_are_counted(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(), output.records(300), 300)
    bounds = [(0, 90, 1_000), (1, 0, 5), (1, 7, 8)]
    within = [OffsetRange(place(output, partition), start, until) for partition, start, until in bounds]
    counts = expect(output, {0: TargetCount(10, 10, 90, 99), 1: TargetCount(6, 6, 0, 7)})
    assert output.topic().count(within).count_by_batch == counts
    assert output.topic().count([]).count_by_batch == {}


def test_records_of_somebody_else_are_not_counted_and_told(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(), output.records(3), 3)
    ours = {"_topic": b"t", "_partition": b"0", "_offset": b"1", "_batch_id": b"1"}
    output.produce(b"no headers")
    for name, text in (("_batch_id", b"0"), ("_batch_id", b"x"), ("_partition", b"-1"), ("_offset", b"9" * 20)):
        output.produce(b"wrong", headers=list({**ours, name: text}.items()))
    output.produce(b"undecodable", headers=list({**ours, "_topic": b"\xff"}.items()))
    output.produce(b"one is missing", headers=list(ours.items())[1:])
    found = output.topic().count()
    assert found.foreign == 7
    assert found.count_by_batch == expect(output, dict.fromkeys(range(PARTITIONS), TargetCount(1, 1, 0, 0)))
    assert found.incomplete_until == 0


def test_records_with_packed_headers_are_counted_beside_others(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(1), output.records(3), 3)
    output.topic(headers=HeaderForm.PACKED).commit(output.attempt(2), output.records(6, start=3), 6)
    for text in (b"t|0|1||", b"t|0|1|", b"", b"t|0|1||0", b"t|-1|1||1", b"t|0|" + b"9" * 20 + b"||1", b"\xff|0|1||1"):
        output.produce(b"wrong", headers=[("_batchledger", text)])
    found = output.topic().count()
    assert found.foreign == 7
    assert found.count_by_batch == {
        **expect(output, dict.fromkeys(range(PARTITIONS), TargetCount(1, 1, 0, 0)), 1),
        **expect(output, dict.fromkeys(range(PARTITIONS), TargetCount(2, 2, 1, 2)), 2),
    }


def test_uncommitted_and_aborted_rows_are_not_counted(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(1), output.records(3), 3)
    die(output, "before_commit", output.attempt(2), 300)
    found = output.topic().count()
    assert {batch_id for batch_id, _ in found.count_by_batch} == {1}
    assert found.held_back > 0
    output.topic().find_commit(output.attempt(2))
    found = output.topic().count()
    assert {batch_id for batch_id, _ in found.count_by_batch} == {1}
    assert found.held_back == 0


def test_rows_behind_an_open_transaction_of_somebody_else_are_told(output: Output) -> None:
    output.create(partitions=1)
    with output.foreign_transaction():
        output.unsettled_topic().commit(output.attempt(), output.records(3), 3)
        found = log.look_at(output.options, output.name)
        assert output.topic().count().count_by_batch == {}
        assert output.topic().count().held_back == found.held_back > 0


def test_replayed_rows_are_counted_for_each_batch_that_wrote_them(output: Output) -> None:
    output.create()
    output.topic().commit(output.attempt(1), output.records(3), 3)
    output.topic().commit(output.attempt(2, lane=Lane.REPLAY), output.records(3), 3)
    assert {batch_id for batch_id, _ in output.topic().count().count_by_batch} == {1, 2}


def test_rows_that_retention_removed_are_told_by_the_first_batch_that_is_left(output: Output) -> None:
    output.create(partitions=1)
    for batch_id in (1, 2, 3):
        output.topic().commit(output.attempt(batch_id), output.records(10), 10)
    assert output.topic().count().incomplete_until == 0
    # Each batch has ten records and a marker.
    delete_records(output.options, output.name, 0, 15)
    found = output.topic().count()
    assert found.incomplete_until == 2
    assert {batch_id for batch_id, _ in found.count_by_batch} == {2, 3}


def test_partition_of_which_nothing_is_left_may_have_had_records_of_every_batch(output: Output) -> None:
    output.create(partitions=1)
    output.topic().commit(output.attempt(1), output.records(10), 10)
    delete_records(output.options, output.name, 0, 11)
    output.produce(b"somebody else's")
    found = output.topic().count()
    assert (found.count_by_batch, found.foreign, found.incomplete_until) == ({}, 1, EVERY_BATCH)


def test_compacted_topic_may_miss_records_of_every_batch_that_it_shows(output: Output) -> None:
    output.create({"cleanup.policy": "compact,delete"})
    assert output.topic().count().incomplete_until == 0
    for batch_id in (1, 5):
        output.topic().commit(output.attempt(batch_id), output.records(10), 10)
    assert output.topic().count().incomplete_until == 5


def test_topic_that_does_not_exist_holds_nothing(output: Output) -> None:
    found = output.topic().count()
    assert (found.count_by_batch, found.foreign, found.incomplete_until, found.held_back) == ({}, 0, 0, 0)


def test_nothing_is_left_out_if_records_arrive_in_many_parts(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "RECORDS_PER_POLL", 7)
    output.create()
    output.topic().commit(output.attempt(), output.records(300), 300)
    die(output, "before_commit", output.attempt(2), 300)
    output.topic().commit(output.attempt(2, number=2), output.records(300), 300)
    counts = dict.fromkeys(range(PARTITIONS), TargetCount(100, 100, 0, 99))
    assert output.topic().count().count_by_batch == {**expect(output, counts, 1), **expect(output, counts, 2)}


def test_partition_that_was_added_is_counted(output: Output) -> None:
    output.create()
    add_partitions(output.options, output.name, PARTITIONS + 1)
    wait_until(lambda: len(log.look_at(output.options, output.name).ranges) == PARTITIONS + 1)
    record = OutputRecord(None, b"", output.source, PARTITIONS, 0, None)
    output.topic().commit(output.attempt(), [record], 1)
    assert output.topic().count().count_by_batch == expect(output, {PARTITIONS: TargetCount(1, 1, 0, 0)})


@given(st.lists(st.integers(min_value=0, max_value=2**63 - 1) | st.integers(min_value=0, max_value=5_000)))
def test_set_of_offsets_counts_each_once(offsets: list[int]) -> None:
    bits = OffsetBits()
    for each in offsets:
        bits.add(each)
    assert len(bits) == len(set(offsets))
