"""The contract of the Sink port."""

from dataclasses import replace
from functools import partial

import psycopg
import pyarrow as pa
import pytest

from batchledger.lifecycle import delivery
from batchledger.lifecycle.requirement import check_rows, require_own_target
from batchledger.model.balance import StagedRange, TargetCount
from batchledger.model.batch import Attempt, Staged
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import StagingError, StagingLostError, TargetChangedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.life import FIRST, ORDERS_0, ORDERS_1, OTHER, SECOND
from tests.contract.warehouses import Warehouse
from tests.fakes.work import ROW_SCHEMA
from tests.support import wait_until

WAREHOUSES = EVERY_SINK

MANY = OffsetRange(ORDERS_0, 0, 40_000)
# A client sends a MiB at a time, and the server takes up to 1,000 rows together.
KEPT_BACK = 16_000

WRITE_REFUSED = (StagingError, psycopg.errors.UndefinedTable)


def test_staged_rows_are_counted_by_range_and_seen_by_nobody(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3), StagedRange(OTHER, 2, 2)]
    assert life.target_coordinates(warehouse) == []


def test_empty_staging_has_a_count_for_every_range(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST, OTHER).batch_id, "run-1")
    life.write(warehouse.sink.open_staging(attempt, ROW_SCHEMA), 0)
    warehouse.sink.seal_staging(attempt, [])
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 0, 0), StagedRange(OTHER, 0, 0)]


def find_offenders(warehouse: Warehouse, attempt: Attempt, limit: int) -> dict[IntegrityCheck, list[str]]:
    """What each check names, as people read it."""
    found = warehouse.sink.find_offenders(attempt, IntegrityCheck, limit)
    return {check: [str(each) for each in offenders] for check, offenders in found.items()}


def test_duplicates_planted_in_staging_are_reported_as_facts_with_coordinates(warehouse: Warehouse) -> None:
    extra = [(ORDERS_0, 1), (ORDERS_0, 1), (ORDERS_1, 11)]
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER), extra=extra)
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 5, 3), StagedRange(OTHER, 3, 2)]
    offenders = find_offenders(warehouse, attempt, 10)
    assert offenders[IntegrityCheck.NO_DUPLICATE_OFFSETS] == ["orders[0]@1", "orders[1]@11"]
    assert find_offenders(warehouse, attempt, 1)[IntegrityCheck.NO_DUPLICATE_OFFSETS] == ["orders[0]@1"]


def test_rows_outside_of_the_ranges_are_reported_as_facts_with_coordinates(warehouse: Warehouse) -> None:
    extra = [(ORDERS_0, 3), (ORDERS_1, 9), (TopicPartition("payments", 0), 0)]
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER), extra=extra)
    assert list(life.summarise(warehouse, attempt)) == [
        StagedRange(FIRST, 3, 3, outside=3),
        StagedRange(OTHER, 2, 2),
    ]
    offenders = find_offenders(warehouse, attempt, 10)
    expected = ["orders[0]@3", "orders[1]@9", "payments[0]@0"]
    assert offenders[IntegrityCheck.NO_ROWS_OUTSIDE_RANGES] == expected
    assert offenders[IntegrityCheck.NO_DUPLICATE_OFFSETS] == []


def test_i6_looking_at_staging_changes_nothing(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    for _ in range(2):
        assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3)]
        warehouse.sink.find_offenders(attempt, IntegrityCheck, 10)


def test_s75_rows_of_tasks_that_were_not_accepted_are_removed(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)
    accepted, failed, zombie = 4_000_000_001, 2, 3
    for task in (accepted, failed, zombie):
        life.write(writer, task, life.batch_of_rows(life.rows_of([FIRST])))
    warehouse.sink.seal_staging(attempt, [accepted])
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3)]


def test_s76_no_accepted_task_leaves_no_row(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    life.write(warehouse.sink.open_staging(attempt, ROW_SCHEMA), 0, life.batch_of_rows(life.rows_of([FIRST])))
    warehouse.sink.seal_staging(attempt, [])
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 0, 0)]


def test_s75_zombie_write_after_sealing_is_refused(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)
    life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))
    warehouse.sink.seal_staging(attempt, [0])
    with pytest.raises(WRITE_REFUSED):
        life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3)]


def test_s75_zombie_write_after_the_cleaning_up_is_refused(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)
    warehouse.sink.drop_staging(attempt)
    with pytest.raises(WRITE_REFUSED):
        life.write(writer, 0, life.batch_of_rows(life.rows_of([FIRST])))


