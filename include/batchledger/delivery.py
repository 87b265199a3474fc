"""What each delivery mode commits together, and in which order: the only difference between the modes.

A batch that takes offsets over from another one, as every replay may, does so in one commit, whatever the mode: old
rows go when the new ones come (I8).
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from batchledger.batch import Attempt, BatchState, DeliveryMode, HeldRange, Lane, RecordOrigin
from batchledger.errors import BatchledgerError, FencedError, RowsLostError
from batchledger.pipeline import Platform
from batchledger.ports import Publication
from batchledger.replay import check_quarantined


class _Part(Enum):
    """What a publication makes visible."""

    POSITIONS = auto()
    ROWS = auto()


_COMMITS: Mapping[DeliveryMode, tuple[frozenset[_Part], ...]] = {
    DeliveryMode.EXACTLY_ONCE: (frozenset({_Part.POSITIONS, _Part.ROWS}),),
    DeliveryMode.AT_LEAST_ONCE: (frozenset({_Part.ROWS}), frozenset({_Part.POSITIONS})),
    DeliveryMode.AT_MOST_ONCE: (frozenset({_Part.POSITIONS}), frozenset({_Part.ROWS})),
}


def deliver(platform: Platform, attempt: Attempt) -> None:
    """Make the rows and the positions of an audited attempt visible, as the delivery mode says.

    Raises what the ledger and the sink refuse, with nothing committed by this call, and ReplayRefusedError when records
    of a quarantine replay have left quarantine since they were staged; after a first commit RowsLostError when that one
    moved the positions (at_most_once).
    """
    *earlier, last = _COMMITS[attempt.batch.delivery]
    has_moved = False
    for parts in earlier:
        with platform.ledger.publication(attempt) as publication:
            replaced = publication.find_replaced()
            if _Part.ROWS not in parts and not replaced:
                # Otherwise at_most_once would pass over every batch that the target refuses.
                platform.sink.check(publication)
            _apply(parts, replaced, platform, publication)
            if replaced:
                platform.sink.remember_numbers(publication)
                platform.crash("before_commit")
        if replaced:
            return
        has_moved = _Part.POSITIONS in parts
        platform.crash("between_commits")
    try:
        with platform.ledger.publication(
            attempt, BatchState.PUBLISHED if has_moved else BatchState.AUDITED
        ) as publication:
            if has_moved and not publication.holds_all_ranges:
                raise FencedError("a replay has published offsets of it again in the meantime, and its rows stay.")
            # What has moved holds its ranges already.
            _apply(last, () if has_moved else publication.find_replaced(), platform, publication)
            # Not before both rows and position are visible: whoever repeats the batch judges its numbers once more.
            platform.sink.remember_numbers(publication)
            platform.crash("before_commit")
    except BatchledgerError as error:
        if has_moved:
            raise rows_lost(attempt, error) from error
        raise


def rows_lost(attempt: Attempt, error: BatchledgerError) -> RowsLostError:
    """Say that the position has moved and that the rows may not have been written, because of ``error``."""
    label = attempt.batch.label
    return RowsLostError(
        f"{label} has moved the position and its rows may be lost, as at_most_once allows: {error} See what is there "
        f"with: batchledger verify {attempt.batch.pipeline}",
        batch_id=attempt.batch.batch_id,
    )


def _apply(
    parts: frozenset[_Part], replaced: Sequence[HeldRange], platform: Platform, publication: Publication
) -> None:
    """Make the parts visible; all of them where offsets are taken over."""
    batch = publication.attempt.batch
    if batch.origin is RecordOrigin.QUARANTINE:
        # What somebody has dropped since it was staged must not come back.
        check_quarantined(batch, publication.find_quarantined())
    if replaced or batch.lane is Lane.REPLAY:
        # All rows of its ranges go, also those of an earlier commit of its own (at_least_once): all are written here.
        parts = frozenset(_Part)
        publication.take_over(replaced, platform.sink.withdraw(publication, replaced))
        platform.crash("rows_withdrawn")
    if _Part.POSITIONS in parts:
        if batch.lane is Lane.LIVE:
            publication.advance_positions()
        publication.publish_quarantine()
        publication.mark_published()
        platform.crash("positions_moved")
    if _Part.ROWS in parts:
        platform.sink.publish(publication)
        publication.mark_rows()
        platform.crash("rows_moved")
