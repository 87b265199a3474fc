"""What publishing an attempt would do to the rows of the target, counted before anything is published. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchledger.batch import HeldRange
from batchledger.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Offsets that another batch holds and would give up, and how many rows of it the target has there."""

    held: HeldRange
    rows: int


def describe_replaced(replaced: Sequence[ReplacedRows]) -> str:
    """Say how many rows of which batches would go.

    Example: ``7 rows: batch 3: 4, batch 5: 3``.
    """
    by_batch: dict[int, int] = {}
    for each in replaced:
        by_batch[each.held.batch_id] = by_batch.get(each.held.batch_id, 0) + each.rows
    if not by_batch:
        return "nothing: no batch holds these offsets"
    of_each = ", ".join(f"batch {batch_id}: {rows:,}" for batch_id, rows in sorted(by_batch.items()))
    return f"{sum(by_batch.values()):,} rows: {of_each}"


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that would change: the coordinates of its record, and which columns differ. Never a value."""

    partition: TopicPartition
    offset: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the target would differ: rows by what would become of them, and the first of those that would change.

    A row is told by its coordinates, in a target that is updated by key by its key. ``_batch_id`` is left out: every
    row that is published again gets another one. ``absent_columns`` are those of the target that the rows do not have;
    they take no part, and would get their default.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    examples: tuple[ChangedRow, ...] = ()
    absent_columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Example: ``the rows would differ: 0 added, 1 removed, 2 changed, 3 unchanged``."""
        if self.is_same:
            return f"the rows would be the same: {self.unchanged:,} unchanged"
        counts = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        told = ", ".join(f"{count:,} {name}" for name, count in counts)
        return f"the rows would differ: {told}, {self.unchanged:,} unchanged"

    @property
    def is_same(self) -> bool:
        """Whether the rows would be as they are."""
        return not (self.added or self.removed or self.changed)
