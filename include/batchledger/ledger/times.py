"""When the records of published ranges were written: looked up for windows of time, and noted if it was unknown."""

from collections.abc import Mapping, Sequence
from typing import Any

from batchledger.database.transactions import ranges_as_arrays, read_statement
from batchledger.ledger.rows import Cursor, times_as_arrays
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import RecordTimes, TimedRange, TimeSpan


def find_times(cursor: Cursor, pipeline: str, span: TimeSpan, within: Sequence[OffsetRange]) -> list[TimedRange]:
    """See ``Ledger.find_times``."""
    bounds = {"pipeline": pipeline, "since_ms": span.since_ms, "until_ms": span.until_ms}
    cursor.execute(read_statement(__package__, "find_times"), {**bounds, **ranges_as_arrays(within)})
    return [_to_timed(*row) for row in cursor]


def note_times(cursor: Cursor, pipeline: str, times_by_range: Mapping[OffsetRange, RecordTimes]) -> None:
    """See ``Ledger.note_times``."""
    parameters = {
        "pipeline": pipeline,
        **ranges_as_arrays(list(times_by_range)),
        **times_as_arrays(list(times_by_range.values())),
    }
    cursor.execute(read_statement(__package__, "note_times"), parameters)


def _to_timed(topic: str, partition: int, *known: Any) -> TimedRange:
    place = TopicPartition(topic, partition)
    start, until, whole_start, whole_until, first_ms, last_ms, untimed, records, unseen = known
    return TimedRange(
        OffsetRange(place, start, until),
        OffsetRange(place, whole_start, whole_until),
        None if untimed is None else RecordTimes(first_ms, last_ms, untimed),
        records,
        unseen,
    )
