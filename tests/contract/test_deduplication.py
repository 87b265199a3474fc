"""The contract of the Sink port with ``dedupe``: of the records with one message key, one is in the target."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from batchledger.lifecycle.requirement import check_rows, publish_rows
from batchledger.model.balance import TargetCount
from batchledger.model.batch import Attempt
from batchledger.model.checks import IntegrityCheck
from batchledger.model.errors import AuditOutdatedError, BatchBlockedError, ConfigurationError, StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.rules import Deduplication
from batchledger.ports import Publication, committing
from tests.contract import life
from tests.contract.conftest import JUDGED_IN_DATABASE
from tests.contract.warehouses import Warehouse
from tests.fakes.database import Coordinate
from tests.fakes.work import ROW_SCHEMA

WAREHOUSES = JUDGED_IN_DATABASE
pytestmark = pytest.mark.rules

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MONTH = timedelta(days=30)
BY_ID = Deduplication(("message_id",), MONTH)

Ids = Mapping[TopicPartition, str]
"""The message ids of a partition's records in the order of their offsets, one letter each; - is null."""


@pytest.fixture
def store(warehouse: Warehouse) -> Warehouse:
    """A sink that drops duplicates of ``message_id``."""
    return warehouse.with_rules(BY_ID)


def rows_of(ranges: Sequence[OffsetRange], ids: Ids) -> pa.RecordBatch:
    rows = [
        {
            "_topic": each.partition.topic,
            "_partition": each.partition.partition,
            "_offset": each.start + index,
            "_timestamp": life.NOW,
            "message_id": None if letter == "-" else letter,
        }
        for each in ranges
        for index, letter in enumerate(ids[each.partition])
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA)


def stage(warehouse: Warehouse, run: str, **ids: str) -> Attempt:
    """Stage the next records of ``orders``: ``p0="ab"`` are two of partition 0."""
    by_partition = {TopicPartition("orders", int(name[1:])): letters for name, letters in ids.items()}
    positions = life.next_offsets(warehouse)
    ranges = [
        OffsetRange(each, positions.get(each, 0), positions.get(each, 0) + len(letters))
        for each, letters in by_partition.items()
    ]
    return life.stage(warehouse, life.store(warehouse, *ranges, run=run), run, rows=rows_of(ranges, by_partition))


def take(warehouse: Warehouse, run: str, **ids: str) -> Attempt:
    """Take the next records through the whole life."""
    attempt = stage(warehouse, run, **ids)
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    return attempt


def duplicates_of(warehouse: Warehouse, attempt: Attempt) -> list[int]:
    return [each.duplicates for each in life.summarise(warehouse, attempt)]


def visible(warehouse: Warehouse) -> list[Coordinate]:
    return life.target_coordinates(warehouse)


def test_second_record_of_a_key_in_one_batch_is_dropped_and_listed(store: Warehouse) -> None:
    take(store, "run-1", p0="aba")
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1)]
    assert list(store.read_duplicates()) == [((ORDERS_0, 2), (ORDERS_0, 0))]


def test_lowest_partition_and_offset_wins_within_a_batch(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p1="xa", p0="yxa")
    assert duplicates_of(store, attempt) == [0, 2]
    life.audit(store, attempt)
    assert life.publish(store, attempt) == 3
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 2)]
    assert list(store.read_duplicates()) == [((ORDERS_1, 0), (ORDERS_0, 1)), ((ORDERS_1, 1), (ORDERS_0, 2))]


def test_record_whose_key_an_earlier_batch_accepted_is_dropped_and_points_at_it(store: Warehouse) -> None:
    take(store, "run-1", p0="ab", p1="c")
    take(store, "run-2", p0="cd", p1="aa")
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 3), (ORDERS_1, 0)]
    assert list(store.read_duplicates()) == [
        ((ORDERS_0, 2), (ORDERS_1, 0)),
        ((ORDERS_1, 1), (ORDERS_0, 0)),
        ((ORDERS_1, 2), (ORDERS_0, 0)),
    ]


@pytest.mark.lake
def test_accepted_rows_leave_out_the_duplicates_in_balance_and_target(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="aab")
    (balance,) = life.balance(store, attempt)
    assert (balance.accepted, balance.duplicates, balance.unexplained) == (2, 1, 0)
    life.audit(store, attempt)
    assert life.publish(store, attempt) == 2
    counted = dict(store.sink.count_target(store.pipeline).by_batch)
    assert counted == {(attempt.batch.batch_id, ORDERS_0): TargetCount(2, 2, 0, 2)}


@pytest.mark.lake
def test_key_with_a_null_is_never_a_duplicate(store: Warehouse) -> None:
    take(store, "run-1", p0="--")
    take(store, "run-2", p0="-a")
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 2), (ORDERS_0, 3)]
    assert list(store.read_duplicates()) == []


