"""The texts of output records are the ones that a real PostgreSQL writes, value by value."""

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from psycopg import sql

from batchledger.database.sessions import connect
from batchledger.formats.arrow_types import mark_columns
from batchledger.formats.encoding.blocks import RecordEncoder
from batchledger.formats.encoding.texts import make_writer, write_string
from batchledger.model.records.columns import Column
from batchledger.model.records.types import Scalar
from batchledger.sinks.staging.tables import copy_batches, define_column, join_names
from tests.unit.test_output_texts import plain_values, rows_of

ROWS = 3_000
DAY_MICROSECONDS = 86_400_000_000
EARLIEST_DAY, LATEST_DAY = -719_162, 2_932_896
SPECIAL = (0.0, -0.0, 1e-4, 9.9999e-5, 1e6, 999999.9, 1e10, 1e14, 1e15, 1e23, 5e-324, 1.7976931348623157e308)

Make = Callable[[random.Random], Any]


def any_double(chance: random.Random) -> float:
    match chance.randrange(6):
        case 0:
            return float(struct.unpack("d", chance.randbytes(8))[0])
        case 1:
            return float(chance.randrange(2**53, 2**63))
        case 2:
            return chance.choice((*SPECIAL, float("inf"), float("-inf"), float("nan")))
        case 3:
            return 2.0 ** chance.randrange(-1074, 1024)
        case 4:
            return chance.randrange(-(10**9), 10**9) / 100
        case _:
            return chance.random() * 10.0 ** chance.randrange(-10, 20)


def any_float(chance: random.Random) -> float:
    if chance.random() < 1 / 2:
        return float(struct.unpack("f", chance.randbytes(4))[0])
    return float(chance.randrange(2**24, 2**31)) if chance.random() < 1 / 2 else chance.randrange(10**6) / 100


def any_text(chance: random.Random) -> str:
    return "".join(chance.choices('abc"\\\x01\x1f\n\tü€😀\x7f/ ', k=chance.randrange(8)))


def any_day(chance: random.Random) -> int:
    return chance.randrange(EARLIEST_DAY - 400_000, LATEST_DAY + 400_000)


def any_moment(chance: random.Random) -> int:
    day = any_day(chance) * DAY_MICROSECONDS
    return day + chance.choice([0, 1, 1_500_000, chance.randrange(DAY_MICROSECONDS)])


COLUMNS: dict[str, tuple[pa.DataType, pa.DataType, Make]] = {
    "tinyint": (pa.int8(), pa.int8(), lambda chance: chance.randrange(-128, 128)),
    "bigint": (pa.int64(), pa.int64(), lambda chance: chance.randrange(-(2**63), 2**63)),
    "double": (pa.float64(), pa.float64(), any_double),
    "float": (pa.float32(), pa.float32(), any_float),
    "boolean": (pa.bool_(), pa.bool_(), lambda chance: chance.random() < 1 / 2),
    "uuid": (pa.string(), pa.string(), lambda chance: str(UUID(int=chance.getrandbits(128)))),
    'we"ird string': (pa.string(), pa.string(), any_text),
    "timestamp": (pa.timestamp("us", "UTC"), pa.int64(), any_moment),
    "timestamp_ntz": (pa.timestamp("us"), pa.int64(), any_moment),
    "date": (pa.date32(), pa.int32(), any_day),
    "binary": (pa.binary(), pa.binary(), lambda chance: chance.randbytes(chance.randrange(5))),
    "decimal": (pa.decimal128(12, 2), pa.decimal128(12, 2), lambda chance: Decimal(chance.randrange(10**9)).scaleb(-2)),
    "tiny decimal": (
        pa.decimal128(38, 30),
        pa.decimal128(38, 30),
        lambda chance: Decimal(chance.choice([0, 1, chance.randrange(-(10**25), 10**25)])).scaleb(-30),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_value_and_keys_are_what_postgresql_makes_of_the_staged_row(warehouse_dsn: str, name: str) -> None:
    type_, number, make = COLUMNS[name]
    chance = random.Random(name)  # noqa: S311
    values = [None if chance.random() < 1 / 10 else make(chance) for _ in range(ROWS)]
    beside = pa.array(range(ROWS), pa.int32())
    rows = rows_of(**{name: pa.array(values, number).cast(type_), "beside": beside})
    if name == "uuid":
        rows = rows.cast(mark_columns(rows.schema, [Column(name, Scalar.UUID)]))
    staged, column = sql.Identifier("pg_temp", "staged"), sql.Identifier(name)
    alone = column if type_ == pa.binary() else sql.SQL("convert_to({}::text, 'UTF8')").format(column)
    query = sql.SQL(
        "select convert_to((select row_to_json(r)::text from (select {names}) r), 'UTF8'), {alone}, "
        "case when {column} is not null then convert_to(jsonb_build_array({names})::text, 'UTF8') end "
        "from {staged} order by _offset"
    ).format(names=join_names([name, "beside"]), alone=alone, column=column, staged=staged)
    with connect(warehouse_dsn) as connection, connection.cursor() as cursor:
        columns = sql.SQL(", ").join(map(define_column, rows.schema))
        cursor.execute(sql.SQL("create temporary table staged ({})").format(columns))
        copy_batches(cursor, staged, [rows])
        wanted = cursor.execute(query).fetchall()
    (by_one,), (by_two,) = (list(RecordEncoder(key).encode(rows)) for key in ((name,), (name, "beside")))
    found = zip(*(each.to_pylist() for each in (by_one["value"], by_one["key"], by_two["key"])), strict=True)
    assert list(found) == wanted
    write = make_writer(type_)
    plain = ["null" if each is None else write(each) for each in plain_values(rows[name])]
    assert [f"{{{write_string(name)}:{each},".encode() for each in plain] == [
        value.rpartition(b'"beside"')[0] for value, *_ in wanted
    ]
