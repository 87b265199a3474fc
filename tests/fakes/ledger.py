"""The Ledger port in memory, with every refusal of the real one, and each refusal can be switched off.

A test that switches one off is a negative control: it shows what the refusal prevents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto

from batchledger.accounting import Balance
from batchledger.batch import (
    Attempt,
    Batch,
    BatchState,
    Decision,
    DecisionKind,
    DecisionRecord,
    HeldRange,
    Lane,
    Position,
    QuarantinedRecord,
    Staged,
    closed,
    fenced_by,
    never_published,
    paused_by,
    position_conflict,
    state_after_audit,
)
from batchledger.checking import CheckResult, Suite
from batchledger.effects import Effect, discarding, dropping, leaving_out
from batchledger.errors import (
    BatchBlockedError,
    OutcomeUnknownError,
    PlanOvertakenError,
    PositionConflictError,
    StagingLostError,
    TargetChangedError,
    UnknownBatchError,
)
from batchledger.offsets import OffsetRange, TopicPartition, count_offsets, find_gaps, intersect, merge_ranges
from batchledger.pacing import Pace
from batchledger.planning import Plan
from batchledger.ports import RecentBatch
from tests.fakes.database import MemoryDatabase, StoredBatch, StoredReplacement, Tables


class Protection(Enum):
    """A refusal, or a step of a publication, that keeps one invariant."""

    POSITIONS_COMPARED = auto()
    OVERLAPS_REFUSED = auto()
    BALANCE_REQUIRED = auto()
    ATTEMPTS_FENCED = auto()
    REPLACED_RELEASED = auto()


ALL_PROTECTIONS = frozenset(Protection)


class CommitFault(Enum):
    """When the connection is lost: before the database commits, or after it did and before it could say so."""

    BEFORE = auto()
    AFTER = auto()


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class MemoryLedger:
    """See the port. ``commit_fault`` strikes the next publication only."""

    database: MemoryDatabase
    protections: frozenset[Protection] = ALL_PROTECTIONS
    clock: Callable[[], datetime] = now
    commit_fault: CommitFault | None = None

    def load_positions(self, pipeline: str) -> Sequence[Position]:
        """See the port."""
        positions = self.database.committed.positions
        return [positions[key] for key in sorted(positions) if key[0] == pipeline]

    def seconds_since_published(self, pipeline: str) -> float | None:
        """See the port."""
        moments = [
            each.published_at
            for each in self.database.committed.batches.values()
            if each.batch.pipeline == pipeline and each.batch.lane is Lane.LIVE and each.published_at is not None
        ]
        return (self.clock() - max(moments)).total_seconds() if moments else None

    def load_paces(self, pipeline: str, limit: int) -> Sequence[Pace]:
        """See the port."""
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

    def load_recent(self, pipeline: str, limit: int) -> Sequence[RecentBatch]:
        """See the port."""
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

    def find_open_batch(self, pipeline: str) -> Batch | None:
        """See the port."""
        return find_open_batch(self.database.committed, pipeline)

    def load_batch(self, batch_id: int) -> Batch:
        """See the port."""
        return find_stored(self.database.committed, batch_id).batch

    def store_plan(self, pipeline: str, plan: Plan, run: str, decision: Decision | None = None) -> Batch:
        """See the port."""
        with self.database.transaction() as tables:
            _require_running(tables, pipeline)
            already_open = find_open_batch(tables, pipeline)
            if already_open is not None:
                return already_open
            for position in plan.first_positions:
                tables.positions.setdefault((pipeline, position.partition), position)
            if Protection.POSITIONS_COMPARED in self.protections:
                require_positions(tables, pipeline, plan.ranges, f"the plan of {pipeline}")
            batch = self._insert_batch(tables, pipeline, plan, run)
            if decision is not None:
                record_decision(tables, batch, DecisionKind.TRIGGER, decision, self.clock())
            return batch

    def store_replay(self, pipeline: str, plan: Plan, run: str, decision: Decision, key: str | None) -> Batch:
        """See the port."""
        with self.database.transaction() as tables:
            already_stored = None if key is None else _find_replay(tables, pipeline, key)
            if already_stored is not None:
                return already_stored
            if not plan.is_dry_run:
                _require_running(tables, pipeline)
            superseded = filter(plan.supersedes, _find_open_replays(tables, pipeline, run))
            for position in plan.first_positions:
                tables.positions.setdefault((pipeline, position.partition), position)
            batch = self._insert_batch(tables, pipeline, plan, run, key)
            for each in superseded:
                anew = Decision(decision.decided_by, f"asked anew: batch {batch.batch_id}")
                discard_batch(tables, each, anew, self.clock())
            record_decision(tables, batch, plan.request_kind, decision, self.clock(), leaving_out(plan.expired))
            return batch

    def find_open_replays(self, pipeline: str, run: str) -> Sequence[Batch]:
        """See the port."""
        return _find_open_replays(self.database.committed, pipeline, run)

    def note_expired(self, pipeline: str, expired: Sequence[OffsetRange], decision: Decision, key: str) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            effect = leaving_out(expired, key)
            noted = [each.after for each in tables.decisions.values() if each.pipeline == pipeline]
            if not any(after and after.get("request") == key for after in noted):
                record_decision(tables, pipeline, DecisionKind.REPLAY, decision, self.clock(), effect)

    def find_replay(self, pipeline: str, key: str) -> Batch | None:
        """See the port."""
        return _find_replay(self.database.committed, pipeline, key)

    def find_held(self, pipeline: str, ranges: Sequence[OffsetRange]) -> Sequence[HeldRange]:
        """See the port."""
        stored = [each for each in self.database.committed.batches.values() if each.batch.pipeline == pipeline]
        held = [HeldRange(one.batch.batch_id, each) for one in stored for each in intersect(one.held, ranges)]
        return sorted(held, key=lambda each: each.range)

    def find_published(self, batch: Batch) -> Sequence[HeldRange]:
        """See the port."""
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

    def find_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange] | None) -> Sequence[QuarantinedRecord]:
        """See the port."""
        return _find_quarantined(self.database.committed, pipeline, ranges)

    def drop_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange], decision: Decision) -> int:
        """See the port."""
        dropped = self.find_quarantined(pipeline, ranges)
        with self.database.transaction() as tables:
            for each in dropped:
                row = tables.quarantine.pop((pipeline, each.partition, each.offset))
                stored = tables.batches[row["batch_id"]]
                tables.batches[row["batch_id"]] = replace(stored, dropped=(*stored.dropped, each.range))
            if dropped:
                effect = dropping(merge_ranges(each.range for each in dropped))
                record_decision(tables, pipeline, DecisionKind.QUARANTINE_DROP, decision, self.clock(), effect)
        return len(dropped)

    def end_dry_run(self, batch_id: int) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            stored = find_stored(tables, batch_id)
            if stored.batch.is_dry_run:
                tables.batches[batch_id] = replace(stored, batch=replace(stored.batch, state=BatchState.DISCARDED))

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

    def store_first_positions(self, pipeline: str, positions: Sequence[Position]) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            for position in positions:
                tables.positions.setdefault((pipeline, position.partition), position)

    def note_held_back(self, pipeline: str, stable_offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            for key, position in tables.positions.items():
                at = stable_offset_by_partition.get(position.partition)
                if key[0] == pipeline and position.held_back_at != at:
                    since = None if at is None else self.clock()
                    tables.positions[key] = replace(position, held_back_at=at, held_back_since=since)

    def open_attempt(self, batch_id: int, run: str) -> Attempt:
        """See the port."""
        with self.database.transaction() as tables:
            stored = find_stored(tables, batch_id)
            found = stored.batch
            if found.state.is_final:
                raise closed(found, run)
            taken = replace(found, state=BatchState.PLANNED, attempt=found.attempt + 1, attempt_run=run)
            tables.batches[batch_id] = replace(
                stored, batch=taken, opened_at=self.clock(), reported_rows=None, balances=()
            )
            return Attempt(taken, taken.attempt, run)

    def mark_failed(self, attempt: Attempt, reason: str) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            tables.failures.setdefault((attempt.batch.batch_id, attempt.number), reason)

    def find_failure(self, batch: Batch) -> str | None:
        """See the port."""
        return self.database.committed.failures.get((batch.batch_id, batch.attempt))

    def mark_staged(self, attempt: Attempt, staged: Staged) -> None:
        """See the port."""
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, BatchState.PLANNED)
            batch = replace(found.batch, state=BatchState.STAGED)
            tables.batches[batch.batch_id] = replace(found, batch=batch, reported_rows=staged.reported_rows)

    def load_reported_rows(self, attempt: Attempt) -> int:
        """See the port."""
        found = find_stored(self.database.committed, attempt.batch.batch_id)
        if found.batch.attempt != attempt.number or found.reported_rows is None:
            raise fenced_by(found.batch, attempt)
        return found.reported_rows

    def record_audit(
        self,
        attempt: Attempt,
        balances: Sequence[Balance],
        checks: Sequence[CheckResult],
        expected: BatchState = BatchState.STAGED,
    ) -> Batch:
        """See the port."""
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, expected)
            batch = replace(found.batch, state=state_after_audit(checks))
            tables.batches[batch.batch_id] = replace(found, batch=batch, balances=tuple(balances))
            tables.checks[batch.batch_id, attempt.number] = tuple(checks)
            return batch

    def block(self, attempt: Attempt, refusal: CheckResult) -> Batch:
        """See the port."""
        with self.database.transaction() as tables:
            found = self._own(tables, attempt, BatchState.AUDITED)
            key = (attempt.batch.batch_id, attempt.number)
            others = [each for each in tables.checks.get(key, ()) if each.name != refusal.name]
            tables.checks[key] = (*others, refusal)
            tables.batches[key[0]] = replace(found, batch=replace(found.batch, state=BatchState.BLOCKED))
            return tables.batches[key[0]].batch

    def has_rows(self, batch_id: int) -> bool:
        """See the port."""
        return find_stored(self.database.committed, batch_id).has_rows

    def load_checks(self, batch_id: int) -> Sequence[CheckResult]:
        """See the port."""
        checks = self.database.committed.checks
        newest = max((number for of_batch, number in checks if of_batch == batch_id), default=0)
        return sorted(checks.get((batch_id, newest), ()), key=lambda check: (check.suite, check.name))

    @contextmanager
    def publication(self, attempt: Attempt, expected: BatchState = BatchState.AUDITED) -> Iterator["MemoryPublication"]:
        """See the port."""
        with self.database.transaction() as tables:
            found = find_stored(tables, attempt.batch.batch_id)
            if found.batch.state is BatchState.BLOCKED and found.batch.attempt == attempt.number:
                raise BatchBlockedError(f"{found.batch.label} is blocked.", batch_id=found.batch.batch_id)
            self._own(tables, attempt, expected)
            yield MemoryPublication(tables, attempt, self.protections, self.clock)
            self._lose_connection(CommitFault.BEFORE, attempt)
        self._lose_connection(CommitFault.AFTER, attempt)

    def _own(self, tables: Tables, attempt: Attempt, expected: BatchState) -> StoredBatch:
        found = find_stored(tables, attempt.batch.batch_id)
        is_fenced = found.batch.attempt != attempt.number or found.batch.state is not expected
        if is_fenced and Protection.ATTEMPTS_FENCED in self.protections:
            raise fenced_by(found.batch, attempt)
        return found

    def _lose_connection(self, moment: CommitFault, attempt: Attempt) -> None:
        if self.commit_fault is moment:
            self.commit_fault = None
            raise OutcomeUnknownError(f"connection lost while {attempt.batch.label} was being committed.")


@dataclass(frozen=True)
class MemoryPublication:
    """See the port. ``connection`` is the working copy of the tables."""

    connection: Tables
    attempt: Attempt
    protections: frozenset[Protection]
    clock: Callable[[], datetime]

    @property
    def accepted_rows(self) -> int:
        """See the port."""
        return sum(balance.accepted for balance in self._stored.balances)

    @property
    def duplicate_rows(self) -> int:
        """See the port."""
        return sum(balance.duplicates for balance in self._stored.balances)

    @property
    def _stored(self) -> StoredBatch:
        return self.connection.batches[self.attempt.batch.batch_id]

    def confirm_target(self, name: str, identity: str) -> None:
        """See the port."""
        pipeline = self.attempt.batch.pipeline
        owners = {target[1]: owner for owner, target in self.connection.target_by_pipeline.items()}
        if owners.get(identity, pipeline) != pipeline:
            raise TargetChangedError(f"table {name} belongs to another pipeline; {pipeline} published nothing.")
        earlier = self.connection.target_by_pipeline.setdefault(pipeline, (name, identity))
        if earlier[1] != identity:
            raise TargetChangedError(
                f"pipeline {pipeline} published to table {earlier[0]} ({earlier[1]}) before; {name} ({identity}) is "
                "another table.",
                expected=earlier[1],
                found=identity,
            )

    def advance_positions(self) -> None:
        """See the port."""
        batch = self.attempt.batch
        stored = {each: self.connection.positions.get((batch.pipeline, each.partition)) for each in batch.ranges}
        found = {each.partition: None if at is None else at.next_offset for each, at in stored.items()}
        is_moved = any(found[each.partition] != each.start for each in batch.ranges)
        if is_moved and Protection.POSITIONS_COMPARED in self.protections:
            raise position_conflict(batch, found)
        move_positions(self.connection, batch)

    def find_replaced(self) -> Sequence[HeldRange]:
        """See the port."""
        mine, found = self._stored, []
        for batch_id, other in self.connection.batches.items():
            if other.batch.pipeline != mine.batch.pipeline or batch_id == mine.batch.batch_id:
                continue
            is_replay = Lane.REPLAY in (mine.batch.lane, other.batch.lane)
            if is_replay or other.epoch < mine.epoch:
                found += [HeldRange(batch_id, each) for each in intersect(other.held, mine.batch.ranges)]
        return sorted(found, key=lambda each: each.range)

    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        """See the port."""
        return _find_quarantined(self.connection, self.attempt.batch.pipeline, self.attempt.batch.ranges)

    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
        """See the port."""
        batches, pipeline, mine = self.connection.batches, self._stored.batch.pipeline, self._stored.batch.batch_id
        batches[mine] = replace(self._stored, has_rows=False)
        for each, rows in zip(replaced, removed_rows, strict=True):
            other = batches[each.batch_id]
            if Protection.REPLACED_RELEASED in self.protections:
                batches[each.batch_id] = replace(other, held=tuple(find_gaps([each.range], within=other.held)))
            set_aside = [
                key
                for key in self.connection.quarantine
                if key[0] == pipeline and key[1] == each.range.partition and key[2] in each.range
            ]
            for key in set_aside:
                del self.connection.quarantine[key]
            listed = self.connection.duplicates.get(each.batch_id, {})
            left = {
                at: first for at, first in listed.items() if at[0] != each.range.partition or at[1] not in each.range
            }
            self.connection.duplicates[each.batch_id] = left
            self.connection.replacements[mine, each] = StoredReplacement(
                mine, each, rows, len(set_aside), len(listed) - len(left)
            )

    @property
    def holds_all_ranges(self) -> bool:
        """See the port."""
        return not find_gaps(self._stored.held, within=self._stored.batch.ranges)

    def publish_quarantine(self) -> None:
        """See the port."""
        batch = self.attempt.batch
        evidence = self.connection.evidence.get((batch.batch_id, self.attempt.number))
        staged = (
            {}
            if evidence is None
            else {
                (batch.pipeline, TopicPartition(row["topic"], row["partition"]), row["offset"]): row
                for row in evidence.quarantined
            }
        )
        accounted = sum(balance.quarantined for balance in self._stored.balances)
        if len(staged) != accounted:
            raise StagingLostError(
                f"{batch.label}: accounted for {accounted} quarantined records, found {len(staged)}."
            )
        self.connection.quarantine |= {key: {**row, "batch_id": batch.batch_id} for key, row in staged.items()}

    @property
    def has_rows(self) -> bool:
        """See the port."""
        return self._stored.has_rows

    def mark_rows(self) -> None:
        """See the port."""
        self.connection.batches[self.attempt.batch.batch_id] = replace(self._stored, has_rows=True)

    def mark_published(self) -> None:
        """See the port."""
        stored = self._stored
        if stored.batch.is_dry_run:
            raise never_published(stored.batch)
        if Protection.BALANCE_REQUIRED in self.protections:
            _require_balance(stored)
        if Protection.OVERLAPS_REFUSED in self.protections:
            _require_disjoint(self.connection, stored.batch)
        batch = replace(stored.batch, state=BatchState.PUBLISHED)
        self.connection.batches[batch.batch_id] = replace(
            stored, batch=batch, published_at=self.clock(), held=batch.ranges
        )
        self.connection.failures.pop((batch.batch_id, batch.attempt), None)


def find_open_batch(tables: Tables, pipeline: str) -> Batch | None:
    for stored in tables.batches.values():
        if stored.batch.pipeline == pipeline and stored.batch.lane is Lane.LIVE and not stored.batch.state.is_final:
            return stored.batch
    return None


def _find_open_replays(tables: Tables, pipeline: str, run: str) -> list[Batch]:
    return [
        each.batch
        for each in tables.batches.values()
        if (each.batch.pipeline, each.planned_by, each.batch.lane) == (pipeline, run, Lane.REPLAY)
        and not each.batch.state.is_final
    ]


def _find_quarantined(
    tables: Tables, pipeline: str, ranges: Sequence[OffsetRange] | None
) -> Sequence[QuarantinedRecord]:
    return [
        QuarantinedRecord(partition, offset, len(row["key"] or b"") + len(row["value"] or b""))
        for (owner, partition, offset), row in sorted(tables.quarantine.items(), key=lambda item: item[0])
        if owner == pipeline
        and (ranges is None or any(each.partition == partition and offset in each for each in ranges))
    ]


def _find_replay(tables: Tables, pipeline: str, key: str) -> Batch | None:
    for stored in tables.batches.values():
        if stored.batch.pipeline == pipeline and stored.request_key == key:
            return stored.batch
    return None


def find_stored(tables: Tables, batch_id: int) -> StoredBatch:
    if batch_id not in tables.batches:
        raise UnknownBatchError(f"the ledger holds no batch {batch_id}.")
    return tables.batches[batch_id]


def move_positions(tables: Tables, batch: Batch) -> None:
    for each in batch.ranges:
        key = (batch.pipeline, each.partition)
        tables.positions[key] = replace(tables.positions[key], next_offset=each.until)


def require_positions(tables: Tables, pipeline: str, ranges: Sequence[OffsetRange], what: str) -> None:
    found = {each.partition: tables.positions.get((pipeline, each.partition)) for each in ranges}
    moved = [
        f"{each.partition} expected {each.start}, found {None if at is None else at.next_offset}"
        for each in ranges
        if (at := found[each.partition]) is None or at.next_offset != each.start
    ]
    if moved:
        raise PlanOvertakenError(f"{what} does not start at the stored position: {'; '.join(moved)}.", moved=moved)


def record_decision(
    tables: Tables,
    subject: Batch | str,
    kind: DecisionKind,
    decision: Decision,
    at: datetime,
    effect: Effect | None = None,
) -> DecisionRecord:
    pipeline, batch_id = (subject, None) if isinstance(subject, str) else (subject.pipeline, subject.batch_id)
    number = max(tables.decisions, default=0) + 1
    before, after = (effect.before, effect.after) if effect else (None, None)
    record = DecisionRecord(
        number, kind.value, pipeline, batch_id, decision.decided_by, decision.reason, at, before, after
    )
    tables.decisions[number] = record
    return record


def discard_batch(tables: Tables, batch: Batch, decision: Decision, at: datetime) -> DecisionRecord:
    stored = find_stored(tables, batch.batch_id)
    tables.batches[batch.batch_id] = replace(stored, batch=replace(stored.batch, state=BatchState.DISCARDED))
    return record_decision(tables, batch, DecisionKind.DISCARD, decision, at, discarding(batch))


def _require_running(tables: Tables, pipeline: str) -> None:
    if pipeline in tables.pauses:
        raise paused_by(tables.pauses[pipeline])


def _require_balance(stored: StoredBatch) -> None:
    closed = {balance.range for balance in stored.balances if balance.is_closed}
    if closed != set(stored.batch.ranges):
        raise BatchBlockedError(f"{stored.batch.label}: the balance does not close.")


def _require_disjoint(tables: Tables, batch: Batch) -> None:
    epoch = tables.batches[batch.batch_id].epoch
    for other in tables.batches.values():
        if other.batch.pipeline != batch.pipeline or other.batch.state is not BatchState.PUBLISHED:
            continue
        is_same_lane = other.batch.lane is batch.lane is Lane.LIVE and other.epoch == epoch
        for mine in batch.ranges:
            for theirs in other.batch.ranges if is_same_lane else other.held:
                if mine.intersects(theirs):
                    raise PositionConflictError(f"{batch.label}: {mine} overlaps {theirs} of {other.batch.label}.")
