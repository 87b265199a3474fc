"""A table in a data lake that rows go to: a foreign target, whose rows are staged beside it, in files that it takes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from batchledger.model.balance import TargetCount
from batchledger.model.batch import Attempt, HeldRange
from batchledger.model.housekeeping import Leftover
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.contract import TableColumn

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE_ROWS = 50_000


class RowFiles(Protocol):
    """The files of one task; ``manifest`` and ``rows`` are known once it is closed."""

    @property
    def manifest(self) -> str | None:
        """Where the files are listed; None when there is no row."""

    @property
    def rows(self) -> int:
        """How many rows were written."""

    def write(self, batch: "pa.RecordBatch") -> None:
        """Write rows, which may be held back until there are enough for a file."""

    def read_back(self, columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of the listed files, as they are stored. The files are closed."""


class RowFileWriter(Protocol):
    """Writes files of rows from inside Spark tasks; pickled to the executors. Unlisted files are never read."""

    schema: "pa.Schema"
    """The columns of the rows as they are read back."""

    def open(self) -> AbstractContextManager[RowFiles]:
        """Open the files of a task."""


class Change(NamedTuple):
    """What a commit does: ``removed`` rows go, and all staged rows come but the ``dropped`` ones, which are ``added``.

    The first two are tables of (topic, partition, offset); ``added`` is a number, for comparison.
    """

    removed: "pa.Table"
    dropped: "pa.Table"
    added: int


class StagedBranch(NamedTuple):
    """The branch of an attempt. When the batch was planned tells it from one with its number in another ledger.

    None if the branch does not say it, and has no owner.
    """

    batch_id: int
    attempt: int
    planned_at: datetime | None


class LakeTable(Protocol):
    """A table that the rows of a pipeline's batches are written to.

    Publications of a pipeline come one after the other: the ledger sees to that. Rows have the names of the platform,
    also if the table has others. Raises ServiceUnavailableError when the catalog or its files do not answer, and
    TargetChangedError for what a person has to change.
    """

    @property
    def name(self) -> str:
        """The table as people write it."""

    def prepare(self, attempt: Attempt, schema: "pa.Schema") -> RowFileWriter:
        """Make the table exist, and return what writes rows with these columns to files.

        A table that exists is not altered: the commit gives it the columns that it lacks. Raises TargetChangedError
        when a column does not fit.
        """

    def list_columns(self) -> Sequence[str]:
        """Return the columns of the table; none without a table."""

    def compare_columns(self, schema: "pa.Schema") -> Sequence[TableColumn] | None:
        """See ``Sink.compare_columns``."""

    def identify(self) -> str | None:
        """Return what tells the table from another one of its name; None when there is none."""

    def require_own(self, attempt: Attempt, knows: Callable[[int, datetime], bool]) -> str | None:
        """Return what ``identify`` does. Raises TargetChangedError when others publish to the table.

        These are another pipeline, or one of the same name in another ledger: ``knows`` says whether the attempt's
        ledger has a batch of the pipeline, by its id and its time of planning.
        """

    def stage(self, attempt: Attempt, manifests: Sequence[str]) -> None:
        """Put the listed files on a branch of the attempt, which holds nothing else and which no reader looks at."""

    def find_base(self, attempt: Attempt) -> int | None:
        """Return the state that the batch is published on; None when there is no table.

        The state before its own commit, if it is committing and has been committed; else the present one.
        """

    def read_rows(
        self,
        attempt: Attempt,
        base: int,
        columns: Sequence[str],
        within: Sequence[OffsetRange],
        keys: "pa.Table | None" = None,
    ) -> "Iterator[pa.RecordBatch]":
        """Yield what a state holds in some ranges, or with some keys; rows beside the ranges may be among it.

        Columns that the table gets by the attempt are empty.
        """

    def commit(self, attempt: Attempt, base: int | None, change: Change, *, epoch: int, is_found: bool) -> None:
        """Make the staged rows visible, and those that are removed invisible, at once.

        ``base`` is the state that was looked at, in which ``removed`` was found, and has to be the newest one still;
        None if nothing was looked at, nor is removed: then it does not matter what others commit. ``epoch`` is
        noted. If ``is_found``, ``find_commit`` finds it. Raises StagingLostError when as many rows as ``change``
        says do not come or go, or the files do not fit the table any more, and OutcomeUnknownError when it may have
        been done; after any other error it was not, nor will it be.
        """

    def find_commit(self, attempt: Attempt) -> bool:
        """Return whether the batch has been committed; what has not been never will be by what is under way."""

    def list_branches(self) -> Sequence[StagedBranch]:
        """Return the branches of attempts."""

    def drop_branches(self, over: Collection[StagedBranch]) -> None:
        """Remove the branches, as far as they are there, with what is staged on them; harmless to repeat."""

    def maintain(self, unlisted_since: datetime | None) -> Mapping[Leftover, int] | None:
        """Write small files together, and remove old states and orphaned files; return how many, by kind.

        Branches and tags stay, and what they hold; so do files that may have been written since ``unlisted_since``,
        by tasks of attempts that have no branch yet. None if there is nothing that can do it.
        """

    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        """Return, for each, how many rows of that batch the table has there."""

    def count(
        self, within: Sequence[OffsetRange] | None, key: Sequence[str]
    ) -> Mapping[tuple[int, TopicPartition], TargetCount]:
        """Return what the table holds, by batch and partition; with ``key`` how many rows repeat another one's."""


def as_coordinates(rows: Iterable[tuple[str, int, int]]) -> "pa.Table":
    """Return (topic, partition, offset) of rows as a table; of a cursor's, a part at a time is made Python's values."""
    import pyarrow as pa

    schema = pa.schema({"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()})
    iterator, parts = iter(rows), []
    while part := list(islice(iterator, AT_ONCE_ROWS)):
        columns = zip(*part, strict=True)
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        parts.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(parts, schema)
