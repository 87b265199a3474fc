"""The Decisions port on PostgreSQL: what a person changes, in one transaction with the record of who, why and what.

Keeps I1, I2 and I4 for decisions as the ledger does for runs. It locks the pipeline's row first, then the batch's, so
that a decision comes before a publication or after it. Under these locks it compares the state, the attempt, the
position or the epoch that the decision was made for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from typing_extensions import override

from batchledger.database.transactions import ranges_as_arrays, read_statement
from batchledger.ledger.erasures import drop_held, drop_left, forget_quoted, require_none_open
from batchledger.ledger.publication import PostgresTargetAccess, discard_batch
from batchledger.ledger.renaming import rename_pipeline
from batchledger.ledger.requests import add_request, find_end, withdraw_request
from batchledger.ledger.retiring import retire_pipeline
from batchledger.ledger.rewinding import holds_anything, offsets_as_arrays, read_epoch, read_held, truncate_target
from batchledger.ledger.rows import (
    Cursor,
    find_batch,
    find_pause,
    has_rows,
    insert_decision,
    insert_positions,
    insert_ranges,
    list_decisions,
    load_batch,
    lock_pipeline,
    read_positions,
    read_targets,
    require_none_committing,
    store_balances,
    store_target,
)
from batchledger.ledger.schema import owners_transaction, transaction
from batchledger.ledger.totals import add_to_totals
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
    Position,
    Target,
)
from batchledger.model.effects import Effect
from batchledger.model.erasure import ErasureKey, describe_doubtful
from batchledger.model.offsets import OffsetRange, TopicPartition, merge_ranges, single_offset
from batchledger.model.refusals import (
    adopted_by_another,
    closed,
    fenced_by,
    nothing_to_adopt,
    published_already,
    rows_visible,
    still_held,
)
from batchledger.planning.rewind import ResolvedRewind, require_checked, require_present
from batchledger.ports import Decisions, EraseRows, Truncate


@dataclass(frozen=True)
class PostgresDecisions(Decisions):
    """``is_kept`` is False in a rehearsal."""

    dsn: str = field(repr=False)
    is_kept: bool = True

    @property
    @override
    def rehearsal(self) -> "PostgresDecisions":
        return replace(self, is_kept=False)

    @override
    def load_epoch(self, pipeline: str) -> int:
        with transaction(self.dsn, f"read the epoch of {pipeline}") as cursor:
            return read_epoch(cursor, pipeline)

    @override
    def load_held(self, pipeline: str) -> Sequence[OffsetRange]:
        with transaction(self.dsn, f"read what the batches of {pipeline} hold") as cursor:
            return read_held(cursor, pipeline)

    @override
    def load_balances(self, batch_id: int) -> Sequence[Balance]:
        with transaction(self.dsn, f"load the balance of batch {batch_id}") as cursor:
            return _read_balances(cursor, batch_id)

    @override
    def request(
        self, pipeline: str, order: Mapping[str, Any], decision: Decision, effect: Effect, batch_id: int | None = None
    ) -> Decided:
        with self._decide(f"ask for {order['kind']} of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            subject = pipeline if batch_id is None else load_batch(cursor, batch_id)
            return add_request(cursor, subject, order, decision, effect)

    @override
    def find_end(self, request_id: int) -> DecisionRecord | None:
        with transaction(self.dsn, f"look whether request {request_id} is open") as cursor:
            return find_end(cursor, request_id)

    @override
    def withdraw(self, request: DecisionRecord, decision: Decision) -> Decided:
        with self._decide(f"withdraw request {request.decision_id} of {request.pipeline}") as cursor:
            lock_pipeline(cursor, request.pipeline)
            return withdraw_request(cursor, request, decision)

    @override
    def find_pause(self, pipeline: str) -> DecisionRecord | None:
        with transaction(self.dsn, f"look whether {pipeline} is paused") as cursor:
            return find_pause(cursor, pipeline)

    @override
    def load_decisions(self, batch_id: int) -> Sequence[DecisionRecord]:
        with transaction(self.dsn, f"load the decisions about batch {batch_id}") as cursor:
            return list_decisions(cursor, batch_id=batch_id)[::-1]

    @override
    def find_given_up(self, pipeline: str, ranges: Sequence[OffsetRange], kind: DecisionKind) -> DecisionRecord | None:
        with transaction(self.dsn, f"look for a decision about {pipeline}") as cursor:
            return _find_given_up(cursor, pipeline, ranges, kind)

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
        with self._decide(f"record the {kind} of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            standing = _find_given_up(cursor, pipeline, ranges, kind)
            if standing is not None:
                return Decided(standing, is_new=False)
            concerned = _find_open(cursor, pipeline, ranges)
            if concerned is not None:
                if has_rows(cursor, concerned.batch_id) and concerned.batch_id != discard:
                    raise rows_visible(concerned)
                if concerned.state is not BatchState.PLANNED and concerned.batch_id != discard:
                    raise still_held(concerned)
                discard_batch(cursor, concerned, decision)
            insert_positions(cursor, pipeline, first_positions)
            cursor.execute(
                "insert into batchledger.batch "
                "(pipeline, lane, state, lag_left_records, planned_by, published_rows, published_at) "
                "values (%s, 'live', 'published', 0, %s, 0, clock_timestamp()) returning batch_id",
                [pipeline, decision.decided_by],
            )
            batch_id = cursor.fetchall()[0][0]
            insert_ranges(cursor, pipeline, batch_id, ranges)
            store_balances(cursor, batch_id, [Balance(each, accepted_loss=len(each)) for each in ranges])
            cursor.execute(read_statement(__package__, "advance_positions"), {"batch_id": batch_id})
            cursor.execute(read_statement(__package__, "hold_unheld"), {"batch_id": batch_id})
            add_to_totals(cursor, batch_id)
            effect = effects.giving_up(ranges) | effects.discarding_too(concerned)
            return Decided(insert_decision(cursor, load_batch(cursor, batch_id), kind, decision, effect))

    @override
    def accept(self, attempt: Attempt, decision: Decision) -> Decided:
        with self._decide(f"accept {attempt.batch.label}") as cursor:
            batch = _lock_batch(cursor, attempt.batch.batch_id)
            is_between_commits = batch.state is BatchState.AUDITED and has_rows(cursor, batch.batch_id)
            if batch.attempt != attempt.number or not (batch.state is BatchState.BLOCKED or is_between_commits):
                raise fenced_by(batch, attempt)
            balances = _read_balances(cursor, batch.batch_id)
            accepted = give_up_unexplained(balances)
            store_balances(cursor, batch.batch_id, accepted)
            cursor.execute("update batchledger.batch set state = 'audited' where batch_id = %s", [batch.batch_id])
            effect = effects.accepting(batch, balances, accepted)
            return Decided(insert_decision(cursor, batch, DecisionKind.ACCEPT, decision, effect))

    @override
    def trigger(self, batch_id: int, decision: Decision) -> Decided:
        with self._decide(f"record who triggered batch {batch_id}") as cursor:
            batch = _lock_batch(cursor, batch_id)
            if batch.state.is_final:
                return Decided(None, is_new=False)
            for each in list_decisions(cursor, batch_id=batch_id, kind=DecisionKind.TRIGGER):
                if each.decision == decision:
                    return Decided(each, is_new=False)
            return Decided(insert_decision(cursor, batch, DecisionKind.TRIGGER, decision))

    @override
    def discard(self, batch_id: int, decision: Decision) -> Decided:
        with self._decide(f"discard batch {batch_id}") as cursor:
            batch = _lock_batch(cursor, batch_id)
            if batch.state is BatchState.DISCARDED:
                standing = list_decisions(cursor, batch_id=batch_id, kind=DecisionKind.DISCARD)
                return Decided(standing[0] if standing else None, is_new=False)
            if batch.state is BatchState.PUBLISHED:
                raise published_already(batch)
            if has_rows(cursor, batch.batch_id):
                raise rows_visible(batch)
            return Decided(discard_batch(cursor, batch, decision))

    @override
    def retake(self, batch_id: int, run: str, decision: Decision) -> Decided:
        with self._decide(f"take batch {batch_id} again") as cursor:
            batch = _lock_batch(cursor, batch_id)
            if batch.state.is_final:
                raise closed(batch, run)
            for each in list_decisions(cursor, batch_id=batch_id, kind=DecisionKind.RETRY):
                if each.after is not None and each.after["run"] == run:
                    return Decided(each, is_new=False)
            effect = effects.retaking(batch, run)
            return Decided(insert_decision(cursor, batch, DecisionKind.RETRY, decision, effect))

    @override
    def rewind(
        self, pipeline: str, rewind: ResolvedRewind, decision: Decision, truncate: Truncate | None = None
    ) -> Decided:
        offsets = rewind.next_offset_by_partition
        with self._decide(f"rewind {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            found = {each.partition: each.next_offset for each in read_positions(cursor, pipeline)}
            is_there = all(found.get(each) == offset for each, offset in offsets.items())
            if is_there and not (truncate and holds_anything(cursor, pipeline)):
                return Decided(None, is_new=False)
            require_present(pipeline, rewind, read_epoch(cursor, pipeline), found)
            open_batch = find_batch(cursor, pipeline=pipeline)
            if open_batch is not None:
                if truncate is None and has_rows(cursor, open_batch.batch_id):
                    raise rows_visible(open_batch)
                discard_batch(cursor, _lock_batch(cursor, open_batch.batch_id), decision)
            effect = effects.opening_epoch(rewind.epoch) | effects.moving(found, offsets)
            if truncate is not None:
                require_checked(pipeline, rewind, read_held(cursor, pipeline))
                effect |= effects.emptying(truncate_target(cursor, pipeline, truncate), rewind.given_up)
            cursor.execute("update batchledger.pipeline set epoch = epoch + 1 where name = %s", [pipeline])
            # Records that are read again would seem to come twice.
            cursor.execute("delete from batchledger.sequence where pipeline = %s", [pipeline])
            cursor.execute(
                read_statement(__package__, "rewind_positions"), {"pipeline": pipeline, **offsets_as_arrays(offsets)}
            )
            effect |= effects.discarding_too(open_batch)
            return Decided(insert_decision(cursor, pipeline, DecisionKind.REWIND, decision, effect))

    @override
    def adopt_target(self, pipeline: str, target: Target, decision: Decision, proof: Effect) -> Decided:
        with self._decide(f"adopt {target.name} for {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            before = read_targets(cursor).get(pipeline)
            if before is None:
                raise nothing_to_adopt(pipeline)
            if before == target:
                return Decided(None, is_new=False)
            try:
                store_target(cursor, pipeline, target)
            except psycopg.errors.UniqueViolation as error:
                raise adopted_by_another(pipeline, target) from error
            effect = effects.adopting(before, target) | proof
            return Decided(insert_decision(cursor, pipeline, DecisionKind.ADOPT_TARGET, decision, effect))

    @override
    def pause(self, pipeline: str, decision: Decision) -> Decided:
        with self._decide(f"pause {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            standing = find_pause(cursor, pipeline)
            if standing is not None:
                return Decided(standing, is_new=False)
            record = insert_decision(cursor, pipeline, DecisionKind.PAUSE, decision, effects.pausing())
            cursor.execute(
                "update batchledger.pipeline set pause_id = %s where name = %s", [record.decision_id, pipeline]
            )
            return Decided(record)

    @override
    def resume(self, pipeline: str, decision: Decision) -> Decided:
        with self._decide(f"resume {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            standing = find_pause(cursor, pipeline)
            if standing is None:
                return Decided(None, is_new=False)
            cursor.execute("update batchledger.pipeline set pause_id = null where name = %s", [pipeline])
            return Decided(insert_decision(cursor, pipeline, DecisionKind.RESUME, decision, effects.ending(standing)))

    @override
    def retire(
        self, pipeline: str, decision: Decision, *, discard: Collection[int] = (), free_target: bool = False
    ) -> Decided:
        with self._decide(f"retire {pipeline}") as cursor:
            return retire_pipeline(cursor, pipeline, decision, discard, free_target=free_target)

    @override
    def rename(self, pipeline: str, to: str, decision: Decision) -> Decided:
        """See ``renaming``: unlike the others, it needs the login of the owner of the ledger."""
        with self._decide(f"rename {pipeline} to {to}", owners_transaction) as cursor:
            return rename_pipeline(cursor, pipeline, to, decision)

    @override
    def drop_quarantined(self, pipeline: str, ranges: Sequence[OffsetRange], decision: Decision) -> Decided:
        with self._decide(f"drop records from the quarantine of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            require_none_committing(cursor, pipeline)
            parameters = {"pipeline": pipeline, **ranges_as_arrays(ranges)}
            cursor.execute(read_statement(__package__, "drop_quarantined"), parameters)
            dropped = merge_ranges(single_offset(*place) for place in cursor)
            if not dropped:
                return Decided(None, is_new=False)
            effect = effects.dropping(dropped)
            return Decided(insert_decision(cursor, pipeline, DecisionKind.QUARANTINE_DROP, decision, effect))

    @override
    def erase(self, pipeline: str, key: ErasureKey, decision: Decision, erase: EraseRows) -> Decided:
        with self._decide(f"erase rows of {pipeline}") as cursor:
            lock_pipeline(cursor, pipeline)
            require_none_open(cursor, pipeline)
            erased = erase(PostgresTargetAccess(cursor.connection, pipeline))
            dropped, doubtful = drop_held(cursor, pipeline, key.of_records, erased)
            forget_quoted(cursor, pipeline)
            warning = describe_doubtful(pipeline, doubtful, drop_left(cursor, pipeline))
            if not (erased.is_anything or dropped):
                return Decided(None, is_new=False, warning=warning)
            effect = effects.erasing(erased.rows, erased.remembered_keys, dropped, key.columns)
            return Decided(insert_decision(cursor, pipeline, DecisionKind.ERASE, decision, effect), warning=warning)

    @contextmanager
    def _decide(
        self, action: str, begin: Callable[[str, str], AbstractContextManager[Cursor]] = transaction
    ) -> Iterator[Cursor]:
        with begin(self.dsn, action) as cursor:
            yield cursor
            if not self.is_kept:
                cursor.connection.rollback()


def _lock_batch(cursor: Cursor, batch_id: int) -> Batch:
    """Lock the batch's pipeline, then the batch, and return it: no other transaction can change it now."""
    lock_pipeline(cursor, load_batch(cursor, batch_id).pipeline)
    cursor.execute("select 1 from batchledger.batch where batch_id = %s for update", [batch_id])
    return load_batch(cursor, batch_id)


