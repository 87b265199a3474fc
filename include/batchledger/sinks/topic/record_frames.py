"""Records of a topic on their way through a door: frames of Arrow, and the blocks that they are taken apart into."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from batchledger.formats.encoding.blocks import OUTPUT_SCHEMA, RecordEncoder
from batchledger.model.offsets import TopicPartition
from batchledger.sinks.topic.records import OutputBlock, UnfitRecordsError


@dataclass(frozen=True)
class RecordFrames:
    """Makes the records of the rows of one share, and the data of frames of them."""

    encoder: RecordEncoder = field(repr=False)

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return the records of these rows; empty without rows."""
        if not rows.num_rows:
            return b""
        with pa.BufferOutputStream() as stream:
            with pa.ipc.new_stream(stream, OUTPUT_SCHEMA) as writer:
                for records in self.encoder.encode(rows):
                    writer.write_batch(records)
            return bytes(stream.getvalue())

    def finish(self) -> bytes:
        """Nothing is kept back."""
        return b""


def read_frame(data: memoryview) -> Iterator[OutputBlock]:
    """Yield the records of a frame as blocks of one source partition each. Raises UnfitRecordsError for other data."""
    try:
        # The buffer of the frame is used again for the next one, and the client may still have these.
        found = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
    except (pa.ArrowException, OSError) as error:
        raise UnfitRecordsError(f"a frame has no records, {error}") from error
    for records in found.to_batches():
        yield from _divide(records)


def _divide(records: pa.RecordBatch) -> Iterator[OutputBlock]:
    places = pa.Table.from_batches([records.select(["topic", "partition"])])
    sources = places.group_by(["topic", "partition"]).aggregate([]).to_pylist() if places.num_rows else []
    for each in sources:
        block = records
        if len(sources) > 1:
            block = records.filter((pc.field("topic") == each["topic"]) & (pc.field("partition") == each["partition"]))
        yield OutputBlock(TopicPartition(each["topic"], each["partition"]), block)
