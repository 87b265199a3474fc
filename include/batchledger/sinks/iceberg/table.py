"""A table of Iceberg that rows go to: staged on a branch, published by one compare-and-swap of the catalog.

The branch of an attempt holds the rows of the batch and nothing else, however large the table is. To publish, one
commit makes the same files part of ``main``. It requires that ``main`` and the branch are where they were seen, tags
the new snapshot with the batch, and removes the branch. Files with rows that have to go are written anew without them.
If the batch only adds rows, other commits to ``main`` do not matter, and the commit is made again on top of them.

Two tags keep snapshots from expiry until the next batch is committed: one the batch's own, one the snapshot before it.
So the outcome of the newest commit can be found, whatever maintenance does to the history.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import MAIN_BRANCH

from batchledger.model.balance import TargetCount
from batchledger.model.batch import Attempt, Batch, BatchState, HeldRange
from batchledger.model.errors import OutcomeUnknownError
from batchledger.model.housekeeping import Leftover
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.partitioning import PartitionField
from batchledger.model.records.rules import Evolution
from batchledger.sinks.iceberg.catalog import LakeCatalog, translate_errors
from batchledger.sinks.iceberg.commits import (
    EPOCH_PROPERTY,
    StagedBranch,
    TableCommit,
    branch_of,
    commit_again,
    describe,
    find_branches,
    find_tags,
    overtaken,
    tag_before,
    tag_of,
)
from batchledger.sinks.iceberg.coordinates import Change, Coordinates, Offsets, lie_within
from batchledger.sinks.iceberg.evolution import columns_of, compare_columns, evolve, find_next, require_columns
from batchledger.sinks.iceberg.files import (
    IcebergFileWriter,
    keep_without,
    read_list,
    read_list_schema,
    replace_without,
    slim,
    without_login,
)
from batchledger.sinks.iceberg.layout import (
    create,
    read_schema,
    require_fit,
    stored_name,
    stored_schema,
    warn_of_partitions,
    with_schema,
)
from batchledger.sinks.iceberg.ownership import require_own
from batchledger.sinks.iceberg.rows import Place, count_repeated, find_offsets, read_held
from batchledger.sinks.iceberg.snapshots import (
    find_branch,
    find_committed,
    find_snapshot,
    head_of,
    is_committed,
    plan_snapshot,
    require_count,
    require_partitions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class IcebergTable:
    """A table that the rows of a pipeline's batches are written to.

    Publications of a pipeline come one after the other: the ledger sees to that. Rows have the names of the platform,
    also if the table has others. Raises ServiceUnavailableError when the catalog or its files do not answer, and
    TargetChangedError for what a person has to change.

    ``identifier`` is namespace and name. ``partitions`` count only when the table is created.

    ``evolution`` says what publications may change of its columns; a column of the ``key`` stays as it is.
    ``open_session`` lends the Spark session that maintains the table, or None if there is none.
    """

    catalog: LakeCatalog
    identifier: tuple[str, ...]
    partitions: tuple[PartitionField, ...] = ()
    evolution: Evolution = Evolution.NONE
    key: tuple[str, ...] = ()
    open_session: Callable[[], AbstractContextManager["SparkSession | None"]] = nullcontext

    @property
    def name(self) -> str:
        """The table as people write it."""
        return ".".join((self.catalog.name, *self.identifier))

    def prepare(self, attempt: Attempt, schema: pa.Schema) -> IcebergFileWriter:
        """Make the table exist, and return what writes rows with these columns to files.

        A table that exists is not altered: the commit gives it the columns that it lacks. Raises TargetChangedError
        when a column does not fit.
        """
        wanted = stored_schema(schema, self.name)
        with self._talk(f"prepare it for {attempt.batch.label}"):
            catalog = self.catalog.opened
            if not catalog.table_exists(self.identifier):
                create(catalog, self.identifier, wanted, self.partitions)
            table = self._load()
            warn_of_partitions(table, self.name, self.partitions)
            evolved = evolve(table, columns_of(wanted), self.evolution, self._stored_key)
            require_fit(with_schema(table, evolved), self.name, wanted)
            if table.metadata.snapshot_by_name(MAIN_BRANCH) is None:
                # A publication is compared with a snapshot, so there has to be one.
                table.append(table.schema().as_arrow().empty_table())
            table = with_schema(table, evolved)
            return IcebergFileWriter(
                slim(table.metadata),
                without_login(table.io.properties, catalog.properties),
                attempt.batch.batch_id,
                read_schema(table, schema.names),
            )

    def list_columns(self) -> Sequence[str]:
        """Return the columns of the table; none without a table."""
        with self._talk("look at it"):
            table = self._find()
            return () if table is None else list(read_schema(table).names)

    def compare_columns(self, schema: pa.Schema) -> Sequence[TableColumn] | None:
        """See ``Sink.compare_columns``."""
        with self._talk("look at its columns"):
            table = self._find()
            wanted = columns_of(stored_schema(schema, self.name))
            return None if table is None else compare_columns(table, self.name, wanted, self._stored_key)

    def identify(self) -> str | None:
        """Return what tells the table from another one of its name; None when there is none."""
        with self._talk("look at it"):
            table = self._find()
            return None if table is None else str(table.metadata.table_uuid)

    def require_own(self, attempt: Attempt, knows: Callable[[int, datetime], bool]) -> str | None:
        """Return what ``identify`` does. Raises TargetChangedError when others publish to the table.

        These are another pipeline, or one of the same name in another ledger: ``knows`` says whether the attempt's
        ledger has a batch of the pipeline, by its id and its time of planning.
        """
        with self._talk("look at it"):
            table = self._find()
            if table is None:
                return None
            require_own(table, self.name, attempt.batch.pipeline, knows)
            return str(table.metadata.table_uuid)

    def stage(self, attempt: Attempt, manifests: Sequence[str]) -> None:
        """Put the listed files on a branch of the attempt, which holds nothing else and which no reader looks at."""
        with self._talk(f"stage {attempt.batch.label}"):
            table = self._load()
            files = [each for place in manifests for each in read_list(table, place)]
            # All of them were written for the same.
            schema = read_list_schema(table, manifests[0]) if manifests else table.schema()

            def add(commit: TableCommit) -> None:
                if branch_of(attempt) in commit.table.metadata.refs:
                    # A commit of this step was refused after it had been done.
                    return
                require_partitions(commit.table, files, attempt.batch)
                commit.append(branch_of(attempt), describe(attempt), files, schema=schema)

            self._commit(add, f"stage {attempt.batch.label}")

    def find_base(self, attempt: Attempt) -> int | None:
        """Return the state that the batch is published on; None when there is no table.

        The state before its own commit, if it is committing and has been committed; else the present one.
        """
        with self._talk("look at it"):
            table = self._find()
            if table is None:
                return None
            # In a later state, rows are brought once more, on top of what the table has now.
            is_asked = attempt.batch.state is BatchState.COMMITTING
            committed = find_committed(table, attempt.batch) if is_asked else None
            before = committed and table.metadata.snapshot_by_id(committed.parent_snapshot_id or 0)
            # An expired snapshot cannot be looked at.
            return (before or head_of(table)).snapshot_id

    def read_rows(
        self,
        attempt: Attempt,
        base: int,
        columns: Sequence[str],
        within: Sequence[OffsetRange],
        keys: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield what a state holds in some ranges, or with some keys; rows beside the ranges may be among it.

        Columns that the table gets by the attempt are empty.
        """
        with self._talk("read it"):
            table = self._load_for(attempt, [*columns, *(keys.schema.names if keys is not None else ())])
            yield from read_held(table, find_snapshot(table, base), columns, within, keys)

    def commit(
        self, attempt: Attempt, base: int | None, change: Change, *, read_epoch: Callable[[], int], is_found: bool
    ) -> None:
        """Make the staged rows visible, and those that are removed invisible, at once.

        ``base`` is the state that was looked at, in which ``removed`` was found, and has to be the newest one still;
        None if nothing was looked at, nor is removed: then it does not matter what others commit. ``read_epoch`` asks
        the ledger for what is noted, after the branch was read: while the ledger answers this run, no other one has
        asked the table for the batch, and who asks later changes the branch (I4). If ``is_found``, ``find_commit``
        finds it. Raises StagingLostError when as many rows as ``change`` says do not come or go, or the files do not
        fit the table any more, and OutcomeUnknownError when it may have been done; after any other error it was not,
        nor will it be.
        """
        doing = f"publish {attempt.batch.label}"
        with self._talk(doing):
            removed, dropped = Coordinates.of(change.removed), Coordinates.of(change.dropped)
            table = self._load_for(attempt, COORDINATE_COLUMNS)
            branch = find_branch(table, attempt)
            added, left_out = keep_without(table, plan_snapshot(table, branch), dropped)
            rows = sum(each.record_count for each in added)
            require_count(rows, change.added, f"rows of {attempt.batch.label} in its files")
            require_count(left_out, change.dropped.num_rows, f"of the staged rows of {attempt.batch.label}")
            gone: Sequence[FileScanTask] = ()
            if len(removed):
                tasks = plan_snapshot(table, find_snapshot(table, base or 0), lie_within(removed.bounds))
                rest, taken, gone = replace_without(table, tasks, removed)
                require_count(taken, change.removed.num_rows, f"of the rows that {attempt.batch.label} replaces")
                added = [*added, *rest]

            properties = {**describe(attempt), EPOCH_PROPERTY: str(read_epoch())}

            def publish(commit: TableCommit) -> None:
                if is_found and is_committed(commit.table, attempt):
                    raise OutcomeUnknownError(
                        f"could not {doing}: it has been committed already.", advice="The next step looks it up."
                    )
                before = head_of(commit.table).snapshot_id
                if base not in (None, before):
                    raise overtaken(doing, self.name)
                require_partitions(commit.table, added, attempt.batch)
                commit.change_schema(find_next(commit.table, table.schema(), attempt.batch))
                after = commit.append(MAIN_BRANCH, properties, added, [each.file for each in gone])
                commit.expect(branch_of(attempt), branch.snapshot_id)
                if is_found:
                    commit.remove(branch_of(attempt))
                    # Another ledger may have tagged a batch of the same number.
                    tagged = commit.table.metadata.refs.get(tag_of(attempt.batch))
                    commit.expect(tag_of(attempt.batch), tagged.snapshot_id if tagged else None)
                    for name in find_tags(commit.table):
                        commit.remove(name)
                    commit.tag(tag_of(attempt.batch), after)
                    commit.tag(tag_before(attempt.batch), before)

            self._commit(publish, doing)

    def find_commit(self, attempt: Attempt) -> bool:
        """Return whether the batch has been committed; what has not been never will be by what is under way."""
        with self._talk(f"ask what became of {attempt.batch.label}"):
            table = self._find()
            if table is None:
                return False
            if is_committed(table, attempt):
                return True

            def fence(commit: TableCommit) -> None:
                # A process that is still about to commit requires the branch as it has seen it.
                if branch_of(attempt) in commit.table.metadata.refs and not is_committed(commit.table, attempt):
                    commit.append(branch_of(attempt), describe(attempt), ())

            self._commit(fence, f"fence {attempt.batch.label}")
            return is_committed(self._load(), attempt)

    def find_published(self, batch: Batch) -> tuple[str, int | None]:
        """Return where the table lies, and the snapshot that committed a batch; None if it has expired."""
        with self._talk(f"look for {batch.label}"):
            table = self._load()
            committed = find_committed(table, batch)
            return table.location(), None if committed is None else committed.snapshot_id

    def list_branches(self) -> Sequence[StagedBranch]:
        """Return the branches of attempts."""
        with self._talk("look at its branches"):
            table = self._find()
            return [] if table is None else list(find_branches(table).values())

    def drop_branches(self, over: Collection[StagedBranch]) -> None:
        """Remove the branches, as far as they are there, with what is staged on them; harmless to repeat."""
        with self._talk("remove branches"):
            if self._find() is None:
                return

            def drop(commit: TableCommit) -> None:
                for name, branch in find_branches(commit.table).items():
                    if branch in over:
                        commit.expect(name, commit.table.metadata.refs[name].snapshot_id)
                        commit.remove(name)

            self._commit(drop, "remove branches")

    def maintain(self, unlisted_since: datetime | None) -> Mapping[Leftover, int] | None:
        """Write small files together, and remove old states and orphaned files; return how many, by kind.

        Branches and tags stay, and what they hold; so do files that may have been written since ``unlisted_since``,
        by tasks of attempts that have no branch yet. None if there is nothing that can do it.
        """
        # Imported here because Spark's client costs seconds that the steps need not pay.
        from batchledger.sinks.iceberg.maintenance import maintain

        if self.identify() is None:
            return {}
        with self.open_session() as session:
            return None if session is None else maintain(session, self.catalog, self.identifier, unlisted_since)

    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        """Return, for each, how many rows of that batch the table has there."""
        offsets = self._find_offsets([each.range for each in held])
        none = np.array([], dtype=np.int64)
        found = [offsets.get((each.batch_id, each.range.partition), none) for each in held]
        return [
            int(((rows >= each.range.start) & (rows < each.range.until)).sum())
            for each, rows in zip(held, found, strict=True)
        ]

    def count(
        self, within: Sequence[OffsetRange] | None, key: Sequence[str]
    ) -> Mapping[tuple[int, TopicPartition], TargetCount]:
        """Return what the table holds, by batch and partition; with ``key`` how many rows repeat another one's."""
        repeated: Mapping[Place, int] = {}
        with self._talk("count its keys"):
            table = self._find() if key else None
            if table is not None:
                repeated = count_repeated(table, plan_snapshot(table, head_of(table)), key)
        return {
            place: TargetCount(
                len(rows), len(np.unique(rows)), int(rows.min()), int(rows.max()), repeated.get(place, 0)
            )
            for place, rows in self._find_offsets(within).items()
        }

    @property
    def _stored_key(self) -> Sequence[str]:
        return [stored_name(each) for each in self.key]

    def _find_offsets(self, within: Sequence[OffsetRange] | None) -> Mapping[Place, Offsets]:
        with self._talk("count its rows"):
            table = self._find()
            if table is None:
                return {}
            filter_ = AlwaysTrue() if within is None else lie_within(within)
            return find_offsets(table, plan_snapshot(table, head_of(table), filter_), within)

    def _commit(self, fill: Callable[[TableCommit], None], doing: str) -> None:
        commit_again(self._load, fill, doing, self.name)

    @contextmanager
    def _talk(self, doing: str) -> Iterator[None]:
        with translate_errors(doing, self.name):
            try:
                yield
            finally:
                self.catalog.rest()

    def _load(self) -> Table:
        return self.catalog.opened.load_table(self.identifier)

    def _load_for(self, attempt: Attempt, columns: Collection[str]) -> Table:
        """Return the table as the attempt will leave it. Raises TargetChangedError when it has lost a column."""
        table = self._load()
        branch = table.metadata.snapshot_by_name(branch_of(attempt))
        listed = branch.manifests(table.io) if branch is not None else ()
        if branch is not None and not listed:
            # No row was staged, so nothing says which columns would be new.
            columns = COORDINATE_COLUMNS
        staged = read_list_schema(table, listed[0].manifest_path) if listed else table.schema()
        require_columns(table, self.name, staged, columns)
        return with_schema(table, find_next(table, staged, attempt.batch))

    def _find(self) -> Table | None:
        with suppress(NoSuchTableError):
            return self._load()
        return None
