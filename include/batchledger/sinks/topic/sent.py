"""Counts what is handed over to a topic, by the ranges of its batch: what a staging would be asked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchledger.model.balance import StagedRange
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.times import RecordTimes
from batchledger.sinks.topic.records import OutputBlock, UnfitRecordsError


@dataclass
class SentRecords:
    """The records of a batch that were handed over, each of a partition after the others before it."""

    ranges: Sequence[OffsetRange]
    _by_partition: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    _rows: dict[OffsetRange, int] = field(default_factory=dict)
    _times: dict[OffsetRange, RecordTimes] = field(default_factory=dict)
    _newest: dict[TopicPartition, int] = field(default_factory=dict)
    _outside: int = 0

    def __post_init__(self) -> None:
        for each in self.ranges:
            self._by_partition.setdefault(each.partition, []).append(each)

    def note(self, block: OutputBlock) -> None:
        """Count the records of a block. Raises UnfitRecordsError; nothing of the block counts then."""
        offsets, stamps = block.records["offset"].to_numpy(), block.records["timestamp_ms"]
        if offsets[0] <= self._newest.get(block.source, -1) or not (offsets[1:] > offsets[:-1]).all():
            raise UnfitRecordsError(f"records of {block.source} come twice, or not in the order of their offsets")
        self._newest[block.source] = int(offsets[-1])
        found = 0
        for each in self._by_partition.get(block.source, ()):
            first, until = map(int, np.searchsorted(offsets, [each.start, each.until]))
            found += until - first
            self._rows[each] = self._rows.get(each, 0) + until - first
            times = _find_times(stamps.slice(first, until - first))
            self._times[each] = self._times.get(each, RecordTimes()) | times
        self._outside += len(offsets) - found

    def summarise(self) -> list[StagedRange]:
        """Return what ``StagedRows.summarise`` does."""
        return [
            StagedRange(
                each,
                self._rows.get(each, 0),
                self._rows.get(each, 0),
                0 if place else self._outside,
                times=self._times.get(each, RecordTimes()),
            )
            for place, each in enumerate(self.ranges)
        ]


def _find_times(stamps: pa.Array) -> RecordTimes:
    bounds = pc.min_max(stamps).as_py()
    return RecordTimes(bounds["min"], bounds["max"], stamps.null_count)
