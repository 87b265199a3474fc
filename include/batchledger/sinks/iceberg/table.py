"""The LakeTable port on Iceberg, by PyIceberg: staged on a branch, published by one compare-and-swap of the catalog.

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
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import MAIN_BRANCH
from typing_extensions import override

from batchledger.model.balance import TargetCount
from batchledger.model.batch import Attempt, BatchState, HeldRange
from batchledger.model.errors import OutcomeUnknownError, ServiceUnavailableError
from batchledger.model.housekeeping import Leftover
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import COORDINATE_COLUMNS
from batchledger.model.records.contract import TableColumn
from batchledger.model.records.partitioning import PartitionField
from batchledger.model.records.rules import Evolution
from batchledger.ports import Change, LakeTable, StagedBranch
from batchledger.sinks.iceberg.catalog import LakeCatalog, translate_errors
from batchledger.sinks.iceberg.commits import (
    EPOCH_PROPERTY,
    TableCommit,
    branch_of,
    describe,
    find_branches,
    find_tags,
    tag_before,
    tag_of,
)
from batchledger.sinks.iceberg.coordinates import Coordinates, Offsets, lie_within
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

TRIES = 10
"""At most so often a commit is made again because others commit to the table at the same time."""


@dataclass(frozen=True)
class IcebergTable(LakeTable):
    """``identifier`` is namespace and name. ``partitions`` count only when the table is created.

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
    @override
    def name(self) -> str:
        return ".".join((self.catalog.name, *self.identifier))

    @override
    def prepare(self, attempt: Attempt, schema: pa.Schema) -> IcebergFileWriter:
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

    @override
    def list_columns(self) -> Sequence[str]:
        with self._talk("look at it"):
            table = self._find()
            return () if table is None else list(read_schema(table).names)

    @override
    def compare_columns(self, schema: pa.Schema) -> Sequence[TableColumn] | None:
        with self._talk("look at its columns"):
            table = self._find()
            wanted = columns_of(stored_schema(schema, self.name))
            return None if table is None else compare_columns(table, self.name, wanted, self._stored_key)

    @override
    def identify(self) -> str | None:
        with self._talk("look at it"):
            table = self._find()
            return None if table is None else str(table.metadata.table_uuid)

    @override
    def require_own(self, attempt: Attempt, knows: Callable[[int, datetime], bool]) -> str | None:
        with self._talk("look at it"):
            table = self._find()
            if table is None:
                return None
            require_own(table, self.name, attempt.batch.pipeline, knows)
            return str(table.metadata.table_uuid)

    @override
    def stage(self, attempt: Attempt, manifests: Sequence[str]) -> None:
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

    @override
    def find_base(self, attempt: Attempt) -> int | None:
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

    @override
    def read_rows(
        self,
        attempt: Attempt,
        base: int,
        columns: Sequence[str],
        within: Sequence[OffsetRange],
        keys: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        with self._talk("read it"):
            table = self._load_for(attempt, [*columns, *(keys.schema.names if keys is not None else ())])
            yield from read_held(table, find_snapshot(table, base), columns, within, keys)

    @override
    def commit(self, attempt: Attempt, base: int | None, change: Change, *, epoch: int, is_found: bool) -> None:
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

            properties = {**describe(attempt), EPOCH_PROPERTY: str(epoch)}

            def publish(commit: TableCommit) -> None:
                if is_found and is_committed(commit.table, attempt):
                    raise OutcomeUnknownError(
                        f"could not {doing}: it has been committed already.", advice="The next step looks it up."
                    )
                before = head_of(commit.table).snapshot_id
                if base not in (None, before):
                    raise self._overtaken(doing)
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

    @override
    def find_commit(self, attempt: Attempt) -> bool:
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

    @override
    def list_branches(self) -> Sequence[StagedBranch]:
        with self._talk("look at its branches"):
            table = self._find()
            return [] if table is None else list(find_branches(table).values())

    @override
    def drop_branches(self, over: Collection[StagedBranch]) -> None:
        with self._talk("remove branches"):
            if self._find() is None:
                return

            def drop(commit: TableCommit) -> None:
                for name, branch in find_branches(commit.table).items():
                    if branch in over:
                        commit.expect(name, commit.table.metadata.refs[name].snapshot_id)
                        commit.remove(name)

            self._commit(drop, "remove branches")

    @override
    def maintain(self, unlisted_since: datetime | None) -> Mapping[Leftover, int] | None:
        # Imported here because Spark's client costs seconds that the steps need not pay.
        from batchledger.sinks.iceberg.maintenance import maintain

        if self.identify() is None:
            return {}
        with self.open_session() as session:
            return None if session is None else maintain(session, self.catalog, self.identifier, unlisted_since)

    @override
    def count_held(self, held: Sequence[HeldRange]) -> Sequence[int]:
        offsets = self._find_offsets([each.range for each in held])
        none = np.array([], dtype=np.int64)
        found = [offsets.get((each.batch_id, each.range.partition), none) for each in held]
        return [
            int(((rows >= each.range.start) & (rows < each.range.until)).sum())
            for each, rows in zip(held, found, strict=True)
        ]

    @override
    def count(
        self, within: Sequence[OffsetRange] | None, key: Sequence[str]
    ) -> Mapping[tuple[int, TopicPartition], TargetCount]:
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
        """Commit what ``fill`` asks for; again on top of what others have committed, unless it refuses that.

        A proxy may send a commit twice and answer with the second refusal, so only a new look at the table counts.
        """
        for tried in range(TRIES + 1):
            try:
                commit = TableCommit(self._load())
            except Exception as error:
                if tried:
                    raise OutcomeUnknownError(
                        f"It is unknown whether it was possible to {doing}: a commit was refused.",
                        why=f"The catalog of table {self.name} does not say why.",
                        advice="The next step looks it up.",
                    ) from error
                raise
            with suppress(CommitFailedException):
                fill(commit)
                if not commit.updates:
                    return
                if tried < TRIES:
                    commit.run(doing)
                    return
        raise self._overtaken(doing)

    def _overtaken(self, doing: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"could not {doing}: others have committed to table {self.name} at the same time. Nothing was committed.",
            advice="Try again.",
            subject=self.name,
        )

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
