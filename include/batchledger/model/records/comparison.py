"""How publishing an attempt would change the rows of the target, counted beforehand. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from batchledger.model.batch import HeldRange
from batchledger.model.counting import describe_count
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets

_COUNTS = ("added", "removed", "changed", "unchanged", "repeated", "erased_again")


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Offsets that another batch would give up, and how many of its rows the target has there."""

    held: HeldRange
    rows: int


def describe_replaced(replaced: Sequence[ReplacedRows]) -> str:
    """Say how many rows of which batches would go.

    Example: ``7 rows: batch 3: 4, batch 5: 3``; ``no rows`` if batches hold the offsets without rows.
    """
    by_batch: dict[int, int] = {}
    for each in replaced:
        by_batch[each.held.batch_id] = by_batch.get(each.held.batch_id, 0) + each.rows
    if not by_batch:
        return "nothing: no batch holds these offsets"
    if not any(by_batch.values()):
        return "no rows"
    of_each = ", ".join(f"batch {batch_id}: {rows:,}" for batch_id, rows in sorted(by_batch.items()))
    return f"{describe_count(sum(by_batch.values()), 'row')}: {of_each}"


def describe_once_more(held: Sequence[HeldRange]) -> str:
    """Say what readers of a topic would see once more; empty if no batch holds any of it.

    Example: ``a topic replaces nothing: its readers would see once more what was produced of 7 offsets``.
    """
    if not held:
        return ""
    offsets = describe_count(count_offsets(each.range for each in held), "offset")
    return f"a topic replaces nothing: its readers would see once more what was produced of {offsets}"


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that would change: the coordinates of its record, and which columns differ. Never a value."""

    partition: TopicPartition
    offset: int
    columns: tuple[str, ...]

    @override
    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the target would differ: counts of rows, and the first rows that would change.

    Rows are matched by their coordinates, or by key in a target that is updated by key. ``_batch_id`` is left out:
    every row that is published again gets another one. ``repeated`` rows would stand beside the present ones, as
    records of a topic do. The rows lack the ``absent_columns`` of the target: these take no part, and would get their
    default. ``erased_again`` records of erased keys would become no rows: they are not added.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    examples: tuple[ChangedRow, ...] = ()
    absent_columns: tuple[str, ...] = ()
    repeated: int = 0
    erased_again: int = 0

    @override
    def __str__(self) -> str:
        """Example: ``the rows would differ: 0 added, 1 removed, 2 changed, 3 unchanged``."""
        if self.repeated:
            new = f", and {self.added:,} that were not there before" if self.added else ""
            repeated = describe_count(self.repeated, "record")
            return f"a topic replaces nothing: {repeated} would be produced once more{new}"
        again = f"; {self.told_again}" if self.erased_again else ""
        if self.is_same and not self.unchanged:
            return f"no row would be added, removed or changed{again}"
        if self.is_same:
            return f"the rows would be the same: {self.unchanged:,} unchanged{again}"
        counts = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        told = ", ".join(f"{count:,} {name}" for name, count in counts)
        return f"the rows would differ: {told}, {self.unchanged:,} unchanged{again}"

    @property
    def told_again(self) -> str:
        """Example: ``26 rows of erased keys would be erased again``."""
        return f"{describe_count(self.erased_again, 'row')} of erased keys would be erased again"

    @property
    def is_same(self) -> bool:
        """Whether the rows would be as they are."""
        return not (self.added or self.removed or self.changed or self.repeated)


@dataclass(frozen=True, slots=True)
class DryRunOutcome:
    """The findings of a dry run, as the ledger keeps them: never a value of a record.

    ``expired``: requested offsets that Kafka no longer has. ``comparison`` is None if the target would refuse the rows.
    ``objections`` say why the replay would not be published; there are none if it would. ``notes`` name further records
    that would be published too.
    """

    expired: tuple[OffsetRange, ...] = ()
    replaced: tuple[ReplacedRows, ...] = ()
    comparison: Comparison | None = None
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def repeats(self) -> bool:
        """Whether the rows would stand beside the present ones and replace nothing."""
        return self.comparison is not None and self.comparison.repeated > 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values. Ranges and coordinates are text, such as ``orders[0] 0..5`` and ``orders[0]@5``."""
        replaced = [
            {"batch_id": each.held.batch_id, "range": str(each.held.range), "rows": each.rows} for each in self.replaced
        ]
        return {
            "expired": [str(each) for each in self.expired],
            "replaced": replaced,
            "comparison": None if self.comparison is None else _comparison_to_json(self.comparison),
            "objections": list(self.objections),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "DryRunOutcome":
        """Read back what ``to_json`` has made."""
        return cls(
            expired=tuple(map(OffsetRange.parse, kept["expired"])),
            replaced=tuple(
                ReplacedRows(HeldRange(each["batch_id"], OffsetRange.parse(each["range"])), each["rows"])
                for each in kept["replaced"]
            ),
            comparison=None if kept["comparison"] is None else _comparison_from_json(kept["comparison"]),
            objections=tuple(kept["objections"]),
            notes=tuple(kept.get("notes", ())),
        )


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    return {
        **{name: getattr(comparison, name) for name in _COUNTS},
        "absent_columns": list(comparison.absent_columns),
        "examples": [{"where": str(each), "columns": list(each.columns)} for each in comparison.examples],
    }


def _comparison_from_json(kept: Mapping[str, Any]) -> Comparison:
    return Comparison(
        **{name: kept.get(name, 0) for name in _COUNTS},
        examples=tuple(_changed_row(each["where"], each["columns"]) for each in kept["examples"]),
        absent_columns=tuple(kept["absent_columns"]),
    )


def _changed_row(where: str, columns: Sequence[str]) -> ChangedRow:
    partition, _, offset = where.rpartition("@")
    place = OffsetRange.parse(f"{partition} {offset}..{offset}")
    return ChangedRow(place.partition, place.start, tuple(columns))
