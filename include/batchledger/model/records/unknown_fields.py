"""Fields of records that the pipeline's schema does not declare: how many records have them, and where the first lies.

A producer may send any number of names, so no more than the first few are kept, in the order of their letters. That
bounds the memory, and still counts exactly: a name that comes later in that order than all that are kept can be left
out, and a name that is kept was never left out before. So the counts of several tasks add up. Pure; no I/O.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from batchledger.model.offsets import OffsetRange, single_offset

NAMES_SHOWN = 20
_NAMES_KEPT = NAMES_SHOWN + 1
# Names are left out when there are so many more than are kept.
_MOST_NAMES = 2_000
LONGEST_NAME = 100
"""A longer name is cut off."""
NAMELESS = "field number"
"""What a field of Protobuf is called, before its number, whose name no schema says."""

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """In how many records a field was seen, and the place of the first by topic, partition and offset."""

    records: int
    first: Place

    def add(self, other: "Sighting") -> "Sighting":
        """Return the sighting in both sets of records."""
        return Sighting(self.records + other.records, min(self.first, other.first))

    @property
    def range(self) -> OffsetRange:
        """The offset of the first record alone."""
        return single_offset(*self.first)


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """``records`` have at least one of them. ``by_name`` holds the first names; ``has_more``: there are others.

    Example: ``UnknownFields(1204, {"discount": Sighting(1204, ("orders", 2, 77))})``.
    """

    records: int = 0
    by_name: Mapping[str, Sighting] = field(default_factory=dict)
    has_more: bool = False

    def describe(self) -> str:
        """Return the names with their counts: ``discount in 1,204, shipping in 3``."""
        shown = ", ".join(f"{name} in {each.records:,}" for name, each in self.by_name.items())
        return f"{shown}, and others" if self.has_more else shown


def sum_up(records: int, sightings: Iterable[tuple[str, Sighting]]) -> UnknownFields:
    """Return what several tasks have seen together; each has kept the first names that it saw."""
    by_name: dict[str, Sighting] = {}
    for name, each in sightings:
        by_name[name] = by_name[name].add(each) if name in by_name else each
    ordered = sorted(by_name.items())
    return UnknownFields(records, dict(ordered[:NAMES_SHOWN]), len(ordered) > NAMES_SHOWN)


@dataclass
class UnknownFieldCounter:
    """Counts the unknown fields of the records of one task, in any order."""

    records: int = 0
    by_name: dict[str, Sighting] = field(default_factory=dict)
    last_kept: str | None = None

    def count(self, names: Iterable[str], seen: Sighting) -> None:
        """Take note of records that have exactly these names."""
        shown = {write_name(each) for each in names}
        self.records += seen.records if shown else 0
        for name in shown:
            if self.last_kept is None or name <= self.last_kept:
                known = self.by_name.get(name)
                self.by_name[name] = known.add(seen) if known else seen
        if len(self.by_name) > _MOST_NAMES:
            self._leave_out()

    def list_first(self) -> list[tuple[str, Sighting]]:
        """Return the first names: one more than is shown, so that others are known to exist."""
        self._leave_out()
        return list(self.by_name.items())

    def _leave_out(self) -> None:
        self.by_name = dict(sorted(self.by_name.items())[:_NAMES_KEPT])
        if len(self.by_name) == _NAMES_KEPT:
            self.last_kept = max(self.by_name)


def write_name(name: str) -> str:
    """Return a name as it is shown and stored: one line of text, no longer than ``LONGEST_NAME``."""
    written = name if name.isprintable() else json.dumps(name[:LONGEST_NAME])[1:-1]
    return written if len(written) <= LONGEST_NAME else f"{written[: LONGEST_NAME - 1]}…"
