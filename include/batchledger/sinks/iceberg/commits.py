"""One commit of a table: requirements and changes that the catalog takes together, or not at all.

PyIceberg's own transactions are not used: they try again by themselves, on whatever the table has become.

A table numbers its commits, and refuses a snapshot whose number is not new. It does not refuse one without a parent,
which sets the number back: no other engine could read the table any more. So every snapshot here has a parent.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Literal, NamedTuple, cast

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)
from typing_extensions import override

from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import OutcomeUnknownError, ServiceUnavailableError
from batchledger.model.offsets import describe_ranges
from batchledger.sinks.iceberg.layout import with_schema

TRIES = 10
"""At most so often a commit is made again because others commit to the table at the same time."""
MOST_RANGES = 1_000
"""A snapshot names at most so many ranges; the ledger has them all."""
FOR_GOOD = {"max_ref_age_ms": 2**63 - 1}
"""How old the branch of an attempt and a tag may become before expiry removes them: the largest number."""
_PREFIX = "batchledger"
_BRANCH = re.compile(rf"{_PREFIX}_b(\d{{1,18}})_a(\d{{1,9}})", re.ASCII)
_BEFORE = "_before"
_TAG = re.compile(rf"{_PREFIX}_b\d{{1,18}}(?P<before>{_BEFORE})?", re.ASCII)
PIPELINE_PROPERTY = f"{_PREFIX}.pipeline"
BATCH_PROPERTY = f"{_PREFIX}.batch-id"
PLANNED_PROPERTY = f"{_PREFIX}.planned-at"
EPOCH_PROPERTY = f"{_PREFIX}.epoch"


class StagedBranch(NamedTuple):
    """The branch of an attempt. When the batch was planned tells it from one with its number in another ledger.

    None if the branch does not say it, and has no owner.
    """

    batch_id: int
    attempt: int
    planned_at: datetime | None


def branch_of(attempt: Attempt) -> str:
    """The branch on which an attempt is staged."""
    return f"{_PREFIX}_b{attempt.batch.batch_id}_a{attempt.number}"


def tag_of(batch: Batch) -> str:
    """The tag of the snapshot with which a batch was committed."""
    return f"{_PREFIX}_b{batch.batch_id}"


def tag_before(batch: Batch) -> str:
    """The tag of the snapshot on which a batch was committed."""
    return f"{tag_of(batch)}{_BEFORE}"


def describe(attempt: Attempt) -> dict[str, str]:
    """Return the properties by which the snapshot of an attempt names it."""
    batch = attempt.batch
    return {
        PIPELINE_PROPERTY: batch.pipeline,
        BATCH_PROPERTY: str(batch.batch_id),
        f"{_PREFIX}.attempt": str(attempt.number),
        PLANNED_PROPERTY: batch.planned_at.isoformat(),
        f"{_PREFIX}.lane": str(batch.lane),
        f"{_PREFIX}.ranges": describe_ranges(batch.ranges, limit=MOST_RANGES),
    }


def is_of(summary: Mapping[str, str | None], batch: Batch) -> bool:
    """Whether a snapshot belongs to the batch, and not to one with the same number in another ledger."""
    wanted = (str(batch.batch_id), batch.planned_at.isoformat())
    return (summary.get(BATCH_PROPERTY), summary.get(PLANNED_PROPERTY)) == wanted


class _AssertLastSequenceNumber(ValidatableTableRequirement):
    """No snapshot was added to the table since, on any branch; a catalog over HTTP checks that by itself."""

    type: Literal["batchledger-assert-last-sequence-number"] = "batchledger-assert-last-sequence-number"
    number: int | None

    @override
    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override] # As in its siblings.
        """Raise CommitFailedException if one was: PyIceberg's own error would be no refusal."""
        found = _last_sequence_number(base_metadata)
        if found != self.number:
            raise CommitFailedException(f"the newest snapshot of the table is number {found}, and not {self.number}")


