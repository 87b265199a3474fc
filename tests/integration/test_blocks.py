"""What is decoded in blocks is what Spark's own decoding gives; what might not be is left to Spark."""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from pyspark.sql import SparkSession

from batchledger.columns import parse_columns
from batchledger.spark import blocks
from batchledger.spark.blocks import BlockDecoder
from batchledger.spark.decode import decode_json
from batchledger.spark.session import open_connect_session
from batchledger.spark.tasks import RECORD_SCHEMA
from tests.unit.test_blocks import DOUBTFUL

COLUMNS = parse_columns(
    "name string, tiny tinyint, small smallint, number int, large bigint, share double, moment timestamp, day date, "
    "is_new boolean"
)
DECODER = BlockDecoder(COLUMNS)
NAMES = [column.name for column in COLUMNS]

TEXTS = (
    "", "a", "ä😀", "2026-11-22", "true", "1", "null", "\\", '"', "/", "\x7f", "\u2028", "NaN", "Information", "x: Inf",
    "\x00", "\n", "{", "}\n{", "\ud800",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "-1", "127", "128", "-128", "-129", "32768", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "1.0", "1e2", "1E2", "1e400", "-1e400", "1e-400", "0.1", "123456789.123456789", "-0.0",
    "4.9e-324", "1.7976931348623157e308", "01", "1.", ".5", "+1", "-", "1e", "0x10", "NaN", "-NaN", "Inf", "-Inf",
    "Infinity", "-Infinity", "+INF", "1_000", "9007199254740993", "2.2250738585072011e-308", "1" * 400,
    "0." + "1" * 400,
)  # fmt: skip
MOMENTS = (
    "2026-11-22 01:02:03", "2026-11-22T01:02:03Z", "2026-11-22T01:02:03.1", "2026-11-22T01:02:03.123456Z",
    "2026-11-22T01:02:03.1234567", "2026-11-22", "2026-11-22T01:02", "2026-11-22T24:00:00", "2026-11-22T23:59:60",
    "2026-02-29", "2024-02-29", "1000-01-01", "1582-10-10", "1582-10-10 00:00:00", "0999-12-31", "9999-12-31T23:59:59",
    "+10000-01-01", "2026-11-22 01:02:03 ", " 2026-11-22", "2026-11-22T01:02:03+01:00", "2026-11-22 01:02:03 UTC",
    "2026-11-22T01:02:03-00:00", "2026-11-22T01:02:03+14:59", "2026-11-22T01:02:03-15:00", "2026-11-22T01:02:03+18:00",
    "2026-11-22T01:02:03+19:00", "2026-11-22T01:02:03+0100", "2026-11-22T01:02:03+1:00", "2026-11-22T01:02:03+01",
    "9999-12-31T23:59:59-14:00", "1000-01-01T00:00:00+14:00", "1582-10-15T00:00:00.5+02:00",
    "1969-12-31T23:59:59.999999", "2026-3-1", "20261122", "epoch", "now",
)  # fmt: skip


ODD_VALUES = (
    *NUMBERS,
    *[json.dumps(text) for text in (*TEXTS, *MOMENTS)],
    *[json.dumps(text, ensure_ascii=False) for text in TEXTS],
    *[f'"{text}"' for text in TEXTS],
    *("null", "true", "false", "tru", "[]", "{}", '{"a":[1,{"b":null}]}', "[NaN]", "[1,]"),
)
FITTING: Mapping[str, Callable[[Random], Any]] = {
    "name": lambda random: "".join(
        chr(random.choice((random.randrange(32, 127), random.randrange(0xD7FF)))) for _ in "abc"
    ),
    "tiny": lambda random: random.randint(-128, 127),
    "small": lambda random: random.randint(-(2**15), 2**15 - 1),
    "number": lambda random: random.randint(-(2**31), 2**31 - 1),
    "large": lambda random: random.randint(-(2**63), 2**63 - 1),
    "share": lambda random: random.choice((random.random(), struct.unpack("d", random.randbytes(8))[0])),
    "moment": lambda random: (
        f"{datetime(1000, 1, 1) + timedelta(microseconds=random.randrange(2 * 10**17))}"  # noqa: DTZ001
        f"{random.choice(('', 'Z', '+00:00', '-00:00', '+14:00', '-03:30', '+05:45'))}"
    ),
    "day": lambda random: str(date(1000, 1, 1) + timedelta(days=random.randrange(3_000_000))),
    "is_new": lambda random: random.random() < 0.5,
}
ODD_NAMES = (*NAMES, "Name", "unknown", "", "n\\u0061me")
AROUND = (
    ("", ""),
    ("", "\n"),
    ("", " "),
    ("", "}"),
    ("", "{}"),
    ("", ","),
    ("", "\x00"),
    (" ", ""),
    ("\ufeff", ""),
    ("[", "]"),
)


