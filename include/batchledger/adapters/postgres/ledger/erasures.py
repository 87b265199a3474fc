"""What the ledger itself holds of a key that is erased: staging that was left, quarantine, texts that may quote it.

Everything here happens within the transaction of the decision, and the pipeline is locked.
"""

from collections.abc import Iterator

import psycopg
from psycopg import sql

from batchledger.adapters.postgres.database import (
    STAGING_SCHEMA,
    WRITERS_LEAVE_WITHIN,
    ranges_as_arrays,
    read_statement,
)
from batchledger.adapters.postgres.ledger.housekeeping import list_staging
from batchledger.adapters.postgres.ledger.rows import Cursor, load_batch
from batchledger.model.erasure import ErasureKey, Holding, find_holding
from batchledger.model.offsets import OffsetRange, merge_ranges, single_offset
from batchledger.model.refusals import staging_in_use, staging_may_hold


def require_none_open(cursor: Cursor, pipeline: str) -> None:
    """Raise DecisionRefusedError while the pipeline has an open batch: what is staged of it may hold the key."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and state not in ('published', 'discarded') "
        "order by batch_id limit 1",
        [pipeline],
    )
    for (batch_id,) in cursor.fetchall():
        raise staging_may_hold(load_batch(cursor, batch_id))


def drop_left(cursor: Cursor, pipeline: str) -> None:
    """Drop the staging that attempts have left when their processes died. No batch is open, so all of it is over.

    Raises DecisionRefusedError if a task still writes there.
    """
    cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(WRITERS_LEAVE_WITHIN)))
    for table in list_staging(cursor):
        if table.known is not None and table.known.pipeline == pipeline:
            try:
                cursor.execute(sql.SQL("drop table {}").format(sql.Identifier(STAGING_SCHEMA, table.name)))
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist) as error:
                raise staging_in_use(pipeline, table.name) from error


def drop_held(cursor: Cursor, pipeline: str, key: ErasureKey) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Drop the records of quarantine that hold the key. Return their ranges, and the ranges of doubtful ones."""
    found: dict[Holding, list[OffsetRange]] = {each: [] for each in Holding}
    for holding, offset in _judge(cursor, pipeline, key):
        found[holding].append(offset)
    dropped = merge_ranges(found[Holding.YES])
    cursor.execute(read_statement(__package__, "drop_quarantined"), {"pipeline": pipeline, **ranges_as_arrays(dropped)})
    return dropped, merge_ranges(found[Holding.PERHAPS])


def forget_quoted(cursor: Cursor, pipeline: str) -> None:
    """Remove the whole texts of errors of the pipeline, which may quote values."""
    cursor.execute(
        "update batchledger.attempt a set quoted = null, quoted_at = null from batchledger.batch b "
        "where b.batch_id = a.batch_id and b.pipeline = %s and a.quoted is not null",
        [pipeline],
    )


def _judge(cursor: Cursor, pipeline: str, key: ErasureKey) -> Iterator[tuple[Holding, OffsetRange]]:
    """Judge every record of the pipeline in quarantine. A cursor of the server: there may be millions."""
    with cursor.connection.cursor(name="batchledger_quarantine") as records:
        records.execute(
            'select topic, partition, "offset", key, value from batchledger.quarantine where pipeline = %s', [pipeline]
        )
        for topic, partition, offset, record_key, value in records:
            yield find_holding(key, record_key, value), single_offset(topic, partition, offset)
