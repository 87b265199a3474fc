"""Rows that a table holds at or behind a pipeline's position although no batch of the ledger has written them there.

If a ledger was restored from an older backup than the table beside it, it would append them once more. Rows that are
applied by key need no such care: applied again, they change nothing.

Each ledger looks through the table once, not for each batch (``Publication.is_ledger_moved``).

Known limit: if the ledger's rows were deleted and written anew, into the same tables without a truncate, it looks as it
did before.
"""

from typing import Any

import psycopg
from psycopg import sql

from batchledger.adapters.postgres.database import ranges_as_arrays, read_ranges, read_sql
from batchledger.model.batch import Batch
from batchledger.model.errors import TargetChangedError
from batchledger.model.offsets import describe_ranges


def require_no_strangers(cursor: psycopg.Cursor[Any], batch: Batch, table: sql.Identifier, name: str) -> None:
    """Raise TargetChangedError when the table has rows that no batch has written.

    Ask within the publication, after the rows that the batch takes over have been withdrawn.
    """
    cursor.execute(
        read_sql(__package__, "find_strangers").format(target=table),
        {"pipeline": batch.pipeline, **ranges_as_arrays(batch.ranges)},
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
