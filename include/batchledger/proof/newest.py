"""The newest part of a history, proved by itself if the whole would take too long; it says what it does not prove.

The part begins with a publication. A batch that takes offsets over from another is published after it. So only the
batches that were published from then on, and other holders of their offsets, have to do with these offsets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from batchledger.model.balance import TargetCounts
from batchledger.model.batch import Lane, Position
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges
from batchledger.model.records.rules import SinkMode
from batchledger.proof.verification import PublishedHistory


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the history was proved: everything, or what was published at ``since`` or later.

    ``untouched`` are the partitions that no batch of that time has read.
    """

    since: datetime | None = None
    untouched: tuple[TopicPartition, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the whole history was looked at."""
        return self.since is None

    def describe_unproved(self) -> list[str]:
        """Return a sentence for each thing that was not proved; empty when everything was."""
        if self.since is None:
            return []
        moment = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        lines = [
            f"batches published before {moment} were not looked at, nor whether the first ranges behind them meet them",
            "rows of the target outside of the offsets that these batches hold were not counted",
        ]
        if self.untouched:
            lines.append(f"nothing was published of {', '.join(map(str, self.untouched))} in this time")
        return lines


@dataclass
class NewestHistory:
    """Loads what was published at ``since`` or later, and counts what the target holds of it, for ``proving.prove``.

    The moment stays while the proof looks again, so what is published meanwhile pushes nothing out of sight.
    ``load_since`` returns that part of the history as it is stored, ``count_within`` counts offsets of the target.
    """

    since: datetime
    load_since: Callable[[datetime], PublishedHistory]
    count_within: Callable[[Sequence[OffsetRange]], TargetCounts]
    mode: SinkMode = SinkMode.APPEND
    coverage: Coverage = field(default_factory=Coverage)
    _held: list[OffsetRange] = field(default_factory=list)
    _batches: frozenset[int] = frozenset()

    def load(self) -> PublishedHistory:
        """Return that part of the history, of one moment."""
        stored = self.load_since(self.since)
        history = narrow(stored)
        self.coverage = Coverage(self.since, find_untouched(stored.positions, history))
        self._held = merge_ranges(part for each in history.ranges for part in each.held)
        self._batches = frozenset(each.batch_id for each in history.ranges)
        return history

    def count(self) -> TargetCounts:
        """Count the rows of the offsets that were held when the history was loaded last.

        What batches before them have produced of these offsets stays in a topic, and is not looked at.
        """
        counted = self.count_within(self._held)
        if self.mode.can_replace:
            return counted
        earliest = min(self._batches, default=0)
        new = {key: count for key, count in counted.by_batch.items() if key[0] in self._batches or key[0] > earliest}
        return replace(counted, by_batch=new)


def narrow(history: PublishedHistory) -> PublishedHistory:
    """Let the positions of a history claim no more than the batches that were loaded of it.

    Example: batches that published ``orders[0] 40..60`` and ``60..70`` were loaded, the position is 70 and its origin
    0. They have to fill 40..70. A partition that they have not touched claims nothing.
    """
    starts: dict[TopicPartition, int] = {}
    for each in history.ranges:
        if each.lane is Lane.LIVE and each.epoch == history.epoch:
            partition = each.range.partition
            starts[partition] = min(each.range.start, starts.get(partition, each.range.start))
    positions = [
        Position(each.partition, starts[each.partition], each.next_offset, each.identity)
        for each in history.positions
        if each.partition in starts
    ]
    return replace(history, positions=positions)


def find_untouched(whole: Sequence[Position], narrowed: PublishedHistory) -> tuple[TopicPartition, ...]:
    """Return the partitions with a position of which nothing was loaded."""
    touched = {each.partition for each in narrowed.positions}
    return tuple(each.partition for each in whole if each.partition not in touched)