@dataclass
class TableCommit:
    """Collects what one commit requires and changes; ``table`` is as it was loaded before."""

    table: Table
    requirements: list[ValidatableTableRequirement] = field(default_factory=list)
    updates: list[TableUpdate] = field(default_factory=list)

    def expect(self, name: str, snapshot_id: int | None) -> None:
        """Require that a branch or tag is at a snapshot, or with None that it does not exist."""
        self.requirements.append(AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": snapshot_id}))

    def change_schema(self, schema: Schema) -> None:
        """Give the table this schema, if it has the columns with which it was loaded."""
        metadata = self.table.metadata
        if schema == self.table.schema():
            return
        same_schema = {"current-schema-id": metadata.current_schema_id}
        same_numbers = {"last-assigned-field-id": metadata.last_column_id}
        self.requirements += [
            AssertCurrentSchemaId.model_validate(same_schema),
            AssertLastAssignedFieldId.model_validate(same_numbers),
        ]
        self.updates += [AddSchemaUpdate.model_validate({"schema": schema}), SetCurrentSchemaUpdate()]
        self.table = with_schema(self.table, schema)

    def append(
        self,
        branch: str,
        properties: Mapping[str, str],
        added: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
        schema: Schema | None = None,
    ) -> int:
        """Add a snapshot to a branch, if the branch is as it was loaded; return the snapshot's id.

        The commit lists files with the table's present partitions, so it requires that these stay, too. The files may
        be of a ``schema`` that the table does not have yet; their list names it.
        """
        transaction = with_schema(self.table, schema or self.table.schema()).transaction()
        update = transaction.update_snapshot(branch=branch, snapshot_properties=dict(properties))
        # Without merging, manifests would become as many as batches.
        append = update.merge_append if branch == MAIN_BRANCH else update.fast_append
        with update.overwrite() if removed else append() as producer:
            for each in added:
                producer.append_data_file(each)
            for each in removed:
                producer.delete_data_file(each)
        metadata = self.table.metadata
        same_spec = {"default-spec-id": metadata.default_spec_id}
        self.requirements += [*transaction._requirements, AssertDefaultSpecId.model_validate(same_spec)]
        if isinstance(self.table.catalog, MetastoreCatalog):
            self.requirements.append(_AssertLastSequenceNumber(number=_last_sequence_number(metadata)))
        retention = _retention(metadata.refs[branch]) if branch == MAIN_BRANCH else FOR_GOOD
        snapshot_id = 0
        for change in transaction._updates:
            match change:
                case SetSnapshotRefUpdate():
                    self.updates.append(change.model_copy(update=retention))
                case AddSnapshotUpdate(snapshot=snapshot):
                    snapshot_id = snapshot.snapshot_id
                    parent_id = snapshot.parent_snapshot_id or metadata.refs[MAIN_BRANCH].snapshot_id
                    known = {"parent_snapshot_id": parent_id, "schema_id": metadata.current_schema_id}
                    self.updates.append(change.model_copy(update={"snapshot": snapshot.model_copy(update=known)}))
                case _:
                    self.updates.append(change)
        return snapshot_id

    def tag(self, name: str, snapshot_id: int) -> None:
        """Tag a snapshot for good, whatever retention the table has."""
        tag = {"ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
        self.updates.append(SetSnapshotRefUpdate.model_validate(tag).model_copy(update=FOR_GOOD))

    def remove(self, name: str) -> None:
        """Remove a branch or a tag."""
        self.updates.append(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}))

    def run(self, doing: str) -> None:
        """Commit. Raises CommitFailedException when a requirement is not met, and OutcomeUnknownError."""
        same_table = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        catalog = self.table.catalog
        try:
            requirements = cast("tuple[TableRequirement, ...]", (same_table, *self.requirements))
            done = catalog.commit_table(self.table, requirements, tuple(self.updates))
        except CommitFailedException:
            raise
        except Exception as error:
            raise OutcomeUnknownError(
                f"It is unknown whether this was committed: {doing}.",
                why=f"The catalog did not answer. {type(error).__name__}: {error}".split("\n", 1)[0],
                advice="The next step looks it up.",
            ) from error
        # The commit is done, even if this fails.
        with suppress(Exception):
            catalog._delete_old_metadata(self.table.io, self.table.metadata, done.metadata)


