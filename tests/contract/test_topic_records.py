"""The records that wait beside the staged rows of a topic: what is sent, in which order, and what is refused."""

import json

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.transactions import STAGING_SCHEMA
from batchledger.lifecycle.delivery import deliver
from batchledger.model.batch import Attempt, BatchState, Staged
from batchledger.model.errors import StagingLostError
from batchledger.model.offsets import OffsetRange, merge_ranges, single_offset
from batchledger.sinks.topic import staged_records as topic_records
from tests.contract import life
from tests.contract.decided import assert_proved
from tests.contract.life import OTHER, SECOND
from tests.contract.topic_warehouse import TopicWarehouse
from tests.fakes.crash import CrashOnce, SimulatedCrashError
from tests.topics import read_messages

WAREHOUSES = ("topic",)
LONG = OffsetRange(life.ORDERS_0, 0, 40)


def tables(warehouse: TopicWarehouse, attempt: Attempt) -> set[str]:
    """The kinds of tables that wait for an attempt."""
    pattern = f"b{attempt.batch.batch_id}_a{attempt.number}_"
    with psycopg.connect(warehouse.dsn) as connection:
        query = "select tablename from pg_tables where schemaname = %s and starts_with(tablename, %s)"
        return {name.removeprefix(pattern) for (name,) in connection.execute(query, [STAGING_SCHEMA, pattern])}


def stage_in_parts(warehouse: TopicWarehouse, *parts: pa.RecordBatch) -> Attempt:
    """Stage each part by a task of its own, as after a transform that has shuffled the rows."""
    batch = life.store(warehouse, LONG)
    attempt = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    life.witness(warehouse.evidence.open(attempt), 0, batch.ranges)
    life.require_own_target(life.platform(warehouse), attempt)
    writer = warehouse.sink.open_staging(attempt, parts[0].schema)
    for task, part in enumerate(parts):
        life.write(writer, task, part)
    warehouse.sink.seal_staging(attempt, list(range(len(parts))))
    warehouse.ledger.mark_staged(attempt, Staged(sum(each.num_rows for each in parts)))
    life.audit(warehouse, attempt)
    return attempt


def test_records_are_sent_in_the_order_of_their_offsets_whichever_task_has_written_them(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_records, "OFFSETS_IN_PIECE", 16)
    offsets = [(7 * each) % 40 for each in range(40)]
    rows = life.batch_of_rows([(life.ORDERS_0, each) for each in offsets])
    attempt = stage_in_parts(warehouse, rows.slice(0, 13), rows.slice(13, 20), rows.slice(33))
    assert life.publish(warehouse, attempt) == 40
    found = [json.loads(each.value())["message_id"] for each in read_messages(warehouse.options, warehouse.topic)]
    assert found == [f"orders[0]@{each}" for each in range(40)]
    assert_proved(warehouse)


def test_records_that_lie_apart_are_read_apart_however_many_offsets_a_piece_may_have(
    warehouse: TopicWarehouse,
) -> None:
    """So the memory of a publication does not grow with the size of records: a task writes blocks of bounded size."""
    rows = life.batch_of_rows([(life.ORDERS_0, each) for each in range(40)])
    attempt = stage_in_parts(warehouse, rows.slice(20), rows.slice(0, 15), rows.slice(15, 5))
    with warehouse.ledger.publication(attempt) as publication:
        warehouse.sink.publish(publication.load())
        blocks = list(topic_records.StagedRecords(publication.connection, attempt).read())
        publication.connection.rollback()
    assert [each.records.num_rows for each in blocks] == [15, 5, 20]


