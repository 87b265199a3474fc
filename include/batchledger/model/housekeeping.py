"""Which leftovers may go. Pure: the decisions follow from facts, and stay right beside live runs.

An attempt that is over stays over: numbers of attempts only grow, and a published or discarded batch gets no further
one. So its leftovers may be removed later, without a lock that a run would wait for. They have to be over for
``OVER_FOR`` nevertheless: a run removes its own leftovers, and an at-most-once publication writes the rows of a batch
after it was published.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from batchledger.model.batch import BatchState

OVER_FOR = timedelta(hours=1)


class Leftover(StrEnum):
    """What housekeeping removes."""

    STAGING = "staging table"
    MESSAGE_KEY = "message key"
    QUARANTINE = "quarantined record"
    VALIDATION = "validation"
    AUDIT = "audit result"
    INCIDENT = "incident"
    TEXT = "text of an error"
    BATCH = "batch"
    BRANCH = "branch"
    SNAPSHOT = "snapshot"
    SMALL_FILE = "small file"
    ORPHANED_FILE = "orphaned file"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a kind one run removes at most, and how much one transaction. The next run takes the rest."""

    per_run: int = 100_000
    per_transaction: int = 1_000


BOUNDS = {
    Leftover.STAGING: Bounds(1_000, 1),
    Leftover.MESSAGE_KEY: Bounds(5_000_000, 10_000),
    Leftover.QUARANTINE: Bounds(),
    Leftover.VALIDATION: Bounds(),
    Leftover.AUDIT: Bounds(),
    Leftover.INCIDENT: Bounds(),
    Leftover.TEXT: Bounds(),
    Leftover.BATCH: Bounds(),
}


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept if no pipeline file says so.

    ``validations`` are kept for this many of the newest batches of each pipeline; the results themselves stay for good.
    ``audits`` are results that have not passed, ``passed_audits`` the rest; the newest audit stays. ``incidents``
    counts from their end; an open one stays. ``texts`` are what errors quote in full, which may be values of records.
    """

    validations: int = 500
    audits: timedelta = timedelta(days=30)
    passed_audits: timedelta = timedelta(days=1)
    incidents: timedelta = timedelta(days=90)
    texts: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class StagingOwner:
    """The attempt of a staging table, as the ledger knows it. ``newest`` is the newest attempt of its batch."""

    pipeline: str
    state: BatchState
    newest: int
    outcome: str | None
    ended_at: datetime | None
    published_at: datetime | None


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table of one attempt, such as ``b17_a2_rows``. ``known`` is None if the ledger has no such batch."""

    name: str
    batch_id: int
    attempt: int
    known: StagingOwner | None

    @property
    def is_over(self) -> bool:
        """Whether no step will ever read the table again.

        Its attempt is superseded or failed, or its batch is published or discarded. A table that is unknown to the
        ledger may belong to another ledger: it is never over.
        """
        if self.known is None or self.attempt > self.known.newest:
            return False
        if self.known.state.is_final or self.attempt < self.known.newest:
            return True
        return self.known.state is BatchState.PLANNED and self.known.outcome == "failed"

    @property
    def is_unknown(self) -> bool:
        """Whether no attempt of this ledger can have made it: the ledger was restored, or another one made it."""
        return self.known is None or self.attempt > self.known.newest

    @property
    def over_since(self) -> datetime | None:
        """When it was over; None if the ledger does not say."""
        if self.known is None:
            return None
        return self.known.published_at or self.known.ended_at


def find_orphaned(tables: Iterable[StagingTable], now: datetime) -> list[StagingTable]:
    """Return the tables that no step will read again, if their own run had the time to remove them."""
    return [each for each in tables if each.is_over and (each.over_since is None or now - each.over_since >= OVER_FOR)]


def choose_forgetting(now: datetime, open_planned_at: Iterable[datetime]) -> datetime:
    """Return the moment up to which message keys that expired may be removed.

    A batch knows the keys that expire after it was planned, however late it is published. So every open batch keeps
    them. ``OVER_FOR`` keeps them for a batch that is being planned right now and is not visible yet.
    """
    return min([now - OVER_FOR, *open_planned_at])


@dataclass(frozen=True, slots=True)
class Removal:
    """How much of one kind was removed, or would be in a dry run. ``subject`` names the pipeline or the table.

    ``is_complete`` is False if the run reached its bound, or if another process works on the rest.
    """

    kind: Leftover
    subject: str
    count: int
    is_complete: bool = True
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """The result of one run for the ledger of one database, or for one sink.

    ``unknown`` is staging that it leaves to a person. ``left_out`` says what it could not do, and why.
    """

    pipelines: Sequence[str] = field(default_factory=tuple)
    removals: Sequence[Removal] = field(default_factory=tuple)
    unknown: Sequence[str] = field(default_factory=tuple)
    left_out: Sequence[str] = field(default_factory=tuple)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left for the next run."""
        return all(each.is_complete for each in self.removals)

    def and_also(self, more: "Housekeeping") -> "Housekeeping":
        """Return this together with the result for a sink of the same pipelines."""
        return replace(
            self,
            removals=(*self.removals, *more.removals),
            unknown=(*self.unknown, *more.unknown),
            left_out=(*self.left_out, *more.left_out),
        )
