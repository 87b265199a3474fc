"""The Ledger port on PostgreSQL (14 or newer): every method is one short transaction.

Keeps I1 to I5 together with the constraints of the schema: a plan is stored only on top of the stored positions, an
attempt number guards every later write, positions move by compare-and-swap, and the database refuses an overlap. Holds
no decisions: the core decides which ranges to take and whether facts are good.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace

import psycopg
from psycopg.types.json import Jsonb
from typing_extensions import override

from batchledger.database.transactions import ranges_as_arrays, read_held, read_statement
from batchledger.ledger.evidence_tables import withhold_payloads
from batchledger.ledger.publication import (
    PostgresPublication,
    discard_batch,
    end_attempt,
    forget_failure,
    keep_quoted,
    open_publication,
)
from batchledger.ledger.record_schemas import add_columns, list_added_columns, note_rules
from batchledger.ledger.rows import (
    Cursor,
    await_publications,
    find_batch,
    find_pause,
    find_quarantined,
    has_rows,
    insert_batch,
    insert_checks,
    insert_decision,
    insert_positions,
    insert_ranges,
    list_open_replays,
    load_batch,
    load_checks,
    load_quarantine_contents,
    lock_pipeline,
    read_positions,
    read_targets,
    store_balances,
)
from batchledger.ledger.schema import transaction
from batchledger.ledger.times import find_times, note_times
from batchledger.model.balance import Balance
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    HeldRange,
    Position,
    QuarantinedRecord,
    Staged,
    Step,
    StepFailure,
    Target,
    state_after_audit,
)
from batchledger.model.checks import CheckResult
from batchledger.model.effects import leaving_out
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.pauses import paused_by
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.quarantine import NOTHING, QuarantineContent
from batchledger.model.records.times import RecordTimes, TimedRange, TimeSpan
from batchledger.model.refusals import closed, fenced_by, outcome_pending
from batchledger.model.stream_address import name_session
from batchledger.planning.batch_size import Pace
from batchledger.planning.live import Plan
from batchledger.ports import Ledger, RecentBatch


@dataclass(frozen=True)
class PostgresLedger(Ledger):
    """The ledger in the database that ``dsn`` (a libpq connection string) names."""

    dsn: str = field(repr=False)

    @override
    def load_positions(self, pipeline: str) -> Sequence[Position]:
        with transaction(self.dsn, f"read the position of {pipeline}") as cursor:
            return read_positions(cursor, pipeline)

    @override
    def list_targets(self) -> Mapping[str, Target]:
        with transaction(self.dsn, "read what pipelines have published to") as cursor:
            return read_targets(cursor)

    @override
    def seconds_since_published(self, pipeline: str) -> float | None:
        with transaction(self.dsn, f"read when {pipeline} last published") as cursor:
            cursor.execute(
                "select extract(epoch from now() - max(published_at))::float8 from batchledger.batch "
                "where pipeline = %s and lane = 'live'",
                [pipeline],
            )
            row = cursor.fetchone()
            return row[0] if row else None

    @override
    def load_paces(self, pipeline: str, limit: int) -> Sequence[Pace]:
        with transaction(self.dsn, f"load what the newest batches of {pipeline} took") as cursor:
            cursor.execute(read_statement(__package__, "load_paces"), {"pipeline": pipeline, "limit": limit})
            return [Pace(*row) for row in cursor]

    @override
    def load_recent(self, pipeline: str, limit: int) -> Sequence[RecentBatch]:
        with transaction(self.dsn, f"load what the newest batches of {pipeline} held") as cursor:
            cursor.execute(read_statement(__package__, "load_recent"), {"pipeline": pipeline, "limit": limit})
            return [RecentBatch(*row) for row in cursor]

    @override
    def find_open_batch(self, pipeline: str) -> Batch | None:
        with transaction(self.dsn, f"look for an open batch of {pipeline}") as cursor:
            return find_batch(cursor, pipeline=pipeline)

    @override
    def load_batch(self, batch_id: int, pipeline: str | None = None) -> Batch:
        with transaction(self.dsn, f"load batch {batch_id}") as cursor:
            return load_batch(cursor, batch_id, pipeline)

    @override
    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        """The pipeline's row is locked, so two planners cannot both find no open batch."""
        with transaction(self.dsn, f"store a plan of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            _require_running(cursor, pipeline)
            already_open = find_batch(cursor, pipeline=pipeline)
            if already_open is not None:
                return already_open
            insert_positions(cursor, pipeline, plan.first_positions)
            batch_id = insert_batch(cursor, pipeline, plan, run)
            insert_ranges(cursor, pipeline, batch_id, plan.ranges)
            batch = load_batch(cursor, batch_id)
            if decision is not None:
                insert_decision(cursor, batch, DecisionKind.TRIGGER, decision)
            return batch

    @override
    def store_replay(self, pipeline: str, plan: Plan, run: str, decision: Decision, key: str | None) -> Batch:
        with transaction(self.dsn, f"store a replay of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            already_stored = None if key is None else find_batch(cursor, pipeline=pipeline, key=key)
            if already_stored is not None:
                return already_stored
            if not plan.is_dry_run:
                _require_running(cursor, pipeline)
            superseded = filter(plan.supersedes, list_open_replays(cursor, pipeline, run))
            insert_positions(cursor, pipeline, plan.first_positions)
            batch_id = insert_batch(cursor, pipeline, plan, run, key)
            for each in superseded:
                discard_batch(cursor, each, replace(decision, reason=f"asked anew: batch {batch_id}"))
            parameters = {"batch_id": batch_id, "pipeline": pipeline, **ranges_as_arrays(plan.ranges)}
            cursor.execute(read_statement(__package__, "insert_replay_ranges"), parameters)
            batch = load_batch(cursor, batch_id)
            insert_decision(cursor, batch, plan.request_kind, decision, leaving_out(plan.expired))
            return batch

    @override
    def find_open_replays(self, pipeline: str, run: str) -> Sequence[Batch]:
        with transaction(self.dsn, f"look for open replays of {pipeline}") as cursor:
            return list_open_replays(cursor, pipeline, run)

    @override
    def note_expired(self, pipeline: str, expired: Sequence[OffsetRange], decision: Decision, key: str) -> None:
        with transaction(self.dsn, f"record what {pipeline} cannot publish again") as cursor:
            lock_pipeline(cursor, pipeline)
            cursor.execute(
                "select exists (select from batchledger.decision "
                "where pipeline = %s and batch_id is null and kind = 'replay' and after ->> 'request' = %s)",
                [pipeline, key],
            )
            ((is_noted,),) = cursor.fetchall()
            if not is_noted:
                insert_decision(cursor, pipeline, DecisionKind.REPLAY, decision, leaving_out(expired, key))

    @override
    def find_replay(self, pipeline: str, key: str) -> Batch | None:
        with transaction(self.dsn, f"look for a replay of {pipeline}") as cursor:
            return find_batch(cursor, pipeline=pipeline, key=key)

    @override
    def find_held(self, pipeline: str, ranges: Sequence[OffsetRange]) -> Sequence[HeldRange]:
        with transaction(self.dsn, f"look who holds offsets of {pipeline}") as cursor:
            parameters = {"pipeline": pipeline, **ranges_as_arrays(ranges)}
            cursor.execute(read_statement(__package__, "find_held"), parameters)
            return read_held(cursor)

    @override
    def find_published(self, batch: Batch) -> Sequence[HeldRange]:
        with transaction(self.dsn, f"look who has published offsets of {batch.label}") as cursor:
            cursor.execute(read_statement(__package__, "find_published"), {"batch_id": batch.batch_id})
            return read_held(cursor)

    @override
    def find_times(self, pipeline: str, span: TimeSpan, within: Sequence[OffsetRange]) -> Sequence[TimedRange]:
        with transaction(self.dsn, f"look when records of {pipeline} were written") as cursor:
            return find_times(cursor, pipeline, span, within)

    @override
    def note_times(self, pipeline: str, times_by_range: Mapping[OffsetRange, RecordTimes]) -> None:
        with transaction(self.dsn, f"note when records of {pipeline} were written") as cursor:
            note_times(cursor, pipeline, times_by_range)

    @override
    def find_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange] | None) -> Sequence[QuarantinedRecord]:
        with transaction(self.dsn, f"look into the quarantine of {pipeline}") as cursor:
            return find_quarantined(cursor, pipeline, ranges)

    @override
    def summarise_quarantine(self, pipeline: str) -> QuarantineContent:
        with transaction(self.dsn, f"summarise the quarantine of {pipeline}") as cursor:
            return load_quarantine_contents(cursor, [pipeline]).get(pipeline, NOTHING)

    @override
    def end_dry_run(self, batch_id: int, found: DryRunOutcome | None = None) -> None:
        with transaction(self.dsn, f"end the dry run {batch_id}") as cursor:
            cursor.execute(
                "update batchledger.batch set state = 'discarded', dry_run = %s "
                "where batch_id = %s and is_dry_run and state <> 'discarded' returning attempt",
                [None if found is None else Jsonb(found.to_json()), batch_id],
            )
            ended = cursor.fetchall()
            batch = load_batch(cursor, batch_id)
            for (number,) in ended:
                end_attempt(cursor, Attempt(batch, number, ""), "compared")

    @override
    def store_first_positions(self, pipeline: str, positions: Sequence[Position]) -> None:
        with transaction(self.dsn, f"store where {pipeline} starts") as cursor:
            lock_pipeline(cursor, pipeline)
            insert_positions(cursor, pipeline, positions)

    @override
    def note_held_back(self, pipeline: str, stable_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Does not wait: a plan may find a publication at work."""
        parameters = {
            "pipeline": pipeline,
            "topics": [each.topic for each in stable_offset_by_partition],
            "partitions": [each.partition for each in stable_offset_by_partition],
            "offsets": list(stable_offset_by_partition.values()),
        }
        with transaction(self.dsn, f"note open transactions of {pipeline}") as cursor:
            cursor.execute(read_statement(__package__, "note_held_back"), parameters)

    @override
    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        with transaction(self.dsn, f"open an attempt of batch {batch_id}") as cursor:
            cursor.execute(read_statement(__package__, "open_attempt"), {"batch_id": batch_id, "run": run})
            row = cursor.fetchone()
            batch = load_batch(cursor, batch_id)
            if row is None:
                raise outcome_pending(batch) if batch.state is BatchState.COMMITTING else closed(batch, run)
            if row[0] > 1:
                cursor.execute(read_statement(__package__, "end_streams"), [name_session(batch_id)])
            return Attempt(batch, row[0], run)

    @override
    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        with transaction(self.dsn, f"mark {attempt.batch.label} staged") as cursor:
            cursor.execute(
                "update batchledger.batch set state = 'staged', reported_rows = %s "
                "where batch_id = %s and attempt = %s and state = 'planned'",
                [staged.reported_rows, attempt.batch.batch_id, attempt.number],
            )
            _require_one(cursor, attempt)
            _stamp_attempt(cursor, attempt, "staged_at")
            note_rules(cursor, attempt, staged)
            withhold_payloads(cursor, attempt)

    @override
    def add_columns(self, attempt: Attempt, names: Sequence[str]) -> None:
        with transaction(self.dsn, f"add columns for {attempt.batch.label}") as cursor:
            add_columns(cursor, attempt, names)

    @override
    def list_added_columns(self, pipeline: str) -> Sequence[str]:
        with transaction(self.dsn, f"list the columns that records of {pipeline} have brought") as cursor:
            return list_added_columns(cursor, pipeline)

    @override
    def mark_failed(self, attempt: Attempt, failure: StepFailure) -> None:
        parameters = {"batch_id": attempt.batch.batch_id, "number": attempt.number, **asdict(failure)}
        with transaction(self.dsn, f"record that {attempt.batch.label} failed") as cursor:
            cursor.execute(read_statement(__package__, "record_failure"), parameters)
            if cursor.rowcount:
                keep_quoted(cursor, attempt, failure.quoted)

    @override
    def find_failure(self, batch: Batch) -> StepFailure | None:
        with transaction(self.dsn, f"look whether {batch.label} failed") as cursor:
            cursor.execute(
                "select failed_step, error from batchledger.attempt "
                "where batch_id = %s and number = %s and error is not null",
                [batch.batch_id, batch.attempt],
            )
            return next((StepFailure(Step(step), error) for step, error in cursor), None)

    @override
    def load_staged(self, attempt: Attempt) -> Staged:
        with transaction(self.dsn, f"load what was staged of {attempt.batch.label}") as cursor:
            cursor.execute(read_statement(__package__, "load_staged"), [attempt.batch.batch_id, attempt.number])
            for rows, row_rules in cursor:
                return Staged(rows, row_rules=row_rules)
            raise fenced_by(load_batch(cursor, attempt.batch.batch_id), attempt)

    @override
    def record_audit(
        self,
        attempt: Attempt,
        balances: Sequence[Balance],
        checks: Sequence[CheckResult],
        expected: BatchState = BatchState.STAGED,
    ) -> Batch:
        state = state_after_audit(checks)
        batch_id = attempt.batch.batch_id
        with transaction(self.dsn, f"record the audit of {attempt.batch.label}") as cursor:
            cursor.execute(
                "update batchledger.batch set state = %s where batch_id = %s and attempt = %s and state = %s",
                [state, batch_id, attempt.number, expected],
            )
            _require_one(cursor, attempt)
            store_balances(cursor, batch_id, balances)
            # The file may have been corrected since an earlier audit of the attempt.
            cursor.execute(
                "delete from batchledger.check_result where batch_id = %s and attempt = %s", [batch_id, attempt.number]
            )
            insert_checks(cursor, attempt, checks)
            if state is not BatchState.STAGED:
                _stamp_attempt(cursor, attempt, "audited_at")
                forget_failure(cursor, attempt)
            if state is BatchState.BLOCKED:
                end_attempt(cursor, attempt, "blocked")
            return load_batch(cursor, batch_id)

    @override
    def block(self, attempt: Attempt, refusal: CheckResult, quoted: str = "") -> Batch:
        with transaction(self.dsn, f"block {attempt.batch.label}") as cursor:
            cursor.execute(
                "update batchledger.batch set state = 'blocked' "
                "where batch_id = %s and attempt = %s and state in ('planned', 'staged', 'audited')",
                [attempt.batch.batch_id, attempt.number],
            )
            _require_one(cursor, attempt)
            insert_checks(cursor, attempt, [refusal])
            end_attempt(cursor, attempt, "blocked")
            keep_quoted(cursor, attempt, quoted)
            return load_batch(cursor, attempt.batch.batch_id)

    @override
    def resume_commit(self, batch_id: int, run: str) -> Attempt:
        with transaction(self.dsn, f"find out what became of batch {batch_id}") as cursor:
            # The process that announced the commit may be in the middle of it.
            await_publications(cursor)
            cursor.execute(read_statement(__package__, "resume_commit"), {"batch_id": batch_id, "run": run})
            is_resumed = cursor.rowcount == 1
            batch = load_batch(cursor, batch_id)
            attempt = Attempt(batch, batch.attempt, run)
            if not is_resumed:
                raise fenced_by(batch, attempt)
            return attempt

    @override
    def has_rows(self, batch_id: int) -> bool:
        with transaction(self.dsn, f"look whether batch {batch_id} has rows") as cursor:
            return has_rows(cursor, load_batch(cursor, batch_id).batch_id)

    @override
    def load_checks(self, batch_id: int) -> Sequence[CheckResult]:
        with transaction(self.dsn, f"load the checks of batch {batch_id}") as cursor:
            return load_checks(cursor, batch_id)

    @override
    def publication(
        self, attempt: Attempt, expected: BatchState = BatchState.AUDITED
    ) -> AbstractContextManager[PostgresPublication]:
        return open_publication(self.dsn, attempt, expected)


def _require_running(cursor: Cursor, pipeline: str) -> None:
    pause = find_pause(cursor, pipeline)
    if pause is not None:
        raise paused_by(pause)


def _require_one(cursor: Cursor, attempt: Attempt) -> None:
    if cursor.rowcount != 1:
        raise fenced_by(load_batch(cursor, attempt.batch.batch_id), attempt)


def _stamp_attempt(cursor: Cursor, attempt: Attempt, column: str) -> None:
    query = psycopg.sql.SQL("update batchledger.attempt set {} = clock_timestamp() where batch_id = %s and number = %s")
    cursor.execute(query.format(psycopg.sql.Identifier(column)), [attempt.batch.batch_id, attempt.number])
