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


class Written(NamedTuple):
    """One offset of the log; a good record carries an id that no other record has."""

    kind: Kind
    message_id: str


@dataclass
class Model:
    """The topic as it was written. Offsets below ``origin`` were gone before the pipeline first looked."""

    log: dict[int, list[Written]] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)
    log_start: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, list[int]] = field(default_factory=dict)
    given_up: set[Place] = field(default_factory=set)
    acknowledged: set[Place] = field(default_factory=set)
    is_recreated: bool = False

    def add_partition(self, origin: int = 0) -> int:
        """Add an empty partition whose first ``origin`` offsets are gone, and return its number."""
        partition = len(self.log)
        self.log[partition] = [Written(Kind.MARKER, "")] * origin
        self.origin[partition] = self.log_start[partition] = origin
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

    def give_up(self, partition: int, start: int, until: int) -> None:
        """Note that a person has accepted the loss of these offsets."""
        self.given_up |= spell_out([(partition, start, until)])

    def acknowledge(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Note that a run has ended well and said that these ranges are published."""
        self.acknowledged |= spell_out(ranges)

    def count_kinds(self, partition: int, start: int, until: int) -> Counter[Kind]:
        """How many offsets of each kind lie in a range."""
        return Counter(each.kind for each in self.log[partition][start:until])

    def find(self, kind: Kind, next_offsets: dict[int, int]) -> set[Row]:
        """The records of one kind below the given next offsets that no accepted loss covers."""
        return {
            Row(partition, offset, self.log[partition][offset].message_id)
            for partition, next_offset in next_offsets.items()
            for offset in range(self.origin[partition], next_offset)
            if self.log[partition][offset].kind is kind and (partition, offset) not in self.given_up
        }

    def all_good_rows(self) -> set[Row]:
        """Every good record ever written, also those that were given up later."""
        return {
            Row(partition, offset, written.message_id)
            for partition, log in self.log.items()
            for offset, written in enumerate(log)
            if written.kind is Kind.GOOD
        }


def spell_out(ranges: Iterable[tuple[int, int, int]]) -> set[Place]:
    """Every place within ranges given as partition, start and until."""
    return {(partition, offset) for partition, start, until in ranges for offset in range(start, until)}
