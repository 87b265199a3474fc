"""What the transactions of the ledger have in common: its rows, read and written within a cursor's transaction.

If a transaction locks both, the pipeline's row comes first, the batch's row second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from batchledger.database.transactions import ranges_as_arrays, read_ranges, read_statement
from batchledger.model.balance import Balance
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    DecisionRecord,
    DeliveryMode,
    Lane,
    Position,
    QuarantinedRecord,
    RecordOrigin,
    Target,
    TopicIdentity,
)
from batchledger.model.checks import CheckResult, OnFailure, Outcome, Severity, Suite
from batchledger.model.effects import Effect
from batchledger.model.errors import PlanOvertakenError, UnknownBatchError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.quarantine import KINDS_SHOWN, ErrorKind, QuarantineContent
from batchledger.model.records.times import RecordTimes
from batchledger.model.refusals import outcome_pending, plan_overtaken
from batchledger.model.renames import renamed
from batchledger.model.requests import Confirmation, require_confirmable
from batchledger.planning.live import Plan

Cursor = psycopg.Cursor[Any]

# A publication holds the pipeline to its end, and a replay is one, however large. If its process is paused, the
# transaction ends by itself: database.connect bounds idle transactions.
_PUBLICATIONS_END_WITHIN = "10min"


def await_publications(cursor: Cursor) -> None:
    """Let the transaction wait for its locks as long as a publication may take."""
    cursor.execute("select set_config('lock_timeout', %s, true)", [_PUBLICATIONS_END_WITHIN])


def lock_pipeline(cursor: Cursor, pipeline: str) -> None:
    """Lock the pipeline's row until the transaction ends, and create it first if need be. Waits for publications.

    Raises ConfigurationError if a person has renamed the pipeline, also while this transaction waited.
    """
    await_publications(cursor)
    lock = "select 1 from batchledger.pipeline where name = %s for update"
    cursor.execute(lock, [pipeline])
    if cursor.fetchone() is None:
        require_current_name(cursor, pipeline)
        cursor.execute("insert into batchledger.pipeline (name) values (%s) on conflict do nothing", [pipeline])
        cursor.execute(lock, [pipeline])


def require_current_name(cursor: Cursor, pipeline: str) -> None:
    """Raise ConfigurationError if a person has renamed the pipeline: its history has another name."""
    cursor.execute("select name from batchledger.pipeline where %s = any (former_names)", [pipeline])
    for (name,) in cursor:
        raise renamed(pipeline, name)


def read_targets(cursor: Cursor) -> dict[str, Target]:
    """Return what each pipeline has published to; one that has published nothing is absent."""
    cursor.execute("select name, target, target_identity from batchledger.pipeline where target_identity is not null")
    return {pipeline: Target(target, identity) for pipeline, target, identity in cursor}


def store_target(cursor: Cursor, pipeline: str, target: Target | None) -> None:
    """Let the pipeline have published to the target; None: to none. UniqueViolation if it is another pipeline's."""
    cursor.execute(
        "update batchledger.pipeline set target = %s, target_identity = %s where name = %s",
        [target and target.name, target and target.identity, pipeline],
    )


def read_positions(cursor: Cursor, pipeline: str) -> list[Position]:
    """Return the positions of a pipeline. Raises ConfigurationError if a person has renamed it."""
    cursor.execute(
        "select topic, partition, origin_offset, next_offset, cluster_id, topic_id, held_back_at, held_back_since, "
        "rewound_to "
        "from batchledger.position where pipeline = %s order by topic, partition",
        [pipeline],
    )
    found = cursor.fetchall()
    if not found:
        require_current_name(cursor, pipeline)
    return [
        Position(TopicPartition(topic, partition), origin, next_offset, TopicIdentity(cluster, topic_id), *rest)
        for topic, partition, origin, next_offset, cluster, topic_id, *rest in found
    ]


def insert_positions(cursor: Cursor, pipeline: str, positions: Sequence[Position]) -> None:
    """Store first positions; known partitions keep theirs."""
    parameters = {
        "pipeline": pipeline,
        "topics": [each.partition.topic for each in positions],
        "partitions": [each.partition.partition for each in positions],
        "starts": [each.origin_offset for each in positions],
        "clusters": [each.identity.cluster_id for each in positions],
        "topic_ids": [each.identity.topic_id for each in positions],
    }
    cursor.execute(read_statement(__package__, "insert_positions"), parameters)


