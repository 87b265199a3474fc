"""The role of a table that is watched: who reads it, counts its offsets and shows its rows. It writes nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from batchledger.model.counting import describe_count
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.watching.counting import Words

ENDLESS = 2**63 - 1
"""The end of a range that has none."""


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
class RepeatedRows:
    """An offset that several rows have, and where these rows are, as far as the table can say."""

    offsets: OffsetRange
    rows: int
    places: tuple[str, ...] = ()


class WatchedTable(Protocol):
    """A table that others write. Each method reads one state of the table.

    Raises ConfigurationError if the table, a column or a right is missing, or a bound is passed, and
    ServiceUnavailableError if the table cannot be asked.
    """

    @property
    def name(self) -> str:
        """What people call it."""

    def find_moment(self) -> datetime | None:
        """Return the moment that a replica has reached; None if the table is as new as it can be."""

    def estimate(self, spans: Sequence[OffsetRange] | None) -> ReadCost:
        """Return what ``count`` of the same spans will cost. Reads no rows."""

    def count(self, spans: Sequence[OffsetRange] | None) -> Iterator[Words]:
        """Yield the words of the rows of the spans; of all rows if it is None, also of those without coordinates.

        A span whose end is ``ENDLESS`` has none. Words of other offsets may be among them.
        """

    def count_repeated(self, spans: Sequence[OffsetRange]) -> Iterator[Words]:
        """Yield the words of the offsets of the spans that more than one row has."""

    def fingerprint(self, ranges: Sequence[OffsetRange]) -> Sequence[int]:
        """Return a hash of the rows of each range, by the columns of the file: the exclusive or of their hashes."""
        fault = f"cannot be hashed, which {len(ranges)} ranges would need"
        raise refuse_table(self.name, fault, "Leave fingerprint out of the file.")

    def find_repeated(self, spans: Sequence[OffsetRange], limit: int) -> Sequence[RepeatedRows]:
        """Return the offsets of the spans that more than one row has, in order, ``limit`` at most."""


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
