"""Spark counts a watched table: a real Spark Connect, a real catalog, and the same verdicts as one process gives."""

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from batchledger.model.errors import ConfigurationError
from batchledger.proof.watching import Discrepancy, WatchOutcome
from batchledger.source.spark.session import open_connect_session
from batchledger.watching.look import TableWatch
from batchledger.watching.spark_counting import SparkTable
from batchledger.watching.table import CountedTable
from tests.watched import first_of, offsets_of
from tests.watched_lake import (
    FLAT_SCHEMA,
    NESTED,
    NESTED_SCHEMA,
    OpenLake,
    WatchedLake,
    delete_by_equality,
    delete_positions,
)

pytestmark = pytest.mark.usefixtures("spark")


def by_spark(lake: WatchedLake) -> SparkTable:
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    # Each folder is another warehouse, and a session keeps the first catalog of a name.
    return SparkTable(lake.watched, partial(open_connect_session, url, f"watch of {lake.topic.name}"))


def watch_by_spark(lake: WatchedLake, **rules: float) -> TableWatch:
    return replace(lake.watch(**rules), table=by_spark(lake))


def words_of(table: CountedTable, lake: WatchedLake) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Bits and rows, by topic, partition and word."""
    found: dict[tuple[str, int, int], tuple[int, int]] = {}
    for each in table.count(None):
        columns = (each.partitions, each.words, each.bits, each.rows)
        for partition, word, bits, rows in zip(*(part.tolist() for part in columns), strict=True):
            place = (each.topic, max(partition, -1) if word >= 0 else -1, word)
            before = found.get(place, (0, 0))
            found[place] = (before[0] | bits if word >= 0 else 0, before[1] + rows)
    return found


def test_spark_names_what_is_missing_and_twice_within_a_struct_and_its_words_are_the_ones_of_one_process(
    open_lake: OpenLake,
) -> None:
    lake = open_lake(NESTED_SCHEMA, NESTED)
    lake.append(range(10))
    lake.append([0, 1, 2, 4, 5, 6, 7, 8, 9, 9], partition=1)
    lake.append([3], partition=1, topic="another")
    lake.append([2**53 + 1, 2**53 + 1])
    lake.table.append(pa.table({"_kafka_metadata": [None], "note": ["lost"]}, schema=NESTED_SCHEMA))
    assert words_of(by_spark(lake), lake) == words_of(lake.watched, lake)
    look = lake.look(watch_by_spark(lake))
    assert look.outcome is WatchOutcome.WRONG
    assert offsets_of(look, Discrepancy.MISSING) == ["1: 3..4"]
    assert offsets_of(look, Discrepancy.TWICE) == ["1: 9..10"]
    assert [each.count for each in look.found if each.difference is Discrepancy.STRAY] == [1]
    assert look.found == lake.look(lake.watch(), everything=True).found


def test_spark_names_the_file_that_two_snapshots_have_added_as_one_process_does(open_lake: OpenLake) -> None:
    lake = open_lake()
    lake.fill()
    lake.append_again(lake.files[0])
    watch = watch_by_spark(lake)
    (twice,) = [each for each in lake.look(watch).found if each.difference is Discrepancy.TWICE]
    assert twice.count == 10
    found, expected = (each.locate(first_of(twice, 3)) for each in (watch.table, lake.watched))
    assert [(each.offsets, each.rows, {*each.places}) for each in found] == [
        (each.offsets, each.rows, {*each.places}) for each in expected
    ]
    assert len({*found[0].places}) == 2


@pytest.mark.parametrize("type_", [pa.string(), pa.decimal128(38, 0)], ids=["text", "decimal"])
def test_spark_reads_texts_and_decimals_as_one_process_does(open_lake: OpenLake, type_: pa.DataType) -> None:
    lake = open_lake(pa.schema([("kafka_partition", type_), ("kafka_offset", type_), ("note", pa.string())]))
    make = str if type_ == pa.string() else int
    odd: list[object] = ["1.0", "1\n", "", " 1", "x", "9" * 19] if type_ == pa.string() else [10**30, -1]
    lake.append([*(make(each) for each in range(10)), *odd, None, make(2**53 + 1)], make(1))
    assert words_of(by_spark(lake), lake) == words_of(lake.watched, lake)


def test_rows_deleted_by_equality_are_no_rows_for_spark_and_one_process_refuses_the_table(open_lake: OpenLake) -> None:
    lake = open_lake(FLAT_SCHEMA)
    lake.fill()
    watch = watch_by_spark(lake)
    assert lake.look(watch).outcome is WatchOutcome.PROVED
    delete_positions(lake.table, lake.files[0].file.file_path, [5])
    delete_by_equality(lake.table, [3])
    gone = offsets_of(lake.look(watch, everything=True), Discrepancy.DELETED)
    assert sorted(each.split(": ")[1] for each in gone) == ["3..4", "3..4", "5..6"]
    with pytest.raises(ConfigurationError, match=r"table\.spark"):
        lake.look(everything=True)


def test_second_look_of_spark_asks_for_the_new_offsets_and_for_rows_without_coordinates(open_lake: OpenLake) -> None:
    lake = open_lake()
    lake.fill()
    watch = watch_by_spark(lake, recheck=0)
    assert lake.look(watch).outcome is WatchOutcome.PROVED
    lake.topic.produce(5)
    lake.append([*range(10, 15), None])
    look = lake.look(watch)
    assert (look.proved, [(each.difference, each.count) for each in look.found]) == (25, [(Discrepancy.STRAY, 1)])
