"""Records that a person looks at: from Kafka, or from quarantine. Pure; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from batchledger.model.batch import PartitionLog
from batchledger.model.offsets import OffsetRange, TopicPartition, find_gaps, merge_ranges


@dataclass(frozen=True, slots=True)
class Record:
    """One record with its bytes. ``timestamp`` is ISO text; ``error`` says why quarantine has it, if it does.

    ``decoded`` is JSON of all fields of a value in Avro or Protobuf; ``undecoded`` says why there is none.
    """

    partition: TopicPartition
    offset: int
    timestamp: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    error: str | None = None
    decoded: str | None = None
    undecoded: str | None = None

    @property
    def range(self) -> OffsetRange:
        """Its offset alone."""
        return OffsetRange(self.partition, self.offset, self.offset + 1)

    @override
    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Reach:
    """The requested ranges, divided into what Kafka holds, no longer holds, or does not hold yet."""

    readable: tuple[OffsetRange, ...]
    expired: tuple[OffsetRange, ...]
    unwritten: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """The records of the ranges in order, and the offsets without one.

    ``invisible`` offsets have no committed record. ``is_cut``: there are more records, and ``invisible`` ends with the
    last one shown.
    """

    records: tuple[Record, ...]
    expired: tuple[OffsetRange, ...] = ()
    unwritten: tuple[OffsetRange, ...] = ()
    invisible: tuple[OffsetRange, ...] = ()
    is_cut: bool = False


def find_reach(ranges: Sequence[OffsetRange], log_by_partition: Mapping[TopicPartition, PartitionLog]) -> Reach:
    """Divide ranges into what is readable, expired, and behind the readable end.

    All offsets of a partition that no longer exists count as expired.

    Example: ``orders[0] 0..20`` is asked for, and the log holds 5..12. Then 0..5 is expired, 12..20 not written yet.
    """
    asked = merge_ranges(ranges)
    held = {each: log_by_partition[each] for each in {one.partition for one in asked} & log_by_partition.keys()}
    kept = [OffsetRange(each, log.log_start, log.end) for each, log in held.items()]
    missing = find_gaps(kept, within=asked)
    expired = [each for each in missing if each.partition not in held or each.start < held[each.partition].log_start]
    return Reach(
        readable=tuple(find_gaps(missing, within=asked)),
        expired=tuple(expired),
        unwritten=tuple(each for each in missing if each not in expired),
    )


def choose_newest(log_by_partition: Mapping[TopicPartition, PartitionLog], limit: int) -> tuple[OffsetRange, ...]:
    """Return ranges of the newest offsets, ``limit`` at most and as many in each partition.

    If there are more partitions than that, some are left out, evenly.
    """
    held = sorted(each for each, log in log_by_partition.items() if log.end > log.log_start)
    chosen = held[:: -(-len(held) // limit)] if held else []
    share = limit // max(1, len(chosen))
    logs = [(each, log_by_partition[each]) for each in chosen]
    return tuple(OffsetRange(each, max(log.log_start, log.end - share), log.end) for each, log in logs)


def combine_records(reach: Reach, read: Sequence[Record], quarantined: Sequence[Record], limit: int) -> FoundRecords:
    """Combine the first ``limit`` records of Kafka and of quarantine. A record in both is shown as set aside.

    Each list has to hold more than ``limit`` records, the first in the order of coordinates, or all there are.
    """
    by_place = {(each.partition, each.offset): each for each in (*read, *quarantined)}
    ordered = [by_place[place] for place in sorted(by_place)]
    is_cut = len(ordered) > limit
    shown = ordered[:limit]
    looked_at = _until(shown[-1], reach.readable) if is_cut else reach.readable
    kept = [each.range for each in shown]
    return FoundRecords(
        records=tuple(shown),
        expired=tuple(find_gaps(kept, within=reach.expired)),
        unwritten=reach.unwritten,
        invisible=tuple(find_gaps(kept, within=looked_at)),
        is_cut=is_cut,
    )


def _until(last: Record, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the part of the ranges up to the last record, inclusive."""
    before = [each for each in ranges if each.partition < last.partition]
    same = [each for each in ranges if each.partition == last.partition and each.start <= last.offset]
    return before + [OffsetRange(each.partition, each.start, min(each.until, last.offset + 1)) for each in same]
