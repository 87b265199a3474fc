"""Rows that a table holds of a batch's offsets although no batch of the ledger has published them.

A ledger that was restored from an older backup than the table beside it would append them once more. Rows that are
applied by key need no such care: what is applied again changes nothing.

Known limit: a table of somebody else's without an index of ``_offset`` is not looked at, because it would be read whole
for each batch.
"""

from typing import Any

import psycopg
from psycopg import sql

from batchledger.batch import Batch
from batchledger.database import ranges_as_arrays, read_ranges
from batchledger.errors import TargetChangedError
from batchledger.offsets import describe_ranges
from batchledger.ports import Publication
from batchledger.sinks.staging import read_sql


def require_no_strangers(
    cursor: psycopg.Cursor[Any], publication: Publication, table: sql.Identifier, name: str
) -> None:
    """Raise TargetChangedError when rows of the batch's ranges are in the table that no batch has written there.

    To be asked when what the batch takes over has been withdrawn.
    """
    batch = publication.attempt.batch
    cursor.execute(read_sql("find_offset_index"), [table.as_string(cursor)])
    ((is_indexed,),) = cursor.fetchall()
    if not is_indexed:
        return
    parameters = {
        "first": min(each.start for each in batch.ranges),
        "last": max(each.until for each in batch.ranges),
        "pipeline": batch.pipeline,
        **ranges_as_arrays(batch.ranges),
    }
    cursor.execute(read_sql("find_strangers").format(target=table), parameters)
    found = cursor.fetchall()
    if found:
        raise _refusal(batch, name, found)


def _refusal(batch: Batch, name: str, found: list[tuple[Any, ...]]) -> TargetChangedError:
    where = describe_ranges(read_ranges(each[:4] for each in found))
    rows = sum(each[4] for each in found)
    return TargetChangedError(
        f"table {name} holds {rows:,} rows of {where} already, which no batch of this ledger has published; "
        f"{batch.label} would bring them a second time. Nothing was published. The ledger is older than the table, or "
        "somebody else writes to it. Choices: restore a ledger as new as the table; or delete the rows of the table "
        "that lie at or behind the pipeline's position, and run the batch again; or read everything again "
        f"(batchledger rewind {batch.pipeline} --to earliest --truncate). See docs/restore.md.",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
        table=name,
    )
