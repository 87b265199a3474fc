"""What is promised of records in quarantine: they are found, read as they were kept, and dropped only on purpose."""

import pytest

from batchledger.batch import Decision, QuarantinedRecord
from batchledger.offsets import OffsetRange, TopicPartition
from tests.contract import life
from tests.contract.warehouses import Warehouse

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, OTHER = OffsetRange(ORDERS_0, 0, 6), OffsetRange(ORDERS_1, 0, 3)
POISON = [(ORDERS_0, 1), (ORDERS_0, 2), (ORDERS_0, 5), (ORDERS_1, 0)]
ANA = Decision("ana", "never to be read")


@pytest.fixture
def poisoned(warehouse: Warehouse) -> Warehouse:
    """A pipeline with four records in quarantine, in two partitions."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER), poison=POISON)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    return warehouse


def test_records_in_quarantine_are_found_by_range_or_all(poisoned: Warehouse) -> None:
    everything = poisoned.ledger.find_quarantined(poisoned.pipeline, None)
    assert everything == [QuarantinedRecord(partition, offset, len(b"\x00{poison")) for partition, offset in POISON]
    asked = [OffsetRange(ORDERS_0, 2, 6), OffsetRange(ORDERS_1, 1, 3)]
    assert [each.offset for each in poisoned.ledger.find_quarantined(poisoned.pipeline, asked)] == [2, 5]
    assert poisoned.ledger.find_quarantined(poisoned.pipeline, []) == []
    assert poisoned.ledger.find_quarantined("another", None) == []


def test_records_are_read_with_everything_that_was_kept(poisoned: Warehouse) -> None:
    replay = life.store_replay(poisoned, OffsetRange(ORDERS_0, 1, 3), OffsetRange(ORDERS_1, 0, 1))
    kept = poisoned.evidence.read_quarantine(replay)
    expected = life.quarantine_of([(ORDERS_0, 1), (ORDERS_0, 2), (ORDERS_1, 0)])
    assert kept.schema == expected.schema
    assert kept.to_pylist() == expected.to_pylist()
    nothing = life.store_replay(poisoned, OffsetRange(ORDERS_0, 3, 4), run="nothing")
    assert poisoned.evidence.read_quarantine(nothing).num_rows == 0


def test_dropping_removes_exactly_the_named_records_once(poisoned: Warehouse) -> None:
    ranges = [OffsetRange(ORDERS_0, 2, 6)]
    assert [poisoned.ledger.drop_quarantined(poisoned.pipeline, ranges, ANA) for _ in range(2)] == [2, 0]
    left = [(each.partition, each.offset) for each in poisoned.ledger.find_quarantined(poisoned.pipeline, None)]
    assert left == [(ORDERS_0, 1), (ORDERS_1, 0)]


def test_publication_sees_what_was_dropped_since_it_was_staged(poisoned: Warehouse) -> None:
    attempt = life.take_replay_to_audited(poisoned, OffsetRange(ORDERS_0, 1, 3))
    poisoned.ledger.drop_quarantined(poisoned.pipeline, [OffsetRange(ORDERS_0, 2, 6)], ANA)
    with poisoned.ledger.publication(attempt) as publication:
        found = publication.find_quarantined()
        life.apply(poisoned, publication)
    assert [(each.partition, each.offset) for each in found] == [(ORDERS_0, 1)]


@pytest.mark.parametrize("drops_first", [True, False])
def test_proof_holds_when_records_were_dropped_before_or_after_a_replay_took_others_over(
    poisoned: Warehouse, drops_first: bool
) -> None:
    dropped = [OffsetRange(ORDERS_0, 2, 6)]
    if drops_first:
        assert poisoned.ledger.drop_quarantined(poisoned.pipeline, dropped, ANA) == 2
        assert poisoned.prove().findings == ()
    life.publish(poisoned, life.take_replay_to_audited(poisoned, OffsetRange(ORDERS_0, 0, 4)))
    assert poisoned.prove().findings == ()
    if not drops_first:
        assert poisoned.ledger.drop_quarantined(poisoned.pipeline, dropped, ANA) == 1
    assert poisoned.prove().findings == ()
    assert [each.offset for each in poisoned.ledger.find_quarantined(poisoned.pipeline, None)] == [0]
