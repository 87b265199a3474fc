"""What another ledger has left in a target: rows that no batch of this one has written, and the names of its batches.

Such rows lie at or behind a pipeline's position.

If a ledger was restored from an older backup than the table beside it, it would append them once more. Rows that are
applied by key need no such care: applied again, they change nothing.

Each ledger looks through the table once, not for each batch (``RowsToPublish.is_ledger_moved``).

Known limit: if the ledger's rows were deleted and written anew, into the same tables without a truncate, it looks as it
did before.
"""

from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from batchledger.database.transactions import ranges_as_arrays, read_ranges, read_sql, transaction
from batchledger.model.batch import Batch
from batchledger.model.errors import TargetChangedError
from batchledger.model.offsets import describe_ranges
from batchledger.sinks.staging.spans import holder_of, read_spans


def is_own_batch(cursor: psycopg.Cursor[Any], pipeline: str, batch_id: int, planned_at: datetime) -> bool:
    """Whether the ledger has this batch of the pipeline: a target names it by its id and by when it was planned.

    Another ledger counts its batches by itself, and may reach the same id.
    """
    cursor.execute(
        "select 1 from batchledger.batch where batch_id = %s and pipeline = %s and planned_at = %s",
        [batch_id, pipeline, planned_at],
    )
    return cursor.fetchone() is not None


def knows_batch(dsn: str, pipeline: str, batch_id: int, planned_at: datetime) -> bool:
    """Return ``is_own_batch`` by a transaction of its own."""
    with transaction(dsn, f"look for batch {batch_id} of {pipeline}") as cursor:
        return is_own_batch(cursor, pipeline, batch_id, planned_at)


def require_no_strangers(cursor: psycopg.Cursor[Any], batch: Batch, table: sql.Composable, name: str) -> None:
    """Raise TargetChangedError when the table has rows that no batch has written.

    ``table`` may be a subquery, without rows that the batch itself has there. Ask within the publication, after the
    rows that the batch takes over have been withdrawn.
    """
    cursor.execute(
        read_sql(__package__, "find_strangers").format(target=table, holder=holder_of("t._batch_id")),
        {"pipeline": batch.pipeline, **ranges_as_arrays(batch.ranges), **read_spans(cursor, batch.pipeline)},
    )
    strangers = cursor.fetchall()
    if strangers:
        raise _refusal(batch, name, strangers)


def _refusal(batch: Batch, name: str, found: list[tuple[Any, ...]]) -> TargetChangedError:
    ranges = tuple(read_ranges(each[:4] for each in found))
    where = describe_ranges(ranges)
    rows = sum(each[4] for each in found)
    return TargetChangedError(
        f"Table {name} holds {rows:,} rows of {where} that no batch of this ledger has published. Nothing was "
        "published.",
        why=f"{batch.pipeline} would bring them a second time. The ledger is older than the table, or another writer "
        "adds to it.",
        advice="Restore a ledger as new as the table; see the documentation: guides/backup-and-restore\n"
        "Or delete the rows of the table from the pipeline's position on, and run the batch again.\n"
        f"Or read everything again: batchledger rewind {batch.pipeline} --to earliest --truncate --reason WHY",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
        subject=name,
        ranges=ranges,
    )
