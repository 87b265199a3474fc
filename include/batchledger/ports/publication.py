"""What a publication, or a decision that removes rows of the target, does within the transaction of the ledger."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from batchledger.model.batch import Attempt, HeldRange, QuarantinedRecord
from batchledger.model.claims import TargetClaim
from batchledger.model.erasure import Erased


class TargetAccess(Protocol):
    """The open transaction of a decision that removes rows of the target; the pipeline is locked."""

    connection: Any
    """The database connection of the transaction, for a sink that shares the ledger's database."""

    pipeline: str
    """Whose target it is."""

    def confirm_target(self, claim: TargetClaim) -> None:
        """Raise TargetChangedError when the pipeline has published to another table, or it is another pipeline's."""

    def forget_target(self) -> None:
        """Let the next publication create the table: the one that the pipeline has published to is gone."""


Truncate = Callable[[TargetAccess], int]
"""Empties the target, or only counts what it would remove; returns the number of rows."""

EraseRows = Callable[[TargetAccess], Erased]
"""Erases the rows of one key from the target."""


@dataclass(frozen=True)
class RowsToPublish:
    """What the ledger knows of the rows of an attempt, read once as its publication begins; steps hand it down.

    ``connection`` is the database connection of the transaction, for a sink that shares the ledger's database. The
    audit has ``accepted`` so many rows, and counted so many ``duplicates``: no other numbers become visible, or are
    dropped. ``replaced`` is what other published batches hold of the batch's ranges, and this one would take over. A
    replay takes over from every batch; a live batch from replays, and from live batches of earlier epochs. What another
    live batch of its epoch holds is not among them: ``mark_published`` refuses it (I2).

    ``has_rows``: rows of the batch were written before, by this attempt or an earlier one. ``holds_all_ranges``: the
    batch is published, and no other has replaced any part of it since. ``is_ledger_moved``: the ledger may be older
    than the target, because it was restored since ``mark_ledger``, or was never marked. ``handed`` is what the sink's
    step before hands to its next one: a value of its own, which names the temporary tables that it has made.
    """

    connection: Any = field(repr=False)
    attempt: Attempt
    accepted: int
    duplicates: int = 0
    replaced: Sequence[HeldRange] = ()
    has_rows: bool = False
    holds_all_ranges: bool = False
    is_ledger_moved: bool = False
    handed: Any = field(default=None, repr=False)

    @property
    def takes_over(self) -> bool:
        """Whether rows of the batch may replace rows of the target."""
        return self.attempt.batch.takes_over(self.replaced)


class Publication(Protocol):
    """The open transaction of one attempt that may publish: pipeline locked, attempt and state checked."""

    connection: Any
    """The database connection of the transaction, for a sink that shares the ledger's database."""

    attempt: Attempt
    """Who publishes."""

    def load(self) -> RowsToPublish:
        """Return what is known of the rows now."""

    def rehearsal(self) -> AbstractContextManager["Publication"]:
        """Yield the publication for a block whose every effect is undone at its end."""

    def check_target(self, claim: TargetClaim) -> None:
        """Raise TargetChangedError when it is another target than before, or another pipeline's; store nothing."""

    def confirm_target(self, claim: TargetClaim) -> None:
        """Store which target the pipeline publishes to.

        Raises TargetChangedError when there is none, it was another one before, or it is another pipeline's.
        """

    def mark_ledger(self) -> None:
        """Let the ledger be known as it is now: what the target holds agrees with it."""

    def advance_positions(self) -> None:
        """Move every partition of the batch from start to until. Raises PositionConflictError with both sides.

        If the position is still behind the batch it is a PredecessorPendingError, which is retryable (S58).
        """

    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        """Return which records of the batch's ranges are in quarantine now. None can be dropped any more."""

    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
        """Let the batch take over what is ``replaced``, and remove what was set aside there (I8).

        Nothing of the batch itself is visible from here on either: its rows were withdrawn too.

        ``removed_rows``: how many offsets of each had rows in the target, as the sink has removed them.
        """

    def publish_quarantine(self) -> None:
        """Move the attempt's staged quarantine into the ledger. Raises StagingLostError when some is missing."""

    def mark_rows(self) -> None:
        """Record that the rows are written; ``verify`` reports a published batch without."""

    def announce(self, ends: Sequence[int] = ()) -> None:
        """Let the batch be ``committing``: the sink is about to commit it by itself, and is asked from now on (I9).

        ``ends`` become its ``announced_ends``, unless there are some from before: the run that announced it then may
        have slept since.
        """

    def revoke(self) -> None:
        """Let the batch be audited again: the sink has not committed it, nor will it.

        Raises FencedError when another run goes on with the attempt.
        """

    def mark_published(self) -> None:
        """Set the state of the batch and let its ranges count as published, with the rows that the audit accepted.

        Raises PositionConflictError when a range overlaps one that is published already (I2), and BatchBlockedError
        when a balance is not closed (I7): the database itself refuses both.
        """