def test_write_that_fails_half_way_leaves_no_row(warehouse: Warehouse) -> None:
    """S92."""
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)

    def write_half() -> None:
        with writer.open(0) as write:
            write(life.batch_of_rows(life.rows_of([FIRST])))
            raise RuntimeError("the task was killed")

    with pytest.raises(RuntimeError, match="the task was killed"):
        write_half()
    warehouse.sink.seal_staging(attempt, [0])
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 0, 0)]


@pytest.mark.table
def test_rows_on_their_way_are_counted_until_their_task_is_over(warehouse: Warehouse) -> None:
    """However it is over: what it has written whole is counted elsewhere, what it took back is not there."""
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, MANY, OTHER).batch_id, "run-1")
    count = partial(warehouse.sink.count_arriving, attempt)
    assert count() == 0
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)
    rows = life.batch_of_rows(life.rows_of([MANY]))

    def write_until_killed() -> None:
        with writer.open(1) as write:
            write(rows)
            wait_until(lambda: count() > 2 * (len(MANY) - KEPT_BACK))
            raise RuntimeError("the task was killed")

    with writer.open(0) as write:
        assert count() == 0
        write(rows)
        wait_until(lambda: count() > len(MANY) - KEPT_BACK)
        assert count() <= len(MANY)
        with pytest.raises(RuntimeError, match="the task was killed"):
            write_until_killed()
        wait_until(lambda: count() <= len(MANY))
        write(rows)
        wait_until(lambda: count() > 2 * len(MANY) - KEPT_BACK)
        assert count() <= 2 * len(MANY)
    wait_until(lambda: count() == 0)
    warehouse.sink.seal_staging(attempt, [0])
    assert count() == 0


@pytest.mark.table
def test_rows_on_their_way_to_another_attempt_are_not_counted(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, MANY)
    first = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    with warehouse.sink.open_staging(first, ROW_SCHEMA).open(0) as write:
        write(life.batch_of_rows(life.rows_of([MANY])))
        wait_until(lambda: warehouse.sink.count_arriving(first) > 0)
        second = warehouse.ledger.open_attempt(batch.batch_id, "run-2")
        warehouse.sink.open_staging(second, ROW_SCHEMA)
        assert warehouse.sink.count_arriving(second) == 0


def test_attempts_have_staging_of_their_own(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    life.stage(warehouse, batch, "run-1")
    second = life.stage(warehouse, batch, "run-2")
    assert list(life.summarise(warehouse, second)) == [StagedRange(FIRST, 3, 3)]
    life.audit(warehouse, second)
    life.publish(warehouse, second)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_published_rows_carry_values_provenance_and_batch_id(warehouse: Warehouse) -> None:
    attempt = life.take_to_published(warehouse, OffsetRange(ORDERS_0, 0, 1))
    assert [dict(row) for row in warehouse.read_target()] == [
        {
            "_topic": "orders",
            "_partition": 0,
            "_offset": 0,
            "_timestamp": life.NOW,
            "message_id": "orders[0]@0",
            "_batch_id": attempt.batch.batch_id,
        }
    ]


def test_batches_add_up_in_the_target(warehouse: Warehouse) -> None:
    first = life.take_to_published(warehouse, FIRST, OTHER)
    second = life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST, SECOND, OTHER])
    assert dict(warehouse.sink.count_target(warehouse.pipeline).by_batch) == {
        (first.batch.batch_id, ORDERS_0): TargetCount(3, 3, 0, 2),
        (first.batch.batch_id, ORDERS_1): TargetCount(2, 2, 10, 11),
        (second.batch.batch_id, ORDERS_0): TargetCount(2, 2, 3, 4),
    }


def test_target_that_does_not_exist_yet_counts_nothing(warehouse: Warehouse) -> None:
    assert dict(warehouse.sink.count_target(warehouse.pipeline).by_batch) == {}


