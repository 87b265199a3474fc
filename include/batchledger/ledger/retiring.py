"""Retire a pipeline within the transaction of a decision: its batches, its target, its incidents and the decision."""

from collections.abc import Collection

from batchledger.ledger.incidents import end_incidents
from batchledger.ledger.publication import discard_batch
from batchledger.ledger.rows import (
    Cursor,
    await_publications,
    find_pause,
    has_rows,
    insert_decision,
    load_batch,
    read_targets,
    store_target,
)
from batchledger.ledger.schema import transaction
from batchledger.model.batch import Batch, Decided, Decision, DecisionKind
from batchledger.model.effects import retiring
from batchledger.model.pauses import is_retired, never_planned, require_settled
from batchledger.model.refusals import rows_visible


def retire_pipeline(
    cursor: Cursor, pipeline: str, decision: Decision, discard: Collection[int], *, free_target: bool
) -> Decided:
    """Retire the pipeline; see the Decisions port."""
    await_publications(cursor)
    # A name that the ledger does not know gets no row.
    cursor.execute("select 1 from batchledger.pipeline where name = %s for update", [pipeline])
    if cursor.fetchone() is None:
        raise never_planned(pipeline)
    freed = read_targets(cursor).get(pipeline) if free_target else None
    standing = find_pause(cursor, pipeline)
    batches = _lock_open(cursor, pipeline)
    require_settled(pipeline, batches, discard, standing)
    if is_retired(standing) and freed is None:
        return Decided(standing, is_new=False)
    for each in batches:
        if has_rows(cursor, each.batch_id):
            raise rows_visible(each)
        discard_batch(cursor, each, decision)
    record = insert_decision(cursor, pipeline, DecisionKind.RETIRE, decision, retiring(batches, freed))
    cursor.execute("update batchledger.pipeline set pause_id = %s where name = %s", [record.decision_id, pipeline])
    if freed is not None:
        store_target(cursor, pipeline, None)
    end_incidents(cursor, pipeline, "the pipeline is retired", record.decided_at)
    return Decided(record)


def has_freed_target(dsn: str, pipeline: str) -> bool:
    """Whether the pipeline is retired, and has given up its target."""
    with transaction(dsn, f"look whether {pipeline} is retired") as cursor:
        return is_retired(find_pause(cursor, pipeline)) and pipeline not in read_targets(cursor)


def is_known(dsn: str, pipeline: str) -> bool:
    """Whether the ledger has anything of the pipeline."""
    with transaction(dsn, f"look for {pipeline}") as cursor:
        cursor.execute("select 1 from batchledger.pipeline where name = %s", [pipeline])
        return cursor.fetchone() is not None


def _lock_open(cursor: Cursor, pipeline: str) -> list[Batch]:
    """Return the open batches of both lanes, dry runs included, locked until the transaction ends."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and state not in ('published', 'discarded') "
        "order by batch_id for update",
        [pipeline],
    )
    return [load_batch(cursor, batch_id) for (batch_id,) in cursor.fetchall()]
