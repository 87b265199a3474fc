"""Which old batches may be joined into one, and the proof that comes before. Pure.

A ledger would grow with every batch. So neighbouring batches of old history become a span: one batch that has published
what all of them have. The proof of the whole history goes on from spans, as it does from batches.

Known limit: it then counts rows by spans. Until a batch is joined, it counts them by batches.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from batchledger.model.balance import TargetCounts
from batchledger.model.housekeeping import Bounds
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.model.records.rules import SinkMode
from batchledger.proof.proving import prove
from batchledger.proof.verification import PublishedHistory, Verification


@dataclass(frozen=True, slots=True)
class OldBatch:
    """A batch in the order of ids. ``epoch`` is None if it is more than what a live run has published.

    Then a person has decided about it, something of it was set aside, erased, lost or published again, or it is a
    replay, was discarded, or is a span.
    """

    batch_id: int
    published_on: date | None
    epoch: int | None


def choose_spans(old: Iterable[OldBatch], bounds: Bounds) -> list[tuple[int, ...]]:
    """Return the batches of each span, up to the bounds. Reads no more of ``old`` than it needs.

    The batches of a span are neighbours of one day (UTC) and one epoch. Example: of 1, 2, 3, a replay 4, 5, and 6 and 7
    of the next day, these are (1, 2, 3) and (6, 7).
    """
    spans, found = [], 0
    for (_, epoch), group in groupby(old, key=lambda each: (each.published_on, each.epoch)):
        ids = [each.batch_id for each in group]
        if epoch is None:
            continue
        for start in range(0, len(ids), bounds.per_transaction):
            span = tuple(ids[start : start + bounds.per_transaction])[: bounds.per_run - found]
            if len(span) > 1:
                spans.append(span)
                found += len(span)
        if found >= bounds.per_run:
            break
    return spans


def prove_span(
    pipeline: str,
    load_history: Callable[[], PublishedHistory],
    count_within: Callable[[Sequence[OffsetRange]], TargetCounts],
) -> Verification:
    """Prove the batches of a span by themselves, each with its own rows, as ``verify`` proves a history.

    ``load_history`` returns what they have published. Raises UnsettledError.
    """
    history = enclose(load_history())
    held = merge_ranges(part for each in history.ranges for part in each.held)
    return prove(pipeline, lambda: enclose(load_history()), lambda: count_within(held), SinkMode.APPEND)


def enclose(history: PublishedHistory) -> PublishedHistory:
    """Let the positions claim what lies between the first and the last range, so that a gap between them is found."""
    claims: dict[TopicPartition, OffsetRange] = {}
    for each in history.ranges:
        claim = claims.get(each.range.partition, each.range)
        start, until = min(claim.start, each.range.start), max(claim.until, each.range.until)
        claims[each.range.partition] = OffsetRange(each.range.partition, start, until)
    positions = [
        replace(
            each,
            origin_offset=claims[each.partition].start,
            next_offset=claims[each.partition].until,
            rewound_to=None,
        )
        for each in history.positions
        if each.partition in claims
    ]
    epoch = next((each.epoch for each in history.ranges), history.epoch)
    return replace(history, positions=positions, epoch=epoch)
