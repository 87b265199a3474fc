"""What the rows of keys say of the records of these keys. Pure; no I/O.

Records come in portions, in the order of their offsets in each partition. All records of a key lie in one partition.

Worked example, an upserted table: key 7 has a record at offset 3 and a newer one at 9. The row of 7 has to be as the
record at 9 wants it; the one at 3 is superseded, whatever the row says. If 3 and 9 lie in different portions, the row
differs from the record at 3, which waits, until the one at 9 comes. What waits in the end is judged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from batchledger.model.errors import ConfigurationError
from batchledger.proof.watching import Discrepancy
from batchledger.watching.counting import Integers

PORTION_RECORDS = 200_000
MOST_WAITING = 1_000_000
"""So many keys may wait for records elsewhere in the log, in 300 MB."""
SEPARATOR = "\0"
"""Between the values of a key. No text of PostgreSQL has it."""

Flags = npt.NDArray[np.bool_]
Place = tuple[int, int]
"""The number of a partition in the list of partitions, and an offset."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a row is known by, and what of it has to be as new as the newest record: its version, or these columns."""

    key: tuple[str, ...]
    version: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of a row that are compared; without any, the table is only appended to."""
        return self.columns if self.version is None else (self.version,)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of records that are needed."""
        return tuple(dict.fromkeys((*self.key, *self.compared)))


class KeyedRecords(NamedTuple):
    """Records by key. ``lanes`` are numbers of partitions in a list of them; ``deletes``: it has no value."""

    lanes: Integers
    offsets: Integers
    keys: pa.StringArray
    deletes: Flags


class Groups(NamedTuple):
    """Records by key: the number of the key of each, and for each number the key, its newest record, and how many."""

    numbers: Integers
    keys: list[str]
    newest: Integers
    counts: Integers


class KeyAnswer(NamedTuple):
    """What the table says of each key: how many rows it has, and whether they are as new as the record."""

    rows: Integers
    agrees: Flags


def group_keys(keys: pa.StringArray) -> Groups:
    """Return the records by key."""
    encoded = keys.dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    known = encoded.dictionary.to_pylist()
    newest = np.zeros(len(known), np.int64)
    # The last value stays where a number comes again.
    newest[numbers] = np.arange(len(numbers))
    return Groups(numbers, known, newest, np.bincount(numbers, minlength=len(known)))


class KeyJudge(Protocol):
    """Judges records by the rows of their keys, portion by portion."""

    def group(self, records: KeyedRecords) -> Groups:
        """Return the records by what one row is for. The table is asked for the newest record of each."""
        return group_keys(records.keys)

    def judge(self, records: KeyedRecords, groups: Groups, answer: KeyAnswer) -> Flags:
        """Return which records the table holds. Raises ConfigurationError if too many keys wait."""

    def see(self, records: KeyedRecords, groups: Groups) -> None:
        """Take note of records that are not judged: they may be what a key waits for."""

    def find_starts(self) -> Mapping[int, int] | None:
        """Return behind which offset of which partition records may lie that a key waits for; None if all may be."""
        return None

    @property
    def is_waiting(self) -> bool:
        """Whether a key waits for records elsewhere in the log."""

    def finish(self) -> "Finished":
        """Judge what waits by what was seen."""


