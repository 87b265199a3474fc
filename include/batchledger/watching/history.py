"""What looks have said, in numbers, for lists and histories. Reads the ledger alone.

A whole look has a line for each partition, which may be 10,000, and up to 1,000 ranges of each difference.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from batchledger.database.transactions import read_statement
from batchledger.ledger.schema import snapshot
from batchledger.model.counting import describe_count
from batchledger.proof.watching import Discrepancy, TableLook, WatchOutcome


@dataclass(frozen=True, slots=True)
class LookSummary:
    """A look in numbers; ``found`` counts the offsets of each difference, in the order in which a look tells them."""

    looked_at: datetime
    outcome: WatchOutcome
    offsets: int
    rows: int
    proved: int
    late: int
    found: Mapping[Discrepancy, int]

    @property
    def told(self) -> str:
        """What it has found, in words: ``missing 129, twice 2``; of a table that is right, what is proved."""
        if self.found:
            return ", ".join(f"{difference} {count:,}" for difference, count in self.found.items())
        return f"{describe_count(self.proved, 'offset')} proved"


def summarise(look: TableLook) -> LookSummary:
    """Return a look in numbers."""
    counts = look.count_by_difference
    return LookSummary(look.looked_at, look.outcome, look.offsets, look.rows, look.proved, look.late, counts)


def load_summaries(dsn: str, watches: Collection[str], limit: int = 1) -> dict[str, list[LookSummary]]:
    """Return so many of the newest looks of each of these watches that has one, the newest first.

    Raises ConfigurationError and ServiceUnavailableError as every question to the ledger.
    """
    found: dict[str, list[LookSummary]] = {}
    with snapshot(dsn, "look at the looks of watches") as cursor:
        cursor.execute(read_statement(__package__, "load_summaries"), {"watches": list(watches), "limit": limit})
        for watch, document, counts in cursor:
            summary = LookSummary(
                looked_at=datetime.fromisoformat(document["looked_at"]),
                outcome=WatchOutcome(document["outcome"]),
                found={each: counts[each] for each in Discrepancy if each in counts},
                **{name: document[name] for name in ("offsets", "rows", "proved", "late")},
            )
            found.setdefault(watch, []).append(summary)
    return found


def list_unreachable(dsn: str, watches: Collection[str]) -> dict[str, datetime]:
    """Return which of these watches could not look at last, and since when."""
    with snapshot(dsn, "look for watches that cannot look") as cursor:
        cursor.execute(read_statement(__package__, "list_unreachable"), [list(watches)])
        return dict(cursor)