def find_tags(table: Table) -> Mapping[str, str | None]:
    """Return the tags of ``tag_of``, each with the pipeline of its batch, and of ``tag_before``, with None."""
    matches = {name: _TAG.fullmatch(name) for name in _names(table, SnapshotRefType.TAG)}
    return {name: None if match["before"] else _read_pipeline(table, name) for name, match in matches.items() if match}


def find_newest(table: Table, pipeline: str) -> tuple[int, datetime] | None:
    """Return the id and the time of planning of the batch that a pipeline has published last, None without one.

    If maintenance has expired its snapshot from the history, its tag still has it.
    """
    tagged = [table.metadata.snapshot_by_name(name) for name in find_tags(table) if not name.endswith(_BEFORE)]
    for each in chain(read_history(table), filter(None, tagged)):
        noted: Mapping[str, str] = each.summary.additional_properties if each.summary else {}
        if noted.get(PIPELINE_PROPERTY) == pipeline:
            return int(noted[BATCH_PROPERTY]), datetime.fromisoformat(noted[PLANNED_PROPERTY])
    return None


def read_history(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots of the table, the newest first."""
    by_id = {each.snapshot_id: each for each in table.metadata.snapshots}
    snapshot = table.metadata.snapshot_by_name(MAIN_BRANCH)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)


def commit_again(load: Callable[[], Table], fill: Callable[[TableCommit], None], doing: str, name: str) -> None:
    """Commit what ``fill`` asks for; again on top of what others have committed, unless it refuses that.

    A proxy may send a commit twice and answer with the second refusal, so only a new look at the table counts.
    """
    for tried in range(TRIES + 1):
        try:
            commit = TableCommit(load())
        except Exception as error:
            if tried:
                raise OutcomeUnknownError(
                    f"It is unknown whether it was possible to {doing}: a commit was refused.",
                    why=f"The catalog of table {name} does not say why.",
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
    raise overtaken(doing, name)


def overtaken(doing: str, name: str) -> ServiceUnavailableError:
    """Return the error of a commit that others were faster than."""
    return ServiceUnavailableError(
        f"could not {doing}: others have committed to table {name} at the same time. Nothing was committed.",
        advice="Try again.",
        subject=name,
    )


def find_branches(table: Table) -> Mapping[str, StagedBranch]:
    """Return the branches of attempts, by name."""
    matches = {name: _BRANCH.fullmatch(name) for name in _names(table, SnapshotRefType.BRANCH)}
    return {
        name: StagedBranch(int(match[1]), int(match[2]), _read_planned_at(table, name))
        for name, match in matches.items()
        if match
    }


def _retention(branch: SnapshotRef) -> dict[str, int | None]:
    """Return how long a branch keeps itself and its snapshots: PyIceberg forgets that when it commits to it."""
    return {
        "max_ref_age_ms": branch.max_ref_age_ms,
        "max_snapshot_age_ms": branch.max_snapshot_age_ms,
        "min_snapshots_to_keep": branch.min_snapshots_to_keep,
    }


def _last_sequence_number(metadata: TableMetadata | None) -> int | None:
    """Return the number of the newest commit; tables of format 1 have none."""
    return getattr(metadata, "last_sequence_number", None)


def _names(table: Table, kind: SnapshotRefType) -> Sequence[str]:
    return [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type is kind]


def _read_planned_at(table: Table, name: str) -> datetime | None:
    noted = _read_summary(table, name).get(PLANNED_PROPERTY)
    return datetime.fromisoformat(noted) if noted else None


def _read_pipeline(table: Table, name: str) -> str | None:
    return _read_summary(table, name).get(PIPELINE_PROPERTY)


def _read_summary(table: Table, name: str) -> Mapping[str, str]:
    snapshot = table.metadata.snapshot_by_name(name)
    return snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
