"""``batchledger export``: the pipelines of DAG files as pipeline files, which nothing overwrites unasked."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from batchledger.cli import app
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.config.places import PIPELINES_VARIABLE
from batchledger.model.errors import ConfigurationError

DAG_FILE = """
from airflow.sdk import DAG, dag
from batchledger.airflow import BatchledgerOperator, BatchledgerTaskGroup, Pipeline, Source, Table, Topic
from shop_columns import COLUMNS

print("read")
orders = Pipeline("orders", source=Source(topics=["orders"], schema=COLUMNS), sink=Table(table="orders"))

with DAG("nightly", schedule=None):
    BatchledgerTaskGroup("load", pipeline=orders)
    BatchledgerOperator(task_id="by_name", pipeline="visits")

@dag(schedule=None)
def hourly():
    clicks = Pipeline("clicks", source=Source(topics=["clicks"], schema=COLUMNS), sink=Topic(topic="out"))
    BatchledgerOperator(task_id="load", pipeline=clicks)

hourly()
"""


@pytest.fixture
def dag_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAG file with two pipelines, a module beside it, and a folder of pipeline files."""
    for name in ("pipelines", "dags"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path / "pipelines"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_columns", raising=False)
    (tmp_path / "dags" / "shop_columns.py").write_text('COLUMNS = "id bigint, amount double"')
    path = tmp_path / "dags" / "nightly.py"
    path.write_text(DAG_FILE)
    return path


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def list_outcomes(*arguments: object) -> dict[str, str]:
    """Standard output has the document alone, whatever the DAG file prints."""
    return {each["pipeline"]: each["outcome"] for each in json.loads(export(*arguments, "--json").stdout)}


def list_files(dag_file: Path) -> list[str]:
    return sorted(each.name for each in (dag_file.parents[1] / "pipelines").iterdir())


def test_pipelines_at_the_top_and_in_tasks_of_any_dag_of_the_file_are_written_once(dag_file: Path) -> None:
    assert list_outcomes(dag_file) == {"clicks": "written", "orders": "written"}
    assert list_files(dag_file) == ["clicks.yaml", "orders.yaml"]
    path = dag_file.parents[1] / "pipelines" / "orders.yaml"
    written = path.read_text()
    assert written.startswith("# `batchledger export nightly.py` has made this file")
    assert read_pipeline_file(path).sink.target == "orders"
    path.write_text(f"# A person's own comment.\n{written}")
    assert list_outcomes(dag_file, dag_file) == {"clicks": "same", "orders": "same"}
    assert path.read_text().startswith("# A person's")


def test_file_that_says_something_else_stays_until_it_may_be_replaced(dag_file: Path) -> None:
    export(dag_file)
    path = dag_file.parents[1] / "pipelines" / "orders.yaml"
    other = path.read_text().replace("amount double", "amount float")
    path.write_text(other)
    refused = export(dag_file)
    assert refused.exit_code == ConfigurationError.exit_code
    assert "-  schema: id bigint, amount float" in refused.stdout
    assert "+  schema: id bigint, amount double" in refused.stdout
    assert refused.stdout.endswith(f"To write them: batchledger export {dag_file} --replace\n")
    assert path.read_text() == other
    assert list_outcomes(dag_file, "--replace") == {"clicks": "same", "orders": "replaced"}
    assert read_pipeline_file(path).source.record_schema == "id bigint, amount double"
    path.write_text("name: [")
    assert "not readable as YAML" in export(dag_file).stdout
    assert list_outcomes(dag_file, "--replace")["orders"] == "replaced"


def test_check_writes_nothing_and_fails_for_a_missing_file_and_one_that_differs(dag_file: Path) -> None:
    missing = export(dag_file, "--check")
    assert (missing.exit_code, list_files(dag_file)) == (ConfigurationError.exit_code, [])
    assert missing.stdout.endswith(f"To write them: batchledger export {dag_file}\n")
    export(dag_file)
    assert export(dag_file, "--check").exit_code == 0
    path = dag_file.parents[1] / "pipelines" / "clicks.yaml"
    path.write_text(path.read_text().replace("topic: out", "topic: elsewhere"))
    assert export(dag_file, "--check").exit_code == ConfigurationError.exit_code
    assert list_outcomes(dag_file, "--check") == {"clicks": "differs", "orders": "same"}
    assert export(dag_file, "--check", "--replace").exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import airflow", "There is no pipeline in"),
        ("import nothing_like_this", "No module named 'nothing_like_this'"),
        ("from batchledger.airflow import Source\nSource(topics='a', schema='id bigint')", "valid list"),
        (f"{DAG_FILE}\nmore = Pipeline('orders', source=orders.source, sink=Table(table='x'))", "is there twice"),
    ],
    ids=["none", "import", "refused", "twice"],
)
def test_dag_file_without_a_sound_pipeline_is_refused_and_nothing_is_written(
    dag_file: Path, text: str, words: str
) -> None:
    dag_file.write_text(text)
    refused = export(dag_file)
    assert isinstance(refused.exception, ConfigurationError)
    assert words in str(refused.exception)
    assert list_files(dag_file) == []


def test_missing_dag_file_and_missing_folder_are_named(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = export(dag_file.with_name("none.py")).exception
    assert isinstance(missing, ConfigurationError)
    assert "There is no such file." in missing.why
    monkeypatch.setenv(PIPELINES_VARIABLE, str(dag_file.parent / "nowhere"))
    nowhere = export(dag_file).exception
    assert isinstance(nowhere, ConfigurationError)
    assert "cannot be written: No such file or directory" in nowhere.message
