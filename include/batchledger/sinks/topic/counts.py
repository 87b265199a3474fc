"""Counts what an output topic holds, batch by batch, in one pass over its committed records.

It counts the different offsets of a batch in pages of bits: one bit an offset, whatever the order of the records. A
page is made when its first offset appears.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from batchledger.model.balance import TargetCount
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.sinks.topic.log import OutputLog, look_at
from batchledger.sinks.topic.records import EVERY_BATCH, Origin, read_batch, read_number, read_origin
from batchledger.source.kafka.range_reader import read_chunks
from batchledger.source.kafka.records import list_headers
from batchledger.source.kafka.requests import Isolation, describe_topic_configs, kafka_call

_PAGE_BITS = 11
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class OutputCounts:
    """What readers of committed records find in the topic.

    ``foreign`` counts records that were not written by a pipeline. Records of batches up to ``incomplete_until`` may be
    missing because the topic's own retention or compaction has removed them: 0 when it has removed nothing,
    ``EVERY_BATCH`` when nothing is left that would tell. ``held_back`` offsets were there before the question, and lie
    behind transactions that are open, of any producer: they were not looked at.
    """

    count_by_batch: Mapping[tuple[int, TopicPartition], TargetCount]
    foreign: int
    incomplete_until: int
    held_back: int


class OffsetBits:
    """A set of offsets that can only grow and be counted."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, offset: int) -> None:
        """Put an offset in."""
        page = self._pages.get(offset >> _PAGE_BITS)
        if page is None:
            page = self._pages[offset >> _PAGE_BITS] = bytearray(1 << (_PAGE_BITS - 3))
        page[(offset >> 3) & ((1 << (_PAGE_BITS - 3)) - 1)] |= 1 << (offset & 7)

    def __len__(self) -> int:
        return sum(int.from_bytes(page, "little").bit_count() for page in self._pages.values())


class _OutputTally:
    """What has been seen of one batch and source partition."""

    def __init__(self, batch_id: int, partition: TopicPartition, within: Sequence[OffsetRange] | None) -> None:
        self.batch_id = batch_id
        self.partition = partition
        self.rows = 0
        self._first = self._last = -1
        self._offsets = OffsetBits()
        self._within = None if within is None else [each for each in within if each.partition == partition]
        self._starts = [each.start for each in self._within or ()]

    def add(self, offset: int) -> None:
        """Count a row, if it is asked for."""
        if self._within is not None:
            nearest = bisect_right(self._starts, offset) - 1
            if nearest < 0 or offset >= self._within[nearest].until:
                return
        self._first = offset if self.rows == 0 else min(self._first, offset)
        self._last = max(self._last, offset)
        self.rows += 1
        self._offsets.add(offset)

    def count(self) -> TargetCount:
        return TargetCount(self.rows, len(self._offsets), self._first, self._last)


class _Counter:
    """Looks at records, as many at a time as have arrived."""

    def __init__(self, within: Sequence[OffsetRange] | None) -> None:
        self.foreign = 0
        self.first_batch_by_output: dict[int, int] = {}
        self._within = None if within is None else merge_ranges(within)
        self._tallies: dict[tuple[bytes, bytes, bytes], _OutputTally | None] = {}

    def add(self, messages: list[Any]) -> None:
        for message, headers in zip(messages, list_headers(messages), strict=True):
            origin = read_origin(headers)
            tally = None if origin is None else self._find(origin)
            offset = None if origin is None else read_number(origin.offset)
            if tally is None or offset is None:
                self.foreign += 1
                continue
            self.first_batch_by_output.setdefault(message.partition(), tally.batch_id)
            tally.add(offset)

    def _find(self, origin: Origin) -> _OutputTally | None:
        key = origin[:3]
        if key not in self._tallies:
            batch = read_batch(origin)
            self._tallies[key] = None if batch is None else _OutputTally(*batch, self._within)
        return self._tallies[key]

    @property
    def seen(self) -> list[_OutputTally]:
        return [each for each in self._tallies.values() if each is not None]

    def counts(self) -> dict[tuple[int, TopicPartition], TargetCount]:
        return {(each.batch_id, each.partition): each.count() for each in self.seen if each.rows}


def count_output(
    options: Mapping[str, str], topic: str, within: Sequence[OffsetRange] | None, patience_seconds: float = 0.0
) -> OutputCounts:
    """Return what the topic holds, by batch id and source partition.

    ``within`` are ranges of source offsets that do not overlap: only their records are counted. Waits for the
    transactions that are open at first, not for later ones: a pipeline may have one open nearly always.
    """
    with kafka_call(f"count the records of topic {topic}", options):
        log, held_back = _wait(options, topic, patience_seconds)
        # Asked before reading: a policy that is in force now may remove records meanwhile.
        policy = describe_topic_configs(options, [topic] if log.ranges else []).get(topic, {}).get("cleanup.policy")
        counter = _Counter(within)
        for chunk in read_chunks(options, log.ranges, Isolation.COMMITTED):
            counter.add(chunk)
    return OutputCounts(
        counter.counts(), counter.foreign, _find_incomplete(log, counter, may_compact=policy != "delete"), held_back
    )


def _wait(options: Mapping[str, str], topic: str, patience_seconds: float) -> tuple[OutputLog, int]:
    """Return what can be read, and how many offsets were there at first and still cannot."""
    log, deadline = look_at(options, topic), monotonic() + patience_seconds
    ends = {each.partition: each.until for each in log.hidden}
    while True:
        held_back = sum(max(0, ends.get(each.partition, 0) - each.until) for each in log.ranges)
        if not held_back or monotonic() > deadline:
            return log, held_back
        sleep(_LOOK_SECONDS)
        log = look_at(options, topic)


def _find_incomplete(log: OutputLog, counter: _Counter, *, may_compact: bool) -> int:
    """Return the latest batch of which records may be missing.

    Batches follow one another in a partition, so its removed records are not younger than the first one left. What
    compaction has removed is unknown. If the settings of the topic may not be read, the topic counts as compacted.
    """
    first = counter.first_batch_by_output
    bounds = [first.get(each.partition, EVERY_BATCH) for each in log.shortened]
    if may_compact:
        bounds += [each.batch_id for each in counter.seen]
    return max(bounds, default=0)
