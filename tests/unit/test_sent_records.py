"""What a topic's stream counts of its records, and how they travel: the same as a look at each record would tell."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchledger.formats.encoding.blocks import OUTPUT_SCHEMA, RecordEncoder
from batchledger.model.balance import StagedRange
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import RecordTimes
from batchledger.sinks.topic.record_frames import RecordFrames, read_frame
from batchledger.sinks.topic.records import OutputBlock, UnfitRecordsError
from batchledger.sinks.topic.sent import SentRecords

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
RANGES = [OffsetRange(FIRST, 5, 20), OffsetRange(FIRST, 25, 40), OffsetRange(SECOND, 0, 10)]

Record = tuple[int, int | None]


def make_block(source: TopicPartition, records: list[Record]) -> OutputBlock:
    offsets, stamps = zip(*records, strict=True)
    columns = {"topic": [source.topic] * len(records), "partition": [source.partition] * len(records)}
    content = {**columns, "offset": offsets, "timestamp_ms": stamps}
    rows = pa.table({**content, "key": [b"k"] * len(records), "value": [b"v"] * len(records)}, schema=OUTPUT_SCHEMA)
    return OutputBlock(source, rows.combine_chunks().to_batches()[0])


@given(
    st.dictionaries(
        st.sampled_from([FIRST, SECOND, TopicPartition("others", 0)]),
        st.dictionaries(st.integers(0, 45), st.none() | st.integers(0, 10**13), min_size=1),
    ),
    st.integers(1, 7),
)
def test_blocks_of_any_size_are_counted_as_their_records_would_be(
    stamps: dict[TopicPartition, dict[int, int | None]], size: int
) -> None:
    sent = SentRecords(RANGES)
    found = {source: sorted(by_offset.items()) for source, by_offset in stamps.items()}
    for source, records in found.items():
        for start in range(0, len(records), size):
            sent.note(make_block(source, records[start : start + size]))

    def expect(each: OffsetRange) -> StagedRange:
        within = [at for at in found.get(each.partition, []) if each.start <= at[0] < each.until]
        return StagedRange(each, len(within), len(within), times=RecordTimes.of(stamp for _, stamp in within))

    expected = [expect(each) for each in RANGES]
    outside = sum(map(len, found.values())) - sum(each.rows for each in expected)
    summary = sent.summarise()
    assert [(each.range, each.rows, each.distinct_offsets) for each in summary] == [
        (each.range, each.rows, each.distinct_offsets) for each in expected
    ]
    assert [each.times for each in summary] == [each.times for each in expected]
    assert [each.outside for each in summary] == [outside, 0, 0]


@pytest.mark.parametrize("second", [[(9, 1)], [(8, 1)], [(11, 1), (10, 1)], [(10, 1), (10, 1)]])
def test_record_that_is_not_behind_the_ones_before_it_is_refused_and_counts_nothing(second: list[Record]) -> None:
    sent = SentRecords(RANGES)
    sent.note(make_block(FIRST, [(8, 1), (9, 2)]))
    before = sent.summarise()
    with pytest.raises(UnfitRecordsError, match="come twice, or not in the order"):
        sent.note(make_block(FIRST, second))
    assert sent.summarise() == before
    sent.note(make_block(SECOND, [(0, 1)]))


ROWS = pa.record_batch(
    {
        "name": ["a", "b", "c"],
        "_topic": ["orders", "others", "orders"],
        "_partition": pa.array([0, 0, 0], pa.int32()),
        "_offset": [1, 7, 2],
        "_timestamp": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
    }
)


def test_rows_of_several_partitions_come_out_of_their_frame_as_blocks_of_one_each() -> None:
    frames = RecordFrames(RecordEncoder(("name",)))
    assert (frames.encode(ROWS.slice(0, 0)), frames.finish()) == (b"", b"")
    blocks = list(read_frame(memoryview(frames.encode(ROWS))))
    assert {str(each.source): each.records["key"].to_pylist() for each in blocks} == {
        "orders[0]": [b"a", b"c"],
        "others[0]": [b"b"],
    }


@pytest.mark.parametrize("cut", [0, 3, 100, -20])
def test_frame_that_is_damaged_is_refused_with_one_type_of_error(cut: int) -> None:
    data = RecordFrames(RecordEncoder()).encode(ROWS)
    with pytest.raises(UnfitRecordsError):
        list(read_frame(memoryview(data[:cut])))


def test_frame_that_is_cut_between_two_of_its_batches_has_fewer_records_than_its_task_has_sent() -> None:
    """Arrow needs no mark of the end. So the numbers are compared, too."""
    records = next(RecordEncoder().encode(ROWS))
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, OUTPUT_SCHEMA) as writer:
            writer.write_batch(records)
            cut = stream.tell()
            writer.write_batch(records)
        data = bytes(stream.getvalue())
    assert sum(each.records.num_rows for each in read_frame(memoryview(data))) == 6
    assert sum(each.records.num_rows for each in read_frame(memoryview(data[:cut]))) == 3