def test_key_of_several_columns_needs_all_of_them_to_be_equal(warehouse: Warehouse) -> None:
    both = warehouse.with_rules(Deduplication(("message_id", "_partition"), MONTH))
    take(both, "run-1", p0="aa", p1="a")
    assert visible(both) == [(ORDERS_0, 0), (ORDERS_1, 0)]


@pytest.mark.parametrize(("passed", "dropped"), [(MONTH - timedelta(microseconds=1), [1]), (MONTH, [0])])
def test_key_is_forgotten_when_the_batch_was_planned_late_enough(
    store: Warehouse, passed: timedelta, dropped: list[int]
) -> None:
    first = take(store, "run-1", p0="a")
    second = stage(store, "run-2", p0="a")
    later = replace(second, batch=replace(second.batch, planned_at=first.batch.planned_at + passed))
    assert duplicates_of(store, later) == dropped
    life.audit(store, later)
    assert life.publish(store, later) == 1 - dropped[0]
    assert len(store.read_duplicates()) == dropped[0]


def test_key_that_was_forgotten_and_came_again_is_remembered_anew(warehouse: Warehouse) -> None:
    fleeting = warehouse.with_rules(Deduplication(("message_id",), timedelta(microseconds=1)))
    take(fleeting, "run-1", p0="a")
    take(fleeting, "run-2", p0="aa")
    assert visible(fleeting) == [(ORDERS_0, 0), (ORDERS_0, 1)]
    assert list(fleeting.read_duplicates()) == [((ORDERS_0, 2), (ORDERS_0, 1))]


def test_i6_counting_duplicates_changes_nothing(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="aa")
    for _ in range(2):
        assert duplicates_of(store, attempt) == [1]
    assert list(store.read_duplicates()) == []


def write_rows(warehouse: Warehouse, attempt: Attempt) -> int:
    """The first of the two commits of at_least_once."""
    with warehouse.ledger.publication(attempt) as publication:
        rows = publish_rows(warehouse.sink, publication, publication.load())
        publication.mark_rows()
        if not warehouse.sink.capabilities.shares_transaction:
            committing(warehouse.sink).commit(rows)
    return rows.accepted


def take_over(warehouse: Warehouse, earlier: Attempt, run: str, ids: str) -> Attempt:
    """Stage and audit the records of partition 0 once more, in an attempt of another run."""
    again = rows_of(earlier.batch.ranges, {ORDERS_0: ids})
    attempt = life.stage(warehouse, earlier.batch, run, rows=again)
    life.audit(warehouse, attempt)
    return attempt


def test_rows_that_an_earlier_attempt_has_committed_are_accepted_and_not_inserted_again(store: Warehouse) -> None:
    """At least once, killed between the two commits: each message is there once, and the balance is the same."""
    attempt = stage(store, "run-1", p0="aabc")
    (balance,) = life.balance(store, attempt)
    life.audit(store, attempt)
    assert write_rows(store, attempt) == 3
    for run in ("run-2", "run-3"):
        attempt = take_over(store, attempt, run, "aabc")
        assert life.balance(store, attempt) == (balance,)
        for _ in range(2):
            assert write_rows(store, attempt) == 3
    assert life.publish(store, attempt) == 3
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 2), (ORDERS_0, 3)]
    assert list(store.read_duplicates()) == [((ORDERS_0, 1), (ORDERS_0, 0))]


@pytest.mark.table
def test_asking_what_a_publication_would_do_after_rows_were_committed_leaves_nothing_behind(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="ab")
    life.audit(store, attempt)
    write_rows(store, attempt)
    with store.ledger.publication(attempt) as publication:
        check_rows(store.sink, publication)
        assert publish_rows(store.sink, publication, publication.load()).accepted == 2
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1)]


@pytest.mark.table
def test_record_without_a_key_value_comes_again_with_its_batch(store: Warehouse) -> None:
    """Nothing tells that it is there already; at least once allows it."""
    attempt = stage(store, "run-1", p0="a-")
    life.audit(store, attempt)
    write_rows(store, attempt)
    assert write_rows(store, take_over(store, attempt, "run-2", "a-")) == 2
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 1)]


@pytest.mark.table
def test_record_that_an_earlier_attempt_did_not_accept_is_inserted_by_the_retry(store: Warehouse) -> None:
    """A transform may have changed in between: what counts is what was written, record by record."""
    attempt = stage(store, "run-1", p0="aab")
    life.audit(store, attempt)
    write_rows(store, attempt)
    assert write_rows(store, take_over(store, attempt, "run-2", "acb")) == 3
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 2)]


