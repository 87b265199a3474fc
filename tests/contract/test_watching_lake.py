"""Watches of Iceberg tables: real Kafka, a real catalog and real files, each verdict with its negative control."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.table import FileScanTask, Table

from batchledger.config.watch_file import WatchConfig
from batchledger.model.errors import BatchledgerError, ConfigurationError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.watching import iceberg
from batchledger.watching.building import build_table
from batchledger.watching.table import CountedTable, RowCoordinates
from tests.conftest import lend_database
from tests.contract.warehouses import create_role, role_of
from tests.watched import first_of, offsets_of
from tests.watched_lake import (
    FLAT,
    FLAT_SCHEMA,
    NESTED,
    NESTED_SCHEMA,
    OpenLake,
    WatchedLake,
    delete_by_equality,
    delete_positions,
)


@pytest.fixture
def lake(open_lake: OpenLake) -> WatchedLake:
    """A table with the row of each record, in a file a partition."""
    made = open_lake()
    made.fill()
    return made


@contextmanager
def counting_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the files that are read within the block."""
    opened: list[str] = []
    open_files = iceberg.open_files

    def open_and_count(table: Table, columns: Any) -> Any:
        read = open_files(table, columns)

        def count(task: FileScanTask) -> Iterator[pa.RecordBatch]:
            opened.append(task.file.file_path)
            return read(task)

        return count

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "open_files", open_and_count)
        yield opened


def test_table_with_one_row_a_record_is_proved(lake: WatchedLake) -> None:
    look = lake.look()
    assert (look.outcome, look.offsets, look.rows, look.proved, look.found) == (WatchOutcome.PROVED, 20, 20, 20, ())


def test_missing_and_doubled_rows_are_named_by_coordinates_within_a_struct(open_lake: OpenLake) -> None:
    lake = open_lake(NESTED_SCHEMA, NESTED)
    lake.append(range(10))
    lake.append([0, 1, 2, 4, 5, 6, 7, 8, 9, 9], partition=1)
    lake.append([3], partition=1, topic="another")
    look = lake.look()
    assert look.outcome is WatchOutcome.WRONG
    assert offsets_of(look, Discrepancy.MISSING) == ["1: 3..4"], "the row of another topic is another record's"
    assert offsets_of(look, Discrepancy.TWICE) == ["1: 9..10"]
    lake.append([3], partition=1)
    assert offsets_of(lake.look(), Discrepancy.MISSING) == []


def test_file_that_two_snapshots_have_added_is_named_although_no_offset_is_missing(lake: WatchedLake) -> None:
    first = lake.files[0]
    lake.append_again(first)
    assert lake.table.scan().count() == 30
    look = lake.look()
    assert (look.outcome, look.rows) == (WatchOutcome.WRONG, 20), "distinct offsets alone show nothing"
    (twice,) = [each for each in look.found if each.difference is Discrepancy.TWICE]
    assert twice.count == 10
    found = lake.watched.locate(first_of(twice, 3))
    assert [(each.offsets.start, each.rows) for each in found] == [(0, 2), (1, 2), (2, 2)]
    history = [each.snapshot_id for each in lake.table.metadata.snapshots]
    added_by = [each for each in history if str(each) in "".join(found[1].places)]
    assert len(added_by) == 2
    assert added_by[-1] == history[-1]
    assert {*found[1].places} == {f"{first.file.file_path}, row 1, added by snapshot {each}" for each in added_by}


def test_two_files_with_the_same_rows_are_named(lake: WatchedLake) -> None:
    lake.append([4, 5], partition=1)
    look = lake.look()
    assert offsets_of(look, Discrepancy.TWICE) == ["1: 4..6"]
    (found, _) = lake.watched.locate(first_of(look.found[0], 2))
    places = [each.split(", ")[:2] for each in found.places]
    assert sorted(row for _, row in places) == ["row 0", "row 4"]
    assert len({path for path, _ in places}) == 2


