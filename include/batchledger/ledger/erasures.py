"""What the ledger itself holds of a key that is erased: staging that was left, quarantine, texts that may quote it.

Everything here happens within the transaction of the decision, and the pipeline is locked.
"""

from collections.abc import Sequence

import psycopg
from psycopg import sql

from batchledger.database.transactions import STAGING_SCHEMA, WRITERS_LEAVE_WITHIN, ranges_as_arrays, read_statement
from batchledger.ledger.housekeeping import list_staging
from batchledger.ledger.rows import Cursor, load_batch
from batchledger.model.erasure import Erased, ErasureKey, Holding, find_holding
from batchledger.model.housekeeping import OVER_FOR, StagingTable
from batchledger.model.offsets import OffsetRange, merge_ranges, single_offset
from batchledger.model.refusals import rows_not_written, staging_in_use, staging_may_hold, too_much_staging


def require_none_open(cursor: Cursor, pipeline: str) -> None:
    """Raise DecisionRefusedError while the pipeline has an open batch: what is staged of it may hold the key."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and state not in ('published', 'discarded') "
        "order by batch_id limit 1",
        [pipeline],
    )
    for (batch_id,) in cursor.fetchall():
        raise staging_may_hold(load_batch(cursor, batch_id))


def drop_left(cursor: Cursor, pipeline: str) -> list[StagingTable]:
    """Drop the staging that attempts have left when their processes died; return what the login may not drop.

    No batch is open. Raises DecisionRefusedError if a task still writes there, if a batch may still write its rows from
    there, or if there are more tables than one transaction can lock.
    """
    tables = _list_left(cursor, pipeline, is_own=True)
    _require_written(cursor, pipeline, tables)
    cursor.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(WRITERS_LEAVE_WITHIN)))
    for table in tables:
        try:
            # Housekeeping may be faster.
            cursor.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(STAGING_SCHEMA, table.name)))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist) as error:
            raise staging_in_use(pipeline, table.name) from error
        except psycopg.errors.OutOfMemory as error:
            raise too_much_staging(pipeline, len(tables)) from error
    return _list_left(cursor, pipeline, is_own=False)


def _list_left(cursor: Cursor, pipeline: str, *, is_own: bool) -> list[StagingTable]:
    tables = list_staging(cursor, is_own=is_own)
    return [each for each in tables if each.known is not None and each.known.pipeline == pipeline]


def _require_written(cursor: Cursor, pipeline: str, tables: Sequence[StagingTable]) -> None:
    """Raise DecisionRefusedError while a published batch may write its rows from these tables (at_most_once)."""
    cursor.execute(
        "select batch_id from batchledger.batch where batch_id = any(%s) and rows_published_at is null "
        "and published_at > now() - %s order by batch_id limit 1",
        [[each.batch_id for each in tables], OVER_FOR],
    )
    for (batch_id,) in cursor:
        raise rows_not_written(pipeline, batch_id)


def drop_held(
    cursor: Cursor, pipeline: str, key: ErasureKey, erased: Erased
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Drop the records of quarantine that hold the key. Return their ranges, and the ranges of doubtful ones.

    Where the dropped ones lie is remembered, so that they come back neither there nor as rows.
    """
    found: dict[Holding, list[OffsetRange]] = {Holding.YES: [], Holding.PERHAPS: []}
    # A cursor of the server: there may be millions.
    with cursor.connection.cursor(name="batchledger_quarantine") as records:
        records.execute(
            'select topic, partition, "offset", key, value, headers::text from batchledger.quarantine '
            "where pipeline = %s",
            [pipeline],
        )
        for topic, partition, offset, *parts in records:
            holding = find_holding(key, erased.type_by_column, *parts)
            if holding is not Holding.NO:
                found[holding].append(single_offset(topic, partition, offset))
    dropped = merge_ranges(found[Holding.YES])
    parameters = {"pipeline": pipeline, "leaves_version": erased.leaves_versions, **ranges_as_arrays(dropped)}
    cursor.execute(read_statement(__package__, "remember_dropped"), parameters)
    cursor.execute(read_statement(__package__, "drop_quarantined"), parameters)
    return dropped, merge_ranges(found[Holding.PERHAPS])


def forget_quoted(cursor: Cursor, pipeline: str) -> None:
    """Remove the whole texts of errors of the pipeline, which may quote values."""
    cursor.execute(
        "update batchledger.attempt a set quoted = null, quoted_at = null from batchledger.batch b "
        "where b.batch_id = a.batch_id and b.pipeline = %s and a.quoted is not null",
        [pipeline],
    )
