"""What a look says of every offset of a partition: proved, wrong, late, and what else there is. Pure.

Worked example: ``payments[0]`` is watched from 10 on, a look was about 10..40 and its log ends at 44; rows are missing
at 20..22. That is: before the watch 7..10, proved 10..20, wrong 20..22, proved 22..40, late 40..44.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, intersect
from batchledger.proof.coverage import Segment
from batchledger.proof.watching import Discrepancy, Found, PartitionStanding, WatchOutcome

_SHARE_BEFORE = 10


class OffsetMark(StrEnum):
    """What an offset is to a watch, the worst first.

    ``too many to name``: a finding has more ranges than a look keeps, so these offsets are proved or belong to it.
    """

    WRONG = "wrong"
    EXPIRED = "expired"
    CANNOT_SAY = "cannot say"
    UNNAMED = "too many to name"
    LATE = "late"
    PROVED = "proved"
    BEFORE = "before the watch"


def mark_offsets(
    standings: Iterable[PartitionStanding], found: Sequence[Found]
) -> dict[TopicPartition, tuple[Segment[OffsetMark], ...]]:
    """Return what each offset of these partitions is, in the order of offsets.

    That takes some offsets from before the watch: a tenth of the others at most.
    """
    named = _group_by_partition(found)
    cuts = [each.ranges[-1] for each in found if each.ranges and each.count > count_offsets(each.ranges)]
    cut = min(cuts, default=None)
    return {each.partition: tuple(_mark(each, named.get(each.partition, {}), cut)) for each in standings}


def _mark(
    standing: PartitionStanding, named: Mapping[OffsetMark, Sequence[OffsetRange]], cut: OffsetRange | None
) -> list[Segment[OffsetMark]]:
    partition, start, until = standing.partition, standing.start, standing.until
    left = [OffsetRange(partition, start, until)]
    marked = []
    for mark in OffsetMark:
        taken = intersect(named.get(mark, ()), left)
        left = find_gaps(taken, within=left)
        marked += [Segment(mark, each) for each in taken]
    unnamed: list[OffsetRange] = []
    if cut is not None and count_offsets(left) != standing.proved and cut.partition <= partition:
        behind = cut.until if cut.partition == partition else start
        unnamed = intersect([OffsetRange(partition, min(behind, until), until)], left)
    marked += [Segment(OffsetMark.UNNAMED, each) for each in unnamed]
    marked += [Segment(OffsetMark.PROVED, each) for each in find_gaps(unnamed, within=left) if each]
    before = OffsetRange(partition, max(0, start - (standing.end - start) // _SHARE_BEFORE), start)
    ends = ((OffsetMark.BEFORE, before), (OffsetMark.LATE, OffsetRange(partition, until, standing.end)))
    marked += [Segment(mark, each) for mark, each in ends if each]
    return sorted(marked, key=lambda each: each.range)


def _group_by_partition(found: Iterable[Found]) -> dict[TopicPartition, dict[OffsetMark, list[OffsetRange]]]:
    """Return the named offsets by partition and mark. Records of a topic that is gone have none."""
    named: dict[TopicPartition, dict[OffsetMark, list[OffsetRange]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        if each.difference is not Discrepancy.RECREATED:
            for part in each.ranges:
                named[part.partition][_choose(each.difference)].append(part)
    return named


def _choose(difference: Discrepancy) -> OffsetMark:
    if difference.outcome is WatchOutcome.WRONG:
        return OffsetMark.WRONG
    return OffsetMark.EXPIRED if difference is Discrepancy.EXPIRED else OffsetMark.CANNOT_SAY
