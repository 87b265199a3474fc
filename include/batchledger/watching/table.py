"""The roles of a table that is watched: what a look asks it, and how one whose rows say their offset is counted.

Nothing here writes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Protocol

from typing_extensions import override

from batchledger.model.batch import LogState
from batchledger.model.counting import describe_count
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange, merge_ranges
from batchledger.proof.watching import ComparedTable, Frame, TableCount
from batchledger.watching.counting import OffsetCounter, Words

ENDLESS = 2**63 - 1
"""The end of a range that has none."""
_NEAR_OFFSETS = 100_000


@dataclass(frozen=True, slots=True)
class RowCoordinates:
    """Where a row says which record it is of: paths such as ``_offset`` or ``meta.offset``; one topic needs none."""

    partition: str
    offset: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What a look asks of a table: about how many rows it reads, and how."""

    rows: int
    how: str


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """How many rows an offset has, and where they are."""

    offsets: OffsetRange
    rows: int
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What a look asks a table: frames of a log, which ``read_log`` reads again, and whether all rows are counted."""

    watch: str
    frames: Sequence[Frame]
    log: LogState
    read_log: Callable[[], LogState]
    tell: Callable[[str], None]
    is_whole: bool


class WatchedTable(Protocol):
    """A table that others write. Each method reads one state of the table.

    Raises ConfigurationError if the table, a column or a right is missing, or a bound is passed, and
    ServiceUnavailableError if the table cannot be asked.
    """

    newest_parts: ClassVar[int] = 100
    """In so many partitions a look proves the newest part again, besides the share that it chooses by chance."""

    @property
    def name(self) -> str:
        """What people call it."""

    def find_moment(self) -> datetime | None:
        """Return the moment that a replica has reached; None if the table is as new as it can be."""
        return None

    def compare(self, asked: Asked) -> ComparedTable:
        """Return which offsets of the frames have rows. The frames come back without what cannot be asked again."""

    def locate(self, offsets: Sequence[OffsetRange]) -> Sequence[LocatedRows]:  # noqa: ARG002
        """Return where the rows of single offsets are, in order, as far as the table can say."""
        return ()

    def fingerprint(self, ranges: Sequence[OffsetRange]) -> Sequence[int]:
        """Return a hash of the rows of each range, by the columns of the file: the exclusive or of their hashes."""
        fault = f"cannot be hashed, which {len(ranges)} ranges would need"
        raise refuse_table(self.name, fault, "Leave fingerprint out of the file.")


class CountedTable(WatchedTable, Protocol):
    """A table whose rows say which record they are of: it brings words of offsets, which are counted here."""

    def estimate(self, spans: Sequence[OffsetRange] | None) -> ReadCost:
        """Return what ``count`` of the same spans will cost. Reads no rows."""

    def count(self, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        """Yield the words of the rows of the spans; of all rows if it is None, also of those without coordinates.

        A span whose end is ``ENDLESS`` has none. Words of other offsets may be among them.
        """

    def count_repeated(self, spans: Sequence[OffsetRange]) -> Iterator[Words]:
        """Yield the words of the offsets of the spans that more than one row has."""

    @override
    def compare(self, asked: Asked) -> ComparedTable:
        """Read the table, then ask Kafka where its logs end now: rows may have come meanwhile."""
        spans = choose_spans(asked.frames)
        wanted = None if asked.is_whole else spans
        if wanted == []:
            return ComparedTable(asked.frames, TableCount(()))
        cost = self.estimate(wanted)
        asked.tell(f"{asked.watch}: reads about {cost.rows:,} rows of {self.name}: {cost.how}")
        high = {each: held.high_watermark for each, held in asked.log.log_by_partition.items()}
        room = [
            OffsetRange(each.partition, each.start, max(each.start, min(each.until, high[each.partition])))
            for each in spans
        ]
        return ComparedTable(asked.frames, self.count_within(room, wanted, asked.read_log))

    def count_within(
        self, room: Sequence[OffsetRange], asked: Sequence[OffsetRange] | None, read_log: Callable[[], LogState]
    ) -> TableCount:
        """Count the rows of the asked spans, or all if it is None; ``room`` has the ranges that are counted."""
        counter = OffsetCounter(room)
        for words in self.count(asked):
            counter.add(words)
        repeated: Sequence[OffsetRange] = ()
        doubtful = coarsen(counter.find_doubtful())
        if doubtful:
            again = OffsetCounter(doubtful)
            for words in self.count_repeated(doubtful):
                again.add(words)
            repeated = again.finish((), {}).held
        ends = {each: held.high_watermark for each, held in read_log().log_by_partition.items()}
        return counter.finish(repeated, ends)


def choose_spans(frames: Sequence[Frame]) -> list[OffsetRange]:
    """Return what to ask the table: the asked offsets, near ones together, and everything behind the last of them."""
    spans = []
    for each in frames:
        near, whole = coarsen([*each.due, *each.old]), each.whole
        tail = OffsetRange(whole.partition, max(whole.start, near[-1].start if near else whole.until), ENDLESS)
        spans += [*near[:-1], tail]
    return spans


def coarsen(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return fewer, larger ranges: ranges that are near each other become one."""
    found: list[OffsetRange] = []
    for each in merge_ranges(ranges):
        last = found[-1] if found else None
        if last is not None and last.partition == each.partition and each.start - last.until <= _NEAR_OFFSETS:
            found[-1] = OffsetRange(each.partition, last.start, each.until)
        else:
            found.append(each)
    return found


def refuse_table(name: str, fault: str, advice: str) -> ConfigurationError:
    """Return the error about a table that cannot be proved as it is."""
    return ConfigurationError(f"Table {name} {fault}. Nothing was proved.", advice=advice, subject=name)


def require_bound(name: str, cost: ReadCost, max_rows: int | None, advice: str) -> ReadCost:
    """Return the cost. Raises ConfigurationError if it is above ``max_rows``."""
    if max_rows is not None and cost.rows > max_rows:
        raise ConfigurationError(
            f"A look at {name} would read {describe_count(cost.rows, 'row')}. Nothing was read.",
            why=f"max_rows allows {max_rows:,}. The plan: {cost.how}.",
            advice=advice,
            subject=name,
        )
    return cost
