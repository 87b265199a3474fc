"""Whether the rows that others wrote can become a pipeline's first batch: each offset is accounted for. Pure; no I/O.

A batch of a partition reaches from the first row, or from where the watch begins, to the last row. What lies behind
the pipeline reads. Rows from before the watch began are taken as they are.

Worked example, ``payments[1]``: the watch begins at 100, rows are at 40..60 and 100..150 without 120, the log ends at
160. 120 is a marker. The range is ``40..150``: 69 rows, 1 marker, and 40 offsets that are given up, because nothing
says any more what was at 60..100. The next batch begins at 150.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchledger.model.balance import Balance, HoleEvidence, HolePolicy, classify_holes
from batchledger.model.batch import Position, TopicIdentity
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.offsets import (
    OffsetRange,
    TopicPartition,
    count_covered,
    describe_ranges,
    find_gaps,
    intersect,
    merge_ranges,
)
from batchledger.proof.watching import (
    EXPLAINED,
    ComparedTable,
    Discrepancy,
    Frame,
    TableCount,
    WatchedPartition,
    judge_look,
    lay_frame,
    tell,
)


@dataclass(frozen=True, slots=True)
class TakenRows:
    """What a pipeline begins with: where each partition's history begins, and what became of each offset of it."""

    positions: tuple[Position, ...]
    balances: tuple[Balance, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What is proved of each partition, and the range that the batch takes of it: its rows may begin earlier.

    ``beyond`` is from the readable end of the log to rows that lie behind it.
    """

    frames: tuple[Frame, ...]
    ranges: tuple[OffsetRange, ...]
    beyond: tuple[OffsetRange, ...] = ()


def lay_history(
    known: Sequence[WatchedPartition], row_spans: Sequence[OffsetRange], end_by_partition: Mapping[TopicPartition, int]
) -> History:
    """Return what is about to be proved, up to the last row of each partition; ``row_spans`` are first to last rows."""
    rows = {each.partition: each for each in row_spans}
    frames, ranges, beyond = [], [], []
    for each in known:
        span = rows.get(each.partition, OffsetRange(each.partition, each.start, each.start))
        end = end_by_partition[each.partition]
        if span.until > end:
            beyond.append(OffsetRange(each.partition, max(end, span.start), span.until))
        frame = lay_frame(each, min(span.until, end), 0, each.proved)
        frames.append(frame)
        ranges.append(OffsetRange(each.partition, min(each.start, span.start), frame.until))
    return History(tuple(frames), tuple(ranges), tuple(beyond))


def find_unread(history: History, counted: TableCount, policy: HolePolicy) -> list[OffsetRange]:
    """Return what Kafka is asked about: all holes; all that is due, too, if the topic may have aborted records.

    The holes before the watch began are among them: Kafka may still have records there.
    """
    holes = find_gaps(counted.held, within=history.ranges)
    if policy is HolePolicy.NONE:
        return holes
    due = [part for each in history.frames for part in each.due]
    return merge_ranges([*due, *holes])


def account(
    pipeline: str, history: History, counted: TableCount, evidence: HoleEvidence, policy: HolePolicy
) -> tuple[Balance, ...]:
    """Return what became of each offset. Raises DecisionRefusedError with what is not proved."""
    ranges = history.ranges
    early = find_gaps([each.whole for each in history.frames], within=ranges)
    by_class = classify_holes(find_gaps(counted.held, within=ranges), evidence)
    found = list(judge_look(ComparedTable(history.frames, counted), evidence, policy).found)
    named = [part for each in found for part in each.ranges]
    others = {
        Discrepancy.TWICE: intersect(counted.repeated, early),
        Discrepancy.UNKNOWN: find_gaps(named, within=history.beyond),
        Discrepancy.MISSING: find_gaps(named, within=by_class.get("unread", ())),
    }
    found += [tell(kind, parts) for kind, parts in others.items() if parts]
    if found:
        raise DecisionRefusedError(
            f"The rows are not proved, so {pipeline} cannot take them over. Nothing was changed.",
            why="\n".join(f"{each.difference}: {describe_ranges(each.ranges) or each.count}" for each in found),
            advice="Stop the other writer, repair the table, and look again. See the documentation: guides/watch",
            pipeline=pipeline,
            ranges=tuple(part for each in found for part in each.ranges),
        )
    rows = count_covered(counted.held, ranges)
    classes = {name: count_covered(by_class.get(name, ()), ranges) for name in EXPLAINED}
    balances = []
    for at, each in enumerate(ranges):
        aborted, markers, compacted = (classes[name][at] for name in EXPLAINED)
        # Nothing says any more what Kafka had there.
        given_up = len(each) - rows[at] - aborted - markers - compacted
        balances.append(
            Balance(each, rows[at], aborted=aborted, markers=markers, compacted=compacted, accepted_loss=given_up)
        )
    return tuple(each for each in balances if len(each.range))


def begin(history: History, identity_by_topic: Mapping[str, TopicIdentity]) -> tuple[Position, ...]:
    """Return where the history of each partition begins."""
    return tuple(
        Position(each.partition, each.start, each.start, identity_by_topic[each.partition.topic])
        for each in history.ranges
    )
