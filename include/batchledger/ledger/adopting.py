"""Let rows that others have written be a pipeline's first batch, in one transaction with the change of their table."""

from collections.abc import Callable

from batchledger.database.transactions import read_statement
from batchledger.ledger.publication import PostgresTargetAccess
from batchledger.ledger.rows import (
    insert_decision,
    insert_positions,
    insert_ranges,
    list_decisions,
    load_batch,
    lock_pipeline,
    read_positions,
    read_targets,
    store_balances,
)
from batchledger.ledger.schema import transaction
from batchledger.ledger.totals import add_to_totals
from batchledger.model import effects
from batchledger.model.batch import Decided, Decision, DecisionKind
from batchledger.model.errors import DecisionRefusedError
from batchledger.ports import TargetAccess
from batchledger.proof.takeover import TakenRows

Take = Callable[[TargetAccess, int], TakenRows]
"""Proves the rows and lets them be of the batch with this id; it names the target. It raises if they are not proved."""


def adopt_rows(dsn: str, pipeline: str, decision: Decision, take: Take, *, is_kept: bool) -> Decided:
    """Store a published batch of the rows, and the positions behind it. A decision that stands changes nothing.

    Raises DecisionRefusedError if the pipeline has begun already, and what ``take`` raises. It is undone unless
    ``is_kept``.
    """
    with transaction(dsn, f"let {pipeline} take over rows") as cursor:
        lock_pipeline(cursor, pipeline)
        for standing in list_decisions(cursor, pipeline=pipeline, kind=DecisionKind.ADOPT_ROWS, limit=1):
            return Decided(standing, is_new=False)
        if read_positions(cursor, pipeline) or pipeline in read_targets(cursor):
            raise DecisionRefusedError(
                f"{pipeline} has begun already, so it cannot take rows over. Nothing was changed.",
                why="A pipeline takes rows over as its first batch.",
                advice="Use a pipeline file of a new name.",
                pipeline=pipeline,
            )
        # The rows are proved by another session, however long it takes.
        cursor.execute("set local idle_in_transaction_session_timeout = 0")
        cursor.execute(
            "insert into batchledger.batch (pipeline, lane, state, lag_left_records, planned_by, published_at) "
            "values (%s, 'live', 'published', 0, %s, clock_timestamp()) returning batch_id",
            [pipeline, decision.decided_by],
        )
        batch_id = cursor.fetchall()[0][0]
        taken = take(PostgresTargetAccess(cursor.connection, pipeline), batch_id)
        ranges, rows = [each.range for each in taken.balances], sum(each.accepted for each in taken.balances)
        insert_positions(cursor, pipeline, taken.positions)
        insert_ranges(cursor, pipeline, batch_id, ranges)
        store_balances(cursor, batch_id, taken.balances)
        cursor.execute(read_statement(__package__, "advance_positions"), {"batch_id": batch_id})
        cursor.execute(read_statement(__package__, "hold_unheld"), {"batch_id": batch_id})
        cursor.execute(
            "update batchledger.batch set published_rows = %s, rows_published_at = clock_timestamp() "
            "where batch_id = %s",
            [rows, batch_id],
        )
        add_to_totals(cursor, batch_id)
        effect = effects.beginning(rows, sum(each.accepted_loss for each in taken.balances), ranges)
        record = insert_decision(cursor, load_batch(cursor, batch_id), DecisionKind.ADOPT_ROWS, decision, effect)
        if not is_kept:
            cursor.connection.rollback()
        return Decided(record)
