"""Keys that are remembered stay known: a type that would write the same value in another way is refused."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.model.batch import Attempt, Batch
from batchledger.model.errors import ConfigurationError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.rules import Deduplication, SequenceRule, Upsert
from batchledger.sinks.staging.key_secret import know_secret
from batchledger.sinks.staging.tables import hash_of
from tests.contract import life
from tests.contract.life import ORDERS_0
from tests.contract.warehouses import Warehouse, read_key_secret
from tests.fakes.work import ROW_SCHEMA

pytestmark = pytest.mark.rules

BY_NUMBER = Deduplication(("number",), timedelta(days=30))
NARROW, WIDE, MONEY, WHOLE = pa.int32(), pa.int64(), pa.decimal128(10, 2), pa.decimal128(20, 0)


def stage(
    warehouse: Warehouse, type_: pa.DataType, *numbers: Any, deleted: bool = False, batch: Batch | None = None
) -> Attempt:
    """Stage and audit the next records, whose keys are these numbers."""
    start = batch.ranges[0].start if batch else life.next_offsets(warehouse).get(ORDERS_0, 0)
    more = [pa.field("number", type_), pa.field("seq", pa.int64()), pa.field("_deleted", pa.bool_())]
    rows = [
        {
            "_topic": ORDERS_0.topic,
            "_partition": 0,
            "_offset": start + index,
            "_timestamp": life.NOW,
            "message_id": str(number),
            "number": number,
            "seq": start + index,
            "_deleted": deleted,
        }
        for index, number in enumerate(numbers)
    ]
    schema = pa.schema([*ROW_SCHEMA, *(more if warehouse.upsert else more[:2])])
    run = f"run-{start}-{type_}"
    batch = batch or life.store(warehouse, OffsetRange(ORDERS_0, start, start + len(numbers)), run=run)
    attempt = life.stage(warehouse, batch, run, rows=pa.RecordBatch.from_pylist(rows, schema=schema))
    life.audit(warehouse, attempt)
    return attempt


def with_rule(warehouse: Warehouse, rule: str) -> Warehouse:
    """The warehouse with one rule whose key is the number."""
    match rule:
        case "dedupe.key":
            return warehouse.with_rules(BY_NUMBER)
        case "sink.key":
            return warehouse.with_rules(upsert=Upsert(("number",)))
        case _:
            return warehouse.with_rules(sequence=SequenceRule(("number",), "seq"))


@pytest.mark.parametrize("rule", ["dedupe.key", "sink.key", "sequence.key"])
def test_type_that_writes_remembered_keys_in_another_way_is_refused_before_anything_is_staged(
    warehouse: Warehouse, rule: str
) -> None:
    store = with_rule(warehouse, rule)
    life.publish(store, stage(store, NARROW, 1, 2))
    life.publish(store, stage(store, NARROW, 1, deleted=True))
    with pytest.raises(ConfigurationError, match=f"(?s)^{rule} of .* now as decimals") as refused:
        stage(store, MONEY, Decimal("1.00"))
    assert (refused.value.pipeline, refused.value.subject) == (store.pipeline, "number")


def test_type_that_writes_the_same_takes_the_place_of_another_and_no_key_is_forgotten(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(BY_NUMBER)
    life.publish(store, stage(store, NARROW, 1, 2))
    with store.sink.read_staged(stage(store, WIDE, 2, 3)) as staged:
        assert [each.duplicates for each in staged.summarise()] == [1]


def test_type_may_change_as_long_as_no_key_is_remembered(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(BY_NUMBER)
    first = stage(store, NARROW, 1)
    again = stage(store, MONEY, Decimal("1.00"), batch=first.batch)
    assert life.publish(store, again) == 1


def test_another_choice_of_columns_is_another_key_and_the_old_one_stays_known(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(BY_NUMBER)
    life.publish(store, stage(store, NARROW, 1))
    other = warehouse.with_rules(Deduplication(("message_id",), timedelta(days=30)))
    life.publish(other, stage(other, NARROW, 1))
    assert len(other.read_target()) == 2
    with pytest.raises(ConfigurationError, match="now as decimals of scale 2") as refused:
        stage(store, MONEY, Decimal("1.00"))
    assert (refused.value.pipeline, refused.value.subject) == (store.pipeline, "number")


@pytest.mark.parametrize(
    ("value", "is_same"),
    [("1::smallint", True), ("1::bigint", True), ("1::numeric(20,0)", True), ("1.00::numeric(10,2)", False)],
)
def test_negative_control_the_hash_of_a_key_depends_on_how_its_value_is_written(
    warehouse_dsn: str, value: str, is_same: bool
) -> None:
    with psycopg.connect(warehouse_dsn) as connection, connection.cursor() as cursor:
        know_secret(cursor, read_key_secret)
        select = sql.SQL("select {} from (select {} as number) n")
        parts = [select.format(hash_of(["number"]), sql.SQL(each)) for each in ("1", value)]  # type: ignore[arg-type]
        assert (len(cursor.execute(sql.SQL(" union ").join(parts)).fetchall()) == 1) is is_same