@dataclass
class Finished:
    """What is known in the end: more places that are held, and places of differences, ``TWICE`` among them."""

    held: list[Place] = field(default_factory=list)
    found: dict[Discrepancy, list[Place]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class _Several:
    """A key with several rows: how many, how many records, and where the judged ones are."""

    rows: int
    records: int = 0
    places: list[Place] = field(default_factory=list)


@dataclass
class AppendedKeys(KeyJudge):
    """Each key has a row, and at most as many as it has records: a producer may have sent one twice."""

    several: dict[str, _Several] = field(default_factory=dict)
    repeats: int = 0

    @override
    def judge(self, records: KeyedRecords, groups: Groups, answer: KeyAnswer) -> Flags:
        self.repeats += len(groups.numbers) - len(groups.keys)
        for number in np.flatnonzero(answer.rows > 1).tolist():
            rows = int(answer.rows[number])
            entry = self.several.setdefault(groups.keys[number], _Several(rows))
            entry.rows = max(entry.rows, rows)
        self.see(records, groups)
        for at in np.flatnonzero(answer.rows[groups.numbers] > 1).tolist():
            entry = self.several[groups.keys[groups.numbers[at]]]
            entry.places.append((int(records.lanes[at]), int(records.offsets[at])))
        _require_room(len(self.several))
        return answer.rows[groups.numbers] > 0

    @override
    def see(self, records: KeyedRecords, groups: Groups) -> None:
        for number, key in _list_known(groups, self.several):
            self.several[key].records += int(groups.counts[number])

    @property
    @override
    def is_waiting(self) -> bool:
        return any(each.rows > each.records for each in self.several.values())

    @override
    def finish(self) -> Finished:
        twice = [place for each in self.several.values() if each.rows > each.records for place in each.places]
        notes = []
        if self.repeats:
            notes.append(
                f"Records whose key another record near them has, too: {self.repeats:,}. A row stands for all of them."
            )
        return Finished(found={Discrepancy.TWICE: twice} if twice else {}, notes=notes)


@dataclass
class UpsertedKeys(KeyJudge):
    """Each key has one row, which is as its newest record wants it, or none if that record deletes it."""

    waiting: dict[str, tuple[Place, Discrepancy | None]] = field(default_factory=dict)
    settled: list[Place] = field(default_factory=list)
    superseded: int = 0
    deletions: int = 0

    @override
    def group(self, records: KeyedRecords) -> Groups:
        # A key waits for newer records of its own partition.
        lanes = pa.array(records.lanes).cast(pa.string())
        return group_keys(pc.binary_join_element_wise(lanes, records.keys, SEPARATOR))

    @override
    def judge(self, records: KeyedRecords, groups: Groups, answer: KeyAnswer) -> Flags:
        self.see(records, groups)
        deletes = records.deletes[groups.newest]
        self.superseded += len(groups.numbers) - len(groups.keys)
        self.deletions += int(deletes.sum())
        is_right = np.where(deletes, answer.rows == 0, (answer.rows == 1) & answer.agrees)
        held = np.ones(len(groups.numbers), bool)
        held[groups.newest] = is_right
        for number in np.flatnonzero(~is_right).tolist():
            at, rows = groups.newest[number], answer.rows[number]
            place = int(records.lanes[at]), int(records.offsets[at])
            self.waiting[groups.keys[number]] = place, _name_difference(rows, is_deletion=bool(deletes[number]))
        _require_room(len(self.waiting))
        return held

    @override
    def see(self, records: KeyedRecords, groups: Groups) -> None:
        for number, key in _list_known(groups, self.waiting):
            (_, offset), _ = self.waiting[key]
            if records.offsets[groups.newest[number]] > offset:
                self.settled.append(self.waiting.pop(key)[0])
                self.superseded += 1

    @override
    def find_starts(self) -> Mapping[int, int]:
        starts: dict[int, int] = {}
        for (lane, offset), _ in self.waiting.values():
            starts[lane] = min(starts.get(lane, offset), offset)
        return starts

    @property
    @override
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    @override
    def finish(self) -> Finished:
        finished = Finished(held=self.settled)
        for place, difference in self.waiting.values():
            if difference is not None:
                finished.found.setdefault(difference, []).append(place)
            if difference is Discrepancy.TWICE:
                finished.held.append(place)
        if self.superseded or self.deletions:
            finished.notes.append(
                f"Superseded by a newer record of their key: {self.superseded:,}. Deletions: {self.deletions:,}. They "
                "have no row of their own."
            )
        return finished


def _name_difference(rows: int, *, is_deletion: bool) -> Discrepancy | None:
    """Return what is wrong with the row of a key; None if it has none, which Kafka says more of."""
    if is_deletion:
        return Discrepancy.UNDELETED
    if rows == 0:
        return None
    return Discrepancy.STALE if rows == 1 else Discrepancy.TWICE


def _list_known(groups: Groups, known: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    if known:
        yield from ((number, key) for number, key in enumerate(groups.keys) if key in known)


def _require_room(keys: int) -> None:
    if keys > MOST_WAITING:
        raise ConfigurationError(
            f"More than {MOST_WAITING:,} keys have rows that differ from a record. Nothing was proved.",
            why="Which of these records are superseded is known only when all of the log is read, and so many keys are "
            "not kept.",
            advice="Let the watch begin later (since), or compare a version: then a row that is newer does not differ.",
        )
