"""What a look at a table that others wrote has found: proved, wrong with coordinates, or not to be said. Pure; no I/O.

A record of Kafka has one row, and a row has its record. Holes of the table have the causes of ``classify_holes``. What
was proved once stays proved until a look finds otherwise, and ``held`` remembers where a row was, also when Kafka has
removed the record since.

Worked example, ``payments[1] 0..10``: rows at 0..4 and 6..9, and 8 is there twice. Kafka has records at 0..6, an
aborted one at 9. Missing is ``payments[1] 4..6``, twice ``payments[1] 8..9``, a hole is 9; proved are the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from batchledger.model.balance import DECLARED_CLASSES, HoleEvidence, HolePolicy, classify_holes
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, intersect, merge_ranges


class WatchOutcome(StrEnum):
    """What a look says of a table, the worst first."""

    WRONG = "wrong"
    CANNOT_SAY = "cannot say"
    PROVED = "proved"


class Discrepancy(StrEnum):
    """A kind of offsets that are not proved."""

    MISSING = "missing"
    DELETED = "deleted"
    TWICE = "twice"
    UNCOMMITTED = "uncommitted"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    CHANGED = "changed"
    STALE = "stale"
    UNDELETED = "not deleted"
    UNDECODABLE = "undecodable"
    RECREATED = "topic recreated"
    EXPIRED = "expired"
    UNCLEAR = "unclear"
    UNDECLARED = "undeclared"
    BEHIND = "replica behind"
    STRAY = "without coordinates"
    YOUNG = "not compared"

    @property
    def outcome(self) -> WatchOutcome:
        """What a table is that has it."""
        return WatchOutcome.WRONG if self in _WRONG else WatchOutcome.CANNOT_SAY

    @property
    def meaning(self) -> str:
        """What it says, in a few words."""
        return _MEANINGS[self]


_WRONG = frozenset({
    Discrepancy.MISSING, Discrepancy.DELETED, Discrepancy.TWICE, Discrepancy.UNCOMMITTED, Discrepancy.UNKNOWN,
    Discrepancy.FOREIGN, Discrepancy.CHANGED, Discrepancy.STALE, Discrepancy.UNDELETED,
})  # fmt: skip
_MEANINGS: Mapping[Discrepancy, str] = {
    Discrepancy.MISSING: "Kafka has records there, read just now or earlier",
    Discrepancy.DELETED: "an earlier look has seen these rows",
    Discrepancy.TWICE: "more than one row has this offset",
    Discrepancy.UNCOMMITTED: "rows of aborted transactions: their writer reads uncommitted records",
    Discrepancy.UNKNOWN: "rows at offsets where Kafka has no record",
    Discrepancy.FOREIGN: "rows of partitions that the topics do not have",
    Discrepancy.CHANGED: "the hash of these rows is another one than when they were proved",
    Discrepancy.STALE: "the row is older than this record, the newest of its key",
    Discrepancy.UNDELETED: "this record, the newest of its key, deletes a row that is there",
    Discrepancy.UNDECODABLE: "what the row is known by is null, or cannot be read from the record",
    Discrepancy.RECREATED: "the topic was created again; its rows are of another one",
    Discrepancy.EXPIRED: "Kafka has removed them before a look has proved them",
    Discrepancy.UNCLEAR: "no record is visible; whether the topic is compacted may not be read",
    Discrepancy.UNDECLARED: "no record is there, and holes in the file does not say that this may be",
    Discrepancy.BEHIND: "the database is a replica that does not have the rows of these records yet, or stands still",
    Discrepancy.STRAY: "rows whose coordinates are missing or no numbers",
    Discrepancy.YOUNG: "no record is older than the lateness yet: look again later",
}
PART_OFFSETS = 2**20
"""What is proved again, and what has a fingerprint, is a part of so many offsets."""
EXPLAINED = ("aborted", "markers", "compacted")
LACKING = (Discrepancy.MISSING, Discrepancy.DELETED)
SURPLUS = (Discrepancy.UNCOMMITTED, Discrepancy.UNKNOWN)


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """What earlier looks have of a partition: where the watch begins, what is proved, and where a row was seen.

    ``lacking`` are offsets where a record was seen and no row, ``surplus`` where a row was seen and no record. They
    stay wrong until the row comes or goes, also when Kafka has removed what it had there.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    proved: tuple[OffsetRange, ...] = ()
    held: tuple[OffsetRange, ...] = ()
    lacking: tuple[OffsetRange, ...] = ()
    surplus: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """What a look is about in a partition: offsets ``due`` for a proof, and ``old`` ones that are proved again.

    ``end`` is where the log ends for readers; what lies between the frame and it is younger than the lateness.
    """

    known: WatchedPartition
    until: int
    end: int
    due: tuple[OffsetRange, ...]
    old: tuple[OffsetRange, ...] = ()

    @property
    def whole(self) -> OffsetRange:
        """From where the watch begins to where the frame ends."""
        return OffsetRange(self.known.partition, self.known.start, self.until)


