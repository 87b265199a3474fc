"""Requests: what one person asks for until a second one confirms it, each a decision of its own.

Functions that take a cursor work within a transaction that holds the pipeline's lock.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from batchledger.database.transactions import read_statement
from batchledger.ledger.rows import Cursor, insert_decision, list_decisions, load_batch
from batchledger.ledger.schema import transaction
from batchledger.model.batch import Batch, Decided, Decision, DecisionKind, DecisionRecord
from batchledger.model.effects import Effect
from batchledger.model.errors import DecisionRefusedError
from batchledger.model.requests import VALID_FOR, ended_already


def list_requests(dsn: str, pipeline: str | None = None) -> list[DecisionRecord]:
    """Return the open requests of a pipeline, or of all, the oldest first."""
    with transaction(dsn, "list what waits for a second person") as cursor:
        return _list_open(cursor, pipeline)


def load_request(dsn: str, request_id: int) -> DecisionRecord:
    """Return one request, open or not. Raises DecisionRefusedError if there is none of that number."""
    with transaction(dsn, f"load request {request_id}") as cursor:
        for each in list_decisions(cursor, decision_id=request_id, kind=DecisionKind.REQUEST):
            return each
    raise DecisionRefusedError(
        f"The ledger holds no request {request_id}. Nothing was changed.",
        advice="List what waits for a second person: batchledger requests",
    )


def add_request(
    cursor: Cursor, subject: Batch | str, order: Mapping[str, Any], decision: Decision, effect: Effect
) -> Decided:
    """Record a request, or return the open one for the same order with the same effect."""
    pipeline = subject if isinstance(subject, str) else subject.pipeline
    for each in _list_open(cursor, pipeline):
        if (each.requested_order, each.before, each.after) == (order, effect.before, effect.after):
            return Decided(each, is_new=False)
    return Decided(insert_decision(cursor, subject, DecisionKind.REQUEST, decision, effect, order=order))


def find_end(cursor: Cursor, request_id: int) -> DecisionRecord | None:
    """Return the decision that has ended a request."""
    return next(iter(list_decisions(cursor, request_id=request_id)), None)


def withdraw_request(cursor: Cursor, request: DecisionRecord, decision: Decision) -> Decided:
    """End an open request. Raises DecisionRefusedError if it was confirmed."""
    end = find_end(cursor, request.decision_id)
    if end is not None and end.kind != DecisionKind.WITHDRAW:
        raise ended_already(request, end)
    if end is not None:
        return Decided(end, is_new=False)
    subject = request.pipeline if request.batch_id is None else load_batch(cursor, request.batch_id)
    named = replace(decision, request_id=request.decision_id)
    return Decided(insert_decision(cursor, subject, DecisionKind.WITHDRAW, named))


def _list_open(cursor: Cursor, pipeline: str | None) -> list[DecisionRecord]:
    cursor.execute(read_statement(__package__, "list_open_requests"), {"pipeline": pipeline, "valid": VALID_FOR})
    return [DecisionRecord(*row) for row in cursor]
