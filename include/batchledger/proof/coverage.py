"""What has become of every offset of a partition: published, waiting, given up by a person, or missing. Pure.

A frame of offsets is divided into segments that meet: each offset is in exactly one, so what is not accounted for
cannot hide between the others. If several kinds would fit, the first one in the order below counts.

Worked example: ``orders[0]`` was read from 0 on, its log begins at 10 and ends at 40, its position is 30, and batches
hold 0..20 and 22..30, of which 25 is in quarantine. From 10 on that is: published 10..20, a gap 20..22, published
22..25, quarantined 25..26, published 26..30, unread 30..40.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from batchledger.model.batch import PartitionLog, Position
from batchledger.model.offsets import OffsetRange, find_gaps, intersect, merge_ranges


class Kind(StrEnum):
    """What an offset is.

    ``accepted loss``: a person has gone on without it. ``expired unread``: Kafka has removed it, and no run has read it
    or accepted that. ``held back``: behind the last stable offset, by an open transaction. ``gap``: the position has
    passed it, and no batch holds it. ``before the start``: the pipeline began behind it.
    """

    QUARANTINED = "quarantined"
    ACCEPTED_LOSS = "accepted loss"
    PUBLISHED = "published"
    BLOCKED = "blocked"
    IN_FLIGHT = "in flight"
    BEFORE_START = "before the start"
    GAP = "gap"
    EXPIRED = "expired unread"
    UNREAD = "unread"
    HELD_BACK = "held back"


# The worst first: what a picture shows of several kinds that fall into one place of it.
URGENCY = (
    Kind.GAP,
    Kind.EXPIRED,
    Kind.BLOCKED,
    Kind.ACCEPTED_LOSS,
    Kind.QUARANTINED,
    Kind.HELD_BACK,
    Kind.IN_FLIGHT,
    Kind.UNREAD,
    Kind.PUBLISHED,
    Kind.BEFORE_START,
)


Kind_co = TypeVar("Kind_co", bound=StrEnum, covariant=True)


@dataclass(frozen=True, slots=True)
class Segment(Generic[Kind_co]):
    """Neighbouring offsets of one kind, which is a ``Kind`` or, for a watch, an ``OffsetMark``."""

    kind: Kind_co
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class Accounted:
    """What the ledger says of the offsets of a partition.

    ``held`` are those that published batches hold, accepted losses included; ``lost`` those that a person has given up,
    whether a batch holds them or the table was emptied without them.
    """

    held: Sequence[OffsetRange] = ()
    lost: Sequence[OffsetRange] = ()
    quarantined: Sequence[OffsetRange] = ()
    in_flight: Sequence[OffsetRange] = ()
    blocked: Sequence[OffsetRange] = ()


def choose_frame(position: Position, log: PartitionLog | None) -> OffsetRange:
    """Return the offsets that there is something to tell of: from the log start, or what was not read before it, on.

    Without a log, because Kafka does not answer or has no such partition, everything that the position has passed.
    """
    if log is None:
        return OffsetRange(position.partition, position.origin_offset, position.next_offset)
    start = min(log.log_start, position.next_offset)
    return OffsetRange(position.partition, start, max(log.high_watermark, position.next_offset))


def cover(
    frame: OffsetRange, position: Position, log: PartitionLog | None, accounted: Accounted
) -> tuple[Segment[Kind], ...]:
    """Return the segments of the frame in the order of offsets; together they are the frame.

    That takes a frame of which there is something to tell: the one of ``choose_frame``, a part of it, or offsets before
    it as well.
    """
    partition = frame.partition
    passed = OffsetRange(partition, position.origin_offset, position.next_offset)
    layers: list[tuple[Kind, Iterable[OffsetRange]]] = [
        (Kind.QUARANTINED, intersect(accounted.quarantined, accounted.held)),
        (Kind.ACCEPTED_LOSS, accounted.lost),
        (Kind.PUBLISHED, accounted.held),
        (Kind.BLOCKED, accounted.blocked),
        (Kind.IN_FLIGHT, accounted.in_flight),
        (Kind.BEFORE_START, [OffsetRange(partition, 0, position.origin_offset)]),
        (Kind.GAP, [passed]),
    ]
    if log is not None:
        layers += [
            (Kind.EXPIRED, [OffsetRange(partition, 0, log.log_start)]),
            (Kind.UNREAD, [OffsetRange(partition, 0, log.end)]),
            (Kind.HELD_BACK, [OffsetRange(partition, 0, log.high_watermark)]),
        ]
    left = [frame]
    segments = []
    for kind, ranges in layers:
        taken = intersect(ranges, left)
        left = find_gaps(taken, within=left)
        segments += [Segment(kind, each) for each in taken]
    return tuple(sorted(segments, key=lambda each: each.range))


def find_missing(position: Position, accounted: Accounted) -> list[OffsetRange]:
    """Return the offsets that the position has passed and that nothing accounts for, however long ago (I1, I8)."""
    passed = OffsetRange(position.partition, position.origin_offset, position.next_offset)
    return find_gaps(merge_ranges([*accounted.held, *accounted.lost]), within=[passed])


def count_by_kind(segments: Iterable[Segment[Kind_co]], kinds: Iterable[Kind_co]) -> dict[Kind_co, int]:
    """Return how many offsets are of each of these kinds that there is, in their order."""
    counts = dict.fromkeys(kinds, 0)
    for each in segments:
        counts[each.kind] += len(each.range)
    return {kind: count for kind, count in counts.items() if count}