def _find_open(cursor: Cursor, pipeline: str, ranges: Sequence[OffsetRange]) -> Batch | None:
    """Return the open live batch, locked, if it is about a partition of the ranges."""
    batch = find_batch(cursor, pipeline=pipeline)
    if batch is None or not {each.partition for each in batch.ranges} & {each.partition for each in ranges}:
        return None
    return _lock_batch(cursor, batch.batch_id)


def _find_given_up(
    cursor: Cursor, pipeline: str, ranges: Sequence[OffsetRange], kind: DecisionKind
) -> DecisionRecord | None:
    first = ranges[0]
    parameters = {
        "pipeline": pipeline,
        "kind": kind,
        "topic": first.partition.topic,
        "partition": first.partition.partition,
        "start": first.start,
    }
    cursor.execute(read_statement(__package__, "find_given_up"), parameters)
    for (batch_id,) in cursor.fetchall():
        if set(load_batch(cursor, batch_id).ranges) == set(ranges):
            return list_decisions(cursor, batch_id=batch_id, kind=kind)[0]
    return None


def _read_balances(cursor: Cursor, batch_id: int) -> list[Balance]:
    cursor.execute(read_statement(__package__, "load_balances"), {"batch_id": batch_id})
    return [
        Balance(OffsetRange(TopicPartition(topic, partition), start, until), *lines)
        for topic, partition, start, until, *lines in cursor
    ]
