"""When a run begins because records are there. Pure: it reads no record, and there is no cursor but the ledger.

The decision depends on what is there now, and not on events: whatever still waits at the next look starts a run then.
So an event that is lost or comes twice costs a moment, or a run that finds nothing to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchledger.model.batch import BatchState
from batchledger.model.offsets import TopicPartition
from batchledger.planning.live import Limits, is_enough

FIRST_PATIENCE_SECONDS = 5.0
LONGEST_PATIENCE_SECONDS = 300.0
# How much later the end of a run may be noticed, as a share of the time that it took.
_SHARE_OF_RUN = 0.25


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What the ledger has of a pipeline that matters for a start; empty for one that it does not know.

    ``is_at_work``: a run is at the open batch, in Airflow or on the command line. ``seconds_since_published`` is None
    if nothing was ever published.
    """

    next_offset_by_partition: Mapping[TopicPartition, int]
    is_paused: bool = False
    open_batch: tuple[int, BatchState] | None = None
    is_at_work: bool = False
    seconds_since_published: float | None = None

    @property
    def progress(self) -> tuple[int, tuple[int, BatchState] | None]:
        """A value that is another one once a run has achieved something."""
        return sum(self.next_offset_by_partition.values()), self.open_batch


@dataclass(frozen=True, slots=True)
class AwaitedRun:
    """A run that was asked for, or that goes on: the pipeline is left alone ``until`` a moment, or until it progresses.

    The moments are of a monotonic clock, ``since`` the one of the start. ``seconds`` is the patience with the run.
    """

    progress: tuple[int, tuple[int, BatchState] | None]
    since: float
    until: float
    seconds: float


def count_unread(facts: StartFacts, end_by_partition: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets lie between the positions and the ends."""
    known = facts.next_offset_by_partition
    return sum(max(0, end - known.get(each, end)) for each, end in end_by_partition.items())


def may_start(facts: StartFacts, end_by_partition: Mapping[TopicPartition, int], limits: Limits) -> bool:
    """Whether a run has something to do. ``end_by_partition`` are the last stable offsets of the topics' partitions.

    It has, if there are records enough, an open batch that waits for no person, a partition without a position, or a
    position that the log does not have any more: the run says what is wrong.
    """
    if facts.is_paused:
        return False
    if facts.open_batch is not None:
        return facts.open_batch[1] is not BatchState.BLOCKED
    is_new = any(each not in facts.next_offset_by_partition for each in end_by_partition)
    unread = count_unread(facts, end_by_partition)
    is_due = is_new or is_enough(unread, limits, facts.seconds_since_published)
    return is_due or has_lost(facts, end_by_partition)


def has_lost(facts: StartFacts, end_by_partition: Mapping[TopicPartition, int]) -> bool:
    """Whether the log does not have a position any more.

    If the ends were read before the positions, it may also be that a batch was published in between.
    """
    return any(offset > end_by_partition.get(each, -1) for each, offset in facts.next_offset_by_partition.items())


def is_patient(patience: AwaitedRun | None, facts: StartFacts, now: float) -> bool:
    """Whether a start that was asked for may still have its effect, or has had none so far."""
    return patience is not None and patience.progress == facts.progress and now < patience.until


def expect_run(before: AwaitedRun | None, facts: StartFacts, now: float) -> AwaitedRun:
    """Return the patience with a run that is asked for now: twice as long whenever one has achieved nothing."""
    had_no_effect = before is not None and before.progress == facts.progress
    seconds = min(2 * before.seconds, LONGEST_PATIENCE_SECONDS) if before and had_no_effect else FIRST_PATIENCE_SECONDS
    return AwaitedRun(facts.progress, now, now + seconds, seconds)


def await_run(before: AwaitedRun | None, facts: StartFacts, now: float) -> AwaitedRun:
    """Return the patience with a run that Airflow has queued or is running: the longer it takes, the rarer a look."""
    if before is None or before.progress != facts.progress:
        return AwaitedRun(facts.progress, now, now, FIRST_PATIENCE_SECONDS)
    return AwaitedRun(before.progress, before.since, now + _SHARE_OF_RUN * (now - before.since), before.seconds)
