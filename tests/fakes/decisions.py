"""The Decisions port in memory, with every refusal of the real one."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from typing_extensions import override

from batchledger.model import effects
from batchledger.model.balance import Balance, give_up_unexplained
from batchledger.model.batch import (
    Attempt,
    Batch,
    BatchState,
    Decided,
    Decision,
    DecisionKind,
    DecisionRecord,
    Lane,
    Position,
    Target,
)
from batchledger.model.claims import TargetClaim
from batchledger.model.erasure import ErasureKey, Holding, describe_doubtful, find_holding
from batchledger.model.offsets import OffsetRange, TopicPartition, find_gaps, intersect, merge_ranges
from batchledger.model.pauses import is_retired, never_planned, require_settled
from batchledger.model.refusals import (
    adopted_by_another,
    closed,
    fenced_by,
    nothing_to_adopt,
    published_already,
    rows_visible,
    staging_may_hold,
    still_held,
)
from batchledger.model.requests import VALID_FOR, ended_already
from batchledger.planning.rewind import ResolvedRewind, require_checked, require_present
from batchledger.ports import Decisions, EraseRows, TargetAccess, Truncate
from tests.fakes.database import MemoryDatabase, StoredBatch, Tables
from tests.fakes.incidents import end_incidents
from tests.fakes.ledger import now
from tests.fakes.stored import (
    discard_batch,
    find_end,
    find_open_batch,
    find_stored,
    move_positions,
    record_decision,
    require_none_committing,
    require_positions,
)


@dataclass(frozen=True)
class MemoryDecisions(Decisions):
    database: MemoryDatabase
    is_kept: bool = True
    clock: Callable[[], datetime] = now

    @property
    @override
    def rehearsal(self) -> "MemoryDecisions":
        return replace(self, is_kept=False)

    @override
    def load_epoch(self, pipeline: str) -> int:
        return self.database.committed.epochs.get(pipeline, 0)

    @override
    def load_held(self, pipeline: str) -> Sequence[OffsetRange]:
        return sorted(_held(self.database.committed, pipeline))

    @override
    def load_balances(self, batch_id: int) -> Sequence[Balance]:
        return find_stored(self.database.committed, batch_id).balances

    @override
    def load_decisions(self, batch_id: int) -> Sequence[DecisionRecord]:
        return [each for each in self.database.committed.decisions.values() if each.batch_id == batch_id]

    @override
    def request(
        self,
        pipeline: str,
        order: Mapping[str, Any],
        decision: Decision,
        effect: effects.Effect,
        batch_id: int | None = None,
    ) -> Decided:
        with self._decide() as tables:
            for each in tables.decisions.values():
                is_open = find_end(tables, each.decision_id) is None and self.clock() < each.decided_at + VALID_FOR
                asks_the_same = (each.requested_order, each.before, each.after) == (order, effect.before, effect.after)
                if each.pipeline == pipeline and is_open and asks_the_same:
                    return Decided(each, is_new=False)
            subject = pipeline if batch_id is None else find_stored(tables, batch_id).batch
            kind = DecisionKind.REQUEST
            return Decided(record_decision(tables, subject, kind, decision, self.clock(), effect, order=order))

    @override
    def find_end(self, request_id: int) -> DecisionRecord | None:
        return find_end(self.database.committed, request_id)

    @override
    def withdraw(self, request: DecisionRecord, decision: Decision) -> Decided:
        with self._decide() as tables:
            end = find_end(tables, request.decision_id)
            if end is not None and end.kind != DecisionKind.WITHDRAW:
                raise ended_already(request, end)
            if end is not None:
                return Decided(end, is_new=False)
            subject = request.pipeline if request.batch_id is None else find_stored(tables, request.batch_id).batch
            named = replace(decision, request_id=request.decision_id)
            return Decided(record_decision(tables, subject, DecisionKind.WITHDRAW, named, self.clock()))

    @override
    def find_pause(self, pipeline: str) -> DecisionRecord | None:
        return self.database.committed.pauses.get(pipeline)

    @override
    def find_given_up(self, pipeline: str, ranges: Sequence[OffsetRange], kind: DecisionKind) -> DecisionRecord | None:
        return _find_given_up(self.database.committed, pipeline, ranges, kind)

    @override
    def give_up(
        self,
        pipeline: str,
        ranges: Sequence[OffsetRange],
        kind: DecisionKind,
        decision: Decision,
        *,
        first_positions: Sequence[Position] = (),
        discard: int | None = None,
    ) -> Decided:
        with self._decide() as tables:
            standing = _find_given_up(tables, pipeline, ranges, kind)
            if standing is not None:
                return Decided(standing, is_new=False)
            concerned = find_open_batch(tables, pipeline)
            if concerned and not {r.partition for r in concerned.ranges} & {r.partition for r in ranges}:
                concerned = None
            if concerned is not None:
                if find_stored(tables, concerned.batch_id).has_rows and concerned.batch_id != discard:
                    raise rows_visible(concerned)
                if concerned.state is not BatchState.PLANNED and concerned.batch_id != discard:
                    raise still_held(concerned)
                discard_batch(tables, concerned, decision, self.clock())
            for position in first_positions:
                tables.positions.setdefault((pipeline, position.partition), position)
            require_positions(tables, pipeline, ranges)
            batch = self._insert_given_up(tables, pipeline, ranges)
            move_positions(tables, batch)
            effect = effects.giving_up(ranges) | effects.discarding_too(concerned)
            return Decided(record_decision(tables, batch, kind, decision, self.clock(), effect))

    @override
    def accept(self, attempt: Attempt, decision: Decision) -> Decided:
        with self._decide() as tables:
            stored = find_stored(tables, attempt.batch.batch_id)
            is_between_commits = stored.batch.state is BatchState.AUDITED and stored.has_rows
            is_acceptable = stored.batch.state is BatchState.BLOCKED or is_between_commits
            if stored.batch.attempt != attempt.number or not is_acceptable:
                raise fenced_by(stored.batch, attempt)
            accepted = give_up_unexplained(stored.balances)
            batch = replace(stored.batch, state=BatchState.AUDITED)
            tables.batches[batch.batch_id] = replace(stored, batch=batch, balances=accepted)
            effect = effects.accepting(stored.batch, stored.balances, accepted)
            return Decided(record_decision(tables, batch, DecisionKind.ACCEPT, decision, self.clock(), effect))

    @override
    def trigger(self, batch_id: int, decision: Decision) -> Decided:
        with self._decide() as tables:
            batch = find_stored(tables, batch_id).batch
            if batch.state.is_final:
                return Decided(None, is_new=False)
            for each in tables.decisions.values():
                is_trigger = (each.batch_id, each.kind) == (batch_id, DecisionKind.TRIGGER)
                if is_trigger and Decision(each.decided_by, each.reason) == decision:
                    return Decided(each, is_new=False)
            return Decided(record_decision(tables, batch, DecisionKind.TRIGGER, decision, self.clock()))

    @override
    def discard(self, batch_id: int, decision: Decision) -> Decided:
        with self._decide() as tables:
            stored = find_stored(tables, batch_id)
            if stored.batch.state is BatchState.DISCARDED:
                return Decided(_newest(tables, batch_id, DecisionKind.DISCARD), is_new=False)
            if stored.batch.state is BatchState.PUBLISHED:
                raise published_already(stored.batch)
            if stored.has_rows:
                raise rows_visible(stored.batch)
            return Decided(discard_batch(tables, stored.batch, decision, self.clock()))

    @override
    def retake(self, batch_id: int, run: str, decision: Decision) -> Decided:
        with self._decide() as tables:
            batch = find_stored(tables, batch_id).batch
            if batch.state.is_final:
                raise closed(batch, run)
            for each in tables.decisions.values():
                if (
                    (each.batch_id, each.kind) == (batch_id, DecisionKind.RETRY)
                    and each.after
                    and each.after["run"] == run
                ):
                    return Decided(each, is_new=False)
            effect = effects.retaking(batch, run)
            return Decided(record_decision(tables, batch, DecisionKind.RETRY, decision, self.clock(), effect))

    @override
    def rewind(
        self, pipeline: str, rewind: ResolvedRewind, decision: Decision, truncate: Truncate | None = None
    ) -> Decided:
        offsets = rewind.next_offset_by_partition
        with self._decide() as tables:
            positions = {key[1]: each for key, each in tables.positions.items() if key[0] == pipeline}
            found = {partition: each.next_offset for partition, each in positions.items()}
            is_there = all(found.get(each) == offset for each, offset in offsets.items())
            open_batch = find_open_batch(tables, pipeline)
            has_visible_rows = open_batch is not None and find_stored(tables, open_batch.batch_id).has_rows
            if is_there and not (truncate and (_held(tables, pipeline) or has_visible_rows)):
                return Decided(None, is_new=False)
            require_present(pipeline, rewind, tables.epochs.get(pipeline, 0), found)
            if open_batch is not None:
                if truncate is None and has_visible_rows:
                    raise rows_visible(open_batch)
                discard_batch(tables, open_batch, decision, self.clock())
            effect = effects.opening_epoch(rewind.epoch) | effects.moving(found, offsets)
            if truncate is not None:
                require_checked(pipeline, rewind, _held(tables, pipeline))
                effect |= effects.emptying(_truncate(tables, pipeline, truncate), rewind.given_up)
            tables.epochs[pipeline] = rewind.epoch + 1
            for partition, each in positions.items():
                back = offsets.get(partition, each.next_offset)
                tables.positions[pipeline, partition] = replace(
                    each, next_offset=back, rewound_to=back, origin_offset=min(back, each.origin_offset)
                )
            effect |= effects.discarding_too(open_batch)
            return Decided(record_decision(tables, pipeline, DecisionKind.REWIND, decision, self.clock(), effect))

    @override
    def adopt_target(self, pipeline: str, target: Target, decision: Decision, proof: effects.Effect) -> Decided:
        with self._decide() as tables:
            if pipeline not in tables.target_by_pipeline:
                raise nothing_to_adopt(pipeline)
            before = tables.target_by_pipeline[pipeline]
            if before == target:
                return Decided(None, is_new=False)
            if target.identity in {each.identity for each in tables.target_by_pipeline.values()}:
                raise adopted_by_another(pipeline, target)
            tables.target_by_pipeline[pipeline] = target
            effect = effects.adopting(before, target) | proof
            return Decided(record_decision(tables, pipeline, DecisionKind.ADOPT_TARGET, decision, self.clock(), effect))

    @override
    def pause(self, pipeline: str, decision: Decision) -> Decided:
        with self._decide() as tables:
            standing = tables.pauses.get(pipeline)
            if standing is not None:
                return Decided(standing, is_new=False)
            effect = effects.pausing()
            record = record_decision(tables, pipeline, DecisionKind.PAUSE, decision, self.clock(), effect)
            tables.pauses[pipeline] = record
            return Decided(record)

    @override
    def resume(self, pipeline: str, decision: Decision) -> Decided:
        with self._decide() as tables:
            standing = tables.pauses.pop(pipeline, None)
            if standing is None:
                return Decided(None, is_new=False)
            effect = effects.ending(standing)
            return Decided(record_decision(tables, pipeline, DecisionKind.RESUME, decision, self.clock(), effect))

    @override
    def retire(
        self, pipeline: str, decision: Decision, *, discard: Collection[int] = (), free_target: bool = False
    ) -> Decided:
        with self._decide() as tables:
            mine = [each for each in tables.batches.values() if each.batch.pipeline == pipeline]
            if not mine and not any(name == pipeline for name, _ in tables.positions):
                raise never_planned(pipeline)
            freed = tables.target_by_pipeline.get(pipeline) if free_target else None
            standing = tables.pauses.get(pipeline)
            still_open = [each for each in mine if not each.batch.state.is_final]
            require_settled(pipeline, [each.batch for each in still_open], discard, standing)
            if is_retired(standing) and freed is None:
                return Decided(standing, is_new=False)
            for each in still_open:
                if each.has_rows:
                    raise rows_visible(each.batch)
                discard_batch(tables, each.batch, decision, self.clock())
            effect = effects.retiring([each.batch for each in still_open], freed)
            record = record_decision(tables, pipeline, DecisionKind.RETIRE, decision, self.clock(), effect)
            tables.pauses[pipeline] = record
            if freed is not None:
                del tables.target_by_pipeline[pipeline]
            end_incidents(tables, pipeline, "the pipeline is retired", record.decided_at)
            return Decided(record)

    @override
    def rename(self, pipeline: str, to: str, decision: Decision) -> Decided:
        """Only the database knows which of its tables name a pipeline."""
        raise NotImplementedError

    @override
    def drop_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange], decision: Decision) -> Decided:
        with self._decide() as tables:
            require_none_committing(tables, pipeline)
            dropped = _drop(tables, pipeline, ranges)
            if not dropped:
                return Decided(None, is_new=False)
            effect = effects.dropping(merge_ranges(dropped))
            kind = DecisionKind.QUARANTINE_DROP
            return Decided(record_decision(tables, pipeline, kind, decision, self.clock(), effect))

    @override
    def erase(self, pipeline: str, key: ErasureKey, decision: Decision, erase: EraseRows) -> Decided:
        with self._decide() as tables:
            for stored in tables.batches.values():
                if stored.batch.pipeline == pipeline and not stored.batch.state.is_final:
                    raise staging_may_hold(stored.batch)
            erased = erase(MemoryTarget(tables, pipeline))
            found: dict[Holding, list[OffsetRange]] = {each: [] for each in Holding}
            for place, row in tables.quarantine.items():
                if place[0] == pipeline:
                    parts = (row["key"], row["value"], row["headers"])
                    found[find_holding(key, erased.type_by_column, *parts)].append(_place(place))
            dropped, doubtful = merge_ranges(found[Holding.YES]), merge_ranges(found[Holding.PERHAPS])
            _drop(tables, pipeline, dropped)
            warning = describe_doubtful(pipeline, doubtful)
            if not (erased.is_anything or dropped):
                return Decided(None, is_new=False, warning=warning)
            effect = effects.erasing(erased.rows, erased.remembered_keys, dropped, key.columns)
            record = record_decision(tables, pipeline, DecisionKind.ERASE, decision, self.clock(), effect)
            return Decided(record, warning=warning)

    @contextmanager
    def _decide(self) -> Iterator[Tables]:
        database = self.database if self.is_kept else MemoryDatabase(self.database.committed)
        with database.transaction() as tables:
            yield tables

    def _insert_given_up(self, tables: Tables, pipeline: str, ranges: Sequence[OffsetRange]) -> Batch:
        batch = Batch(
            batch_id=max(tables.batches, default=0) + 1,
            pipeline=pipeline,
            lane=Lane.LIVE,
            state=BatchState.PUBLISHED,
            attempt=0,
            attempt_run=None,
            ranges=tuple(sorted(ranges)),
            lag_left_records=0,
            planned_at=self.clock(),
        )
        tables.batches[batch.batch_id] = StoredBatch(
            batch,
            balances=tuple(Balance(each, accepted_loss=len(each)) for each in batch.ranges),
            published_at=self.clock(),
            held=tuple(find_gaps(_held(tables, pipeline), within=batch.ranges)),
            epoch=tables.epochs.get(pipeline, 0),
        )
        return batch


@dataclass(frozen=True)
class MemoryTarget(TargetAccess):
    connection: Tables
    pipeline: str

    @override
    def confirm_target(self, claim: TargetClaim) -> None:
        claim.require_there(self.pipeline, self.connection.target_by_pipeline)

    @override
    def forget_target(self) -> None:
        del self.connection.target_by_pipeline[self.pipeline]


def _truncate(tables: Tables, pipeline: str, truncate: Truncate) -> int:
    rows = truncate(MemoryTarget(tables, pipeline)) if pipeline in tables.target_by_pipeline else 0
    for batch_id, stored in tables.batches.items():
        if stored.batch.pipeline == pipeline:
            tables.batches[batch_id] = replace(stored, held=())
    tables.quarantine = {key: row for key, row in tables.quarantine.items() if key[0] != pipeline}
    return rows


def _drop(tables: Tables, pipeline: str, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Remove records from quarantine, note it in their batches, and return the offset of each."""
    named = [each for each in tables.quarantine if each[0] == pipeline and intersect(ranges, [_place(each)])]
    for key in named:
        batch_id = tables.quarantine.pop(key)["batch_id"]
        stored = tables.batches[batch_id]
        tables.batches[batch_id] = replace(stored, dropped=(*stored.dropped, _place(key)))
    return [_place(each) for each in named]


def _place(key: tuple[str, TopicPartition, int]) -> OffsetRange:
    _, partition, offset = key
    return OffsetRange(partition, offset, offset + 1)


def _held(tables: Tables, pipeline: str) -> list[OffsetRange]:
    return [each for stored in tables.batches.values() if stored.batch.pipeline == pipeline for each in stored.held]


def _newest(tables: Tables, batch_id: int, kind: DecisionKind) -> DecisionRecord | None:
    found = [each for each in tables.decisions.values() if (each.batch_id, each.kind) == (batch_id, kind)]
    return found[-1] if found else None


def _find_given_up(
    tables: Tables, pipeline: str, ranges: Sequence[OffsetRange], kind: DecisionKind
) -> DecisionRecord | None:
    epoch = tables.epochs.get(pipeline, 0)
    for batch_id, stored in tables.batches.items():
        is_of_epoch = stored.batch.pipeline == pipeline and stored.epoch == epoch
        if is_of_epoch and stored.batch.state is BatchState.PUBLISHED and set(stored.batch.ranges) == set(ranges):
            found = _newest(tables, batch_id, kind)
            if found is not None:
                return found
    return None
