"""What the ports promise to the checks of a pipeline file: rows to look at, records to set aside, history."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from batchledger.model.balance import StagedRange, WitnessedRange
from batchledger.model.batch import Attempt, BatchState
from batchledger.model.checks import CheckResult, FailedRecord, OnFailure, Outcome, Severity, Suite
from batchledger.model.errors import StagingLostError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.model.records.columns import DELETED_COLUMN
from batchledger.model.records.rules import Deduplication, Upsert
from batchledger.ports import RecentBatch, RowsToCheck
from batchledger.sinks.staging.tables import rows_table
from tests.contract import life
from tests.contract.warehouses import Warehouse, open_postgres
from tests.fakes.database import Coordinate
from tests.fakes.work import ROW_SCHEMA
from tests.support import wait_until

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, OTHER = OffsetRange(ORDERS_0, 0, 4), OffsetRange(ORDERS_1, 10, 12)
BY_ID = Deduplication(("message_id",), timedelta(days=30))
ASIDE = [FailedRecord(ORDERS_0, 1, ("odd",)), FailedRecord(ORDERS_1, 11, ("odd", "late"))]
NOT_RUN = CheckResult("broken", Outcome.NOT_RUN, "could not run", suite=Suite.PIPELINE)


def read(rows: RowsToCheck) -> list[Mapping[str, Any]]:
    """Look at the rows as checks do."""
    if isinstance(rows.connection, list):
        return rows.connection
    with rows.connection.cursor(row_factory=dict_row) as cursor:
        return list(cursor.execute(sql.SQL("select * from {}").format(sql.Identifier(rows.table))))


def places(rows: RowsToCheck) -> list[Coordinate]:
    return sorted((TopicPartition(row["_topic"], row["_partition"]), row["_offset"]) for row in read(rows))


def rows_with_ids(range_: OffsetRange, ids: str) -> pa.RecordBatch:
    place = {"_topic": range_.partition.topic, "_partition": range_.partition.partition, "_timestamp": life.NOW}
    return pa.RecordBatch.from_pylist(
        [{**place, "_offset": range_.start + at, "message_id": letter} for at, letter in enumerate(ids)],
        schema=ROW_SCHEMA,
    )


def records_of(failed: Sequence[FailedRecord]) -> pa.Table:
    return life.quarantine_of([(each.partition, each.offset) for each in failed])


def set_aside(warehouse: Warehouse, attempt: Attempt) -> None:
    assert not warehouse.evidence.set_aside(attempt, ASIDE, records_of(ASIDE))
    warehouse.sink.remove_staged(attempt, [each.range for each in ASIDE])


def test_checks_see_every_staged_row_with_the_columns_of_the_target(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    with life.open_rows(warehouse, attempt) as rows:
        assert places(rows) == life.rows_of([FIRST, OTHER])
        assert (rows.accepted, rows.checked) == (6, 6)
        assert list(read(rows)[0]) == ROW_SCHEMA.names


@pytest.mark.rules
def test_checks_do_not_see_duplicates_within_the_batch_nor_of_an_earlier_one(warehouse: Warehouse) -> None:
    warehouse = warehouse.with_rules(BY_ID)
    before = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_with_ids(FIRST, "abcd"))
    life.audit(warehouse, before)
    life.publish(warehouse, before)
    later = OffsetRange(ORDERS_0, 4, 8)
    attempt = life.stage(warehouse, life.store(warehouse, later, run="b"), "b", rows=rows_with_ids(later, "axyx"))
    with life.open_rows(warehouse, attempt) as rows:
        assert places(rows) == [(ORDERS_0, 5), (ORDERS_0, 6)]
        assert (rows.accepted, rows.checked) == (2, 2)


@pytest.mark.rules
def test_checks_of_a_replay_see_the_rows_that_it_replaces(warehouse: Warehouse) -> None:
    """A record is no duplicate of itself."""
    warehouse = warehouse.with_rules(BY_ID)
    before = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_with_ids(FIRST, "abca"))
    life.audit(warehouse, before)
    life.publish(warehouse, before)
    attempt = life.stage(warehouse, life.store_replay(warehouse, FIRST), "again", rows=rows_with_ids(FIRST, "abca"))
    with life.open_rows(warehouse, attempt) as rows:
        assert places(rows) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 2)]


@pytest.mark.rules
def test_what_is_counted_is_what_checks_have_seen_whatever_is_remembered_meanwhile(warehouse: Warehouse) -> None:
    warehouse = warehouse.with_rules(BY_ID)
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_with_ids(FIRST, "abca"))
    with warehouse.sink.read_staged(attempt) as staged:
        rows = staged.show()
        warehouse.remember_key("b", (ORDERS_1, 3), life.NOW + timedelta(days=999))
        assert places(rows) == [(ORDERS_0, 0), (ORDERS_0, 1), (ORDERS_0, 2)]
        assert list(staged.summarise()) == [StagedRange(FIRST, 4, 4, duplicates=1)]
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 4, 4, duplicates=2)]


@pytest.mark.rules
def test_checks_do_not_see_rows_that_delete_a_key(warehouse: Warehouse) -> None:
    warehouse = warehouse.with_rules(upsert=Upsert(("message_id",)))
    schema = ROW_SCHEMA.append(pa.field(DELETED_COLUMN, pa.bool_()))
    rows = rows_with_ids(FIRST, "abcd").append_column(schema.field(DELETED_COLUMN), pa.array([False, True, None, True]))
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows)
    with life.open_rows(warehouse, attempt) as opened:
        assert places(opened) == [(ORDERS_0, 0), (ORDERS_0, 2)]
        assert (opened.accepted, opened.checked) == (4, 2)


def test_rows_of_a_staging_that_is_gone_cannot_be_looked_at(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    warehouse.sink.drop_staging(attempt)
    with pytest.raises(StagingLostError), life.open_rows(warehouse, attempt):
        pass


def test_i6_looking_at_rows_changes_nothing_and_keeps_nobody_from_dropping_them(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    with life.open_rows(warehouse, attempt) as rows:
        read(rows)
        assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 4, 4)]
        warehouse.sink.drop_staging(attempt)

    def is_dropped() -> bool:
        warehouse.sink.drop_staging(attempt)
        with suppress(StagingLostError):
            life.summarise(warehouse, attempt)
            return False
        return True

    # The session of the reader, and with it its lock, ends a moment after its connection.
    wait_until(is_dropped)


def test_records_that_are_set_aside_leave_staging_and_are_quarantined_with_the_names_of_checks(
    warehouse: Warehouse,
) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    set_aside(warehouse, attempt)
    assert list(warehouse.evidence.list_set_aside(attempt)) == ASIDE
    assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 4, 1), WitnessedRange(OTHER, 2, 1)]
    assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3), StagedRange(OTHER, 1, 1)]
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == 4
    assert [place[:2] for place in warehouse.read_quarantine()] == [(ORDERS_0, 1), (ORDERS_1, 11)]
    assert warehouse.prove().holds


def test_setting_aside_again_changes_nothing(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER), poison=[(ORDERS_0, 3)])
    for _ in range(2):
        set_aside(warehouse, attempt)
    assert list(warehouse.evidence.list_set_aside(attempt)) == ASIDE
    assert [each.quarantined for each in warehouse.evidence.summarise(attempt)] == [2, 1]


def test_twins_that_set_aside_at_the_same_time_both_succeed(warehouse_dsn: str) -> None:
    """S4: both find that there is no table of such rows yet."""
    for warehouse in open_postgres(warehouse_dsn):
        attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
        with ThreadPoolExecutor() as threads, psycopg.connect(warehouse_dsn) as gate:
            gate.execute(sql.SQL("lock table {}").format(rows_table(attempt)))
            twins = [threads.submit(set_aside, warehouse, attempt) for _ in range(2)]
            wait_until(partial(are_waiting, warehouse_dsn, attempt, 2))
            gate.commit()
        assert [each.result() for each in twins] == [None, None]
        assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3), StagedRange(OTHER, 1, 1)]


def are_waiting(dsn: str, attempt: Attempt, expected: int) -> bool:
    query = "select count(*) from pg_locks where relation = %s::regclass and not granted"
    with psycopg.connect(dsn) as connection:
        return connection.execute(query, [rows_table(attempt).as_string()]).fetchall() == [(expected,)]


@pytest.mark.timeout(60)
def test_many_records_are_set_aside_in_seconds(warehouse_dsn: str) -> None:
    """Compared one by one with those that lie there, or with each range of rows, 30,000 would take minutes."""
    everything = OffsetRange(ORDERS_0, 0, 60_000)
    many = [FailedRecord(ORDERS_0, offset, ("odd",)) for offset in range(0, 60_000, 2)]
    for warehouse in open_postgres(warehouse_dsn):
        attempt = life.stage(warehouse, life.store(warehouse, everything))
        started = monotonic()
        assert not warehouse.evidence.set_aside(attempt, many, records_of(many))
        warehouse.sink.remove_staged(attempt, [each.range for each in many])
        assert monotonic() - started < 20
        assert list(life.summarise(warehouse, attempt)) == [StagedRange(everything, 30_000, 30_000)]
        assert list(warehouse.evidence.list_set_aside(attempt)) == many


def test_nothing_is_set_aside_when_a_record_is_missing(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    missing = warehouse.evidence.set_aside(attempt, ASIDE, records_of(ASIDE[:1]))
    assert list(missing) == [OffsetRange(ORDERS_1, 11, 12)]
    assert list(warehouse.evidence.list_set_aside(attempt)) == []


def test_undecodable_records_were_not_set_aside_by_checks(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), poison=[(ORDERS_0, 3)])
    assert list(warehouse.evidence.list_set_aside(attempt)) == []


def test_attempts_set_aside_for_themselves(warehouse: Warehouse) -> None:
    batch = life.store(warehouse, FIRST, OTHER)
    set_aside(warehouse, life.stage(warehouse, batch))
    second = life.stage(warehouse, batch, "run-2")
    assert list(warehouse.evidence.list_set_aside(second)) == []
    assert list(life.summarise(warehouse, second)) == [StagedRange(FIRST, 4, 4), StagedRange(OTHER, 2, 2)]


@pytest.mark.parametrize(
    ("severity", "on_failure", "outcome", "state"),
    [
        (Severity.CRITICAL, OnFailure.BLOCK, Outcome.FAILED, BatchState.BLOCKED),
        (Severity.CRITICAL, OnFailure.BLOCK, Outcome.PASSED, BatchState.AUDITED),
        (Severity.CRITICAL, OnFailure.BLOCK, Outcome.EMPTY, BatchState.AUDITED),
        (Severity.CRITICAL, OnFailure.BLOCK, Outcome.NOT_RUN, BatchState.STAGED),
        (Severity.CRITICAL, OnFailure.PUBLISH, Outcome.NOT_RUN, BatchState.STAGED),
        (Severity.CRITICAL, OnFailure.PUBLISH, Outcome.FAILED, BatchState.AUDITED),
        (Severity.CRITICAL, OnFailure.QUARANTINE, Outcome.FAILED, BatchState.AUDITED),
        (Severity.WARNING, OnFailure.BLOCK, Outcome.FAILED, BatchState.AUDITED),
        (Severity.WARNING, OnFailure.BLOCK, Outcome.NOT_RUN, BatchState.AUDITED),
        (Severity.INFO, OnFailure.BLOCK, Outcome.FAILED, BatchState.AUDITED),
    ],
)
def test_result_decides_by_severity_and_policy_and_is_stored_as_it_is(
    warehouse: Warehouse, severity: Severity, on_failure: OnFailure, outcome: Outcome, state: BatchState
) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    check = CheckResult("c", outcome, "d", {"rows": 4}, severity, Suite.PIPELINE, {"success": False}, on_failure)
    batch = warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), [life.PASSED, check])
    assert batch.state is state
    assert list(warehouse.ledger.load_checks(batch.batch_id)) == [life.PASSED, check]


def test_audit_that_is_repeated_replaces_the_results_of_the_one_before(warehouse: Warehouse) -> None:
    """The check that could not run was taken out of the file, or has another name now."""
    attempt = life.stage(warehouse, life.store(warehouse, FIRST))
    balances = life.balance(warehouse, attempt)
    assert warehouse.ledger.record_audit(attempt, balances, [life.PASSED, NOT_RUN]).state is BatchState.STAGED
    assert warehouse.ledger.record_audit(attempt, balances, [life.PASSED]).state is BatchState.AUDITED
    assert list(warehouse.ledger.load_checks(attempt.batch.batch_id)) == [life.PASSED]


def test_audited_batch_that_cannot_be_judged_again_is_not_audited_any_more(warehouse: Warehouse) -> None:
    attempt = life.take_to_audited(warehouse, FIRST)
    balances = life.balance(warehouse, attempt)
    batch = warehouse.ledger.record_audit(attempt, balances, [life.PASSED, NOT_RUN], BatchState.AUDITED)
    assert batch.state is BatchState.STAGED


def test_recent_batches_are_the_published_live_ones_with_what_checks_observed(warehouse: Warehouse) -> None:
    assert list(warehouse.ledger.load_recent(warehouse.pipeline, 9)) == []
    observed = CheckResult("spread", Outcome.PASSED, "d", {"percentiles": [1.5, 2.5]}, suite=Suite.PIPELINE)
    ids = []
    for number in range(3):
        range_ = OffsetRange(ORDERS_0, number * 3, number * 3 + 3)
        attempt = life.stage(warehouse, life.store(warehouse, range_, run=f"run-{number}"), f"run-{number}")
        checks = [life.PASSED, observed] if number else [life.PASSED]
        warehouse.ledger.record_audit(attempt, life.balance(warehouse, attempt), checks)
        life.publish(warehouse, attempt)
        ids.append(attempt.batch.batch_id)
    life.publish(warehouse, life.take_replay_to_audited(warehouse, OffsetRange(ORDERS_0, 0, 3)))
    life.take_to_audited(warehouse, OffsetRange(ORDERS_0, 9, 10), run="open")
    spread = {"spread": {"percentiles": [1.5, 2.5]}}
    expected = [RecentBatch(ids[2], 3, spread), RecentBatch(ids[1], 3, spread), RecentBatch(ids[0], 3, {})]
    assert list(warehouse.ledger.load_recent(warehouse.pipeline, 9)) == expected
    assert list(warehouse.ledger.load_recent(warehouse.pipeline, 2)) == expected[:2]


def test_staging_is_removed_with_what_was_set_aside(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST, OTHER))
    set_aside(warehouse, attempt)
    warehouse.sink.drop_staging(attempt)
    warehouse.evidence.drop(attempt)
    with suppress(StagingLostError):
        assert list(warehouse.evidence.list_set_aside(attempt)) == []
