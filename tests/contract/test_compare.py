"""What the sink says before a replay is published is what publishing it does; and saying it changes nothing (I6)."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from batchledger.model.batch import Attempt, Batch, BatchState, Decision, HeldRange, Lane
from batchledger.model.errors import KeyConflictError, ReplayRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.comparison import ChangedRow, Comparison, DryRunOutcome, ReplacedRows
from batchledger.model.records.rules import Deduplication, Upsert, VersionBy
from batchledger.planning.live import Plan
from tests.contract import life
from tests.contract.conftest import EVERY_TABLE
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA

WAREHOUSES = EVERY_TABLE

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, SECOND = OffsetRange(P0, 0, 6), OffsetRange(P0, 6, 10)
MIDDLE = OffsetRange(P0, 3, 8)
SCHEMA = ROW_SCHEMA.append(pa.field("delay", pa.int32()))
DELETING_SCHEMA = SCHEMA.append(pa.field("_deleted", pa.bool_()))
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rules:
    """How a pipeline writes; ``keys`` is how many different message ids its records have, None for one a record."""

    deduplication: Deduplication | None = None
    upsert: Upsert | None = None
    keys: int | None = None


RULES = {
    "append": Rules(),
    "append, duplicates dropped": Rules(deduplication=Deduplication(("message_id",), timedelta(days=1)), keys=5),
    "upsert by offset": Rules(upsert=Upsert(("message_id",)), keys=5),
    "upsert by timestamp": Rules(upsert=Upsert(("message_id",), VersionBy.TIMESTAMP), keys=5),
}


def row_of(offset: int, delay: int, message_id: str | None = None, minute: int = 0, deleted: bool | None = None) -> Row:
    row = {
        "_topic": "orders",
        "_partition": 0,
        "_offset": offset,
        "_timestamp": life.NOW + timedelta(minutes=minute),
        "message_id": message_id or f"m{offset}",
        "delay": delay,
    }
    return row if deleted is None else {**row, "_deleted": deleted}


def stage(warehouse: Warehouse, range_: OffsetRange, rows: Sequence[Row], lane: Lane, run: str) -> Attempt:
    if lane is Lane.LIVE:
        batch = life.store(warehouse, range_, run=run)
    else:
        plan = Plan((range_,), 0, lane=lane, is_dry_run=True)
        batch = warehouse.ledger.store_replay(warehouse.pipeline, plan, run, Decision("ana", "look"), None)
    return take_to_audited(warehouse, batch, rows)


def take_to_audited(warehouse: Warehouse, batch: Batch, rows: Sequence[Row]) -> Attempt:
    """Stage and audit the rows; the other offsets of the batch are quarantined."""
    there = {row["_offset"] for row in rows}
    poison = [(partition, offset) for partition, offset in life.rows_of(batch.ranges) if offset not in there]
    schema = DELETING_SCHEMA if any("_deleted" in row for row in rows) else SCHEMA
    staged = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)
    attempt = life.stage(warehouse, batch, poison=poison, rows=staged)
    life.audit(warehouse, attempt)
    return attempt


def publish(warehouse: Warehouse, range_: OffsetRange, rows: Sequence[Row], run: str) -> Attempt:
    attempt = stage(warehouse, range_, rows, Lane.LIVE, run)
    life.publish(warehouse, attempt)
    return attempt


def test_rows_are_told_apart_by_what_becomes_of_them(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST, [row_of(offset, 1) for offset in (0, 1, 2, 3, 4)], "first")
    new = [row_of(3, 1), row_of(4, 2), row_of(5, 3), row_of(7, 4)]
    shadow = stage(warehouse, MIDDLE, new, Lane.REPLAY, "shadow")
    assert warehouse.sink.compare(shadow, 20) == Comparison(
        added=2, removed=0, changed=1, unchanged=1, examples=(ChangedRow(P0, 4, ("delay",)),)
    )
    fewer = stage(warehouse, MIDDLE, [row_of(4, 1)], Lane.REPLAY, "fewer")
    assert warehouse.sink.compare(fewer, 20) == Comparison(removed=1, unchanged=1)


def test_only_so_many_changed_rows_are_named_as_are_asked_for(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], "first")
    shadow = stage(warehouse, FIRST, [row_of(offset, 2) for offset in range(6)], Lane.REPLAY, "shadow")
    found = warehouse.sink.compare(shadow, 2)
    assert (found.changed, [each.offset for each in found.examples]) == (6, [0, 1])


def test_without_a_target_every_row_is_new_and_there_is_still_no_target(warehouse: Warehouse) -> None:
    shadow = stage(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], Lane.REPLAY, "shadow")
    assert warehouse.sink.compare(shadow, 20) == Comparison(added=6)
    publish(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], "first")
    assert len(warehouse.read_target()) == 6


def test_columns_that_only_the_target_has_take_no_part_and_are_named(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], "first")
    warehouse.widen_target("note")
    shadow = stage(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], Lane.REPLAY, "shadow")
    assert warehouse.sink.compare(shadow, 20) == Comparison(unchanged=6, absent_columns=("note",))


@pytest.mark.rules
def test_key_that_cannot_be_ordered_is_refused_as_it_would_be_when_published(warehouse: Warehouse) -> None:
    keyed = warehouse.with_rules(upsert=Upsert(("message_id",)))
    publish(keyed, FIRST, [row_of(offset, 1) for offset in range(6)], "first")
    without_key = [{**row_of(0, 1), "message_id": None}]
    shadow = stage(keyed, OffsetRange(P0, 0, 1), without_key, Lane.REPLAY, "shadow")
    with pytest.raises(KeyConflictError, match="orders"):
        keyed.sink.compare(shadow, 20)


@pytest.mark.rules
def test_row_that_another_one_has_replaced_since_does_not_come_back(warehouse: Warehouse) -> None:
    keyed = warehouse.with_rules(upsert=Upsert(("message_id",)))
    publish(keyed, FIRST, [row_of(offset, 1, "a") for offset in range(6)], "first")
    publish(keyed, SECOND, [row_of(9, 9, "a")], "second")
    shadow = stage(keyed, FIRST, [row_of(offset, 5, "a") for offset in range(6)], Lane.REPLAY, "shadow")
    assert keyed.sink.compare(shadow, 20) == Comparison()


@pytest.mark.rules
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_what_is_said_before_is_what_publishing_does(warehouse: Warehouse, rules: Rules, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    warehouse = warehouse.with_rules(rules.deduplication, rules.upsert)
    publish(warehouse, FIRST, some_rows(chance, FIRST, rules), "first")
    publish(warehouse, SECOND, some_rows(chance, SECOND, rules), "second")
    asked = OffsetRange(P0, chance.randrange(6), chance.randrange(6, 12))
    rows = some_rows(chance, asked, rules)
    before, tombstones = read(warehouse), warehouse.count_deleted_keys()
    shadow = stage(warehouse, asked, rows, Lane.REPLAY, "shadow")
    said = warehouse.sink.compare(shadow, 20)
    assert (read(warehouse), warehouse.count_deleted_keys()) == (before, tombstones)
    warehouse.ledger.end_dry_run(shadow.batch.batch_id)
    batch = warehouse.ledger.store_replay(
        warehouse.pipeline, Plan((asked,), 0, lane=Lane.REPLAY), "again", Decision("ana", "now"), "again"
    )
    attempt = take_to_audited(warehouse, batch, rows)
    life.publish(warehouse, attempt)
    key = rules.upsert.key if rules.upsert else ("_topic", "_partition", "_offset")
    assert said == what_happened(before, read(warehouse), lambda row: tuple(row[each] for each in key), attempt)


def some_rows(chance: random.Random, range_: OffsetRange, rules: Rules) -> list[Row]:
    """Rows for most offsets, of few keys and values, some of which delete their key."""
    return [
        row_of(
            offset,
            chance.randrange(2),
            f"m{chance.randrange(rules.keys)}" if rules.keys else None,
            chance.randrange(4),
            deleted=chance.random() < 0.25 if rules.upsert else None,
        )
        for offset in range(range_.start, range_.until)
        if chance.random() < 0.8
    ]


def read(warehouse: Warehouse) -> list[Row]:
    return sorted(warehouse.read_target(), key=lambda row: row["_offset"])


def what_happened(
    before: Sequence[Row], after: Sequence[Row], key_of: Callable[[Row], object], attempt: Attempt
) -> Comparison:
    """The same comparison, of the target as it was and as it is."""
    old, new = {key_of(row): row for row in before}, {key_of(row): row for row in after}
    written = [row for row in after if row["_batch_id"] == attempt.batch.batch_id]
    differing = {
        row["_offset"]: tuple(name for name in row if name != "_batch_id" and row[name] != old[key_of(row)][name])
        for row in written
        if key_of(row) in old
    }
    changed = {offset: names for offset, names in differing.items() if names}
    return Comparison(
        added=len(written) - len(differing),
        removed=len(old.keys() - new.keys()),
        changed=len(changed),
        unchanged=len(differing) - len(changed),
        examples=tuple(ChangedRow(P0, *each) for each in changed.items()),
    )


def test_dry_run_ends_discarded_and_can_never_be_published(warehouse: Warehouse) -> None:
    shadow = stage(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], Lane.REPLAY, "shadow")
    assert shadow.batch.is_dry_run
    with (
        pytest.raises(ReplayRefusedError, match="never published"),
        warehouse.ledger.publication(shadow) as publication,
    ):
        life.apply(warehouse, publication)
    assert not warehouse.read_target()
    for _ in range(2):
        warehouse.ledger.end_dry_run(shadow.batch.batch_id)
    assert warehouse.ledger.load_batch(shadow.batch.batch_id).state is BatchState.DISCARDED
    real = life.take_to_published(warehouse, FIRST)
    warehouse.ledger.end_dry_run(real.batch.batch_id)
    assert warehouse.ledger.load_batch(real.batch.batch_id).state is BatchState.PUBLISHED


def test_what_a_dry_run_has_found_is_kept_from_its_end_on(warehouse: Warehouse) -> None:
    publish(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], "first")
    shadow = stage(warehouse, MIDDLE, [row_of(offset, 2) for offset in range(3, 8)], Lane.REPLAY, "shadow")
    batch_id = shadow.batch.batch_id
    held = warehouse.ledger.find_held(warehouse.pipeline, [MIDDLE])
    found = DryRunOutcome(
        (OffsetRange(P1, 0, 5),),
        tuple(
            ReplacedRows(each, rows)
            for each, rows in zip(held, warehouse.sink.count_held(warehouse.pipeline, held), strict=True)
        ),
        warehouse.sink.compare(shadow, 20),
        ("no_unexplained_holes: 2 offsets are missing, 'é' \\u0041",),
    )
    assert found.comparison is not None
    assert found.comparison.examples
    assert warehouse.read_dry_run(batch_id) is None
    warehouse.ledger.end_dry_run(batch_id, found)
    assert warehouse.read_dry_run(batch_id) == found
    for again in (None, DryRunOutcome()):
        warehouse.ledger.end_dry_run(batch_id, again)
    publish(warehouse, SECOND, [row_of(offset, 1) for offset in range(6, 10)], "second")
    assert warehouse.read_dry_run(batch_id) == found


def test_dry_run_that_failed_or_was_discarded_midway_has_found_nothing(warehouse: Warehouse) -> None:
    failed = stage(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], Lane.REPLAY, "failed")
    discarded = stage(warehouse, FIRST, [row_of(offset, 1) for offset in range(6)], Lane.REPLAY, "discarded")
    warehouse.ledger.end_dry_run(failed.batch.batch_id)
    warehouse.decisions.discard(discarded.batch.batch_id, Decision("ana", "its process was killed"))
    for attempt in (failed, discarded):
        warehouse.ledger.end_dry_run(attempt.batch.batch_id, DryRunOutcome())
        assert warehouse.read_dry_run(attempt.batch.batch_id) is None


def test_batch_that_is_no_dry_run_never_has_an_outcome_of_one(warehouse: Warehouse) -> None:
    live = life.take_to_audited(warehouse, FIRST)
    warehouse.ledger.end_dry_run(live.batch.batch_id, DryRunOutcome())
    assert warehouse.ledger.load_batch(live.batch.batch_id).state is BatchState.AUDITED
    assert warehouse.read_dry_run(live.batch.batch_id) is None


def test_holders_of_offsets_and_their_rows_are_known_before_anything_is_stored(warehouse: Warehouse) -> None:
    first = publish(warehouse, FIRST, [row_of(offset, 1) for offset in (0, 4, 5)], "first")
    second = publish(warehouse, SECOND, [row_of(offset, 1) for offset in (6, 7)], "second")
    held = warehouse.ledger.find_held(warehouse.pipeline, [MIDDLE, OffsetRange(P1, 0, 5)])
    assert held == [
        HeldRange(first.batch.batch_id, OffsetRange(P0, 3, 6)),
        HeldRange(second.batch.batch_id, OffsetRange(P0, 6, 8)),
    ]
    assert list(warehouse.sink.count_held(warehouse.pipeline, held)) == [2, 2]
    assert warehouse.sink.count_held(warehouse.pipeline, []) == []
