"""Records of a thousand columns, through a real broker, Spark and every sink."""

import json
from datetime import UTC, date, datetime

import pytest

from batchledger import run_batch
from batchledger.wiring import verify_pipeline
from tests.support import Workplace

COLUMNS = 1_000
VALUE_BY_TYPE = {
    "string": "a", "timestamp": "2026-11-22T01:02:03Z", "bigint": 2**40, "date": "2026-11-22", "double": 0.5,
    "boolean": True, "int": 7, "decimal(6,2)": 1.25, "float": 1.5, "binary": "AA==", "timestamp_ms": 0, "smallint": 3,
}  # fmt: skip
"""The first two are the types of which 45 columns were too many once."""


@pytest.mark.parametrize("into", ["table", "topic", "lake"])
def test_a_thousand_columns_of_any_type_arrive(workplace: Workplace, into: str) -> None:
    types = [list(VALUE_BY_TYPE)[number % len(VALUE_BY_TYPE)] for number in range(COLUMNS)]
    schema = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(types))
    pipeline = workplace.create(partitions=1, source={"schema": f"message_id string, {schema}"}, into=into)
    columns = {f"c{number}": VALUE_BY_TYPE[type_] for number, type_ in enumerate(types)}
    for number in range(3):
        pipeline.send_raw([(0, json.dumps({"message_id": str(number), **columns}).encode())])
        pipeline.sent.append(str(number))
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    pipeline.assert_exact()
    if into == "table":
        moment = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
        (row,) = pipeline.query("select c0, c1, c2, c3, c9, c999 from {target} where message_id = '2'")
        assert types[999] == "date"
        assert row == ("a", moment, 2**40, date(2026, 11, 22), b"\x00", date(2026, 11, 22))
    assert verify_pipeline(pipeline.config).holds
