"""Records of a thousand columns, through a real broker, Spark and every sink."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime

import pytest

from batchledger.lifecycle import run_batch
from batchledger.model.checks import ACCEPTED_BY_TARGET
from batchledger.model.errors import BatchBlockedError
from batchledger.wiring import verify_pipeline
from tests.support import Workplace

COLUMNS = 1_000
VALUE_BY_TYPE = {
    "string": "a", "timestamp": "2026-11-22T01:02:03Z", "bigint": 2**40, "date": "2026-11-22", "double": 0.5,
    "boolean": True, "int": 7, "decimal(6,2)": 1.25, "float": 1.5, "binary": "AA==", "timestamp_ms": 0, "smallint": 3,
}  # fmt: skip
"""The first two are the types of which 45 columns were too many once."""


def columns_of(*types: str) -> dict[str, str]:
    """A thousand columns, of these types in turn."""
    return {f"c{number}": types[number % len(types)] for number in range(COLUMNS)}


def as_schema(type_by_column: Mapping[str, str]) -> str:
    """A pipeline file's schema."""
    return ", ".join(["message_id string", *(f"{name} {type_}" for name, type_ in type_by_column.items())])


@pytest.mark.parametrize("into", ["table", "topic", "lake"])
def test_a_thousand_columns_of_any_type_arrive(workplace: Workplace, into: str) -> None:
    types = columns_of(*VALUE_BY_TYPE)
    pipeline = workplace.create(partitions=1, source={"schema": as_schema(types)}, into=into)
    columns = {name: VALUE_BY_TYPE[type_] for name, type_ in types.items()}
    for number in range(3):
        # Every second record has a null.
        null = {"c7": None} if number % 2 else {}
        pipeline.send_raw([(0, json.dumps({"message_id": str(number), **columns, **null}).encode())])
        pipeline.sent.append(str(number))
    assert run_batch.run_once(pipeline.platform(), "run") is not None
    pipeline.assert_exact()
    if into == "table":
        moment = datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
        (row,) = pipeline.query("select c0, c1, c2, c3, c9, c999 from {target} where message_id = '2'")
        assert types["c999"] == "date"
        assert row == ("a", moment, 2**40, date(2026, 11, 22), b"\x00", date(2026, 11, 22))
    assert verify_pipeline(pipeline.config).holds


def test_row_that_no_page_of_postgresql_holds_blocks_its_batch_and_says_why(workplace: Workplace) -> None:
    """A page has 8,160 bytes for a row, of which a text takes 24 at most: a longer one lies elsewhere."""
    schema = as_schema(columns_of("string"))
    pipeline = workplace.create(partitions=1, source={"schema": schema})
    values = {f"c{number}": "a text of 20 letters" if number < 300 else None for number in range(COLUMNS)}
    pipeline.send_raw([(0, json.dumps(values).encode())])
    assert run_batch.run_once(pipeline.platform(), "fits") is not None
    pipeline.send_raw([(0, json.dumps(dict.fromkeys(values, "a text of 20 letters")).encode())])
    with pytest.raises(BatchBlockedError, match="It says: row is too big") as blocked:
        run_batch.run_once(pipeline.platform(), "does not fit")
    assert blocked.value.failed == (ACCEPTED_BY_TARGET,)
