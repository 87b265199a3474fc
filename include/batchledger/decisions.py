"""What a person decides when the pipeline cannot: each decision is checked against the source, then recorded.

A decision says who, why and exactly which offsets; the ledger keeps it for ever (I1 holds across an accepted loss,
because the loss is a range of its own).
"""

import logging
from collections.abc import Sequence

from batchledger.batch import Attempt, Batch, BatchState, Decision
from batchledger.errors import LossRefusedError
from batchledger.offsets import OffsetRange, describe_ranges
from batchledger.ownership import drop_staging
from batchledger.pipeline import Platform, load_positions
from batchledger.planning import check_identity, choose_first_positions, find_losses

logger = logging.getLogger(__name__)


def accept_loss(
    platform: Platform, lost: Sequence[OffsetRange], decision: Decision, discard: int | None = None
) -> Batch:
    """Account for offsets that Kafka no longer holds, and move exactly their partitions past them.

    Each range has to start at the position of its partition and to lie below the log start: what can still be read is
    never given up, and what the open batch has staged only when ``discard`` is its id. Raises LossRefusedError,
    TopicChangedError, PositionConflictError.
    """
    rules, ledger = platform.rules, platform.ledger
    _require_distinct(lost, decision)
    stored = load_positions(platform)
    log = platform.source.read_log(rules.topics)
    # A partition that was added and lost its beginning before it was ever planned has no position yet. Where a topic
    # starts that was never read is for the next plan to say.
    topics = {each.topic for each in stored}
    chosen = choose_first_positions(stored, log, rules.start, {})
    first = tuple(each for each in chosen if each.partition.topic in topics)
    check_identity((*stored.values(), *first), log)
    real = find_losses((*stored.values(), *first), log)
    for each in lost:
        if not any(
            each.start == one.start and each.until <= one.until and each.partition == one.partition for one in real
        ):
            raise LossRefusedError(
                f"{each} cannot be accepted as lost: {_describe_losses(real, rules.name)}. Only what Kafka has removed "
                "before it was read can be given up, from the stored position on.",
                range=str(each),
            )
    given_up = {each.partition for each in lost}
    ledger.store_first_positions(rules.name, [each for each in first if each.partition in given_up])
    open_batch = ledger.find_open_batch(rules.name)
    batch = ledger.accept_loss(rules.name, lost, decision, discard)
    if open_batch is not None and (found := ledger.load_batch(open_batch.batch_id)).state is BatchState.DISCARDED:
        drop_staging(platform, Attempt(found, found.attempt, decision.decided_by))
    logger.warning("%s accepts the loss of %s: %s", batch.label, describe_ranges(batch.ranges), decision.reason)
    return batch


def _describe_losses(real: Sequence[OffsetRange], pipeline: str) -> str:
    return f"lost are {describe_ranges(real)}" if real else f"{pipeline} has lost nothing that is not accepted already"


def _require_distinct(lost: Sequence[OffsetRange], decision: Decision) -> None:
    partitions = [each.partition for each in lost]
    if not decision.reason.strip():
        raise LossRefusedError("a loss is accepted for a reason that others can read later; give one.")
    if not lost or not all(lost) or len(set(partitions)) < len(partitions):
        raise LossRefusedError(
            f"{describe_ranges(lost) or 'no range at all'}: name each partition once, with at least one offset, as the "
            "error of the run does."
        )
