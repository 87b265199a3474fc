"""What is promised of records in quarantine: they are found, read as they were kept, and dropped only on purpose."""

import pytest

from batchledger.model.batch import Decision, QuarantinedRecord, Staged
from batchledger.model.offsets import OffsetRange, TopicPartition, single_offset
from batchledger.model.records.quarantine import KINDS_SHOWN, NOTHING, ErrorKind, QuarantineContent
from tests.contract import life
from tests.contract.decided import count_dropped
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


def drop(warehouse: Warehouse, ranges: list[OffsetRange]) -> int:
    return count_dropped(warehouse.decisions.drop_quarantined(warehouse.pipeline, ranges, ANA))


def test_dropping_removes_exactly_the_named_records_once(poisoned: Warehouse) -> None:
    ranges = [OffsetRange(ORDERS_0, 2, 6)]
    assert [drop(poisoned, ranges) for _ in range(2)] == [2, 0]
    left = [(each.partition, each.offset) for each in poisoned.ledger.find_quarantined(poisoned.pipeline, None)]
    assert left == [(ORDERS_0, 1), (ORDERS_1, 0)]


def test_publication_sees_what_was_dropped_since_it_was_staged(poisoned: Warehouse) -> None:
    attempt = life.take_replay_to_audited(poisoned, OffsetRange(ORDERS_0, 1, 3))
    drop(poisoned, [OffsetRange(ORDERS_0, 2, 6)])
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
        assert drop(poisoned, dropped) == 2
        proved = poisoned.prove()
        assert (proved.findings, proved.quarantine_dropped) == ((), 2)
    life.publish(poisoned, life.take_replay_to_audited(poisoned, OffsetRange(ORDERS_0, 0, 4)))
    assert poisoned.prove().findings == ()
    if not drops_first:
        assert drop(poisoned, dropped) == 1
    assert poisoned.prove().findings == ()
    assert [each.offset for each in poisoned.ledger.find_quarantined(poisoned.pipeline, None)] == [0]


def content(warehouse: Warehouse) -> dict[str, int]:
    """How many records of each kind of error the pipeline has in quarantine, which are all that there are."""
    found = warehouse.ledger.summarise_quarantine(warehouse.pipeline)
    assert found.records == len(warehouse.ledger.find_quarantined(warehouse.pipeline, None))
    assert found.kinds == len(found.most_frequent)
    assert warehouse.incidents.load_facts(warehouse.pipeline).quarantine == found
    return {each.error: each.records for each in found.most_frequent}


def publish_kinds(warehouse: Warehouse, range_: OffsetRange, errors: list[str], run: str) -> None:
    """Publish a live batch whose first records are quarantined, each with its error."""
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, range_, run=run).batch_id, run)
    writer = warehouse.evidence.open(attempt)
    places = [(range_.partition, range_.start + number) for number in range(len(errors))]
    for task, (place, error) in enumerate(zip(places, errors, strict=True)):
        life.witness(writer, task, [range_], life.quarantine_of([place], error))
    rows = life.batch_of_rows([each for each in life.rows_of([range_]) if each not in places])
    life.write(warehouse.sink.open_staging(attempt, rows.schema), 0, rows)
    warehouse.sink.seal_staging(attempt, [0])
    warehouse.ledger.mark_staged(attempt, Staged(rows.num_rows))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)


def test_content_follows_whatever_adds_records_and_removes_them(warehouse: Warehouse) -> None:
    assert warehouse.ledger.summarise_quarantine(warehouse.pipeline) == NOTHING
    publish_kinds(warehouse, FIRST, ["a", "b", "b"], "run-1")
    publish_kinds(warehouse, OTHER, ["b"], "run-2")
    assert content(warehouse) == {"b": 3, "a": 1}
    drop(warehouse, [OffsetRange(ORDERS_0, 0, 2)])
    assert content(warehouse) == {"b": 2}
    # The replay takes the record over and sets it aside once more, for another reason.
    replay = life.stage(warehouse, life.store_replay(warehouse, OTHER), "again", poison=[(ORDERS_1, 0)])
    life.audit(warehouse, replay)
    life.publish(warehouse, replay)
    assert content(warehouse) == {"b": 1, "not decodable": 1}
    for number, range_ in enumerate((OffsetRange(ORDERS_0, 2, 3), OTHER)):
        life.publish(warehouse, life.take_replay_to_audited(warehouse, range_, run=f"last-{number}"))
    assert content(warehouse) == {}


def test_kinds_of_other_pipelines_and_of_batches_that_are_not_published_do_not_count(
    poisoned: Warehouse, warehouse: Warehouse
) -> None:
    life.stage(warehouse, life.store(warehouse, OffsetRange(ORDERS_0, 6, 9), run="run-2"), "run-2", [(ORDERS_0, 6)])
    assert content(poisoned) == {"not decodable": 4}
    assert poisoned.ledger.summarise_quarantine("another") == NOTHING


def test_error_longer_than_an_index_can_hold_is_a_kind_as_any_other(warehouse: Warehouse) -> None:
    """Such as one that names a hundred checks."""
    long = [f"check {name * 5_000}: the row does not pass it" for name in "xy"]
    publish_kinds(warehouse, FIRST, [*long, long[1]], "run-1")
    assert content(warehouse) == {long[1]: 2, long[0]: 1}


def test_most_frequent_kinds_are_named_and_all_are_counted(warehouse: Warehouse) -> None:
    range_ = OffsetRange(ORDERS_0, 0, 30)
    errors = [f"kind {number}" for number in range(7) for _ in range(number // 2 + 1)]
    publish_kinds(warehouse, range_, errors, "run-1")
    found = warehouse.ledger.summarise_quarantine(warehouse.pipeline)
    expected = [("kind 6", 4), ("kind 4", 3), ("kind 5", 3), ("kind 2", 2), ("kind 3", 2)]
    assert found == QuarantineContent(16, 7, tuple(ErrorKind(*each) for each in expected))
    assert len(found.most_frequent) == KINDS_SHOWN


def test_what_would_be_quarantined_is_summarised_with_examples_and_repeated_tasks_count_once(
    warehouse: Warehouse,
) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    writer = warehouse.evidence.open(attempt)
    assert warehouse.evidence.summarise_quarantine(attempt) == NOTHING
    for task in range(2):
        life.witness(writer, task, [OTHER], life.quarantine_of([(ORDERS_1, 2), (ORDERS_1, 1)], "b"))
        life.witness(writer, task, [FIRST], life.quarantine_of([(ORDERS_0, 4)], "a"))
    life.witness(writer, 2, [FIRST], life.quarantine_of([(ORDERS_0, 5)], "b"))
    assert warehouse.evidence.summarise_quarantine(attempt) == QuarantineContent(
        4,
        2,
        (ErrorKind("b", 3, single_offset("orders", 0, 5)), ErrorKind("a", 1, single_offset("orders", 0, 4))),
    )