def test_s113_rows_that_vanished_after_the_audit_are_not_published(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.lose_staging()
    with pytest.raises(StagingLostError):
        life.publish(warehouse, attempt)
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


def test_publishing_without_staging_is_refused(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    warehouse.sink.drop_staging(attempt)
    with pytest.raises(StagingLostError):
        life.publish(warehouse, attempt)
    assert life.next_offsets(warehouse) == {ORDERS_0: 0}


def test_s111_another_table_under_the_old_name_is_refused(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    warehouse.replace_target()
    with pytest.raises(TargetChangedError, match=r"another (target|one)"):
        life.take_to_published(warehouse, SECOND, run="run-2")
    assert life.next_offsets(warehouse) == {ORDERS_0: 3}
    assert life.target_coordinates(warehouse) == []


@pytest.mark.table
def test_s122_column_that_the_target_does_not_have_is_refused_before_anything_is_staged(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, SECOND, run="run-2").batch_id, "run-2")
    with pytest.raises(TargetChangedError, match=r"cannot take the rows|lacks discount"):
        warehouse.sink.open_staging(attempt, ROW_SCHEMA.append(pa.field("discount", pa.float64())))


def test_dropping_staging_is_harmless_to_repeat_and_leaves_other_batches_alone(warehouse: Warehouse) -> None:
    published = life.take_to_published(warehouse, FIRST)
    attempt = life.stage(warehouse, life.store(warehouse, SECOND, run="run-2"), "run-2")
    for _ in range(2):
        warehouse.sink.drop_staging(published)
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(SECOND, 2, 2)]


def test_i4_cleaning_up_after_a_fenced_attempt_leaves_the_newer_one_alone(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST)
    fenced = life.stage(warehouse, batch, "run-1")
    newer = life.stage(warehouse, batch, "run-2")
    warehouse.sink.drop_staging(fenced)
    assert list(life.summarise(warehouse, newer)) == [StagedRange(FIRST, 3, 3)]


def test_more_than_one_record_batch_is_one_write(warehouse: Warehouse) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    writer = warehouse.sink.open_staging(attempt, ROW_SCHEMA)
    pieces = [life.batch_of_rows([each]) for each in life.rows_of([FIRST])]
    life.write(writer, 0, *pieces)
    warehouse.sink.seal_staging(attempt, [0])
    warehouse.ledger.mark_staged(attempt, Staged(3))
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3)]


def test_target_of_another_pipeline_is_refused_before_anything_is_staged(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other")  # type: ignore[type-var]
    attempt = other.ledger.open_attempt(life.store(other, FIRST).batch_id, "run-1")
    with pytest.raises(TargetChangedError, match=rf"(?s)belongs to another pipeline.*{warehouse.pipeline}\b"):
        require_own_target(life.platform(other), attempt)
    with pytest.raises(StagingLostError), other.sink.read_staged(attempt):
        pass
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_of_two_pipelines_that_stage_at_once_for_one_target_the_later_one_is_refused(warehouse: Warehouse) -> None:
    other = replace(warehouse, pipeline=f"{warehouse.pipeline}_other")  # type: ignore[type-var]
    attempt = life.take_to_audited(other, FIRST)
    life.take_to_published(warehouse, FIRST)
    with pytest.raises(TargetChangedError, match="belongs to another pipeline") as refused:
        delivery.deliver(life.platform(other), replace(attempt, batch=other.ledger.load_batch(attempt.batch.batch_id)))
    assert (refused.value.pipeline, refused.value.owner) == (other.pipeline, warehouse.pipeline)
    assert life.next_offsets(other) == {FIRST.partition: 0}
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_check_raises_what_publish_would_and_changes_nothing(warehouse: Warehouse) -> None:
    """At most once asks before it moves the position."""
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND)
    with warehouse.ledger.publication(attempt) as publication:
        check_rows(warehouse.sink, publication)
        publication.mark_rows()
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])
    warehouse.lose_staging()
    with pytest.raises(StagingLostError), warehouse.ledger.publication(attempt) as publication:
        check_rows(warehouse.sink, publication)
    again = life.stage(warehouse, attempt.batch, "run-2")
    life.audit(warehouse, again)
    warehouse.replace_target()
    with pytest.raises(TargetChangedError), warehouse.ledger.publication(again) as publication:
        check_rows(warehouse.sink, publication)


def test_check_of_a_first_publication_needs_no_target(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    with warehouse.ledger.publication(attempt) as publication:
        check_rows(warehouse.sink, publication)
    assert life.publish(warehouse, attempt) == 3


def test_tidying_takes_nothing_from_readers_nor_from_an_open_batch(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    attempt = life.take_to_audited(warehouse, SECOND, run="run-2")
    for is_dry_run in (True, False):
        done = warehouse.sink.tidy(is_dry_run=is_dry_run)
        assert sum(each.count for each in done.removals) == 0
    assert life.publish(warehouse, attempt) == len(SECOND)
    assert life.target_coordinates(warehouse) == sorted(life.rows_of([FIRST, SECOND]))