@pytest.mark.table
def test_key_that_another_batch_remembered_does_not_tell_that_this_one_has_written_the_record(store: Warehouse) -> None:
    """Otherwise a record could be lost, which at least once never allows."""
    attempt = stage(store, "run-1", p0="-")
    life.audit(store, attempt)
    write_rows(store, attempt)
    store.remember_key("a", (ORDERS_0, 0), attempt.batch.planned_at + MONTH)
    assert write_rows(store, take_over(store, attempt, "run-2", "a")) == 1
    assert visible(store) == [(ORDERS_0, 0), (ORDERS_0, 0)]


def test_staging_that_is_lost_after_its_rows_were_committed_is_told(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="aab")
    life.audit(store, attempt)
    write_rows(store, attempt)
    again = take_over(store, attempt, "run-2", "aab")
    store.lose_staging()
    with pytest.raises(StagingLostError):
        write_rows(store, again)


def fail_after_the_rows(warehouse: Warehouse, publication: Publication) -> None:
    publish_rows(warehouse.sink, publication, publication.load())
    raise BatchBlockedError("a fault after the rows", batch_id=1)


@pytest.mark.lake
def test_i3_publication_that_fails_remembers_nothing(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="aa")
    life.audit(store, attempt)
    with pytest.raises(BatchBlockedError), store.ledger.publication(attempt) as publication:
        fail_after_the_rows(store, publication)
    assert list(store.read_duplicates()) == []
    life.publish(store, attempt)
    assert visible(store) == [(ORDERS_0, 0)]


@pytest.mark.lake
def test_key_that_another_batch_remembered_after_the_audit_refuses_the_publication(store: Warehouse) -> None:
    """The audit would not have been passed by what is published now."""
    attempt = stage(store, "run-1", p0="ab")
    life.audit(store, attempt)
    store.remember_key("a", (ORDERS_1, 7), attempt.batch.planned_at + MONTH)
    with pytest.raises(AuditOutdatedError, match="duplicates"):
        life.publish(store, attempt)
    assert visible(store) == []
    assert life.next_offsets(store) == {ORDERS_0: 0}


@pytest.mark.lake
def test_s113_lost_staging_is_told_from_an_outdated_audit(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="aab")
    life.audit(store, attempt)
    store.lose_staging()
    with pytest.raises(StagingLostError) as refused:
        life.publish(store, attempt)
    assert type(refused.value) is StagingLostError


def test_pipelines_do_not_share_message_keys(store: Warehouse) -> None:
    attempt = stage(store, "run-1", p0="a")
    store.remember_key("a", (ORDERS_1, 7), attempt.batch.planned_at + MONTH, pipeline=f"{store.pipeline}_other")
    assert duplicates_of(store, attempt) == [0]
    life.audit(store, attempt)
    assert life.publish(store, attempt) == 1


def test_key_column_that_the_rows_do_not_have_is_refused_before_anything_is_written(warehouse: Warehouse) -> None:
    wrong = warehouse.with_rules(Deduplication(("mesage_id",), MONTH))
    with pytest.raises(ConfigurationError, match="mesage_id"):
        stage(wrong, "run-1", p0="a")


def offenders_of(warehouse: Warehouse, attempt: Attempt, limit: int = 20) -> list[str]:
    """The duplicates that a check would name."""
    check = IntegrityCheck.NO_DUPLICATE_MESSAGES
    return [str(each) for each in warehouse.sink.find_offenders(attempt, [check], limit)[check]]


def test_duplicates_are_named_with_the_records_that_came_first(store: Warehouse) -> None:
    take(store, "run-1", p0="ab", p1="c")
    attempt = stage(store, "run-2", p0="xxa", p1="c")
    named = [
        "orders[0]@3 (repeats orders[0]@2)",
        "orders[0]@4 (repeats orders[0]@0)",
        "orders[1]@1 (repeats orders[1]@0)",
    ]
    assert offenders_of(store, attempt) == named
    assert offenders_of(store, attempt, 1) == named[:1]


def test_duplicates_that_were_listed_when_their_range_was_published_are_known_and_not_named_again(
    store: Warehouse,
) -> None:
    """A replay names only what it finds anew."""
    take(store, "run-1", p0="aab")
    everything = OffsetRange(ORDERS_0, 0, 3)
    for ids, expected, named in (
        ("aab", (1, 1), []),
        ("aaa", (2, 1), ["orders[0]@2 (repeats orders[0]@0)"]),
    ):
        run = f"again-{ids}"
        batch = life.store_replay(store, everything, run=run)
        attempt = life.stage(store, batch, run, rows=rows_of([everything], {ORDERS_0: ids}))
        (staged,) = life.summarise(store, attempt)
        assert (staged.duplicates, staged.known_duplicates) == expected
        assert offenders_of(store, attempt) == named
