"""The steps of a batch's life with facts chosen by the test, taken through the ports only."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from batchledger.formats.records import QUARANTINE_SCHEMA
from batchledger.lifecycle.requirement import publish_rows, remember_numbers, require_own_target, withdraw_rows
from batchledger.lifecycle.tracing import trace_nothing
from batchledger.model.balance import Balance, HoleCounts, HolePolicy, StagedRange, balance_batch, combine_witnesses
from batchledger.model.batch import Attempt, Batch, BatchState, Decision, Lane, Position, Staged
from batchledger.model.checks import CheckResult, Outcome
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.numbering import NumberFacts
from batchledger.model.records.unknown_fields import UnknownFieldCounter
from batchledger.planning.live import Plan
from batchledger.ports import (
    EvidenceWriter,
    Publication,
    RowsToCheck,
    RowsToPublish,
    StagingWriter,
    committing,
    no_crash,
)
from tests.contract.warehouses import IDENTITY, Warehouse
from tests.fakes.work import ROW_SCHEMA

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST = OffsetRange(ORDERS_0, 0, 3)
SECOND = OffsetRange(ORDERS_0, 3, 5)
OTHER = OffsetRange(ORDERS_1, 10, 12)
PASSED = CheckResult("looked_at", Outcome.PASSED, "nothing found", {"rows": 3})
FAILED = CheckResult("looked_at", Outcome.FAILED, "2 rows are wrong", {"rows": 2})


def rows_of(ranges: Iterable[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    """Every coordinate of the ranges."""
    return [(each.partition, offset) for each in ranges for offset in range(each.start, each.until)]


def batch_of_rows(coordinates: Iterable[tuple[TopicPartition, int]]) -> pa.RecordBatch:
    """Rows as the staging job writes them."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "_topic": partition.topic,
                "_partition": partition.partition,
                "_offset": offset,
                "_timestamp": NOW,
                "message_id": f"{partition}@{offset}",
            }
            for partition, offset in coordinates
        ],
        schema=ROW_SCHEMA,
    )


def witness(
    writer: EvidenceWriter,
    reader: int,
    visible: Sequence[OffsetRange],
    quarantined: pa.RecordBatch | None = None,
    tombstones: Sequence[OffsetRange] = (),
    unknown: UnknownFieldCounter | None = None,
) -> None:
    """Write all that one reading task has seen."""
    with writer.open(reader) as testimony:
        if quarantined is not None:
            testimony.set_aside(quarantined)
        testimony.finish(visible, tombstones, unknown)


