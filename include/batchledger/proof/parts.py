"""Parts of a partition: what a look proves again, and what has one hash of its rows. Pure; no I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.proof.watching import PART_OFFSETS

Part = tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hash of a part, None if it is not known; and whether a look has found another one."""

    value: int | None
    is_changed: bool = False


def split_parts(ranges: Sequence[OffsetRange]) -> Iterator[tuple[Part, OffsetRange]]:
    """Yield the ranges cut at the ends of parts."""
    for each in ranges:
        for at in range(each.start // PART_OFFSETS, (each.until - 1) // PART_OFFSETS + 1):
            start, until = max(each.start, at * PART_OFFSETS), min(each.until, (at + 1) * PART_OFFSETS)
            yield (each.partition, at), OffsetRange(each.partition, start, until)