def test_what_is_merged_is_bounded_by_bytes_however_large_records_are(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks have every other record, one of them small ones, so that their windows differ."""
    monkeypatch.setattr(topic_records, "BYTES_IN_WINDOW", 4096)
    rows = life.batch_of_rows([(life.ORDERS_0, each) for each in range(40)])
    texts = pa.array(["x" * (500 if each % 2 else 100) for each in range(40)])
    rows = rows.set_column(rows.schema.get_field_index("message_id"), "message_id", texts)
    halves = [rows.take(pa.array(range(first, 40, 2))) for first in (0, 1)]
    attempt = stage_in_parts(warehouse, *halves)
    with warehouse.ledger.publication(attempt) as publication:
        warehouse.sink.publish(publication.load())
        blocks = list(topic_records.StagedRecords(publication.connection, attempt).read())
        publication.connection.rollback()
    offsets = [each.records["offset"].to_pylist() for each in blocks]
    assert [offset for each in offsets for offset in each] == list(range(40))
    assert [each[0] for each in offsets] == [0, 16, 32]


def test_records_of_rows_that_were_set_aside_are_not_sent(warehouse: TopicWarehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, LONG, OTHER))
    aside = merge_ranges([single_offset("orders", 0, 3), OffsetRange(life.ORDERS_0, 30, 40), OTHER])
    warehouse.sink.remove_staged(attempt, aside)
    with warehouse.ledger.publication(attempt, BatchState.STAGED) as publication:
        prepared = warehouse.sink.publish(publication.load())
        records = topic_records.StagedRecords(publication.connection, attempt)
        sent = {each.source: each.records["offset"].to_pylist() for each in records.read()}
        assert (prepared.accepted, records.count()) == (29, 29)
        largest, size_bytes = records.find_largest() or (None, 0)
        publication.connection.rollback()
    assert sent == {life.ORDERS_0: [each for each in range(30) if each != 3]}
    # All others are shorter, or as long and behind it.
    assert largest == single_offset("orders", 0, 10)
    assert size_bytes == len(b'{"message_id":"orders[0]@10"}')


def test_piece_whose_largest_record_was_set_aside_does_not_hide_a_larger_one(
    warehouse: TopicWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_records, "OFFSETS_IN_PIECE", 4)
    names = {1: "x" * 90, 2: "x" * 10, 5: "x" * 80, 9: "x" * 70}
    rows = life.batch_of_rows([(life.ORDERS_0, each) for each in range(40)])
    texts = [names.get(each, "x") for each in range(40)]
    place = rows.schema.get_field_index("message_id")
    attempt = stage_in_parts(warehouse, rows.set_column(place, "message_id", pa.array(texts)))
    warehouse.sink.remove_staged(attempt, [single_offset("orders", 0, 1), single_offset("orders", 0, 5)])
    with warehouse.ledger.publication(attempt) as publication:
        warehouse.sink.publish(publication.load())
        found = topic_records.StagedRecords(publication.connection, attempt).find_largest()
        publication.connection.rollback()
    assert found == (single_offset("orders", 0, 9), len(b'{"message_id":""}') + 70)


def test_records_of_a_task_that_is_not_accepted_are_gone_and_it_can_write_no_more(warehouse: TopicWarehouse) -> None:
    batch = life.store(warehouse, SECOND)
    attempt = warehouse.ledger.open_attempt(batch.batch_id, "run-1")
    rows = life.batch_of_rows(life.rows_of(batch.ranges))
    writer = warehouse.sink.open_staging(attempt, rows.schema)
    life.write(writer, 1, rows)
    life.write(writer, 2, rows)
    warehouse.sink.seal_staging(attempt, [2])
    assert tables(warehouse, attempt) == {"rows", "records"}
    table = sql.Identifier(STAGING_SCHEMA, f"b{batch.batch_id}_a1_records")
    with psycopg.connect(warehouse.dsn) as connection:
        query = sql.SQL("select _task, sum(records) from {} group by 1").format(table)
        assert connection.execute(query).fetchall() == [(2, rows.num_rows)]
    with pytest.raises(Exception, match="does not exist"), writer.pieces.open(3) as write:  # type: ignore[attr-defined]
        write(topic_records.pack(next(iter(writer.encoder.encode(rows)))))  # type: ignore[attr-defined]
    warehouse.sink.drop_staging(attempt)
    assert tables(warehouse, attempt) == set()


def drop_records(warehouse: TopicWarehouse, attempt: Attempt) -> None:
    """Leave what an older version has staged: rows only."""
    with psycopg.connect(warehouse.dsn) as connection:
        name = f"b{attempt.batch.batch_id}_a{attempt.number}_records"
        connection.execute(sql.SQL("drop table {}").format(sql.Identifier(STAGING_SCHEMA, name)))


def die_committing(warehouse: TopicWarehouse, point: str) -> Attempt:
    """Let a batch die at a point of its publication, with rows that an older version has staged."""
    attempt = life.take_to_audited(warehouse, LONG)
    with pytest.raises(SimulatedCrashError):
        deliver(life.platform(warehouse, crash=CrashOnce(point)), attempt)
    drop_records(warehouse, attempt)
    return warehouse.ledger.resume_commit(attempt.batch.batch_id, "run-2")


def test_batch_that_an_older_version_has_committed_is_confirmed(warehouse: TopicWarehouse) -> None:
    attempt = die_committing(warehouse, "sink_committed")
    deliver(life.platform(warehouse), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.PUBLISHED
    assert len(read_messages(warehouse.options, warehouse.topic)) == len(LONG)
    assert_proved(warehouse)


def test_batch_that_an_older_version_has_announced_only_can_be_staged_again(warehouse: TopicWarehouse) -> None:
    attempt = die_committing(warehouse, "announced")
    with pytest.raises(StagingLostError, match="the staging is gone"):
        deliver(life.platform(warehouse), attempt)
    assert warehouse.ledger.load_batch(attempt.batch.batch_id).state is BatchState.AUDITED
    assert read_messages(warehouse.options, warehouse.topic) == []


def test_batch_that_an_older_version_has_staged_is_not_published(warehouse: TopicWarehouse) -> None:
    attempt = life.take_to_audited(warehouse, LONG)
    drop_records(warehouse, attempt)
    with pytest.raises(StagingLostError, match=r"(?s)the staging is gone.*Stage the batch again"):
        life.publish(warehouse, attempt)
    assert read_messages(warehouse.options, warehouse.topic) == []


def test_records_that_are_fewer_than_the_rows_are_not_sent(warehouse: TopicWarehouse) -> None:
    attempt = life.take_to_audited(warehouse, LONG, OTHER)
    with psycopg.connect(warehouse.dsn) as connection:
        table = sql.Identifier(STAGING_SCHEMA, f"b{attempt.batch.batch_id}_a{attempt.number}_records")
        connection.execute(sql.SQL("delete from {} where partition = 1").format(table))
    with pytest.raises(StagingLostError, match="42 rows to publish, and 40 records"):
        life.publish(warehouse, attempt)


def test_batch_without_rows_is_published(warehouse: TopicWarehouse) -> None:
    batch = life.store(warehouse, LONG)
    attempt = life.stage(warehouse, batch, poison=life.rows_of(batch.ranges))
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == 0
