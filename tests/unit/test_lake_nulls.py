"""Arrays that are null stay null in the files of an Iceberg table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor

from batchledger.sinks.iceberg.projection import NullKeepingProjection, keep_nulls

STRUCT = pa.struct([("n", pa.int32())])
ROWS = {
    "structs": pa.array([None, [], [None, {"n": 1}], [{"n": None}]], pa.list_(STRUCT)),
    "names": pa.array([None, [], [("a", {"n": 1})], [("b", None)]], pa.map_(pa.string(), STRUCT)),
    "deep": pa.array([[None], None, [[{"n": 1}], []], []], pa.list_(pa.list_(STRUCT))),
    "within": pa.array([{"a": None}, None, {"a": []}, {"a": [{"n": 1}]}], pa.struct([("a", pa.list_(STRUCT))])),
    "plain": pa.array([None, [], [None], [1]], pa.list_(pa.int32())),
}


@pytest.fixture
def projection() -> Iterator[None]:
    yield
    keep_nulls()


def write_and_read(folder: Path) -> dict[str, Any]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    rows = pa.table(ROWS)
    table = catalog.create_table("n.t", rows.schema)
    # Parts of longer arrays, as a division of a batch into files makes them.
    for part in (rows.slice(0, 1), rows.slice(1, 2), rows.slice(3, 1)):
        table.append(part)
    found = table.scan().to_arrow()
    return {name: sorted(map(repr, found[name].to_pylist())) for name in rows.schema.names}


@pytest.mark.parametrize("name", ROWS)
def test_null_array_stays_null(tmp_path: Path, projection: None, name: str) -> None:
    keep_nulls()
    assert pyiceberg_arrow.ArrowProjectionVisitor is NullKeepingProjection
    assert write_and_read(tmp_path)[name] == sorted(map(repr, ROWS[name].to_pylist()))


def test_negative_control_without_the_projection_a_null_array_becomes_empty(
    tmp_path: Path, projection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyiceberg_arrow, "ArrowProjectionVisitor", ArrowProjectionVisitor)
    found = write_and_read(tmp_path)
    assert found["structs"] != sorted(map(repr, ROWS["structs"].to_pylist()))
    assert found["plain"] == sorted(map(repr, ROWS["plain"].to_pylist()))
