"""The Publication port in memory. Each refusal can be switched off: a negative control shows what it prevents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto

from typing_extensions import override

from batchledger.model.batch import Attempt, Batch, BatchState, HeldRange, Lane, QuarantinedRecord
from batchledger.model.claims import TargetClaim
from batchledger.model.counting import describe_count
from batchledger.model.errors import BatchBlockedError, PositionConflictError, StagingLostError
from batchledger.model.offsets import TopicPartition, find_gaps, intersect
from batchledger.model.refusals import fenced_by, never_published, position_conflict
from batchledger.ports import Publication, RowsToPublish
from tests.fakes.database import StoredBatch, StoredReplacement, Tables
from tests.fakes.stored import find_quarantined, move_positions


class Protection(Enum):
    """A refusal, or a step of a publication, that keeps one invariant."""

    POSITIONS_COMPARED = auto()
    OVERLAPS_REFUSED = auto()
    BALANCE_REQUIRED = auto()
    ATTEMPTS_FENCED = auto()
    REPLACED_RELEASED = auto()


ALL_PROTECTIONS = frozenset(Protection)


@dataclass(frozen=True)
class MemoryPublication(Publication):
    """``connection`` is the working copy of the tables."""

    connection: Tables
    attempt: Attempt
    protections: frozenset[Protection]
    clock: Callable[[], datetime]

    @override
    def load(self) -> RowsToPublish:
        """Nothing in memory is ever restored."""
        balances = self._stored.balances
        return RowsToPublish(
            self.connection,
            self.attempt,
            sum(each.accepted for each in balances),
            sum(each.duplicates for each in balances),
            self._find_replaced(),
            self._stored.has_rows,
            not find_gaps(self._stored.held, within=self._stored.batch.ranges),
        )

    @property
    def _stored(self) -> StoredBatch:
        return self.connection.batches[self.attempt.batch.batch_id]

    @contextmanager
    @override
    def rehearsal(self) -> Iterator["MemoryPublication"]:
        yield replace(self, connection=self.connection.copy())

    @override
    def check_target(self, claim: TargetClaim) -> None:
        claim.require_granted(self.attempt.batch.pipeline, self.connection.target_by_pipeline)

    @override
    def confirm_target(self, claim: TargetClaim) -> None:
        pipeline, targets = self.attempt.batch.pipeline, self.connection.target_by_pipeline
        targets[pipeline] = claim.require_there(pipeline, targets)

    @override
    def mark_ledger(self) -> None:
        """Never asked for."""

    @override
    def advance_positions(self) -> None:
        batch = self.attempt.batch
        stored = {each: self.connection.positions.get((batch.pipeline, each.partition)) for each in batch.ranges}
        found = {each.partition: None if at is None else at.next_offset for each, at in stored.items()}
        is_moved = any(found[each.partition] != each.start for each in batch.ranges)
        if is_moved and Protection.POSITIONS_COMPARED in self.protections:
            raise position_conflict(batch, found)
        move_positions(self.connection, batch)

    def _find_replaced(self) -> Sequence[HeldRange]:
        mine, found = self._stored, []
        for batch_id, other in self.connection.batches.items():
            if other.batch.pipeline != mine.batch.pipeline or batch_id == mine.batch.batch_id:
                continue
            is_replay = Lane.REPLAY in (mine.batch.lane, other.batch.lane)
            if is_replay or other.epoch < mine.epoch:
                found += [HeldRange(batch_id, each) for each in intersect(other.held, mine.batch.ranges)]
        return sorted(found, key=lambda each: each.range)

    @override
    def find_quarantined(self) -> Sequence[QuarantinedRecord]:
        return find_quarantined(self.connection, self.attempt.batch.pipeline, self.attempt.batch.ranges)

    @override
    def take_over(self, replaced: Sequence[HeldRange], removed_rows: Sequence[int]) -> None:
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
            self.connection.replacements[mine, each] = StoredReplacement(mine, each, rows, len(set_aside))

    @override
    def publish_quarantine(self) -> None:
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
                f"The staged quarantine of {batch.label} has changed since its audit. Nothing was published.",
                why=f"The audit accounted for {describe_count(accounted, 'record')}, staging holds {len(staged)}.",
            )
        self.connection.quarantine |= {key: {**row, "batch_id": batch.batch_id} for key, row in staged.items()}

    @override
    def mark_rows(self) -> None:
        self.connection.batches[self.attempt.batch.batch_id] = replace(self._stored, has_rows=True)

    @override
    def announce(self, ends: Sequence[int] = ()) -> None:
        stored = self._stored
        first = stored.batch.announced_ends or tuple(ends) or None
        batch = replace(stored.batch, state=BatchState.COMMITTING, announced_ends=first)
        self.connection.batches[batch.batch_id] = replace(stored, batch=batch)

    @override
    def revoke(self) -> None:
        stored = self._stored
        if stored.batch.attempt_run != self.attempt.run:
            raise fenced_by(stored.batch, self.attempt)
        batch = replace(stored.batch, state=BatchState.AUDITED)
        self.connection.batches[batch.batch_id] = replace(stored, batch=batch)

    @override
    def mark_published(self) -> None:
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


def _require_balance(stored: StoredBatch) -> None:
    closed = {balance.range for balance in stored.balances if balance.is_closed}
    if closed != set(stored.batch.ranges):
        raise BatchBlockedError(f"{stored.batch.label}: the balance does not close.", batch_id=stored.batch.batch_id)


def _require_disjoint(tables: Tables, batch: Batch) -> None:
    epoch = tables.batches[batch.batch_id].epoch
    for other in tables.batches.values():
        if other.batch.pipeline != batch.pipeline or other.batch.state is not BatchState.PUBLISHED:
            continue
        is_same_lane = other.batch.lane is batch.lane is Lane.LIVE and other.epoch == epoch
        for mine in batch.ranges:
            for theirs in other.batch.ranges if is_same_lane else other.held:
                if intersect([mine], [theirs]):
                    raise PositionConflictError(f"{batch.label}: {mine} overlaps {theirs} of {other.batch.label}.")
