"""What the fakes of ledger, publication and decisions ask of the tables in memory, and do to them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from batchledger.model.batch import Batch, BatchState, Decision, DecisionKind, DecisionRecord, Lane, QuarantinedRecord
from batchledger.model.effects import Effect, discarding
from batchledger.model.errors import UnknownBatchError
from batchledger.model.offsets import OffsetRange
from batchledger.model.pauses import paused_by
from batchledger.model.records.quarantine import ErrorKind, QuarantineContent, summarise
from batchledger.model.refusals import outcome_pending, plan_overtaken
from batchledger.model.requests import Confirmation, require_confirmable
from tests.fakes.database import StoredBatch, Tables


def find_open_batch(tables: Tables, pipeline: str) -> Batch | None:
    for stored in tables.batches.values():
        if stored.batch.pipeline == pipeline and stored.batch.lane is Lane.LIVE and not stored.batch.state.is_final:
            return stored.batch
    return None


def find_open_replays(tables: Tables, pipeline: str, run: str) -> list[Batch]:
    return [
        each.batch
        for each in tables.batches.values()
        if (each.batch.pipeline, each.planned_by, each.batch.lane) == (pipeline, run, Lane.REPLAY)
        and not each.batch.state.is_final
    ]


def find_quarantined(
    tables: Tables, pipeline: str, ranges: Sequence[OffsetRange] | None
) -> Sequence[QuarantinedRecord]:
    return [
        QuarantinedRecord(partition, offset, len(row["key"] or b"") + len(row["value"] or b""))
        for (owner, partition, offset), row in sorted(tables.quarantine.items(), key=lambda item: item[0])
        if owner == pipeline
        and (ranges is None or any(each.partition == partition and offset in each for each in ranges))
    ]


def summarise_quarantine(tables: Tables, pipeline: str) -> QuarantineContent:
    errors = Counter(row["error"] for (owner, _, _), row in tables.quarantine.items() if owner == pipeline)
    return summarise([ErrorKind(error, records) for error, records in errors.items()])


def find_replay(tables: Tables, pipeline: str, key: str) -> Batch | None:
    for stored in tables.batches.values():
        if stored.batch.pipeline == pipeline and stored.request_key == key:
            return stored.batch
    return None


def find_stored(tables: Tables, batch_id: int, pipeline: str | None = None) -> StoredBatch:
    found = tables.batches.get(batch_id)
    if found is None or pipeline not in (None, found.batch.pipeline):
        raise UnknownBatchError(f"{pipeline or 'The ledger'} has no batch {batch_id}.")
    return found


def move_positions(tables: Tables, batch: Batch) -> None:
    for each in batch.ranges:
        key = (batch.pipeline, each.partition)
        tables.positions[key] = replace(tables.positions[key], next_offset=each.until)


def require_positions(tables: Tables, pipeline: str, ranges: Sequence[OffsetRange]) -> None:
    found = {each: at.next_offset for (name, each), at in tables.positions.items() if name == pipeline}
    if any(found.get(each.partition) != each.start for each in ranges):
        raise plan_overtaken(pipeline, ranges, found)


def record_decision(
    tables: Tables,
    subject: Batch | str,
    kind: DecisionKind,
    decision: Decision,
    at: datetime,
    effect: Effect | None = None,
    *,
    order: Mapping[str, Any] | None = None,
) -> DecisionRecord:
    pipeline, batch_id = (subject, None) if isinstance(subject, str) else (subject.pipeline, subject.batch_id)
    number = max(tables.decisions, default=0) + 1
    request = None if decision.request_id is None else tables.decisions[decision.request_id]
    if request is not None and kind is not DecisionKind.WITHDRAW:
        by = Confirmation(decision.actor, at, kind, effect)
        require_confirmable(request, find_end(tables, request.decision_id), by)
    before, after = (effect.before, effect.after) if effect else (None, None)
    record = DecisionRecord(
        number,
        kind.value,
        pipeline,
        batch_id,
        decision.decided_by,
        decision.reason,
        at,
        before,
        after,
        decision.uid,
        decision.host,
        request_id=decision.request_id,
        requested_by=request.decided_by if request else None,
        requested_order=order,
    )
    tables.decisions[number] = record
    return record


def find_end(tables: Tables, request_id: int) -> DecisionRecord | None:
    return next((each for each in tables.decisions.values() if each.request_id == request_id), None)


def require_none_committing(tables: Tables, pipeline: str, but: int | None = None) -> None:
    for stored in tables.batches.values():
        batch = stored.batch
        if batch.pipeline == pipeline and batch.state is BatchState.COMMITTING and batch.batch_id != but:
            raise outcome_pending(batch)


def discard_batch(tables: Tables, batch: Batch, decision: Decision, at: datetime) -> DecisionRecord:
    if batch.state is BatchState.COMMITTING:
        raise outcome_pending(batch)
    stored = find_stored(tables, batch.batch_id)
    tables.batches[batch.batch_id] = replace(stored, batch=replace(stored.batch, state=BatchState.DISCARDED))
    alone = replace(decision, request_id=None)
    return record_decision(tables, batch, DecisionKind.DISCARD, alone, at, discarding(batch))


def require_running(tables: Tables, pipeline: str) -> None:
    if pipeline in tables.pauses:
        raise paused_by(tables.pauses[pipeline])
