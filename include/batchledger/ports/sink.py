"""Where rows go: staged, looked at, published."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from batchledger.model.attempt_facts import UnmatchedDeletions
from batchledger.model.balance import StagedRange, TargetCounts
from batchledger.model.batch import Attempt, HeldRange, Target
from batchledger.model.capabilities import Capabilities, require_able
from batchledger.model.checks import IntegrityCheck, Offender
from batchledger.model.claims import PreparedRows, TargetClaim, Withdrawn
from batchledger.model.erasure import Erased, ErasureKey
from batchledger.model.housekeeping import Housekeeping
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.numbering import NumberFacts
from batchledger.ports.publication import RowsToPublish, TargetAccess

if TYPE_CHECKING:
    # Airflow parses DAG files through this module, and importing pyarrow takes half a second.
    import pyarrow as pa


class StagingWriter(Protocol):
    """Writes rows from inside Spark tasks; pickled to the executors."""

    def open(self, task: int) -> AbstractContextManager["Callable[[pa.RecordBatch], None]"]:
        """Yield what writes rows, all of the block in one transaction. ``task`` tells repeated attempts apart."""


@dataclass(frozen=True)
class RowsToCheck:
    """The rows that would be published, as checks see them: without duplicates, and without those that delete a key.

    ``connection`` is one whose cursors can only read, and ``table`` the name of the rows in it. ``accepted`` counts all
    rows that would be published, those that delete a key among them; ``checked`` counts the others.
    """

    connection: Any = field(repr=False)
    table: str
    accepted: int
    checked: int


class StagedRows(Protocol):
    """The sealed rows of an attempt in one judgement. Changes nothing (I6).

    Which of them are duplicates was found once, as they were opened, so that what is checked and what is counted agree
    whatever other batches do meanwhile. A publication that finds other duplicates refuses.
    """

    def show(self) -> RowsToCheck:
        """Return the rows that would be published, for checks; nothing can be changed through it, nor is left of it."""

    def summarise(self) -> Sequence[StagedRange]:
        """Aggregate the rows, one entry per range of the batch, in their order."""

    def count_numbers(self) -> NumberFacts | None:
        """Judge the producers' numbering of a live batch by what was seen before; None without a sequence.

        What ``publish`` would drop as a duplicate does not count.
        """

    def count_unmatched(self) -> UnmatchedDeletions | None:
        """Count the records that delete a key of which nothing is known; None if the target has no rows by key.

        A key is known by its row, by an earlier deletion, or by an earlier record of the batch.
        """


class Staging(Protocol):
    """Where the rows of an attempt wait, invisible, until they are judged and published."""

    def open_staging(self, attempt: Attempt, schema: "pa.Schema") -> StagingWriter:
        """Create empty staging for exactly this attempt.

        Raises TargetChangedError when the target cannot take the rows, and ConfigurationError when a key column is
        missing, or when ``identifiers`` explains why no table can have the columns.
        """

    def count_arriving(self, attempt: Attempt) -> int:
        """Return how many rows have arrived of tasks that are still writing; waits for none of them.

        A little less than they have written, because rows travel many at a time. What a task has written whole is not
        counted any more, nor what it took back; 0 without staging.
        """

    def seal_staging(self, attempt: Attempt, accepted_tasks: Sequence[int]) -> None:
        """Keep the rows of the accepted tasks only, and make later writes of zombie tasks impossible (S75)."""

    def read_staged(self, attempt: Attempt) -> AbstractContextManager[StagedRows]:
        """Open the sealed rows for one judgement. Raises StagingLostError."""

    def find_offenders(
        self, attempt: Attempt, checks: Collection[IntegrityCheck], limit: int
    ) -> Mapping[IntegrityCheck, Sequence[Offender]]:
        """Return up to ``limit`` records for each of ``checks`` that is about rows; nothing is asked about others."""

    def remove_staged(self, attempt: Attempt, records: Sequence[OffsetRange]) -> None:
        """Remove the staged rows of these offsets, which were set aside; harmless to repeat."""

    def drop_staging(self, attempt: Attempt) -> None:
        """Remove the staging of this attempt and of every earlier one of its batch; harmless to repeat.

        What a task is still writing to is left: its attempt is over, and no step reads it.
        """

    def remember_numbers(self, rows: RowsToPublish) -> int | None:
        """Let later batches know the numbers of this one, whose rows are visible, within the publication.

        Returns how many rows they are of. None for a replay, and without a sequence: then nothing is done.
        """


class Sink(Staging, Protocol):
    """Where rows go: first to the staging of an attempt, then to the target.

    One that shares the ledger's database publishes within the ledger's transaction. Another one is a
    ``CommittingSink``. ``capabilities`` say what the core may ask for. A method with a body of its own is optional.
    """

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the target can do. A kind of sink states it once, as a constant of its class."""

    @property
    def name(self) -> str:
        """The target's name as people write it."""

    def withdraw(self, rows: RowsToPublish) -> Withdrawn:
        """Remove every row of the batch's ranges, before ``publish`` writes the new ones (I8).

        Its own are among them when an earlier commit of it has written them, at least once. Readers see old rows or
        new ones, never neither, because both steps are in one transaction.
        """

    def count_held(self, pipeline: str, held: Sequence[HeldRange]) -> Sequence[int]:
        """Return, for each, how many rows of that batch, or of its span, the target has there."""

    def compare(self, attempt: Attempt, limit: int) -> Comparison:
        """Say what publishing the sealed rows as a replay would do to the rows of the target. Changes nothing (I6).

        Names up to ``limit`` rows that would change. Raises TargetRefusedError if ``publish`` would, as far as it
        can be known without writing to the target.
        """

    def compare_columns(self, schema: "pa.Schema") -> Sequence[TableColumn] | None:
        """Return the columns of such rows beside the target's own; None if it does not exist or has none."""
        return None

    def claim_target(self, attempt: Attempt, connection: Any = None) -> TargetClaim:
        """Return the target as it is now, for the ledger to say whose it is.

        ``connection`` is the publication's; without one the ledger is asked in a transaction of its own. Raises
        TargetChangedError when the target itself says that it belongs to another pipeline, or cannot be published to.
        """

    def find_target(self) -> Target | None:
        """Return the target as it is now, the pipeline's or another one's; None when there is none."""

    def check(self, rows: RowsToPublish) -> None:
        """Raise what only the commit of the rows that ``publish`` has prepared would raise, as far as it is known."""

    def publish(self, rows: RowsToPublish) -> PreparedRows:
        """Make the accepted rows of the attempt visible within the publication; say what that is.

        Duplicates are dropped and listed, and the message keys are remembered, in the same transaction. A row that an
        earlier attempt of the batch has made visible, as its message key tells, is left as it is and counted with the
        others. Whether the rows are those that were audited is not judged here (``lifecycle.requirement``). Raises
        StagingLostError when there is no staging, and TargetRefusedError.
        """

    def find_refused(self, rows: RowsToPublish, limit: int) -> Sequence[Offender]:
        """Return up to ``limit`` rows that ``publish`` would be refused for, each with the reason, without a value.

        Ask within a rehearsal: what is tried stays until it ends. Empty if the sink cannot tell.
        """
        return ()

    def truncate(self, access: TargetAccess) -> int:
        """Remove every row of the target and what is remembered of keys; return how many rows there were.

        Readers wait, and then see an empty table, also those whose snapshot is older. Raises TargetChangedError when
        the table is not the pipeline's own, and DecisionRefusedError if the target cannot be emptied.
        """
        require_able(self.capabilities.no_emptying, self.name, access.pipeline)
        raise NotImplementedError(f"{self.name} lacks what empties it.")

    def erase(self, access: TargetAccess, key: ErasureKey) -> Erased:
        """Delete the rows of a key for good, and forget their message keys and deletions.

        The ledger counts them in ``rows_erased`` of their ranges. A hash of the key is remembered, with how far each
        partition was read, and where the records lie: none of them becomes a row when they are read again. Raises
        DecisionRefusedError if the target cannot do so, or has no such column; TargetChangedError when the table is not
        the pipeline's own.
        """
        require_able(self.capabilities.no_erasing, self.name, access.pipeline)
        raise NotImplementedError(f"{self.name} lacks what erases.")

    def tidy(self, *, is_dry_run: bool = False) -> Housekeeping:
        """Remove what is left behind in the sink itself, and keep it fit; say what was done, or would be.

        Nothing goes that readers see, that an open attempt has staged, or that tells what became of the newest batch.
        Harmless beside live runs, and to repeat. Nothing, if all that is left behind lies in the ledger's database.
        """
        return Housekeeping()

    def count_target(self, pipeline: str, within: Sequence[OffsetRange] | None = None) -> TargetCounts:
        """Return what the target holds of the pipeline.

        ``within`` are ranges that do not overlap: only their offsets are counted, and no repeated keys.
        """


