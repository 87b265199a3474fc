"""The glance at a pipeline file names the assets that the whole file has, and no file harms its process."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from batchledger.config import glance
from batchledger.config.documents import LARGEST_BYTES
from batchledger.config.glance import find_aliases
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.config.places import PIPELINES_VARIABLE
from tests.conftest import ROOT
from tests.support import SCHEMA

SINKS = (
    {"table": "orders"},
    {"table": "shop.orders", "connection": "other"},
    {"type": "postgres", "table": "orders"},
    {"type": "kafka", "topic": "clean"},
    {"type": "kafka", "topic": "clean", "connection": "other"},
    {"type": "iceberg", "table": "shop.orders"},
    {"type": "iceberg", "table": "shop.orders", "catalog": "other"},
)
SOURCES = ({"topics": ["raw"]}, {"topics": ["raw", "more"], "connection": "other"})
IMPORT = """
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, TaskGroup, XComArg, get_current_context, task, task_group
from batchledger.airflow import BatchledgerTaskGroup
import sys
print(sorted({"batchledger.config.pipeline_file", "batchledger.lifecycle", "psycopg"} & set(sys.modules)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("sink", SINKS, ids=str)
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_aliases_are_those_that_the_whole_file_has(
    folder: Path, sink: dict[str, str], source: dict[str, object]
) -> None:
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump({"name": "orders", "source": {**source, "schema": SCHEMA}, "sink": sink}))
    config = read_pipeline_file(path)
    assert find_aliases("orders") == (config.sink.alias, config.source.aliases)


def test_alias_of_yaml_is_read_as_everywhere_else(folder: Path) -> None:
    text = "name: orders\nsource: {topics: [&name raw], schema: 'id bigint'}\nsink: {type: kafka, topic: *name}\n"
    (folder / "orders.yaml").write_text(text)
    assert find_aliases("orders") == ("kafka_default/raw", ["kafka_default/raw"])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"name: [",
        b"\xff",
        b"- a\n- b\n",
        b"source: {topics: [raw]}\nsink: {type: unknown}\n",
        b"source: {topics: [raw]}\nsink: {}\n",
        b"source: {topics: 5}\nsink: {table: a}\n",
        b"sink: {table: 5}\nsource: {topics: [raw]}\n",
        b"#" * (LARGEST_BYTES + 1),
        b"[" * 200_000,
        b"- " * 100_000,
        b"a: &a [x]\nb: [*a, *missing]",
        # Each line has ten times as many keys as the one before.
        b"a0: &a0 {k: 1}\n"
        + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)),
    ],
    ids=lambda text: str(text[:20]),
)
def test_file_that_is_no_pipeline_has_no_alias(folder: Path, text: bytes) -> None:
    (folder / "orders.yaml").write_bytes(text)
    assert find_aliases("orders") == (None, [])
    assert find_aliases("missing") == (None, [])


def test_negative_control_without_the_bound_a_deep_file_ends_the_process(tmp_path: Path) -> None:
    program = f"import yaml; yaml.load('[' * 200_000, yaml.{glance._Loader.__name__})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode < 0


def test_dag_of_ones_own_imports_neither_the_models_of_files_nor_the_steps() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.stdout.splitlines()[-1] == "[]"
