"""What only the real adapters promise: writers travel to executors, and no password shows."""

import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.transactions import transaction
from batchledger.ledger.evidence import PostgresEvidence
from batchledger.ledger.ledger import PostgresLedger
from batchledger.lifecycle.requirement import check_rows
from batchledger.model.balance import StagedRange, WitnessedRange
from batchledger.model.errors import OutcomeUnknownError, RowsRefusedError
from batchledger.model.offsets import OffsetRange, TopicPartition
from batchledger.sinks.staging.tables import rows_table
from batchledger.sinks.table.sink import PostgresSink
from tests.contract import life
from tests.contract.warehouses import open_postgres
from tests.fakes.work import ROW_SCHEMA

FIRST = OffsetRange(TopicPartition("orders", 0), 0, 3)


def test_writers_can_be_sent_to_another_process(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
        writers = (warehouse.evidence.open(attempt), warehouse.sink.open_staging(attempt, ROW_SCHEMA))
        evidence, staging = pickle.loads(pickle.dumps(writers))  # noqa: S301 -- our own bytes
        life.witness(evidence, 0, [FIRST])
        life.write(staging, 0, life.batch_of_rows(life.rows_of([FIRST])))
        warehouse.sink.seal_staging(attempt, [0])
        assert list(warehouse.evidence.summarise(attempt)) == [WitnessedRange(FIRST, 3, 0)]
        assert list(life.summarise(warehouse, attempt)) == [StagedRange(FIRST, 3, 3)]


def test_check_finds_what_the_target_would_refuse_only_at_commit(warehouse_dsn: str) -> None:
    """At most once would else move the position first: a deferred constraint is judged when all else is done."""
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        with psycopg.connect(warehouse_dsn) as connection:
            target = sql.Identifier(warehouse.schema, "orders")
            connection.execute(sql.SQL("truncate {}").format(target))
            rule = "alter table {} add unique (_partition) deferrable initially deferred"
            connection.execute(sql.SQL(rule).format(target))
        attempt = life.take_to_audited(warehouse, OffsetRange(FIRST.partition, 3, 5))
        with (
            pytest.raises(RowsRefusedError, match="duplicate key"),
            warehouse.ledger.publication(attempt) as publication,
        ):
            check_rows(warehouse.sink, publication)


def test_s66_lost_reply_to_a_commit_is_never_told_as_nothing_changed(warehouse_dsn: str) -> None:
    """Outside of the publication too: what was to be written may have been."""

    def lose_the_connection() -> None:
        with transaction(warehouse_dsn, "accept a loss") as cursor:
            cursor.execute("select pg_backend_pid()")
            with psycopg.connect(warehouse_dsn, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s, 10000)", cursor.fetchone())

    with pytest.raises(OutcomeUnknownError, match="lost during the COMMIT of: accept a loss"):
        lose_the_connection()


def test_s139_password_of_the_connection_is_never_in_a_repr() -> None:
    dsn = "host=127.0.0.1 password=hunter2"
    adapters = (PostgresLedger(dsn), PostgresEvidence(dsn), PostgresSink(dsn, ("public", "orders")))
    assert "hunter2" not in repr(adapters)


def test_index_of_a_target_covers_what_was_appended_since_the_last_vacuum(warehouse_dsn: str) -> None:
    for warehouse in open_postgres(warehouse_dsn):
        life.take_to_published(warehouse, FIRST)
        with psycopg.connect(warehouse_dsn) as connection:
            query = "select indexdef from pg_indexes where schemaname = %s and tablename = 'orders'"
            ((definition,),) = connection.execute(query, [warehouse.schema]).fetchall()
        assert "USING brin (_partition, _offset) WITH (autosummarize='on')" in definition


NUMBERS = tuple(Decimal(text) for text in ("0", "-0.01", "99999999.99", "-99999999.99", "10000", "0.1", "1234567.8"))
WIDE = tuple(Decimal(text) for text in ("0.0000000001", "-9999999999999999999999999999.9999999999", "10", "1E+9"))
VALUES_BY_TYPE: Mapping[pa.DataType, Sequence[Any]] = {
    pa.string(): ("", "ä€😀\t\n\\.", "x" * 100_000),
    pa.large_string(): ("text",),
    pa.bool_(): (True, False),
    pa.int8(): (-128, 127),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.float32(): (1.5, float("inf")),
    pa.float64(): (5e-324, 1.7976931348623157e308, -0.0, float("-inf")),
    pa.decimal128(10, 2): NUMBERS,
    pa.decimal128(38, 10): WIDE,
    pa.decimal128(5, 0): (Decimal(10000), Decimal(-1)),
    pa.date32(): (date(1, 1, 1), date(1999, 12, 31), date(9999, 12, 31)),
    pa.timestamp("us", "UTC"): (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    pa.timestamp("us"): (datetime(1, 1, 1), datetime(2000, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 -- without a zone
    pa.binary(): (b"", bytes(range(256))),
    pa.large_binary(): (b"\x00",),
}


@pytest.mark.parametrize("type_", VALUES_BY_TYPE, ids=str)
def test_value_of_every_type_that_can_be_staged_arrives_as_it_was(warehouse_dsn: str, type_: pa.DataType) -> None:
    values = [*VALUES_BY_TYPE[type_], None]
    for warehouse in open_postgres(warehouse_dsn):
        attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
        rows = life.batch_of_rows([(FIRST.partition, offset) for offset in range(len(values))])
        rows = rows.append_column("value", pa.array(values, type_))
        life.write(warehouse.sink.open_staging(attempt, rows.schema), 0, rows.slice(0, 1), rows.slice(1))
        warehouse.sink.seal_staging(attempt, [0])
        with psycopg.connect(warehouse_dsn) as connection:
            query = sql.SQL("select value from {} order by _offset").format(rows_table(attempt))
            assert [value for (value,) in connection.execute(query)] == values
