"""A topic whose records have message ids, and what batches and replays make of it, day after day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from batchledger.model.batch import Attempt, Batch
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Deduplication
from tests.contract import life
from tests.contract.warehouses import Warehouse
from tests.fakes.database import Coordinate
from tests.fakes.work import ROW_SCHEMA

MONTH = timedelta(days=30)
BY_ID = Deduplication(("message_id",), MONTH)
TOPIC = "orders"


@dataclass
class Messages:
    """One pipeline over the topic. Every record is a letter, its message id; ``-`` is null.

    ``poison`` are records that do not decode now. Each publication is proved, and found what its audit had counted.
    """

    warehouse: Warehouse
    log: dict[TopicPartition, str] = field(default_factory=dict)
    poison: set[Coordinate] = field(default_factory=set)
    runs: int = 0

    def live(self, day: int = 0, **ids: str) -> Attempt:
        """Write records, ``p0="ab"`` are two of partition 0, and publish a live batch of what is unread there."""
        return self.publish(self.stage_live(day, **ids))

    def stage_live(self, day: int = 0, **ids: str) -> Attempt:
        """Write records, stage and audit what is unread in these partitions."""
        positions, ranges = life.next_offsets(self.warehouse), []
        for name, letters in ids.items():
            partition = TopicPartition(TOPIC, int(name[1:]))
            self.log[partition] = self.log.get(partition, "") + letters
            ranges.append(OffsetRange(partition, positions.get(partition, 0), len(self.log[partition])))
        return self.stage(life.store(self.warehouse, *ranges, run=self._next_run()), day)

    def replay(self, *ranges: OffsetRange, day: int = 0, ids: Mapping[Coordinate, str] | None = None) -> Attempt:
        """Publish ranges again; ``ids`` are those that the transform makes of some records now."""
        return self.publish(self.stage_replay(*ranges, day=day, ids=ids))

    def stage_replay(self, *ranges: OffsetRange, day: int = 0, ids: Mapping[Coordinate, str] | None = None) -> Attempt:
        """Stage and audit a replay."""
        return self.stage(life.store_replay(self.warehouse, *ranges, run=self._next_run()), day, ids)

    def stage(self, batch: Batch, day: int, ids: Mapping[Coordinate, str] | None = None) -> Attempt:
        """Stage and audit the stored ranges as if they had been planned on that day."""
        changed = ids or {}
        read = {at: changed.get(at, self.log[at[0]][at[1]]) for at in life.rows_of(batch.ranges)}
        poison = sorted(self.poison & read.keys())
        rows = _rows({at: letter for at, letter in read.items() if at not in self.poison})
        self.warehouse.plan_at(batch.batch_id, life.NOW + timedelta(days=day))
        attempt = life.stage(self.warehouse, batch, self._next_run(), poison=poison, rows=rows)
        life.audit(self.warehouse, attempt)
        return attempt

    def publish(self, attempt: Attempt) -> Attempt:
        """Publish what the audit has accepted, and prove the whole history."""
        life.publish(self.warehouse, attempt)
        assert self.warehouse.prove().findings == ()
        return attempt

    def visible(self) -> Mapping[Coordinate, str | None]:
        """The message id of each visible row; a row that is there twice is an error."""
        rows = self.warehouse.read_target()
        found = {(TopicPartition(row["_topic"], row["_partition"]), row["_offset"]): row["message_id"] for row in rows}
        assert len(found) == len(rows)
        return dict(sorted(found.items()))

    def ids(self) -> str:
        """The visible message ids in the order of their coordinates."""
        return "".join(each or "-" for each in self.visible().values())

    def duplicates(self) -> Sequence[tuple[Coordinate, Coordinate]]:
        """The records that were dropped, each with the one that came first."""
        return list(self.warehouse.read_duplicates())

    def state(self) -> tuple[object, ...]:
        """Everything that a replay which reads what was read before must leave as it is."""
        return self.visible(), self.duplicates(), list(self.warehouse.read_message_keys())

    def _next_run(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"


def _rows(ids: Mapping[Coordinate, str]) -> pa.RecordBatch:
    rows = [
        {
            "_topic": partition.topic,
            "_partition": partition.partition,
            "_offset": offset,
            "_timestamp": life.NOW,
            "message_id": None if letter == "-" else letter,
        }
        for (partition, offset), letter in ids.items()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)
