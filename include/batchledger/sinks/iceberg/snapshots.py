"""Finds snapshots of a table: the newest, a branch's, a batch's; and checks what they have to be."""

from collections.abc import Sequence
from itertools import chain

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import ServiceUnavailableError, StagingLostError, TargetChangedError
from batchledger.model.refusals import stage_again
from batchledger.sinks.iceberg.commits import branch_of, is_of, read_history, tag_of
from batchledger.sinks.iceberg.evolution import fits_no_more


def head_of(table: Table) -> Snapshot:
    """Return the newest snapshot of the table. Raises TargetChangedError when it has none."""
    snapshot = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if snapshot is None:
        raise TargetChangedError(
            f"Table {'.'.join(table.name())} has no snapshot, so it is not the one that the rows were staged for.",
            advice="Bring that one back.\nOr read the source again under a new pipeline name.",
        )
    return snapshot


def find_snapshot(table: Table, snapshot_id: int) -> Snapshot:
    """Return a snapshot that was looked at before. Raises ServiceUnavailableError when it has expired."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise ServiceUnavailableError(
            f"A state of table {'.'.join(table.name())} expired while it was read.", advice="Try again."
        )
    return snapshot


def find_branch(table: Table, attempt: Attempt) -> Snapshot:
    """Return the snapshot of an attempt's branch. Raises StagingLostError when it is gone."""
    snapshot = table.metadata.snapshot_by_name(branch_of(attempt))
    if snapshot is None:
        raise StagingLostError(
            f"{attempt.batch.label} has lost the branch of attempt {attempt.number}. This try has published nothing.",
            advice=stage_again(attempt.batch),
            batch_id=attempt.batch.batch_id,
        )
    return snapshot


def is_committed(table: Table, attempt: Attempt) -> bool:
    """Whether a batch was committed, as the metadata say."""
    return find_committed(table, attempt.batch) is not None


def find_committed(table: Table, batch: Batch) -> Snapshot | None:
    """Return the snapshot of the batch, by its tag or from the history of the table.

    The tag may belong to a batch with the same number in another ledger.
    """
    tagged = table.metadata.snapshot_by_name(tag_of(batch))
    for each in chain([tagged] if tagged else [], read_history(table)):
        if each.summary and is_of(each.summary.additional_properties, batch):
            return each
    return None


def require_partitions(table: Table, files: Sequence[DataFile], batch: Batch) -> None:
    """Raise StagingLostError if files were written for other partitions than the table has now.

    The table would list them under wrong partition values, and a reader of some partitions would miss them.
    """
    if any(each.spec_id != table.metadata.default_spec_id for each in files):
        raise fits_no_more(table, batch, "partitions")


def require_count(found: int, wanted: int, what: str) -> None:
    """Raise StagingLostError unless as many were found as were wanted."""
    if found != wanted:
        raise StagingLostError(f"{found} {what} were found, and not {wanted}. Nothing was published.")


def plan_snapshot(table: Table, snapshot: Snapshot, filter_: BooleanExpression | None = None) -> Sequence[FileScanTask]:
    """Return the files of a snapshot that may hold rows of a filter."""
    return list(table.scan(filter_ or AlwaysTrue(), snapshot_id=snapshot.snapshot_id).plan_files())
