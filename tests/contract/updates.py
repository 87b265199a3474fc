"""Pipelines whose target is updated by key: their records, batches and replays, and what the target should hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from batchledger.lifecycle.requirement import publish_rows
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Upsert, VersionBy
from tests.contract import life
from tests.contract.warehouses import Warehouse
from tests.fakes.database import Coordinate
from tests.fakes.work import ROW_SCHEMA

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
KEYED_SCHEMA = pa.schema(
    [*ROW_SCHEMA, pa.field("carrier", pa.string()), pa.field("flight", pa.int32()), pa.field("delay", pa.int32())]
)
DELETING_SCHEMA = KEYED_SCHEMA.append(pa.field("_deleted", pa.bool_()))
BY_OFFSET = Upsert(("carrier", "flight"))
BY_TIMESTAMP = Upsert(("carrier", "flight"), VersionBy.TIMESTAMP)

State = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Record:
    """One record: its key, its value (None deletes the key), where it is written, and when (None is unknown)."""

    carrier: str | None
    delay: int | None
    partition: TopicPartition = P0
    minute: int | None = 0
    message_id: str | None = None
    flight: int = 1


@dataclass
class Story:
    """A pipeline's batches, in the order in which they were planned."""

    warehouse: Warehouse
    schema: pa.Schema = DELETING_SCHEMA
    attempts: list[Attempt] = field(default_factory=list)
    records: list[tuple[Record, int]] = field(default_factory=list)
    replays: int = 0

    def stage(self, *records: Record) -> Attempt:
        """Stage the next batch."""
        run, positions = f"run-{len(self.attempts)}", life.next_offsets(self.warehouse)
        ranges, rows = [], []
        for partition, group in groupby(sorted(records, key=lambda each: each.partition), lambda each: each.partition):
            start = positions.get(partition, 0)
            placed = [(record, start + index) for index, record in enumerate(group)]
            ranges.append(OffsetRange(partition, start, start + len(placed)))
            rows.extend(_as_row(record, offset) for record, offset in placed)
            self.records.extend(placed)
        batch = life.store(self.warehouse, *ranges, run=run)
        staged = pa.RecordBatch.from_pylist(rows, schema=self.schema)
        attempt = life.stage(self.warehouse, batch, run, rows=staged)
        self.attempts.append(attempt)
        return attempt

    def publish(self, *records: Record) -> Attempt:
        """Take the next batch through its whole life."""
        attempt = self.stage(*records)
        life.audit(self.warehouse, attempt)
        life.publish(self.warehouse, attempt)
        return attempt

    def publish_again(self, number: int) -> None:
        """Bring the rows of a published batch once more."""
        with self.warehouse.ledger.publication(self.attempts[number], BatchState.PUBLISHED) as publication:
            publish_rows(self.warehouse.sink, publication, publication.load())

    def replay(self, *ranges: OffsetRange, changed: Mapping[Coordinate, Record | None] | None = None) -> Attempt:
        """Publish ranges again, and prove the history; ``changed`` is what a new transform makes of some records.

        None is no record any more: it does not decode.
        """
        attempt = self.stage_replay(*ranges, changed=changed)
        life.publish(self.warehouse, attempt)
        assert self.warehouse.prove().findings == ()
        return attempt

    def stage_replay(self, *ranges: OffsetRange, changed: Mapping[Coordinate, Record | None] | None = None) -> Attempt:
        """Stage and audit a replay; from now on the records are what it reads."""
        now = {at: (changed or {}).get(at, record) for at, record in self._record_by_place().items()}
        self.records = [(record, offset) for (_, offset), record in now.items() if record is not None]
        asked, read = life.rows_of(ranges), self._record_by_place()
        self.replays += 1
        run = f"again-{self.replays}"
        attempt = life.stage(
            self.warehouse,
            life.store_replay(self.warehouse, *ranges, run=run),
            run,
            poison=[at for at in asked if at not in read],
            rows=pa.RecordBatch.from_pylist(
                [_as_row(read[at], at[1]) for at in asked if at in read], schema=self.schema
            ),
        )
        life.audit(self.warehouse, attempt)
        return attempt

    def owners(self) -> dict[str, int]:
        """Which batch wrote the row of each carrier."""
        return {row["carrier"]: row["_batch_id"] for row in self.warehouse.read_target()}

    def _record_by_place(self) -> dict[Coordinate, Record]:
        return {(record.partition, offset): record for record, offset in self.records}

    def state(self) -> State:
        """What a reader of the target sees."""
        rows = self.warehouse.read_target()
        state = {(row["carrier"], row["flight"]): row["delay"] for row in rows}
        assert len(state) == len(rows), "a key is there twice"
        return state

    def newest(self, version: VersionBy) -> State:
        """The model: the newest record of each key says its state."""
        state: dict[tuple[Any, int], int | None] = {}
        for record, _ in sorted(self.records, key=lambda each: _version(*each, version)):
            state[record.carrier, record.flight] = record.delay
        return {key: delay for key, delay in state.items() if delay is not None}


def _version(record: Record, offset: int, by: VersionBy) -> tuple[Any, ...]:
    return (record.minute if by is VersionBy.TIMESTAMP else 0, record.partition, offset)


def _as_row(record: Record, offset: int) -> Mapping[str, Any]:
    return {
        "_topic": record.partition.topic,
        "_partition": record.partition.partition,
        "_offset": offset,
        "_timestamp": None if record.minute is None else life.NOW + timedelta(minutes=record.minute),
        "message_id": record.message_id,
        "carrier": record.carrier,
        "flight": record.flight,
        "delay": record.delay,
        "_deleted": record.delay is None,
    }


KEYS = {"AA": P0, "DL": P0, "UA": P1}
DELAYS = st.none() | st.integers(0, 99)
STABLE = st.sampled_from(sorted(KEYS)).flatmap(lambda key: st.builds(Record, st.just(key), DELAYS, st.just(KEYS[key])))
ANYWHERE = st.builds(Record, st.sampled_from(sorted(KEYS)), DELAYS, st.sampled_from([P0, P1]), st.integers(0, 3))
