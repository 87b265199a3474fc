"""What a person with a pencil would write down: each record produced, each record removed, each loss accepted.

Shares no code with the platform: partitions and offsets are plain numbers, ranges are spelled out offset by offset.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """What lies at one offset."""

    GOOD = auto()
    UNDECODABLE = auto()
    UNDECIDED = auto()
    ABORTED = auto()
    MARKER = auto()


Place = tuple[int, int]
"""Partition and offset."""


class Row(NamedTuple):
    """A record as a reader of the target should see it."""

    partition: int
    offset: int
    message_id: str

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self.partition, self.offset


RECORDS = frozenset({Kind.GOOD, Kind.UNDECODABLE})
"""What is read as a record: each release decodes one of them, and quarantines the other."""


class Written(NamedTuple):
    """One offset of the log; a record carries an id that no other record has."""

    kind: Kind
    message_id: str


@dataclass
class Model:
    """The topic as it was written, and who has published what of it.

    The pipeline began at ``origin``. ``owners`` says of each offset which batch has published it last, in either lane;
    ``decoded_by`` which kind of record the release behind a published batch decodes. ``losses`` are the batches that
    account for what a person gave up: they own what no batch had published, and have no record at all.
    """

    log: dict[int, list[Written]] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)
    log_start: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, list[int]] = field(default_factory=dict)
    losses: set[int] = field(default_factory=set)
    owners: dict[Place, int] = field(default_factory=dict)
    decoded_by: dict[int, Kind] = field(default_factory=dict)
    acknowledged: set[Place] = field(default_factory=set)
    is_recreated: bool = False

    def add_partition(self, gone: int = 0) -> int:
        """Add an empty partition whose first offsets are gone, and return its number."""
        partition = len(self.log)
        self.log[partition] = [Written(Kind.MARKER, "")] * gone
        self.origin[partition] = self.log_start[partition] = gone
        return partition

    def write(self, partition: int, kind: Kind, count: int) -> list[str]:
        """Write ``count`` offsets of one kind and return the ids of the records."""
        start = len(self.log[partition])
        ids = [f"{partition}@{offset}" for offset in range(start, start + count)]
        self.log[partition] += [Written(kind, each) for each in ids]
        return ids

    def begin(self, partition: int, count: int) -> list[str]:
        """Write ``count`` records of a transaction that stays open, and return their ids."""
        start = self.end(partition)
        self.undecided[partition] = list(range(start, start + count))
        return self.write(partition, Kind.UNDECIDED, count)

    def decide(self, partition: int, outcome: Kind) -> None:
        """End the open transaction: its records become good or aborted, and a marker follows."""
        for offset in self.undecided.pop(partition):
            self.log[partition][offset] = self.log[partition][offset]._replace(kind=outcome)
        self.write(partition, Kind.MARKER, 1)

    def readable_end(self, partition: int) -> int:
        """Where the first open transaction begins, otherwise the end."""
        return min(self.undecided.get(partition, []), default=self.end(partition))

    def end(self, partition: int) -> int:
        """The next offset to be written."""
        return len(self.log[partition])

    def find_losses(self, next_offsets: dict[int, int]) -> dict[int, tuple[int, int]]:
        """By partition, the next offset and the log start that lies beyond it; a new partition is read from 0 on."""
        if not next_offsets:
            return {}
        positions = {each: next_offsets.get(each, 0) for each in self.log}
        return {each: (at, self.log_start[each]) for each, at in positions.items() if at < self.log_start[each]}

    def publish(self, batch: int, ranges: Iterable[tuple[int, int, int]], decodes: Kind) -> None:
        """Note that a batch, by a release that decodes such records, has published these ranges just now."""
        places = spell_out(ranges)
        if batch in self.losses:
            self.owners = dict.fromkeys(places, batch) | self.owners
        else:
            self.decoded_by[batch] = decodes
            self.owners |= dict.fromkeys(places, batch)

    def is_repeated(self, batch: int, ranges: Iterable[tuple[int, int, int]], decodes: Kind) -> bool:
        """Whether other batches, by releases that decode the same, have published all of these ranges."""
        owners = {self.owners.get(place) for place in spell_out(ranges)}
        return batch not in owners and all(self.decoded_by.get(each) is decodes for each in owners)

    def acknowledge(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Note that a run has ended well and said that these ranges are published."""
        self.acknowledged |= spell_out(ranges)

    def count_kinds(self, partition: int, start: int, until: int) -> Counter[Kind]:
        """How many offsets of each kind lie in a range."""
        return Counter(each.kind for each in self.log[partition][start:until])

    def find_rows(self) -> dict[Row, int]:
        """What readers of the target should see: each record that its owner decodes, with that owner."""
        return {
            Row(*place, self._at(place).message_id): owner
            for place, owner in self.owners.items()
            if self.is_decoded(place, owner)
        }

    def find_quarantined(self) -> dict[Place, int]:
        """What should lie in quarantine: each record that its owner does not decode, with that owner."""
        return {
            place: owner
            for place, owner in self.owners.items()
            if owner in self.decoded_by and self.is_record(place) and not self.is_decoded(place, owner)
        }

    def is_decoded(self, place: Place, batch: int) -> bool:
        """Whether the release behind a published batch makes a row of what lies there."""
        return self._at(place).kind is self.decoded_by.get(batch)

    def is_record(self, place: Place) -> bool:
        """Whether a record lies there."""
        return self._at(place).kind in RECORDS

    def _at(self, place: Place) -> Written:
        partition, offset = place
        return self.log[partition][offset]


def spell_out(ranges: Iterable[tuple[int, int, int]]) -> set[Place]:
    """Every place within ranges given as partition, start and until."""
    return {(partition, offset) for partition, start, until in ranges for offset in range(start, until)}