def load_batch(cursor: Cursor, batch_id: int, pipeline: str | None = None) -> Batch:
    """Return one batch, with ``pipeline`` only one of it. Raises UnknownBatchError, which names what it has become.

    With ``pipeline`` it says nothing of others: who may see this one need not see them.
    """
    batch = find_batch(cursor, batch_id=batch_id)
    if batch is None or pipeline not in (None, batch.pipeline):
        spans = find_spans(cursor, batch_id, pipeline)
        where = " or ".join(f"batch {span}, of batches {first} to {span} of {name}" for span, first, name in spans)
        raise UnknownBatchError(
            f"{pipeline or 'The ledger'} has no batch {batch_id}.",
            why=f"Housekeeping has joined it into {where}." if spans else "",
            advice="\n".join(f"See what it became: batchledger batch {span}" for span, *_ in spans)
            or f"List the batches: batchledger batches {pipeline or 'PIPELINE'}",
            batch_id=batch_id,
            pipeline=pipeline,
        )
    return batch


def find_spans(cursor: Cursor, batch_id: int, pipeline: str | None = None) -> list[tuple[int, int, str]]:
    """Return the spans that a batch may have been joined into, each with its first batch and its pipeline.

    They may be several, because all pipelines count their batches together. One ``pipeline`` has at most one.
    """
    cursor.execute(
        "select batch_id, joined_from, pipeline from batchledger.batch where joined_from is not null "
        "and int8range(joined_from, batch_id) @> %(id)s::bigint "
        "and (%(pipeline)s::text is null or pipeline = %(pipeline)s) "
        "and not exists (select from batchledger.batch where batch_id = %(id)s) order by batch_id",
        {"id": batch_id, "pipeline": pipeline},
    )
    return cursor.fetchall()


def find_batch(
    cursor: Cursor, batch_id: int | None = None, pipeline: str | None = None, key: str | None = None
) -> Batch | None:
    """Return the batch of that id, the replay of that key, or else the pipeline's open live batch."""
    wanted = {"batch_id": batch_id, "pipeline": pipeline, "key": key}
    cursor.execute(read_statement(__package__, "find_batch"), wanted)
    row = cursor.fetchone()
    if row is None:
        return None
    found_id, name, lane, state, attempt, run, lag_left, planned_at, delivery, origin, is_dry_run, ends = row
    cursor.execute(
        "select topic, partition, lower(offsets), upper(offsets) from batchledger.batch_range where batch_id = %s "
        "order by topic, partition, offsets",
        [found_id],
    )
    return Batch(
        batch_id=found_id,
        pipeline=name,
        lane=Lane(lane),
        state=BatchState(state),
        attempt=attempt,
        attempt_run=run,
        ranges=tuple(read_ranges(cursor)),
        lag_left_records=lag_left,
        planned_at=planned_at,
        delivery=DeliveryMode(delivery),
        origin=RecordOrigin(origin),
        is_dry_run=is_dry_run,
        announced_ends=None if ends is None else tuple(ends),
    )


def insert_batch(cursor: Cursor, pipeline: str, plan: Plan, run: str, key: str | None = None) -> int:
    """Store a planned batch without its ranges; return its id."""
    cursor.execute(
        "insert into batchledger.batch "
        "(pipeline, lane, lag_left_records, planned_by, delivery, request_key, origin, is_dry_run) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s) returning batch_id",
        [pipeline, plan.lane, plan.lag_left_records, run, plan.delivery, key, plan.origin, plan.is_dry_run],
    )
    return int(cursor.fetchall()[0][0])


def insert_ranges(cursor: Cursor, pipeline: str, batch_id: int, ranges: Sequence[OffsetRange]) -> None:
    """Store ranges of the live lane. Raises PlanOvertakenError when one does not start at the stored position."""
    parameters = {"batch_id": batch_id, "pipeline": pipeline, **ranges_as_arrays(ranges)}
    cursor.execute(read_statement(__package__, "insert_ranges"), parameters)
    if cursor.rowcount != len(ranges):
        raise _plan_conflict(cursor, pipeline, ranges)