def make_document(random: Random) -> bytes:
    """An object, mostly of values that fit."""
    fields = []
    for _ in range(random.randrange(5)):
        if random.random() < 0.8:
            name = random.choice(NAMES)
            fields.append(f'"{name}":{json.dumps(FITTING[name](random), ensure_ascii=random.random() < 0.5)}')
        else:
            fields.append(f'"{random.choice(ODD_NAMES)}":{random.choice(ODD_VALUES)}')
    before, after = random.choice(AROUND) if random.random() < 0.1 else ("", "")
    return f"{before}{{{random.choice((',', ', ')).join(fields)}}}{after}".encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def session(spark: object) -> Iterator[SparkSession]:
    url = SparkConnectHook(conn_id="spark_default").get_connection_url()
    with open_connect_session(url, "blocks") as opened:
        opened.conf.set("spark.sql.session.timeZone", "UTC")
        yield opened


def decode_with_spark(session: SparkSession, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
    records = [{"value": value, "topic": "t", "partition": 0, "offset": place} for place, value in enumerate(values)]
    raw = session.createDataFrame(pa.Table.from_pylist(records, schema=RECORD_SCHEMA))
    return sorted(list_rows(decode_json(raw, COLUMNS).toArrow()), key=lambda row: int(row["_offset"]))


def list_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Moments and days as numbers: those of a record that is set aside may be none that Python knows."""
    numbered = [
        pa.field(each.name, {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}.get(each.type, each.type))
        for each in table.schema
    ]
    rows: list[dict[str, Any]] = table.cast(pa.schema(numbered)).to_pylist()
    return rows


def compare(session: SparkSession, decoder: BlockDecoder, values: Sequence[bytes | None]) -> list[str]:
    """Return what was decoded in blocks and is another thing to Spark; each value is a block of its own."""
    differences = []
    for value, by_spark in zip(values, decode_with_spark(session, values), strict=True):
        rows, _ = decoder.decode(pa.array([value], pa.binary()))
        for row in list_rows(rows):
            theirs = {name: by_spark[name] for name in NAMES}
            if by_spark["_error"] is not None or not is_same(row, theirs):
                differences.append(f"{value!r}: {row}, to Spark {by_spark['_error'] or theirs}")
    return differences


def is_same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Equal, down to the sign of zero."""
    signs = [math.copysign(1, row["share"]) if row["share"] == 0 else 0 for row in (ours, theirs)]
    return ours == theirs and signs[0] == signs[1]


ONE_FIELD = [
    f'{{"{name}":{value}}}'.encode("utf-8", "surrogatepass") for name in (*NAMES, "unknown") for value in ODD_VALUES
]


def test_every_odd_value_in_every_column_is_decoded_as_spark_does_or_left_to_it(session: SparkSession) -> None:
    assert compare(session, DECODER, [*ONE_FIELD, *DOUBTFUL.values()]) == []


def test_any_document_is_decoded_as_spark_does_or_left_to_it(session: SparkSession) -> None:
    random = Random(7)  # noqa: S311 -- documents, no secrets
    documents = [make_document(random) for _ in range(10_000)]
    assert compare(session, DECODER, documents) == []
    assert sum(DECODER.decode(pa.array([each], pa.binary()))[1].true_count for each in documents) > 3_000


def test_neighbours_of_a_record_do_not_change_what_it_becomes(session: SparkSession) -> None:
    sure_alone = [value for value in ONE_FIELD if DECODER.decode(pa.array([value], pa.binary()))[1][0].as_py()]
    values = [*sure_alone, b'{"number":"one"}', *sure_alone]
    rows, is_sure = DECODER.decode(pa.array(values, pa.binary()))
    assert rows.num_rows == is_sure.true_count >= len(values) - 64
    by_spark = zip(decode_with_spark(session, values), is_sure.to_pylist(), strict=True)
    assert list_rows(rows) == [{name: row[name] for name in NAMES} for row, each in by_spark if each]


def test_negative_control_without_its_doubts_the_block_decoder_differs(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        blocks, "_look_sure", lambda values: pa.array([value is not None for value in values.to_pylist()])
    )
    monkeypatch.setattr(blocks, "_holds_unsure_words", lambda text: False)
    monkeypatch.setattr(blocks, "_require_form", lambda values, form: None)
    differences = compare(session, DECODER, [*ONE_FIELD, *DOUBTFUL.values()])
    told = "\n".join(differences)
    assert '"unknown":Inf' in told
    assert "\\\\u0000" in told
    assert "999999" in told


def test_negative_control_a_zero_that_lost_its_sign_is_a_difference() -> None:
    assert is_same({"share": 0.0}, {"share": 0.0})
    assert not is_same({"share": -0.0}, {"share": 0.0})
