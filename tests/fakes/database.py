"""A transactional database in memory: readers see what was committed, one writer at a time works on a copy.

Every stored value is immutable, so the copy of a transaction is a copy of the dictionaries only.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

import pyarrow as pa

from batchledger.model.balance import Balance
from batchledger.model.batch import (
    Attempt,
    Batch,
    CheckResult,
    DecisionRecord,
    HeldRange,
    Position,
    Staged,
    StepFailure,
    Target,
)
from batchledger.model.errors import ServiceUnavailableError
from batchledger.model.incidents import Event, Incident
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.unknown_fields import UnknownFieldCounter

Row = Mapping[str, Any]
AttemptKey = tuple[int, int]
"""Batch id and attempt number."""
Coordinate = tuple[TopicPartition, int]
"""Where a record lies: partition and offset."""


def coordinate_of(row: Row) -> Coordinate:
    """Where a row comes from."""
    return TopicPartition(row["_topic"], row["_partition"]), row["_offset"]


def is_over(key: AttemptKey, attempt: Attempt) -> bool:
    """Whether ``key`` is the attempt or an earlier one of its batch."""
    batch_id, number = key
    return batch_id == attempt.batch.batch_id and number <= attempt.number


_LOCK_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One row of the batch table with what hangs on it."""

    batch: Batch
    staged: Staged | None = None
    balances: tuple[Balance, ...] = ()
    opened_at: datetime | None = None
    published_at: datetime | None = None
    has_rows: bool = False
    held: tuple[OffsetRange, ...] = ()
    dropped: tuple[OffsetRange, ...] = ()
    erased: tuple[Coordinate, ...] = ()
    epoch: int = 0
    planned_by: str = ""
    request_key: str | None = None
    dry_run: DryRunOutcome | None = None


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What the reading tasks of one attempt witnessed."""

    readers: frozenset[int] = frozenset()
    visible: tuple[OffsetRange, ...] = ()
    quarantined: tuple[Row, ...] = ()
    tombstones: tuple[OffsetRange, ...] = ()
    unknown: Mapping[int, UnknownFieldCounter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredStaging:
    """The rows of one attempt by writing task, and those set aside; sealed staging takes no more."""

    schema: pa.Schema
    rows_by_task: Mapping[int, tuple[Row, ...]] = field(default_factory=dict)
    is_sealed: bool = False
    aside: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of every task."""
        return tuple(row for rows in self.rows_by_task.values() for row in rows)


@dataclass(frozen=True, slots=True)
class StoredTarget:
    """A target table; ``identity`` tells it from another one of the same name."""

    identity: str
    schema: pa.Schema
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredReplacement:
    """What one batch took over from another one, and how much of it was removed."""

    batch_id: int
    replaced: HeldRange
    rows: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class StoredNotification:
    """One row of the outbox."""

    incident_id: int
    channel: str
    event: Event
    next_try_at: datetime
    tries: int = 0
    sent_at: datetime | None = None
    given_up_at: datetime | None = None
    last_error: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is still to be delivered."""
        return self.sent_at is None and self.given_up_at is None


@dataclass(frozen=True, slots=True)
class StoredPresence:
    """Who is at work on a batch; ``holder`` stands for the session of its process."""

    run: str
    worker: str
    holder: object
    since: datetime
    seen_at: datetime
    is_handed_on: bool = False


@dataclass
class Tables:
    """The content of the database at one moment."""

    target_by_pipeline: dict[str, Target] = field(default_factory=dict)
    positions: dict[tuple[str, TopicPartition], Position] = field(default_factory=dict)
    batches: dict[int, StoredBatch] = field(default_factory=dict)
    checks: dict[AttemptKey, tuple[CheckResult, ...]] = field(default_factory=dict)
    failures: dict[AttemptKey, StepFailure] = field(default_factory=dict)
    decisions: dict[int, DecisionRecord] = field(default_factory=dict)
    replacements: dict[tuple[int, HeldRange], StoredReplacement] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    pauses: dict[str, DecisionRecord] = field(default_factory=dict)
    evidence: dict[AttemptKey, StoredEvidence] = field(default_factory=dict)
    quarantine: dict[tuple[str, TopicPartition, int], Row] = field(default_factory=dict)
    staging: dict[AttemptKey, StoredStaging] = field(default_factory=dict)
    targets: dict[str, StoredTarget] = field(default_factory=dict)
    added_columns: dict[tuple[str, str], int] = field(default_factory=dict)
    incidents: dict[int, Incident] = field(default_factory=dict)
    notifications: dict[int, StoredNotification] = field(default_factory=dict)

    def copy(self) -> "Tables":
        """Return a copy that can be changed without changing this one."""
        return Tables(**{each.name: dict(getattr(self, each.name)) for each in fields(self)})


@dataclass
class MemoryDatabase:
    """All or nothing: a transaction that ends with an error, or with a crash, has changed nothing."""

    committed: Tables = field(default_factory=Tables)
    arriving: Counter[AttemptKey] = field(default_factory=Counter)
    """Rows of staging writers that are open; of a database in operation, not of what is stored."""
    presences: dict[int, StoredPresence] = field(default_factory=dict)
    sessions: set[object] = field(default_factory=set)
    """The sessions of the processes that are present at a batch."""
    _writer: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def transaction(self) -> Iterator[Tables]:
        """Open a writing transaction. Raises ServiceUnavailableError when another one stays open for too long."""
        if not self._writer.acquire(timeout=_LOCK_TIMEOUT_SECONDS):
            raise ServiceUnavailableError("another transaction holds the lock; run the step again.")
        try:
            working = self.committed.copy()
            yield working
            self.committed = working
        finally:
            self._writer.release()