def store_balances(cursor: Cursor, batch_id: int, balances: Sequence[Balance]) -> None:
    """Store the accounting of a batch's ranges."""
    lines = (
        "accepted", "duplicates", "quarantined", "tombstones", "filtered", "aborted", "markers", "compacted",
        "accepted_loss",
    )  # fmt: skip
    arrays = {line: [getattr(each, line) for each in balances] for line in lines}
    arrays |= times_as_arrays([each.times for each in balances])
    parameters = {"batch_id": batch_id, **ranges_as_arrays([each.range for each in balances]), **arrays}
    cursor.execute(read_statement(__package__, "store_balances"), parameters)


def times_as_arrays(times: Sequence[RecordTimes | None]) -> dict[str, list[int | None]]:
    """Return times as the parameters of a statement that unnests them; all three are null if they are unknown."""
    return {
        name: [None if each is None else getattr(each, name) for each in times]
        for name in ("first_ms", "last_ms", "untimed")
    }


def insert_decision(
    cursor: Cursor,
    subject: Batch | str,
    kind: DecisionKind,
    decision: Decision,
    effect: Effect | None = None,
    *,
    order: Mapping[str, Any] | None = None,
) -> DecisionRecord:
    """Store a decision about a batch, or about the pipeline of that name; ``order`` is what a request asks for.

    Raises DecisionRefusedError if the decision would carry out a request, and does not fit it.
    """
    pipeline, batch_id = (subject, None) if isinstance(subject, str) else (subject.pipeline, subject.batch_id)
    if decision.request_id is not None and kind is not DecisionKind.WITHDRAW:
        _require_confirmable(cursor, decision, kind, effect)
    parameters = {
        "pipeline": pipeline,
        "batch_id": batch_id,
        "kind": kind,
        "decided_by": decision.decided_by,
        "reason": decision.reason,
        "before": Jsonb(effect.before) if effect else None,
        "after": Jsonb(effect.after) if effect else None,
        "uid": decision.uid,
        "host": decision.host,
        "request_id": decision.request_id,
        "requested_order": _as_json(order),
    }
    cursor.execute(read_statement(__package__, "insert_decision"), parameters)
    return DecisionRecord(*cursor.fetchall()[0])


def _require_confirmable(cursor: Cursor, decision: Decision, kind: DecisionKind, effect: Effect | None) -> None:
    """Say in words what the trigger confirm_request would refuse. The pipeline is locked: no other session decides."""
    (request,) = list_decisions(cursor, decision_id=decision.request_id)
    end = next(iter(list_decisions(cursor, request_id=decision.request_id)), None)
    cursor.execute("select session_user, clock_timestamp()")
    ((role, now),) = cursor.fetchall()
    by = Confirmation(replace(decision.actor, role=role), now, kind, effect)
    require_confirmable(request, end, by)


def list_decisions(
    cursor: Cursor,
    *,
    pipeline: str | None = None,
    batch_id: int | None = None,
    kind: DecisionKind | None = None,
    decision_id: int | None = None,
    request_id: int | None = None,
    is_pausing: bool = False,
    limit: int | None = None,
) -> list[DecisionRecord]:
    """Return the decisions that meet all of this, the newest first.

    ``request_id``: it has ended this request. ``is_pausing``: it has paused a pipeline.
    """
    parameters = {
        "pipeline": pipeline,
        "batch_id": batch_id,
        "kind": kind,
        "decision_id": decision_id,
        "request_id": request_id,
        "is_pausing": is_pausing,
        "limit": limit,
    }
    cursor.execute(read_statement(__package__, "list_decisions"), parameters)
    return [DecisionRecord(*row) for row in cursor]


def find_pause(cursor: Cursor, pipeline: str) -> DecisionRecord | None:
    """Return the decision that has paused the pipeline, None when it runs."""
    return next(iter(list_decisions(cursor, pipeline=pipeline, is_pausing=True)), None)