@dataclass(frozen=True, slots=True)
class TableCount:
    """What the table holds within the frames: offsets with a row, offsets with several, and rows that fit nowhere.

    ``beyond`` are offsets with rows behind the end of the log. ``stray`` counts rows without coordinates, ``foreign``
    rows of partitions and topics that Kafka does not have. If a table is asked by key: ``seen`` are the offsets
    at which a committed record was read, and ``judged`` the ones whose row says something else than the record.
    """

    held: tuple[OffsetRange, ...]
    repeated: tuple[OffsetRange, ...] = ()
    beyond: tuple[OffsetRange, ...] = ()
    stray: int = 0
    foreign: int = 0
    seen: tuple[OffsetRange, ...] | None = None
    judged: Mapping[Discrepancy, tuple[OffsetRange, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> list[OffsetRange]:
        """The offsets of which the table says something, be it that their row is another one."""
        return [*self.held, *(part for ranges in self.judged.values() for part in ranges)]


@dataclass(frozen=True)
class ComparedTable:
    """What a look compares: what is known and asked of each partition, and what the table has of it."""

    frames: Sequence[Frame]
    counted: TableCount

    @cached_property
    def due(self) -> list[OffsetRange]:
        """The offsets that are due for a proof."""
        return [part for each in self.frames for part in each.due]

    @cached_property
    def old(self) -> list[OffsetRange]:
        """The offsets that are proved again."""
        return [part for each in self.frames for part in each.old]

    @cached_property
    def seen(self) -> list[OffsetRange]:
        """Where earlier looks have seen a row."""
        return [part for each in self.frames for part in each.known.held]

    @cached_property
    def lacking(self) -> list[OffsetRange]:
        """Where earlier looks have seen a record without a row."""
        return [part for each in self.frames for part in each.known.lacking]

    @cached_property
    def surplus(self) -> list[OffsetRange]:
        """Where earlier looks have seen a row without a record."""
        return [part for each in self.frames for part in each.known.surplus]

    def find_young(self) -> "list[Found]":
        """Return all offsets, if none of them is old enough to be compared."""
        if any(len(each.whole) for each in self.frames):
            return []
        young = merge_ranges(OffsetRange(each.known.partition, each.until, each.end) for each in self.frames)
        return [tell(Discrepancy.YOUNG, young)] if young else []

    @property
    def is_misled(self) -> bool:
        """Whether the coordinates of the file lead to nothing in any row, and never did."""
        return bool(self.counted.stray) and not self.counted.held and not self.seen

    @cached_property
    def gone(self) -> list[OffsetRange]:
        """Where earlier looks have seen a row, and this one sees none."""
        return find_gaps(self.counted.known, within=intersect([*self.due, *self.old], self.seen))

    @cached_property
    def holes(self) -> list[OffsetRange]:
        """The offsets that are due and have no row and never had one: Kafka is asked what it has there.

        It is not asked where an earlier look has seen a record, or that there is none.
        """
        return find_gaps([*self.counted.known, *self.gone, *self.lacking, *self.surplus], within=self.due)


@dataclass(frozen=True, slots=True)
class Found:
    """Offsets, or rows, of one difference, counted, and their ranges. No difference is found twice.

    A look has all ranges of what it has found. Once it is stored, it has the first ones.
    """

    difference: Discrepancy
    count: int
    ranges: tuple[OffsetRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a look changes: offsets that are proved with their rows, offsets that are no longer, and what is wrong.

    ``asked`` is what was looked at. ``holes`` are the offsets without a record by their class.
    """

    asked: tuple[OffsetRange, ...]
    proved: tuple[OffsetRange, ...]
    held: tuple[OffsetRange, ...]
    withdrawn: tuple[OffsetRange, ...]
    found: tuple[Found, ...]
    holes: Mapping[str, int] = field(default_factory=dict)

    def list_ranges(self, *differences: Discrepancy) -> list[OffsetRange]:
        """Return the offsets of these differences, as the fewest ranges."""
        return merge_ranges(part for each in self.found if each.difference in differences for part in each.ranges)


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """One partition after a look: its frame, how many of its offsets are proved, and how many had a row.

    ``behind`` counts the records behind the newest row that have none: the writer does not keep up.
    """

    partition: TopicPartition
    start: int
    until: int
    end: int
    proved: int
    rows: int
    behind: int = 0


@dataclass(frozen=True, slots=True)
class TableLook:
    """What a look says of a table. ``rechecked`` counts the offsets that were proved before and again."""

    watch: str
    looked_at: datetime
    outcome: WatchOutcome
    partitions: tuple[PartitionStanding, ...]
    found: tuple[Found, ...]
    holes: Mapping[str, int]
    rechecked: int = 0
    notes: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets the frames have."""
        return sum(each.until - each.start for each in self.partitions)

    @property
    def rows(self) -> int:
        """How many offsets have a row."""
        return sum(each.rows for each in self.partitions)

    @property
    def proved(self) -> int:
        """How many offsets are proved."""
        return sum(each.proved for each in self.partitions)

    @property
    def lacking(self) -> Sequence[OffsetRange]:
        """The offsets that have no row and ought to have one."""
        return merge_ranges(part for each in self.found if each.difference in LACKING for part in each.ranges)

    @property
    def count_by_difference(self) -> Mapping[Discrepancy, int]:
        """How many offsets, or rows, each difference has that was found."""
        return {each.difference: each.count for each in self.found}

    @property
    def late(self) -> int:
        """How many offsets are too young to be missing."""
        return sum(each.end - each.until for each in self.partitions)


def lay_frame(known: WatchedPartition, until: int, end: int, recheck: Sequence[OffsetRange]) -> Frame:
    """Return what a look is about in one partition: everything up to ``until`` that is not proved, and ``recheck``."""
    until = max(known.start, until)
    whole = OffsetRange(known.partition, known.start, until)
    due = tuple(find_gaps(known.proved, within=[whole]))
    old = tuple(intersect(intersect(recheck, known.proved), [whole]))
    return Frame(known, until, max(end, until), due, old)


def judge_look(compared: ComparedTable, evidence: HoleEvidence, policy: HolePolicy) -> Judgement:
    """Judge a look. ``evidence`` is about its holes; with another policy than ``none`` about all that is due."""
    counted, due, old = compared.counted, compared.due, compared.old
    if compared.is_misled:
        return Judgement((), (), (), (), (Found(Discrepancy.STRAY, counted.stray),))
    asked = [*due, *old]
    by_class = dict(classify_holes(compared.holes, evidence))
    declared = DECLARED_CLASSES[policy]
    undeclared = [part for name in EXPLAINED if name not in declared for part in by_class.get(name, ())]
    lacking = find_gaps(counted.known, within=intersect(compared.lacking, due))
    surplus = intersect(intersect(compared.surplus, due), counted.held)
    doubted = _find_rows_without_record(find_gaps(compared.lacking, within=due), counted, evidence, policy)
    uncommitted = doubted.pop(Discrepancy.UNCOMMITTED)
    doubted = {kind: find_gaps(surplus, within=parts) for kind, parts in doubted.items()}
    appeared = find_gaps(compared.seen, within=intersect(counted.held, old))
    ranges: Mapping[Discrepancy, Sequence[OffsetRange]] = {
        Discrepancy.MISSING: [*by_class.get("unread", ()), *lacking],
        Discrepancy.DELETED: compared.gone,
        Discrepancy.TWICE: intersect(counted.repeated, asked),
        Discrepancy.UNCOMMITTED: uncommitted,
        Discrepancy.UNKNOWN: [
            *doubted[Discrepancy.UNKNOWN],
            *find_gaps(uncommitted, within=surplus),
            *appeared,
            *counted.beyond,
        ],
        Discrepancy.EXPIRED: [*by_class.get("expired", ()), *doubted[Discrepancy.EXPIRED]],
        Discrepancy.UNCLEAR: [
            *(() if "unclear" in declared else by_class.get("unclear", ())),
            *doubted[Discrepancy.UNCLEAR],
        ],
        Discrepancy.UNDECLARED: [*undeclared, *doubted[Discrepancy.UNDECLARED]],
        **{kind: intersect(parts, asked) for kind, parts in counted.judged.items()},
    }
    found = [tell(kind, merge_ranges(parts)) for kind, parts in ranges.items() if parts]
    rows = {Discrepancy.FOREIGN: counted.foreign, Discrepancy.STRAY: counted.stray}
    found += [Found(kind, count) for kind, count in rows.items() if count]
    wrong = merge_ranges(part for parts in ranges.values() for part in parts)
    proved = tuple(find_gaps(wrong, within=asked))
    return Judgement(
        asked=tuple(asked),
        proved=proved,
        held=tuple(intersect(counted.held, proved)),
        withdrawn=tuple(intersect(wrong, old)),
        found=tuple(found),
        holes={name: count_offsets(by_class[name]) for name in EXPLAINED if by_class.get(name)},
    )


def _find_rows_without_record(
    due: Sequence[OffsetRange], counted: TableCount, evidence: HoleEvidence, policy: HolePolicy
) -> dict[Discrepancy, list[OffsetRange]]:
    """Return where rows stand at no record that is there now, by what that says of them.

    With ``none`` Kafka was not asked. A row of a topic that is declared as compacted may have outlived its record.
    """
    kinds = (*SURPLUS, Discrepancy.EXPIRED, Discrepancy.UNCLEAR, Discrepancy.UNDECLARED)
    found: dict[Discrepancy, list[OffsetRange]] = {kind: [] for kind in kinds}
    if policy is HolePolicy.NONE:
        return found
    starts = evidence.log_start_by_partition
    below = [
        OffsetRange(each.partition, each.start, min(each.until, starts[each.partition]))
        for each in due
        if each.start < starts.get(each.partition, 0)
    ]
    with_row = intersect(counted.held, due)
    found[Discrepancy.EXPIRED] = intersect(below, with_row)
    invisible = find_gaps([*evidence.committed, *below], within=with_row)
    found[Discrepancy.UNCOMMITTED] = intersect(invisible, evidence.uncommitted)
    for each in find_gaps(evidence.uncommitted, within=invisible):
        topic = each.partition.topic
        if topic in evidence.topics_of_unknown_policy:
            kind = Discrepancy.UNCLEAR
        else:
            kind = Discrepancy.UNDECLARED if topic in evidence.compacted_topics else Discrepancy.UNKNOWN
        if policy is not HolePolicy.COMPACTED or kind is Discrepancy.UNKNOWN:
            found[kind].append(each)
    return found


def tell(difference: Discrepancy, ranges: Sequence[OffsetRange]) -> Found:
    """Return a finding of these ranges, which are merged."""
    return Found(difference, count_offsets(ranges), tuple(ranges))


def name_outcome(found: Sequence[Found]) -> WatchOutcome:
    """Return what a look says that has found this."""
    outcomes = {each.difference.outcome for each in found}
    return next((each for each in WatchOutcome if each in outcomes), WatchOutcome.PROVED)
