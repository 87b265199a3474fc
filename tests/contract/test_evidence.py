"""The contract of the Evidence port."""

from batchledger.model.balance import WitnessedRange
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.unknown_fields import Sighting, UnknownFieldCounter, UnknownFields
from tests.contract import life
from tests.contract.warehouses import Warehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, OTHER = OffsetRange(ORDERS_0, 0, 10), OffsetRange(ORDERS_1, 10, 12)


def test_empty_evidence_has_seen_nothing(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    warehouse.evidence.open(attempt)
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 0, 0), WitnessedRange(OTHER, 0, 0)]
    assert list(warehouse.evidence.find_holes(attempt)) == [FIRST, OTHER]


def test_visible_offsets_and_quarantined_records_are_counted_by_range(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    life.witness(writer, 0, [OffsetRange(ORDERS_0, 0, 4)], life.quarantine_of([(ORDERS_0, 1), (ORDERS_0, 3)]))
    life.witness(writer, 1, [OffsetRange(ORDERS_0, 6, 8), OTHER], None)
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 6, 2), WitnessedRange(OTHER, 2, 0)]
    assert list(warehouse.evidence.find_holes(attempt)) == [OffsetRange(ORDERS_0, 4, 6), OffsetRange(ORDERS_0, 8, 10)]


def test_repeated_task_attempt_changes_nothing(warehouse: Warehouse) -> None:
    """A task that is run twice writes the same, or an overlapping part of it, twice."""
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    for visible in ([FIRST], [FIRST], [OffsetRange(ORDERS_0, 2, 7)]):
        life.witness(writer, 0, visible, life.quarantine_of([(ORDERS_0, 3)]))
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 10, 1)]


def test_evidence_outside_of_the_ranges_is_not_counted(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    life.witness(writer, 0, [OffsetRange(ORDERS_0, 8, 15), OTHER], life.quarantine_of([(ORDERS_0, 12), (ORDERS_1, 10)]))
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 2, 0)]


def test_skipped_tombstones_are_counted_by_range_and_once(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    for _ in range(2):
        life.witness(writer, 0, [FIRST], None, [OffsetRange(ORDERS_0, 2, 5), OffsetRange(ORDERS_0, 7, 8)])
    life.witness(writer, 1, [OTHER], life.quarantine_of([(ORDERS_1, 10)]), [OffsetRange(ORDERS_1, 11, 14)])
    assert list(warehouse.evidence.summarise(attempt)) == [
        WitnessedRange(FIRST, 10, 0, tombstones=4),
        WitnessedRange(OTHER, 2, 1, tombstones=1),
    ]
    assert list(warehouse.evidence.find_holes(attempt)) == []


def test_attempts_have_evidence_of_their_own(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    first = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    zombie = warehouse.evidence.open(first)
    second = warehouse.ledger.open_attempt(batch.batch_id, "run-2")
    warehouse.evidence.open(second)
    life.witness(zombie, 0, [FIRST])
    assert list(warehouse.evidence.summarise(second)) == [WitnessedRange(FIRST, 0, 0)]


def test_dropping_evidence_is_harmless_to_repeat_and_leaves_other_batches_alone(warehouse: Warehouse) -> None:
    published = life.take_to_published(warehouse, FIRST)
    attempt = life.stage(warehouse, life.store(warehouse, OffsetRange(ORDERS_0, 10, 12), run="run-2"), "run-2")
    for _ in range(2):
        warehouse.evidence.drop(published)
    assert [each.visible for each in warehouse.evidence.summarise(attempt)] == [2]


def test_parts_of_the_read_that_came_to_their_end_are_counted_once(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    assert warehouse.evidence.count_finished(attempt) == 0
    for reader in (0, 1, 0):
        life.witness(writer, reader, [], None)
    assert warehouse.evidence.count_finished(attempt) == 2


def test_offsets_of_parts_that_came_to_their_end_are_counted_once(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    assert warehouse.evidence.count_seen(attempt) == 0
    writer = warehouse.evidence.open(attempt)
    assert warehouse.evidence.count_seen(attempt) == 0
    for visible in ([OffsetRange(ORDERS_0, 0, 4)], [OffsetRange(ORDERS_0, 0, 4)], [OffsetRange(ORDERS_0, 2, 7)]):
        life.witness(writer, 0, visible, life.quarantine_of([(ORDERS_0, 3)]), [OffsetRange(ORDERS_0, 1, 2)])
    assert warehouse.evidence.count_seen(attempt) == 7
    life.witness(writer, 1, [OffsetRange(ORDERS_0, 8, 9), OTHER], None)
    assert warehouse.evidence.count_seen(attempt) == 7 + 1 + 2


def test_dropped_evidence_and_that_of_other_attempts_have_seen_nothing(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    first = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    life.witness(warehouse.evidence.open(first), 0, [FIRST], None)
    second = warehouse.ledger.open_attempt(batch.batch_id, "run-2")
    warehouse.evidence.open(second)
    assert warehouse.evidence.count_seen(second) == 0
    assert warehouse.evidence.count_seen(first) == len(FIRST)
    warehouse.evidence.drop(first)
    assert warehouse.evidence.count_seen(first) == 0


def test_unknown_fields_of_all_tasks_are_counted_and_those_of_a_repeated_task_once(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    assert warehouse.evidence.summarise_unknown_fields(attempt) == UnknownFields()
    counters = UnknownFieldCounter(), UnknownFieldCounter()
    for offset in range(3, 10):
        counters[0].count(["discount", "straße\x00"], Sighting(1, ("orders", 0, offset)))
    counters[1].count(["discount"], Sighting(1, ("orders", 1, 11)))
    for _ in range(2):
        life.witness(writer, 0, [FIRST], None, (), counters[0])
    life.witness(writer, 1, [OTHER], None, (), counters[1])
    life.witness(writer, 2, [], None, (), UnknownFieldCounter())
    assert warehouse.evidence.summarise_unknown_fields(attempt) == UnknownFields(
        8, {"discount": Sighting(8, ("orders", 0, 3)), "stra\\u00dfe\\u0000": Sighting(7, ("orders", 0, 3))}
    )
    # Nothing else counts them.
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 10, 0), WitnessedRange(OTHER, 2, 0)]
    assert warehouse.evidence.count_finished(attempt) == 3
    assert warehouse.evidence.count_seen(attempt) == 12
