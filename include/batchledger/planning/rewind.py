"""Decide where a rewind takes the positions: backwards only, and only to what Kafka still holds. Pure.

A rewind opens the pipeline's next epoch. What the new epoch publishes replaces what earlier ones hold of the same
offsets; rows that are not read again stay, unless the target is emptied. A topic replaces nothing: it gets once more
what is read again.

Worked example: ``orders[0]`` stands at 1800, its log begins at 1200. A rewind to the earliest offset takes it to 1200,
one to ``orders[0]@1500`` to 1500; 1000 is gone, and 2000 would be a skip: both are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from batchledger.model.batch import DecisionKind, LogState, Position
from batchledger.model.counting import describe_count
from batchledger.model.errors import DecisionRefusedError, ExpiredError, PositionConflictError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_offsets,
    describe_ranges,
    find_gaps,
    intersect,
    merge_ranges,
)
from batchledger.planning.live import StartPolicy

Offsets = Mapping[TopicPartition, int]

_WITHOUT_TRUNCATE = "Or leave --truncate out: rows are then replaced as they are read again."


@dataclass(frozen=True, slots=True)
class Rewind:
    """What a person asks for: to begin again at the earliest offset, at a moment, or at an offset of each partition.

    ``truncate``: empty the target too. ``allow_expired``: even if rows go that Kafka cannot give again.
    """

    kind: ClassVar[DecisionKind] = DecisionKind.REWIND
    to: Literal[StartPolicy.EARLIEST] | datetime | Offsets
    truncate: bool = False
    allow_expired: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedRewind:
    """Where the positions go, chosen while the pipeline was in ``epoch``; it is refused in any other.

    ``given_up`` are the offsets whose rows may go with the table although they cannot be read again.
    """

    epoch: int
    next_offset_by_partition: Offsets
    given_up: tuple[OffsetRange, ...] = ()


def resolve_rewind(
    pipeline: str, rewind: Rewind, positions: Sequence[Position], log: LogState, found_at: Offsets
) -> dict[TopicPartition, int]:
    """Return the new next offset of each partition that the rewind is about; never beyond the present one.

    ``found_at``: the first offset at or after the moment, absent when there is none. Raises DecisionRefusedError.
    """
    if not positions:
        raise DecisionRefusedError(f"{pipeline} has read nothing yet, so there is nothing to rewind.")
    if isinstance(rewind.to, Mapping):
        offsets = dict(rewind.to)
        _require_possible(pipeline, offsets, positions, log)
    else:
        starts = {each: held.log_start for each, held in log.log_by_partition.items()}
        chosen = found_at if isinstance(rewind.to, datetime) else starts
        offsets = {
            each.partition: min(chosen.get(each.partition, each.next_offset), each.next_offset) for each in positions
        }
    left_out = [str(each.partition) for each in positions if each.partition not in offsets]
    if rewind.truncate and left_out:
        raise DecisionRefusedError(
            f"--truncate empties the whole table of {pipeline}. Nothing was changed.",
            why=f"These partitions would not be read again: {', '.join(left_out)}.",
            advice=f"Name every partition.\n{_WITHOUT_TRUNCATE}",
        )
    return offsets


def list_read_again(offsets: Offsets, positions: Sequence[Position]) -> list[OffsetRange]:
    """Return what the rewind reads again of each partition: from the new next offset to the present one.

    Example: ``orders[0]`` stands at 1800; rewound to 1500 that is ``orders[0] 1500..1800``.
    """
    return [
        OffsetRange(each.partition, offsets[each.partition], each.next_offset)
        for each in positions
        if offsets.get(each.partition, each.next_offset) < each.next_offset
    ]


def check_truncation(
    pipeline: str, rewind: Rewind, offsets: Offsets, held: Sequence[OffsetRange], log: LogState
) -> tuple[OffsetRange, ...]:
    """Return the held offsets that are given up for good when the table is emptied: Kafka holds them no more.

    Raises if rows would be removed that are not read again. DecisionRefusedError: for offsets before the new ones, and
    for topics that the pipeline no longer reads. ExpiredError: for offsets given up, unless the rewind allows it.
    """
    unread = [each for each in held if each.partition not in offsets]
    if unread:
        topics = ", ".join(sorted({each.partition.topic for each in unread}))
        raise DecisionRefusedError(
            _refused(pipeline),
            why=f"The table holds the records of {describe_count(count_offsets(unread), 'offset')} of {topics}, which "
            f"{pipeline} does not read any more: {describe_ranges(unread)}.",
            advice=f"To read these again, too, name their topic in source.topics.\n{_WITHOUT_TRUNCATE}",
            ranges=tuple(unread),
        )
    starts = {each: state.log_start for each, state in log.log_by_partition.items()}
    before = [OffsetRange(each, min(starts[each], offset), offset) for each, offset in offsets.items()]
    kept = intersect(held, before)
    if kept:
        raise DecisionRefusedError(
            _refused(pipeline),
            why=f"The table holds the records of {describe_count(count_offsets(kept), 'offset')} before what is read "
            f"again: {describe_ranges(kept)}.",
            advice=f"Rewind to earliest.\n{_WITHOUT_TRUNCATE}",
            ranges=tuple(kept),
        )
    gone = intersect(held, [OffsetRange(each, 0, starts[each]) for each, offset in offsets.items()])
    if gone and not rewind.allow_expired:
        raise ExpiredError(
            _refused(pipeline),
            why=f"The table holds the records of {describe_count(count_offsets(gone), 'offset')} that Kafka has "
            f"removed: {describe_ranges(gone)}. No run could read them again.",
            advice="To keep these rows, leave --truncate out.\nTo give them up for good: --allow-expired",
            ranges=tuple(gone),
        )
    return tuple(gone)


def require_checked(pipeline: str, rewind: ResolvedRewind, held: Sequence[OffsetRange]) -> None:
    """Raise PositionConflictError if emptying the table would remove rows that are neither read again nor given up.

    The table may have grown since ``check_truncation`` looked: a replay of older offsets publishes at any time.
    """
    again_from = rewind.next_offset_by_partition
    unread = [each for each in held if each.partition not in again_from]
    before = intersect(held, [OffsetRange(each, 0, offset) for each, offset in again_from.items()])
    unseen = find_gaps(rewind.given_up, within=merge_ranges([*unread, *before]))
    if unseen:
        raise PositionConflictError(
            _refused(pipeline),
            why=f"Since the rewind was checked, {describe_ranges(unseen)} came into the table.",
            advice="Ask for the rewind again: it is checked anew.",
            ranges=tuple(unseen),
        )


def require_present(pipeline: str, rewind: ResolvedRewind, epoch: int, next_offsets: Offsets) -> None:
    """Raise PositionConflictError unless the rewind fits what is stored now: same epoch, and backwards only."""
    if rewind.epoch != epoch:
        raise PositionConflictError(
            f"Another person has rewound {pipeline} in the meantime. Nothing was changed.",
            why=f"Expected epoch {rewind.epoch}, found {epoch}.",
            advice=f"See who, and why: batchledger batches {pipeline}",
        )
    ahead = [
        f"{each}: expected {offset} or more, found {next_offsets.get(each)}"
        for each, offset in rewind.next_offset_by_partition.items()
        if next_offsets.get(each, -1) < offset
    ]
    if ahead:
        raise PositionConflictError(
            f"{pipeline} cannot be rewound forwards. Nothing was changed.", why="\n".join(ahead)
        )


def _refused(pipeline: str) -> str:
    return f"--truncate is refused: {pipeline} could not read all rows of its table again. Nothing was changed."


def _require_possible(pipeline: str, offsets: Offsets, positions: Sequence[Position], log: LogState) -> None:
    position_by_partition = {each.partition: each.next_offset for each in positions}
    for partition, offset in offsets.items():
        position = position_by_partition.get(partition)
        if position is None:
            known = ", ".join(str(each.partition) for each in positions)
            raise DecisionRefusedError(f"{pipeline} has no position in {partition}.", why=f"It has read {known}.")
        log_start = log.log_by_partition[partition].log_start
        if offset > position:
            raise DecisionRefusedError(
                f"{partition}@{offset} lies ahead, and a rewind goes backwards. Nothing was changed.",
                why=f"The position of {pipeline} is {position}.",
                advice=f"To go on without offsets: batchledger skip {pipeline} RANGE... --reason WHY",
            )
        if offset < log_start:
            raise DecisionRefusedError(
                f"{partition}@{offset} cannot be read again. Nothing was changed.",
                why=f"Kafka holds {partition} from {log_start} on.",
                advice=f"Rewind to {partition}@{log_start} or later.",
            )
