"""The Ledger port in memory, with every refusal of the real one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto

from typing_extensions import override

from batchledger.model.balance import Balance
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    HeldRange,
    Lane,
    Position,
    QuarantinedRecord,
    Staged,
    Step,
    StepFailure,
    Target,
    state_after_audit,
)
from batchledger.model.checks import CheckResult, Suite
from batchledger.model.effects import leaving_out
from batchledger.model.errors import BatchBlockedError, OutcomeUnknownError
from batchledger.model.offsets import OffsetRange, TopicPartition, count_offsets, intersect
from batchledger.model.records.comparison import DryRunOutcome
from batchledger.model.records.quarantine import QuarantineContent
from batchledger.model.records.times import RecordTimes, TimedRange, TimeSpan
from batchledger.model.refusals import closed, fenced_by, outcome_pending
from batchledger.planning.batch_size import Pace
from batchledger.planning.live import Plan
from batchledger.ports import Ledger, RecentBatch
from tests.fakes.database import MemoryDatabase, StoredBatch, Tables
from tests.fakes.publication import ALL_PROTECTIONS, MemoryPublication, Protection
from tests.fakes.stored import (
    discard_batch,
    find_open_batch,
    find_open_replays,
    find_quarantined,
    find_replay,
    find_stored,
    record_decision,
    require_none_committing,
    require_positions,
    require_running,
    summarise_quarantine,
)


class CommitFault(Enum):
    """When the connection is lost: before the database commits, or after it did and before it could say so."""

    BEFORE = auto()
    AFTER = auto()


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class MemoryLedger(Ledger):
    """``commit_fault`` strikes the next publication only."""

    database: MemoryDatabase
    protections: frozenset[Protection] = ALL_PROTECTIONS
    clock: Callable[[], datetime] = now
    commit_fault: CommitFault | None = None

    @override
    def load_positions(self, pipeline: str) -> Sequence[Position]:
        positions = self.database.committed.positions
        return [positions[key] for key in sorted(positions) if key[0] == pipeline]

    @override
    def list_targets(self) -> Mapping[str, Target]:
        return self.database.committed.target_by_pipeline

    @override
    def seconds_since_published(self, pipeline: str) -> float | None:
        moments = [
            each.published_at
            for each in self.database.committed.batches.values()
            if each.batch.pipeline == pipeline and each.batch.lane is Lane.LIVE and each.published_at is not None
        ]
        return (self.clock() - max(moments)).total_seconds() if moments else None

    @override
    def load_paces(self, pipeline: str, limit: int) -> Sequence[Pace]:
        published = [
            (each.published_at, each.opened_at, each.batch)
            for each in self.database.committed.batches.values()
            if each.batch.pipeline == pipeline and each.batch.lane is Lane.LIVE and each.published_at is not None
        ]
        newest = sorted(published, key=lambda each: each[0], reverse=True)[:limit]
        decisions = self.database.committed.decisions.values()
        accepted = {each.batch_id for each in decisions if each.kind == DecisionKind.ACCEPT}
        return [
            Pace(count_offsets(batch.ranges), (published_at - opened_at).total_seconds())
            for published_at, opened_at, batch in newest
            if opened_at is not None and published_at > opened_at and batch.batch_id not in accepted
        ]

    @override
    def load_recent(self, pipeline: str, limit: int) -> Sequence[RecentBatch]:
        tables = self.database.committed
        published = [
            each
            for each in tables.batches.values()
            if each.batch.pipeline == pipeline and each.batch.lane is Lane.LIVE and each.published_at is not None
            if each.batch.attempt > 0
        ]
        published.sort(key=lambda each: (each.published_at, each.batch.batch_id), reverse=True)
        return [
            RecentBatch(
                each.batch.batch_id,
                sum(balance.accepted for balance in each.balances),
                {
                    check.name: check.observed
                    for check in tables.checks.get((each.batch.batch_id, each.batch.attempt), ())
                    if check.suite is Suite.PIPELINE
                },
            )
            for each in published[:limit]
        ]

    @override
    def find_open_batch(self, pipeline: str) -> Batch | None:
        return find_open_batch(self.database.committed, pipeline)

    @override
    def load_batch(self, batch_id: int, pipeline: str | None = None) -> Batch:
        return find_stored(self.database.committed, batch_id, pipeline).batch

    @override
    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        with self.database.transaction() as tables:
            require_running(tables, pipeline)
            already_open = find_open_batch(tables, pipeline)
            if already_open is not None:
                return already_open
            for position in plan.first_positions:
                tables.positions.setdefault((pipeline, position.partition), position)
            if Protection.POSITIONS_COMPARED in self.protections:
                require_positions(tables, pipeline, plan.ranges)
            batch = self._insert_batch(tables, pipeline, plan, run)
            if decision is not None:
                record_decision(tables, batch, DecisionKind.TRIGGER, decision, self.clock())
            return batch

    @override
    def store_replay(self, pipeline: str, plan: Plan, run: str, decision: Decision, key: str | None) -> Batch:
        with self.database.transaction() as tables:
            already_stored = None if key is None else find_replay(tables, pipeline, key)
            if already_stored is not None:
                return already_stored
            if not plan.is_dry_run:
                require_running(tables, pipeline)
            superseded = filter(plan.supersedes, find_open_replays(tables, pipeline, run))
            for position in plan.first_positions:
                tables.positions.setdefault((pipeline, position.partition), position)
            batch = self._insert_batch(tables, pipeline, plan, run, key)
            for each in superseded:
                anew = Decision(decision.decided_by, f"asked anew: batch {batch.batch_id}")
                discard_batch(tables, each, anew, self.clock())
            record_decision(tables, batch, plan.request_kind, decision, self.clock(), leaving_out(plan.expired))
            return batch

    @override
    def find_open_replays(self, pipeline: str, run: str) -> Sequence[Batch]:
        return find_open_replays(self.database.committed, pipeline, run)

    @override
    def note_expired(self, pipeline: str, expired: Sequence[OffsetRange], decision: Decision, key: str) -> None:
        with self.database.transaction() as tables:
            effect = leaving_out(expired, key)
            noted = [each.after for each in tables.decisions.values() if each.pipeline == pipeline]
            if not any(after and after.get("request") == key for after in noted):
                record_decision(tables, pipeline, DecisionKind.REPLAY, decision, self.clock(), effect)

    @override
    def find_replay(self, pipeline: str, key: str) -> Batch | None:
        return find_replay(self.database.committed, pipeline, key)

    @override
    def find_held(self, pipeline: str, ranges: Sequence[OffsetRange]) -> Sequence[HeldRange]:
        stored = [each for each in self.database.committed.batches.values() if each.batch.pipeline == pipeline]
        held = [HeldRange(one.batch.batch_id, each) for one in stored for each in intersect(one.held, ranges)]
        return sorted(held, key=lambda each: each.range)

    @override
    def find_published(self, batch: Batch) -> Sequence[HeldRange]:
        stored = self.database.committed.batches
        others = [
            each
            for each in stored.values()
            if each.batch.pipeline == batch.pipeline
            and each.batch.batch_id != batch.batch_id
            and each.batch.lane is Lane.LIVE
            and each.batch.state is BatchState.PUBLISHED
            and each.epoch == stored[batch.batch_id].epoch
        ]
        found = [
            HeldRange(one.batch.batch_id, each) for one in others for each in intersect(one.batch.ranges, batch.ranges)
        ]
        return sorted(found, key=lambda each: each.range)

    @override
    def find_times(self, pipeline: str, span: TimeSpan, within: Sequence[OffsetRange]) -> Sequence[TimedRange]:
        found = [
            TimedRange(
                piece, each.range, each.times, each.accepted + each.duplicates + each.quarantined,
                each.tombstones + each.filtered,
            )
            for stored in self.database.committed.batches.values()
            if stored.batch.pipeline == pipeline
            for each in stored.balances
            for piece in intersect(stored.held, [each.range])
        ]  # fmt: skip
        return sorted((each for each in found if _may_hold(each, found, span, within)), key=lambda each: each.range)

    @override
    def note_times(self, pipeline: str, times_by_range: Mapping[OffsetRange, RecordTimes]) -> None:
        with self.database.transaction() as tables:
            for batch_id, stored in tables.batches.items():
                if stored.batch.pipeline == pipeline and stored.held:
                    noted = [
                        replace(each, times=each.times or times_by_range.get(each.range)) for each in stored.balances
                    ]
                    tables.batches[batch_id] = replace(stored, balances=tuple(noted))

    @override
    def find_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange] | None) -> Sequence[QuarantinedRecord]:
        return find_quarantined(self.database.committed, pipeline, ranges)

    @override
    def summarise_quarantine(self, pipeline: str) -> QuarantineContent:
        return summarise_quarantine(self.database.committed, pipeline)

    @override
    def end_dry_run(self, batch_id: int, found: DryRunOutcome | None = None) -> None:
        with self.database.transaction() as tables:
            stored = find_stored(tables, batch_id)
            if stored.batch.is_dry_run and not stored.batch.state.is_final:
                ended = replace(stored.batch, state=BatchState.DISCARDED)
                tables.batches[batch_id] = replace(stored, batch=ended, dry_run=found)

    def _insert_batch(self, tables: Tables, pipeline: str, plan: Plan, run: str, key: str | None = None) -> Batch:
        batch = Batch(
            batch_id=max(tables.batches, default=0) + 1,
            pipeline=pipeline,
            lane=plan.lane,
            state=BatchState.PLANNED,
            attempt=0,
            attempt_run=None,
            ranges=tuple(sorted(plan.ranges)),
            lag_left_records=plan.lag_left_records,
            planned_at=self.clock(),
            delivery=plan.delivery,
            origin=plan.origin,
            is_dry_run=plan.is_dry_run,
        )
        epoch = tables.epochs.get(pipeline, 0)
        tables.batches[batch.batch_id] = StoredBatch(batch, epoch=epoch, planned_by=run, request_key=key)
        return batch

    @override
    def store_first_positions(self, pipeline: str, positions: Sequence[Position]) -> None:
        with self.database.transaction() as tables:
            for position in positions:
                tables.positions.setdefault((pipeline, position.partition), position)

    @override
    def note_held_back(self, pipeline: str, stable_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        with self.database.transaction() as tables:
            for key, position in tables.positions.items():
                at = stable_offset_by_partition.get(position.partition)
                if key[0] == pipeline and position.held_back_at != at:
                    since = None if at is None else self.clock()
                    tables.positions[key] = replace(position, held_back_at=at, held_back_since=since)

    @override
    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        with self.database.transaction() as tables:
            stored = find_stored(tables, batch_id)
            found = stored.batch
            if found.state.is_final:
                raise closed(found, run)
            if found.state is BatchState.COMMITTING:
                raise outcome_pending(found)
            taken = replace(found, state=BatchState.PLANNED, attempt=found.attempt + 1, attempt_run=run)
            tables.batches[batch_id] = replace(stored, batch=taken, opened_at=self.clock(), staged=None, balances=())
            return Attempt(taken, taken.attempt, run)

    @override
    def mark_failed(self, attempt: Attempt, failure: StepFailure) -> None:
        key = (attempt.batch.batch_id, attempt.number)
        with self.database.transaction() as tables:
            before, found = tables.failures.get(key), find_stored(tables, key[0]).batch
            has_ended = before is not None and before.step is Step.STAGE
            checks = tables.checks.get(key, ())
            was_blocked = bool(checks) and state_after_audit(checks) is BatchState.BLOCKED
            if not (has_ended or was_blocked or found.attempt != attempt.number or found.state.is_final):
                tables.failures[key] = failure

    @override
    def find_failure(self, batch: Batch) -> StepFailure | None:
        return self.database.committed.failures.get((batch.batch_id, batch.attempt))

    @override
    def add_columns(self, attempt: Attempt, names: Sequence[str]) -> None:
        with self.database.transaction() as tables:
            for name in names:
                tables.added_columns.setdefault((attempt.batch.pipeline, name), attempt.batch.batch_id)

    @override
    def list_added_columns(self, pipeline: str) -> Sequence[str]:
        return [name for owner, name in self.database.committed.added_columns if owner == pipeline]

    @override
    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, BatchState.PLANNED)
            batch = replace(found.batch, state=BatchState.STAGED)
            tables.batches[batch.batch_id] = replace(found, batch=batch, staged=replace(staged, schema=""))

    @override
    def load_staged(self, attempt: Attempt) -> Staged:
        found = find_stored(self.database.committed, attempt.batch.batch_id)
        if found.batch.attempt != attempt.number or found.staged is None:
            raise fenced_by(found.batch, attempt)
        return found.staged

    @override
    def record_audit(
        self,
        attempt: Attempt,
        balances: Sequence[Balance],
        checks: Sequence[CheckResult],
        expected: BatchState = BatchState.STAGED,
    ) -> Batch:
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, expected)
            batch = replace(found.batch, state=state_after_audit(checks))
            tables.batches[batch.batch_id] = replace(found, batch=batch, balances=tuple(balances))
            tables.checks[batch.batch_id, attempt.number] = tuple(checks)
            if batch.state is not BatchState.STAGED:
                tables.failures.pop((batch.batch_id, attempt.number), None)
            return batch

    @override
    def block(self, attempt: Attempt, refusal: CheckResult, quoted: str = "") -> Batch:
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, BatchState.PLANNED, BatchState.STAGED, BatchState.AUDITED)
            key = (attempt.batch.batch_id, attempt.number)
            others = [each for each in tables.checks.get(key, ()) if each.name != refusal.name]
            tables.checks[key] = (*others, refusal)
            tables.batches[key[0]] = replace(found, batch=replace(found.batch, state=BatchState.BLOCKED))
            tables.failures.pop(key, None)
            return tables.batches[key[0]].batch

    @override
    def resume_commit(self, batch_id: int, run: str) -> Attempt:
        with self.database.transaction() as tables:
            stored = find_stored(tables, batch_id)
            attempt = Attempt(stored.batch, stored.batch.attempt, run)
            if stored.batch.state is not BatchState.COMMITTING:
                raise fenced_by(stored.batch, attempt)
            batch = replace(stored.batch, attempt_run=run)
            tables.batches[batch_id] = replace(stored, batch=batch)
            return replace(attempt, batch=batch)

    @override
    def has_rows(self, batch_id: int) -> bool:
        return find_stored(self.database.committed, batch_id).has_rows

    @override
    def load_checks(self, batch_id: int) -> Sequence[CheckResult]:
        checks = self.database.committed.checks
        newest = max((number for of_batch, number in checks if of_batch == batch_id), default=0)
        return sorted(checks.get((batch_id, newest), ()), key=lambda check: (check.suite, check.name))

    @contextmanager
    @override
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator["MemoryPublication"]:
        with self.database.transaction() as tables:
            found = find_stored(tables, attempt.batch.batch_id)
            is_blocked = found.batch.state is BatchState.BLOCKED is not expected
            if is_blocked and found.batch.attempt == attempt.number:
                raise BatchBlockedError(f"{found.batch.label} is blocked.", batch_id=found.batch.batch_id)
            self._own(tables, attempt, expected)
            require_none_committing(tables, found.batch.pipeline, but=found.batch.batch_id)
            yield MemoryPublication(tables, attempt, self.protections, self.clock)
            self._lose_connection(CommitFault.BEFORE, attempt)
        self._lose_connection(CommitFault.AFTER, attempt)

    def _own(self, tables: Tables, attempt: Attempt, *expected: BatchState) -> StoredBatch:
        found = find_stored(tables, attempt.batch.batch_id)
        is_fenced = found.batch.attempt != attempt.number or found.batch.state not in expected
        if is_fenced and Protection.ATTEMPTS_FENCED in self.protections:
            raise fenced_by(found.batch, attempt)
        return found

    def _lose_connection(self, moment: CommitFault, attempt: Attempt) -> None:
        if self.commit_fault is moment:
            self.commit_fault = None
            raise OutcomeUnknownError(f"connection lost while {attempt.batch.label} was being committed.")


def _may_hold(one: TimedRange, published: Sequence[TimedRange], span: TimeSpan, within: Sequence[OffsetRange]) -> bool:
    """Whether a piece may have records of the span, or any of its range lies within the named ranges."""
    if intersect((each.range for each in published if each.whole == one.whole), within):
        return True
    if one.times is None:
        return one.records > 0
    return one.times.meets(span) or one.times.untimed > 0
