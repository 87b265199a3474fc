"""UUIDs in every target: 16 bytes where it has a type for them, and one key however a transform spells them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid5

import pyarrow as pa
import pytest
from pyiceberg.types import UUIDType

from batchledger.formats.arrow_types import mark_columns
from batchledger.model.erasure import ErasureKey
from batchledger.model.errors import DecisionRefusedError, RowsRefusedError, TargetChangedError
from batchledger.model.offsets import OffsetRange
from batchledger.model.records.columns import Column
from batchledger.model.records.comparison import Comparison
from batchledger.model.records.partitioning import parse_partition
from batchledger.model.records.rules import Deduplication, Evolution, Upsert
from batchledger.model.records.types import Scalar
from batchledger.sinks.iceberg.table import IcebergTable
from tests.conftest import Kafka
from tests.contract import life
from tests.contract.decided import BY_ANA
from tests.contract.lake_warehouse import LakeWarehouse
from tests.contract.life import FIRST, SECOND
from tests.contract.topic_warehouse import open_topic
from tests.contract.updates import DELETING_SCHEMA, KEYED_SCHEMA, P0, Record, Story
from tests.contract.warehouses import PostgresWarehouse, Warehouse, open_postgres
from tests.fakes.work import ROW_SCHEMA

WAREHOUSES = ("postgres", "lake")
pytestmark = pytest.mark.rules

ANA, BEN, EVE = (uuid5(UUID(int=0), name) for name in ("ana", "ben", "eve"))
ANA_, BEN_, EVE_ = map(str, (ANA, BEN, EVE))
BY_UUID = Upsert(("carrier",))


def with_uuids(schema: pa.Schema, name: str) -> pa.Schema:
    """The schema with UUIDs in the column of this name, which has texts."""
    return mark_columns(schema, [Column(name, Scalar.UUID)])


@pytest.fixture
def story(warehouse: Warehouse) -> Story:
    """A sink that updates by a UUID."""
    return Story(warehouse.with_rules(upsert=BY_UUID), with_uuids(DELETING_SCHEMA, "carrier"))


@pytest.fixture
def table(warehouse_dsn: str) -> Iterator[PostgresWarehouse]:
    yield from open_postgres(warehouse_dsn)


def delays(story: Story) -> Mapping[UUID, int]:
    """What the target holds by key. Only a column of UUIDs gives UUIDs."""
    rows = story.warehouse.read_target()
    assert all(type(row["carrier"]) is UUID for row in rows)
    return {row["carrier"]: row["delay"] for row in rows}


def messages(warehouse: Warehouse, column: str = "message_id") -> list[UUID | None]:
    """The values of a column, in the order of the records."""
    return [row[column] for row in sorted(warehouse.read_target(), key=lambda row: row["_offset"])]


def rows_with(range_: OffsetRange, *texts: str | None) -> pa.RecordBatch:
    rows = life.batch_of_rows(life.rows_of([range_]))
    columns = [pa.array(texts) if each == "message_id" else rows[each] for each in rows.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=with_uuids(rows.schema, "message_id"))


def test_uuid_is_a_key_of_updates_and_of_deletions(story: Story) -> None:
    story.publish(Record(ANA_, 1), Record(BEN_, 2), Record(ANA_, 3))
    assert delays(story) == {ANA: 3, BEN: 2}
    story.publish(Record(ANA_, None), Record(EVE_, 4))
    assert delays(story) == {BEN: 2, EVE: 4}
    assert story.warehouse.count_deleted_keys() == 1
    assert story.warehouse.prove().findings == ()


def test_key_that_a_transform_writes_in_upper_case_is_the_same_key(story: Story) -> None:
    story.publish(Record(ANA_, 1), Record(BEN_.upper(), 2))
    story.publish(Record(ANA_.upper(), 3), Record(BEN_, None))
    assert delays(story) == {ANA: 3}


def test_replay_replaces_the_rows_of_uuids(story: Story) -> None:
    story.publish(Record(ANA_, 1), Record(BEN_, 2))
    story.publish(Record(ANA_, 3))
    story.replay(OffsetRange(P0, 0, 2), changed={(P0, 1): Record(EVE_, 5)})
    assert delays(story) == {ANA: 3, EVE: 5}
    story.replay(OffsetRange(P0, 0, 3))
    assert delays(story) == {ANA: 3, EVE: 5}


def test_comparison_before_a_replay_finds_the_uuid_that_has_changed(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), "run-1", rows=rows_with(FIRST, ANA_, BEN_, None))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    again = life.stage(
        warehouse, life.store_replay(warehouse, FIRST), "again", rows=rows_with(FIRST, ANA_.upper(), EVE_, None)
    )
    assert warehouse.sink.compare(again, 0) == Comparison(unchanged=2, changed=1)


def test_duplicates_are_known_by_a_uuid_in_later_batches_too(warehouse: Warehouse) -> None:
    store = warehouse.with_rules(Deduplication(("message_id",), timedelta(days=30)))
    for run, range_, texts in (("run-1", FIRST, (ANA_, BEN_, ANA_)), ("run-2", SECOND, (BEN_.upper(), EVE_))):
        attempt = life.stage(store, life.store(store, range_, run=run), run, rows=rows_with(range_, *texts))
        life.audit(store, attempt)
        life.publish(store, attempt)
    assert messages(store) == [ANA, BEN, EVE]
    assert store.prove().findings == ()


def test_published_uuids_are_values_of_the_targets_own_type(warehouse: Warehouse) -> None:
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), "run-1", rows=rows_with(FIRST, ANA_, None, BEN_))
    life.audit(warehouse, attempt)
    life.publish(warehouse, attempt)
    assert messages(warehouse) == [ANA, None, BEN]


def test_column_of_uuids_that_the_table_lacks_is_added(warehouse: Warehouse) -> None:
    life.take_to_published(warehouse, FIRST)
    evolving = replace(warehouse, evolution=Evolution.ADD)  # type: ignore[type-var]  # A real one.
    plain = life.batch_of_rows(life.rows_of([SECOND]))
    (customer,) = with_uuids(pa.schema([("customer", pa.string())]), "customer")
    rows = plain.append_column(customer, pa.array([ANA_, None]))
    attempt = life.stage(evolving, life.store(evolving, SECOND, run="run-2"), "run-2", rows=rows)
    life.audit(evolving, attempt)
    life.publish(evolving, attempt)
    assert messages(evolving, "customer") == [None, None, None, ANA, None]


def test_erased_uuid_goes_and_a_replay_does_not_bring_it_back(table: PostgresWarehouse) -> None:
    attempt = life.stage(table, life.store(table, FIRST), "run-1", rows=rows_with(FIRST, ANA_, BEN_, ANA_))
    life.audit(table, attempt)
    life.publish(table, attempt)
    key = ErasureKey.parse([f"message_id={ANA_.upper()}"])
    table.decisions.erase(table.pipeline, key, BY_ANA, lambda access: table.sink.erase(access, key))
    assert [row["message_id"] for row in table.read_target()] == [BEN]
    again = life.stage(table, life.store_replay(table, FIRST), "again", rows=rows_with(FIRST, ANA_, BEN_, ANA_))
    life.audit(table, again)
    life.publish(table, again)
    assert [row["message_id"] for row in table.read_target()] == [BEN]
    assert table.prove().findings == ()


def test_key_to_erase_that_is_no_uuid_is_refused(table: PostgresWarehouse) -> None:
    attempt = life.stage(table, life.store(table, FIRST), "run-1", rows=rows_with(FIRST, ANA_, BEN_, None))
    life.audit(table, attempt)
    life.publish(table, attempt)
    key = ErasureKey.parse(["message_id=ana"])
    with pytest.raises(DecisionRefusedError, match="does not fit the type of its column"):
        table.decisions.erase(table.pipeline, key, BY_ANA, lambda access: table.sink.erase(access, key))


@pytest.mark.parametrize("text", ["ana", "", "sixteen letters!", f"{{{ANA}}}", f"{ANA}\n", f"urn:uuid:{ANA}"])
def test_row_whose_transform_made_no_uuid_is_refused_and_named(table: PostgresWarehouse, text: str) -> None:
    attempt = table.ledger.open_attempt(life.store(table, FIRST).batch_id, "run-1")
    rows = rows_with(FIRST, BEN_, text, None)
    with pytest.raises(RowsRefusedError) as refused:
        life.write(table.sink.open_staging(attempt, rows.schema), 0, rows)
    assert refused.value.coordinates == ("orders[0]@1 (message_id: incorrect binary data format)",)


def test_row_whose_transform_made_no_uuid_reaches_no_file_of_a_lake(lake: LakeWarehouse) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    rows = rows_with(FIRST, BEN_, "sixteen letters!", None)
    with pytest.raises(pa.ArrowInvalid):
        life.write(lake.sink.open_staging(attempt, rows.schema), 0, rows)


def test_lakes_column_is_a_uuid_and_a_column_of_texts_takes_none(lake: LakeWarehouse) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    lake.sink.open_staging(attempt, with_uuids(ROW_SCHEMA, "message_id"))
    assert lake.table.schema().find_type("message_id") == UUIDType()
    with pytest.raises(TargetChangedError, match="message_id"):
        lake.sink.open_staging(attempt, ROW_SCHEMA)
    compared = lake.sink.compare_columns(ROW_SCHEMA)
    assert [(each.name, str(each.change)) for each in compared or () if each.change] == [("message_id", "breaking")]


@pytest.mark.parametrize(("declared", "is_written"), [("bucket(4, message_id)", True), ("message_id", False)])
def test_lake_is_partitioned_by_the_hash_of_a_uuid_and_not_by_each_value(
    lake: LakeWarehouse, declared: str, is_written: bool
) -> None:
    attempt = lake.ledger.open_attempt(life.store(lake, FIRST).batch_id, "run-1")
    rows = rows_with(FIRST, ANA_, BEN_, None)
    table = IcebergTable(lake.lake_catalog, (lake.schema, "orders"), (parse_partition(declared),))
    if not is_written:
        with pytest.raises(TargetChangedError, match=r"(?s)partitioned by message_id.*bucket\(16, message_id\)"):
            table.prepare(attempt, rows.schema)
        assert lake.read_target() == []
        return
    with table.prepare(attempt, rows.schema).open() as files:
        files.write(rows)
    found = [row["message_id"] for batch in files.read_back(["message_id"]) for row in batch.to_pylist()]
    assert set(found) == {ANA_, BEN_, None}


def test_table_that_has_the_key_as_a_text_is_refused_before_anything_is_staged(table: PostgresWarehouse) -> None:
    """Its texts may be spelled in many ways, and each spelling is a key of its own there."""
    texts = Story(table.with_rules(upsert=BY_UUID), KEYED_SCHEMA)
    texts.publish(Record(ANA_.upper(), 1))
    with pytest.raises(TargetChangedError, match="carrier is text, and the rows have uuid"):
        Story(texts.warehouse, with_uuids(KEYED_SCHEMA, "carrier")).stage(Record(ANA_, 2))


def test_uuids_in_an_output_topic_are_texts(warehouse_dsn: str, kafka: Kafka) -> None:
    for topic in open_topic(warehouse_dsn, kafka.options):
        store = topic.with_rules(Deduplication(("message_id",), timedelta(days=30)))
        attempt = life.stage(store, life.store(store, FIRST), "run-1", rows=rows_with(FIRST, ANA_, None, ANA_))
        life.audit(store, attempt)
        life.publish(store, attempt)
        assert [row["message_id"] for row in store.read_target()] == [ANA_, None]
