"""Names and numbers of columns at the edge of what PostgreSQL can have: refused in words, or taken as they are."""

from dataclasses import replace

import pyarrow as pa
import pytest

from batchledger.model.errors import ConfigurationError, StagingLostError
from batchledger.model.records.identifiers import MOST_COLUMNS, MOST_KEY_COLUMNS, SYSTEM_COLUMNS
from batchledger.model.records.rules import Upsert
from tests.contract import life
from tests.contract.conftest import EVERY_SINK
from tests.contract.life import FIRST, ROW_SCHEMA
from tests.contract.warehouses import Warehouse

WAREHOUSES = EVERY_SINK
# Beside those that all rows of these tests have, and the one that staging or the target adds.
MOST_MORE = MOST_COLUMNS - len(ROW_SCHEMA) - 1


def rows_with(names: list[str], type_: pa.DataType) -> pa.RecordBatch:
    rows = life.batch_of_rows(life.rows_of([FIRST]))
    added = [pa.array([1] * rows.num_rows, type_)] * len(names)
    schema = pa.schema([*rows.schema, *(pa.field(name, type_) for name in names)])
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        *(([name], f"column '{name}': PostgreSQL keeps the name for itself") for name in SYSTEM_COLUMNS),
        (["x" * 64], "the name has 64 bytes"),
        ([f"{'x' * 63}{end}" for end in "ab"], "the name has 64 bytes"),
        (["ä" * 32], "the name has 64 bytes"),
        (["a\0b"], "PostgreSQL cannot have such a name"),
        (["share in %s"], "a name with % cannot be written into statements"),
        (["_task"], "Batchledger adds a column of this name itself"),
        (["_batch_id"], "Batchledger adds a column of this name itself"),
        (["note", "Note"], "'note' is there too"),
        (["note", "note"], "it is there twice"),
        ([f"c{each}" for each in range(MOST_MORE + 1)], "columns are too many: PostgreSQL holds 1,600 in a table"),
    ],
    ids=lambda each: repr(each)[:30],
)  # fmt: skip
def test_columns_that_a_transform_makes_and_no_table_can_have_are_refused_in_words_before_anything_is_written(
    warehouse: Warehouse, names: list[str], reason: str
) -> None:
    attempt = warehouse.ledger.open_attempt(life.store(warehouse, FIRST).batch_id, "run-1")
    with pytest.raises(ConfigurationError, match="cannot be staged") as refused:
        warehouse.sink.open_staging(attempt, rows_with(names, pa.int16()).schema)
    assert reason in str(refused.value)
    with pytest.raises(StagingLostError), warehouse.sink.read_staged(attempt):
        pass


def test_names_that_are_words_of_sql_or_need_quotes_are_names_as_any_other(warehouse: Warehouse) -> None:
    names = ["select", "Order", "user", "table", "from", "a b", 'a"b', "a'b", "{x}", "CTID", "x" * 63, "ä" * 31]
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows_with(names, pa.int64()))
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == len(FIRST)
    assert life.target_coordinates(warehouse) == life.rows_of([FIRST])


def test_as_many_columns_as_there_can_be_are_published(warehouse: Warehouse) -> None:
    rows = rows_with([f"c{each}" for each in range(MOST_MORE)], pa.int16())
    attempt = life.stage(warehouse, life.store(warehouse, FIRST), rows=rows)
    life.audit(warehouse, attempt)
    assert life.publish(warehouse, attempt) == len(FIRST)


@pytest.mark.table
@pytest.mark.rules
def test_key_of_as_many_columns_as_there_can_be_is_one(warehouse: Warehouse) -> None:
    names = [f"c{each}" for each in range(MOST_KEY_COLUMNS - 1)]
    keyed = replace(warehouse, upsert=Upsert(("_offset", *names)))  # type: ignore[type-var]
    attempt = life.stage(keyed, life.store(keyed, FIRST), rows=rows_with(names, pa.int64()))
    life.audit(keyed, attempt)
    assert life.publish(keyed, attempt) == len(FIRST)