def require_none_committing(cursor: Cursor, pipeline: str, but: int | None = None) -> None:
    """Raise OutcomePendingError while a batch is committing: what it was audited with has to stay as it is."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and state = 'committing' "
        "and batch_id is distinct from %s",
        [pipeline, but],
    )
    for (batch_id,) in cursor.fetchall():
        raise outcome_pending(load_batch(cursor, batch_id))


def load_checks(cursor: Cursor, batch_id: int, attempt: int | None = None) -> list[CheckResult]:
    """Return the check results of an attempt; if it is None, of the newest attempt that has some."""
    cursor.execute(
        "select name, outcome, detail, observed, severity, suite, validation, on_failure from batchledger.check_result "
        "where batch_id = %(id)s and attempt = coalesce(%(attempt)s, "
        "(select max(attempt) from batchledger.check_result where batch_id = %(id)s)) order by suite, name",
        {"id": batch_id, "attempt": attempt},
    )
    return [
        CheckResult(
            name, Outcome(outcome), detail, observed, Severity(severity), Suite(suite), validation, OnFailure(policy)
        )
        for name, outcome, detail, observed, severity, suite, validation, policy in cursor
    ]


def has_rows(cursor: Cursor, batch_id: int) -> bool:
    """Whether rows of the batch have been committed."""
    cursor.execute("select rows_published_at is not null from batchledger.batch where batch_id = %s", [batch_id])
    return bool(cursor.fetchall()[0][0])


def find_quarantined(
    cursor: Cursor, pipeline: str, ranges: Sequence[OffsetRange] | None
) -> Sequence[QuarantinedRecord]:
    """Return which records of the ranges are in quarantine, or of all offsets if ``ranges`` is None."""
    asked = ranges_as_arrays(ranges or ())
    parameters = {"pipeline": pipeline, **(dict.fromkeys(asked) if ranges is None else asked)}
    cursor.execute(read_statement(__package__, "find_quarantined"), parameters)
    return [
        QuarantinedRecord(TopicPartition(topic, partition), offset, size_bytes, is_kept)
        for topic, partition, offset, size_bytes, is_kept in cursor
    ]


def load_quarantine_contents(cursor: Cursor, pipelines: Sequence[str]) -> dict[str, QuarantineContent]:
    """Return what each of the pipelines has in quarantine; one that has nothing there is left out."""
    parameters = {"pipelines": list(pipelines), "limit": KINDS_SHOWN}
    cursor.execute(read_statement(__package__, "list_quarantine_kinds"), parameters)
    found: dict[str, QuarantineContent] = {}
    for pipeline, total, kinds, error, records in cursor:
        shown = found[pipeline].most_frequent if pipeline in found else ()
        found[pipeline] = QuarantineContent(total, kinds, (*shown, ErrorKind(error, records)))
    return found


def _plan_conflict(cursor: Cursor, pipeline: str, ranges: Sequence[OffsetRange]) -> PlanOvertakenError:
    cursor.execute("select topic, partition, next_offset from batchledger.position where pipeline = %s", [pipeline])
    stored = {TopicPartition(topic, partition): next_offset for topic, partition, next_offset in cursor}
    return plan_overtaken(pipeline, ranges, stored)


def insert_checks(cursor: Cursor, attempt: Attempt, checks: Sequence[CheckResult]) -> None:
    """Store the results of one audit."""
    of_attempt = {"batch_id": attempt.batch.batch_id, "attempt": attempt.number}
    parameters = [
        {**of_attempt, **asdict(each), "observed": Jsonb(each.observed), "validation": _as_json(each.validation)}
        for each in checks
    ]
    cursor.executemany(read_statement(__package__, "insert_check_result"), parameters)


def _as_json(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(value)


def list_open_replays(cursor: Cursor, pipeline: str, run: str) -> list[Batch]:
    """Return the run's open replays, locked until the transaction ends."""
    cursor.execute(
        "select batch_id from batchledger.batch where pipeline = %s and lane = 'replay' and planned_by = %s "
        "and state not in ('published', 'discarded') order by batch_id for update",
        [pipeline, run],
    )
    return [load_batch(cursor, batch_id) for (batch_id,) in cursor.fetchall()]
