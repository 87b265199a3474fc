"""Which branches of a lake no run will publish, and since when tasks may be writing files that no branch holds yet.

``batchledger.housekeeping`` decides what is over, as for staging tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from batchledger.database.transactions import STAGING_SCHEMA, read_sql
from batchledger.model.batch import BatchState
from batchledger.model.housekeeping import StagingOwner, StagingTable, find_orphaned
from batchledger.sinks.iceberg.commits import StagedBranch


@dataclass(frozen=True)
class LeftInLake:
    """Branches of attempts that are over, and branches that this ledger does not know.

    ``unlisted_since``: when the oldest attempt that is being staged was opened; None without one.
    """

    over: Sequence[StagedBranch]
    unknown: Sequence[StagedBranch]
    unlisted_since: datetime | None


def look_for_left(cursor: psycopg.Cursor[Any], branches: Sequence[StagedBranch]) -> LeftInLake:
    """Ask the ledger about the branches of a table."""
    cursor.execute("select now()")
    ((now,),) = cursor.fetchall()
    cursor.execute(
        read_sql(__package__, "list_attempts"),
        {
            "batch_ids": [each.batch_id for each in branches],
            "numbers": [each.attempt for each in branches],
            "planned_at": [each.planned_at for each in branches],
        },
    )
    found = {
        StagedBranch(batch_id, number, planned_at): StagingTable(
            f"b{batch_id}_a{number}",
            batch_id,
            number,
            None if pipeline is None else StagingOwner(pipeline, BatchState(state), *known),
        )
        for batch_id, number, planned_at, pipeline, state, *known in cursor
    }
    over = find_orphaned(found.values(), now)
    cursor.execute(read_sql(__package__, "find_unlisted"), {"schema": STAGING_SCHEMA})
    ((unlisted_since,),) = cursor.fetchall()
    return LeftInLake(
        [branch for branch, staged in found.items() if staged in over],
        [branch for branch, staged in found.items() if staged.is_unknown],
        unlisted_since,
    )