def quarantine_of(coordinates: Iterable[tuple[TopicPartition, int]], error: str = "not decodable") -> pa.RecordBatch:
    """Undecodable records as the staging job sets them aside."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "timestamp_ms": int(NOW.timestamp() * 1000),
                "key": None,
                "value": b"\x00{poison",
                "headers": json.dumps([{"key": "trace", "value": "AA=="}]),
                "error": error,
            }
            for partition, offset in coordinates
        ],
        schema=QUARANTINE_SCHEMA,
    )


def store(warehouse: Warehouse, *ranges: OffsetRange, run: str = "run-1") -> Batch:
    """Store a plan; partitions that are new to the pipeline start where their range does."""
    known = {each.partition for each in warehouse.ledger.load_positions(warehouse.pipeline)}
    first = tuple(
        Position(each.partition, each.start, each.start, IDENTITY) for each in ranges if each.partition not in known
    )
    return warehouse.ledger.store_plan(warehouse.pipeline, Plan(ranges, 0, first), run)


def stage(
    warehouse: Warehouse,
    batch: Batch,
    run: str = "run-1",
    poison: Sequence[tuple[TopicPartition, int]] = (),
    extra: Sequence[tuple[TopicPartition, int]] = (),
    rows: pa.RecordBatch | None = None,
) -> Attempt:
    """Open an attempt and stage ``rows``, or one for each offset but the poison; ``extra`` rows are a fault."""
    attempt = warehouse.ledger.open_attempt(batch.batch_id, run)
    witness(warehouse.evidence.open(attempt), 0, batch.ranges, quarantine_of(poison))
    if rows is None:
        rows = batch_of_rows([each for each in rows_of(batch.ranges) if each not in poison] + list(extra))
    require_own_target(platform(warehouse), attempt)
    write(warehouse.sink.open_staging(attempt, rows.schema), 0, rows)
    warehouse.sink.seal_staging(attempt, [0])
    warehouse.ledger.mark_staged(attempt, Staged(rows.num_rows))
    return attempt


def write(writer: StagingWriter, task: int, *batches: pa.RecordBatch) -> None:
    """Write all that one task has."""
    with writer.open(task) as write_batch:
        for batch in batches:
            write_batch(batch)


def summarise(warehouse: Warehouse, attempt: Attempt) -> Sequence[StagedRange]:
    """What staging holds of each range."""
    with warehouse.sink.read_staged(attempt) as staged:
        return staged.summarise()


def count_numbers(warehouse: Warehouse, attempt: Attempt) -> NumberFacts | None:
    """What the numbers of the staged rows say."""
    with warehouse.sink.read_staged(attempt) as staged:
        return staged.count_numbers()


@contextmanager
def open_rows(warehouse: Warehouse, attempt: Attempt) -> Iterator[RowsToCheck]:
    """The rows as checks see them."""
    with warehouse.sink.read_staged(attempt) as staged:
        yield staged.show()


def balance(warehouse: Warehouse, attempt: Attempt) -> tuple[Balance, ...]:
    """The balance of what is staged."""
    seen, staged = warehouse.evidence.summarise(attempt), summarise(warehouse, attempt)
    facts = combine_witnesses(seen, staged, [HoleCounts() for _ in seen])
    return balance_batch(facts, HolePolicy.NONE, has_transform=False)


def audit(warehouse: Warehouse, attempt: Attempt, check: CheckResult = PASSED) -> Batch:
    """Record an audit with one result."""
    return warehouse.ledger.record_audit(attempt, balance(warehouse, attempt), [check])


def publish(warehouse: Warehouse, attempt: Attempt) -> int:
    """Publish rows, quarantine and, if it is a live batch, position; return the number of rows."""
    shares = warehouse.sink.capabilities.shares_transaction
    attempt = attempt if shares else announce(warehouse, attempt)
    state = BatchState.AUDITED if shares else attempt.batch.state
    with warehouse.ledger.publication(attempt, state) as publication:
        rows = apply(warehouse, publication)
        if not shares:
            committing(warehouse.sink).commit(rows)
        return rows.accepted


def announce(warehouse: Warehouse, attempt: Attempt) -> Attempt:
    """Say that the sink is about to commit an audited attempt; return it as it is then."""
    with warehouse.ledger.publication(attempt) as publication:
        shares = warehouse.sink.capabilities.shares_transaction
        publication.announce(() if shares else committing(warehouse.sink).prepare_commit(attempt))
    return replace(attempt, batch=replace(attempt.batch, state=BatchState.COMMITTING))


def apply(warehouse: Warehouse, publication: Publication) -> RowsToPublish:
    """Do everything that a publication in one transaction does, up to the commit of the sink."""
    rows = publication.load()
    if rows.takes_over:
        rows = withdraw_rows(warehouse.sink, publication, rows)
    if publication.attempt.batch.lane is Lane.LIVE:
        publication.advance_positions()
    rows = publish_rows(warehouse.sink, publication, rows)
    publication.mark_rows()
    publication.publish_quarantine()
    publication.mark_published()
    remember_numbers(warehouse.sink, rows)
    return rows


def store_replay(warehouse: Warehouse, *ranges: OffsetRange, run: str = "again", key: str | None = None) -> Batch:
    plan = Plan(ranges, 0, lane=Lane.REPLAY)
    return warehouse.ledger.store_replay(warehouse.pipeline, plan, run, Decision("ana", "because"), key or run)


def take_replay_to_audited(warehouse: Warehouse, *ranges: OffsetRange, run: str = "again") -> Attempt:
    """Plan, stage and audit a replay."""
    attempt = stage(warehouse, store_replay(warehouse, *ranges, run=run), run)
    audit(warehouse, attempt)
    return attempt


def take_to_audited(warehouse: Warehouse, *ranges: OffsetRange, run: str = "run-1") -> Attempt:
    """Plan, stage and audit."""
    attempt = stage(warehouse, store(warehouse, *ranges, run=run), run)
    audit(warehouse, attempt)
    return attempt


def take_to_published(warehouse: Warehouse, *ranges: OffsetRange, run: str = "run-1") -> Attempt:
    """The whole life."""
    attempt = take_to_audited(warehouse, *ranges, run=run)
    publish(warehouse, attempt)
    return attempt


def target_coordinates(warehouse: Warehouse) -> list[tuple[TopicPartition, int]]:
    """The coordinates of the visible rows, sorted."""
    return sorted((TopicPartition(row["_topic"], row["_partition"]), row["_offset"]) for row in warehouse.read_target())


def next_offsets(warehouse: Warehouse) -> dict[TopicPartition, int]:
    """Where the pipeline is."""
    return {each.partition: each.next_offset for each in warehouse.ledger.load_positions(warehouse.pipeline)}


def fenced_by_second_attempt(warehouse: Warehouse, attempt: Attempt) -> str:
    """Let a second attempt, of another run, come as far as the first one has; return the error of the first one.

    Both are in the same state, so that the number of the attempt alone tells them apart.
    """
    state = warehouse.ledger.load_batch(attempt.batch.batch_id).state
    if state is BatchState.PLANNED:
        second = warehouse.ledger.open_attempt(attempt.batch.batch_id, "run-2")
    else:
        second = stage(warehouse, attempt.batch, "run-2")
    if state is BatchState.AUDITED:
        audit(warehouse, second)
    return rf"(?s)attempt {attempt.number} of run run-1 is fenced.*Attempt {second.number} of run run-2"


def platform(warehouse: Warehouse, *, crash: Callable[[str], None] = no_crash, **parts: Any) -> Any:
    """What a delivery needs."""
    return SimpleNamespace(
        **{"ledger": warehouse.ledger, "sink": warehouse.sink, "crash": crash, "trace": trace_nothing, **parts}
    )
