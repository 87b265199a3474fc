"""Names and numbers of columns that PostgreSQL cannot have are refused in words, before anything is opened."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.columns import DELETED_COLUMN, PROVENANCE_COLUMNS
from batchledger.model.records.identifiers import SYSTEM_COLUMNS, explain_columns, explain_schema

SINKS: dict[str, dict[str, Any]] = {
    "postgres": {"table": "orders"},
    "kafka": {"type": "kafka", "topic": "orders_out"},
    "iceberg": {"type": "iceberg", "table": "shop.orders"},
}


def read(folder: Path, schema: str, sink: dict[str, Any], **more: Any) -> None:
    path = folder / "orders.yaml"
    source = {"topics": ["orders"], "schema": schema, **more.pop("source", {})}
    path.write_text(yaml.safe_dump({"name": "orders", "source": source, "sink": sink, **more}))
    read_pipeline_file(path)


def refusal(folder: Path, schema: str, sink: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(folder, schema, sink, **more)
    return str(refused.value)


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (f"{'a' * 64} string", "the name has 64 bytes, PostgreSQL cuts it after 63, and two could become one"),
        (f"{'a' * 63}b string, {'a' * 63}c string", "the name has 64 bytes"),
        *((f"id int, {each} int", f"column '{each}': PostgreSQL keeps the name for itself") for each in SYSTEM_COLUMNS),
        (", ".join(f"c{each} int" for each in range(1596)), "1,596 columns are too many: PostgreSQL holds 1,600 in a"),
        ("id int, ID string", "column 'id' appears twice"),
    ],
    ids=lambda each: each[:40],
)  # fmt: skip
def test_columns_that_no_staging_can_have_are_refused_when_the_file_is_read_whatever_the_sink(
    tmp_path: Path, schema: str, reason: str, sink: dict[str, Any]
) -> None:
    message = refusal(tmp_path, schema, sink)
    assert ": source.schema: " in message
    assert reason in message


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_columns_up_to_the_limits_are_read(tmp_path: Path, sink: dict[str, Any]) -> None:
    read(tmp_path, ", ".join(f"c{each} int" for each in range(1595)), sink)
    read(tmp_path, f"{'a' * 63} string, CTID string, select int, table int, user int, oid int", sink)


def test_column_of_deletions_counts(tmp_path: Path) -> None:
    upsert = {"table": "orders", "mode": "upsert", "key": ["c0"]}
    schema = ", ".join(f"c{each} int" for each in range(1595))
    read(tmp_path, schema, upsert)
    assert "1,595 columns are too many" in refusal(tmp_path, schema, upsert, source={"tombstones": "delete"})


def test_what_a_transform_makes_of_columns_is_left_to_the_stage_step(tmp_path: Path) -> None:
    read(tmp_path, f"{'a' * 64} string, ctid string", SINKS["postgres"], transform="my.module:function")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ä" * 32, "the name has 64 bytes"),
        ("", "PostgreSQL cannot have such a name"),
        ("a\0b", "PostgreSQL cannot have such a name"),
        ("\ud800", "PostgreSQL cannot have such a name"),
        ("share in %", "a name with % cannot be written into statements"),
        ("xmin", "PostgreSQL keeps the name for itself"),
        ("_task", "Batchledger adds a column of this name itself"),
        ("_batch_id", "Batchledger adds a column of this name itself"),
        ("_offset", "it is there twice"),
        ("_OFFSET", "'_offset' is there too, and Spark does not tell capital letters from small ones"),
        ("id", "it is there twice"),
        ("Id", "'id' is there too"),
    ],
)
def test_column_of_a_transform_is_refused_in_the_same_words(name: str, reason: str) -> None:
    fault = explain_columns([*PROVENANCE_COLUMNS, "id", name])
    assert fault is not None
    assert fault.startswith("column ")
    assert reason in fault


@pytest.mark.parametrize("name", ["ä" * 31, "select", "Order", "a b", 'a"b', "_mine", DELETED_COLUMN, "x" * 63])
def test_any_other_name_is_fine(name: str) -> None:
    assert explain_columns([*PROVENANCE_COLUMNS, "id", name]) is None


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("a" * 64, "write table or schema.table, in small letters"),
        (f"shop.{'a' * 64}", "63 in each at most"),
        (f"{'a' * 64}.orders", "63 in each at most"),
        ("pg_shop.orders", "schema 'pg_shop' is PostgreSQL's own"),
        ("information_schema.orders", "schema 'information_schema' is PostgreSQL's own"),
        ("batchledger.batch", "schema 'batchledger' is Batchledger's own"),
        ("batchledger_staging.b1_a1_rows", "schema 'batchledger_staging' is Batchledger's own"),
    ],
)
def test_table_that_cannot_be_a_target_is_refused_in_words(tmp_path: Path, table: str, reason: str) -> None:
    assert reason in refusal(tmp_path, "id int", {"table": table})
    assert explain_schema("public") is None
    read(tmp_path, "id int", {"table": f"{'a' * 63}.{'b' * 63}"})


def test_names_of_pipelines_topics_and_keys_are_refused_in_words_too(tmp_path: Path) -> None:
    upsert = {"table": "orders", "mode": "upsert", "key": ["k" * 64]}
    assert "63 at most" in refusal(tmp_path, "id int", upsert)
    schema = ", ".join(f"c{each} int" for each in range(40))
    upsert = {"table": "orders", "mode": "upsert", "key": [f"c{each}" for each in range(33)]}
    assert "sink.key: " in (message := refusal(tmp_path, schema, upsert))
    assert "at most 32 items" in message
    assert "63 at most" in refusal(tmp_path, "id int", SINKS["postgres"], name="o" * 64)
    long = {"type": "kafka", "topic": "t" * 250}
    assert "sink.topic: " in refusal(tmp_path, "id int", long)
    assert "shop.orders; 63 at most in each" in refusal(
        tmp_path, "id int", {"type": "iceberg", "table": "a." + "b" * 64}
    )