@pytest.mark.parametrize("type_", [pa.string(), pa.decimal128(38, 0)], ids=["text", "decimal"])
def test_coordinates_may_be_texts_of_digits_and_decimals_and_large_ones_are_exact(
    open_lake: OpenLake, type_: pa.DataType
) -> None:
    schema = pa.schema([("kafka_partition", type_), ("kafka_offset", type_), ("note", pa.string())])
    lake = open_lake(schema, FLAT)
    make = str if type_ == pa.string() else int
    for partition in range(2):
        lake.append([make(each) for each in range(10)], make(partition))
    assert lake.look().outcome is WatchOutcome.PROVED
    lake.append([make(2**53 + 1)], make(0))
    assert offsets_of(lake.look(), Discrepancy.UNKNOWN) == [f"0: {2**53 + 1}..{2**53 + 2}"]


def test_rows_without_coordinates_cannot_be_judged_in_any_look(open_lake: OpenLake) -> None:
    schema = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.string()), ("note", pa.string())])
    lake = open_lake(schema)
    for partition in range(2):
        lake.append([str(each) for each in range(10)], partition)
    lake.append(["1.0", "-1", "1\n", "", " 1", "x", None, "9" * 19])
    lake.append(["3"], None)
    for _ in range(2):
        look = lake.look()
        assert (look.outcome, look.found[0].difference, look.found[0].count) == (
            WatchOutcome.CANNOT_SAY, Discrepancy.STRAY, 9,
        )  # fmt: skip


def test_record_that_is_null_is_a_row_without_coordinates(open_lake: OpenLake) -> None:
    lake = open_lake(NESTED_SCHEMA, NESTED)
    lake.fill()
    lake.table.append(pa.table({"_kafka_metadata": [None], "note": ["lost"]}, schema=NESTED_SCHEMA))
    for _ in range(2):
        assert [(each.difference, each.count) for each in lake.look().found] == [(Discrepancy.STRAY, 1)]


@pytest.mark.parametrize(
    ("coordinates", "words"),
    [
        (RowCoordinates("kafka_partition", "weight"), "has weight of type double for the offset"),
        (RowCoordinates("kafka_partition", "kafka_ofset"), "has no kafka_ofset for the offset"),
        (RowCoordinates("kafka_partition.number", "kafka_offset"), "type int has no parts"),
        (RowCoordinates("kafka_partition", "kafka_offset", "kafka_partition"), "has a topic of type int"),
        (RowCoordinates("kafka_partition", "price"), r"has price of type decimal\(10, 2\) for the offset"),
    ],
)
def test_column_that_cannot_be_a_coordinate_is_refused(
    open_lake: OpenLake, coordinates: RowCoordinates, words: str
) -> None:
    more = [pa.field("weight", pa.float64()), pa.field("price", pa.decimal128(10, 2))]
    lake = open_lake(pa.schema([*FLAT_SCHEMA, *more]), coordinates)
    with pytest.raises(ConfigurationError, match=words):
        lake.look()


def test_table_that_is_not_there_is_refused(lake: WatchedLake) -> None:
    watch = replace(lake.watch(), table=replace(lake.watched, table="watched.nothing"))
    with pytest.raises(ConfigurationError, match="is not there"):
        lake.look(watch)


def test_table_that_was_rolled_back_is_told_and_the_lost_rows_are_named(lake: WatchedLake) -> None:
    before = lake.table.metadata.current_snapshot_id
    lake.topic.produce(5)
    lake.append(range(10, 15))
    assert lake.look().outcome is WatchOutcome.PROVED
    assert before is not None
    with lake.table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(before)
    look = lake.look()
    assert (look.outcome, offsets_of(look, Discrepancy.DELETED)) == (WatchOutcome.WRONG, ["0: 10..15"])
    assert "restored to an earlier state" in look.notes[0]
    lake.append(range(10, 15))
    assert lake.look().notes == ()