class RowStream(Protocol):
    """An open transaction into which the rows of an attempt stream. Until it commits, no reader sees them.

    ``sink`` is the one whose staging these rows are: sealing ends the stream. ``in_order``: the rows of a partition
    have to come in the order of their offsets.
    """

    sink: Sink
    in_order: ClassVar[bool]

    def joined(self) -> AbstractContextManager[None]:
        """Let everything that the block does in the database be one transaction of it; commit at its end.

        It is the same as the rows' own if the sink shares it. Raises OutcomeUnknownError as a publication does.
        """


class CommittingSink(ABC):
    """What a sink is besides if it commits by itself: ``publish`` and ``withdraw`` prepare what ``commit`` does.

    A base class, not only a protocol: a sink that lacks one of these cannot be made.
    """

    @abstractmethod
    def commit(self, rows: RowsToPublish) -> None:
        """Make visible what was published within the publication; as the last thing before the ledger does.

        ``find_commit`` finds the commit of a batch that is ``committing``. Raises OutcomeUnknownError when
        it may have been done, or another process has done it before; after any other error it was not, nor will it be.
        """

    @abstractmethod
    def confirm(self, rows: RowsToPublish) -> PreparedRows:
        """Do what ``publish`` does for the ledger, of rows that the sink has committed already; ask nothing of it.

        Whatever has become of the target since, what was committed is accounted for.
        """

    @abstractmethod
    def prepare_commit(self, attempt: Attempt) -> Sequence[int]:
        """See that the sink can be asked for a commit that is about to be announced.

        Returns what ``search_commit`` needs to know of this moment (``Batch.announced_ends``), empty if that is
        nothing.
        """

    @abstractmethod
    def find_commit(self, attempt: Attempt) -> bool | None:
        """Say whether the sink has committed the attempt (I9).

        Once this returns, a process that is still about to commit it cannot do so any more (I4). None when the answer
        needs ``search_commit``. Takes so little time that a transaction may wait for it. Raises ServiceUnavailableError
        when the sink cannot be asked.
        """

    @abstractmethod
    def search_commit(self, attempt: Attempt) -> None:
        """Find out what ``find_commit`` could not tell, so that it can from now on, also in other processes.

        May take long, and says in the log how far it is: no transaction may wait for it. May be called at any time, by
        several at once. Nothing to do if ``find_commit`` always knows. Raises FencedError when others are faster, and
        ServiceUnavailableError.
        """


def committing(sink: Sink) -> CommittingSink:
    """Return a sink whose ``capabilities`` say that it commits by itself. A test sees that its class is one."""
    return cast("CommittingSink", sink)