def test_second_look_reads_the_new_files_alone_and_the_whole_table_if_asked(
    lake: WatchedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    watch = replace(lake.watch(recheck=0), tell=told.append)
    with counting_files(monkeypatch) as opened:
        assert lake.look(watch).outcome is WatchOutcome.PROVED
    assert len(opened) == 2
    lake.topic.produce(5)
    lake.append(range(10, 15))
    with counting_files(monkeypatch) as opened:
        assert lake.look(watch).proved == 25
    (new,) = {each.file.file_path for each in lake.files if each.file.record_count == 5}
    assert opened == [new]
    assert "about 5 rows" in told[-2]
    assert "1 of 3 files" in told[-2]
    with counting_files(monkeypatch) as opened:
        lake.look(watch, everything=True)
    assert len(opened) == 3


def test_row_that_a_position_delete_removes_is_no_row(lake: WatchedLake) -> None:
    lake.append([4, 5], partition=1)
    assert offsets_of(lake.look(), Discrepancy.TWICE) == ["1: 4..6"]
    (doubled,) = [each.file.file_path for each in lake.files if each.file.record_count == 2]
    delete_positions(lake.table, doubled, [0, 1])
    assert lake.look().outcome is WatchOutcome.PROVED
    whole = next(each.file.file_path for each in lake.files if each.file.record_count == 10)
    delete_positions(lake.table, whole, [3])
    gone = offsets_of(lake.look(everything=True), Discrepancy.DELETED)
    assert [each.split(": ")[1] for each in gone] == ["3..4"]


def test_position_delete_does_not_touch_a_copy_of_its_file_that_was_added_later(lake: WatchedLake) -> None:
    first = lake.files[0]
    delete_positions(lake.table, first.file.file_path, [3])
    lake.append_again(first)
    look = lake.look()
    assert [each.split(": ")[1] for each in offsets_of(look, Discrepancy.TWICE)] == ["0..3", "4..10"]
    assert look.rows == 20


def test_rows_deleted_by_equality_are_refused_and_no_verdict_is_given_without_them(lake: WatchedLake) -> None:
    assert lake.look().outcome is WatchOutcome.PROVED
    delete_by_equality(lake.table, [3])
    with pytest.raises(ConfigurationError, match="deleted by equality"):
        lake.look(everything=True)


def test_look_that_would_read_too_many_rows_reads_none(lake: WatchedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting_files(monkeypatch) as opened, pytest.raises(ConfigurationError, match="would read 20 rows"):
        lake.look(replace(lake.watch(), table=replace(lake.watched, max_rows=19)))
    assert opened == []
    assert lake.look(replace(lake.watch(), table=replace(lake.watched, max_rows=20))).outcome is WatchOutcome.PROVED


def test_look_that_takes_too_long_ends(lake: WatchedLake) -> None:
    with pytest.raises(ConfigurationError, match="could not be read within 0 s"):
        lake.look(replace(lake.watch(), table=replace(lake.watched, timeout_seconds=0)))


def test_role_that_may_read_the_catalog_alone_is_enough(
    lake: WatchedLake, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_role(warehouse_dsn) as dsn:
        lake.topic.run(f"grant select on iceberg_tables, iceberg_namespace_properties to {role_of(dsn)}")
        table = build_lake_table(monkeypatch, dsn, lake)
        assert lake.look(replace(lake.watch(), table=table)).outcome is WatchOutcome.PROVED
        with psycopg.connect(dsn) as connected, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connected.execute("delete from iceberg_tables")


def test_watch_makes_no_catalog_in_a_database_that_has_none(
    lake: WatchedLake, warehouse_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lend_database(warehouse_dsn) as dsn:
        table = build_lake_table(monkeypatch, dsn, lake)
        with pytest.raises(BatchledgerError):
            table.estimate(None)
        with psycopg.connect(dsn) as connected:
            assert connected.execute("select to_regclass('iceberg_tables')").fetchone() == (None,)


def build_lake_table(monkeypatch: pytest.MonkeyPatch, dsn: str, lake: WatchedLake) -> CountedTable:
    """Build what a file says that names a catalog in that database."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    connection = {
        "conn_type": "iceberg", "host": parts["host"], "port": int(parts["port"]), "login": parts["user"],
        "password": parts.get("password"), "schema": parts["dbname"],
        "extra": {"type": "sql", "catalog": lake.catalog.name, "warehouse": lake.catalog.properties["warehouse"]},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_TO_READ", json.dumps(connection))
    content = {
        "watch": "lake",
        "source": {"topics": [lake.topic.name]},
        "table": {"catalog": "lake_to_read", "name": lake.identifier},
        "coordinates": {"partition": lake.coordinates.partition, "offset": lake.coordinates.offset},
    }
    return build_table(WatchConfig.model_validate(content))
