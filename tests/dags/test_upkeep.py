"""The DAGs of the audit, of housekeeping and of Data Docs: parsed with every service down, and thin."""

from pathlib import Path

import pytest
import yaml

from batchledger.local.demo import DATA_DOCS
from tests.dags.parsing import parse
from tests.support import SCHEMA

REPORT = """
import sys
import airflow.sdk
before = set(sys.modules)
import batchledger_dags
found = [each for each in vars(batchledger_dags).values() if isinstance(each, airflow.sdk.DAG)]
dags = [each for each in found if "upkeep" in each.tags]
report = {
    dag.dag_id: {
        "tasks": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
        "settings": [dag.catchup, dag.max_active_runs, sorted(dag.tags)],
        "params": dag.params.validate(),
        "timetable": type(dag.timetable).__name__,
        "modules": sorted(set(sys.modules) - before),
    }
    for dag in dags
} | {
    "starts": {
        f"{dag.dag_id}.{task.task_id}": task.trigger_dag_id
        for dag in found
        for task in dag.tasks if hasattr(task, "trigger_dag_id")
    }
}
"""
HEAVY = {
    "matplotlib",
    "pyspark",
    "confluent_kafka",
    "great_expectations",
    "psycopg",
    "pgpq",
    "pyarrow",
    "grpc",
}


def write_pipeline(folder: Path, name: str) -> None:
    content = {"name": name, "source": {"topics": [name], "schema": SCHEMA}, "sink": {"table": name}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What is parsed of two pipelines and a refused file."""
    folder = tmp_path_factory.mktemp("pipelines")
    for name in ("orders", "clicks"):
        write_pipeline(folder, name)
    (folder / "not a pipeline.yaml").write_text("name: [")
    return parse(folder, REPORT)


def test_each_pipeline_is_audited_by_a_task_of_its_own_and_waits_for_no_other(report: dict) -> None:  # type: ignore[type-arg]
    """A refused file too: its task says why, and harms no other."""
    assert report["batchledger-ledger-audit"]["tasks"] == {"clicks": [], "not_a_pipeline": [], "orders": []}
    assert report["batchledger-housekeeping"]["tasks"] == {"tidy": []}


def test_pages_are_written_after_the_report_of_each_run_in_a_run_of_their_own_and_each_hour(report: dict) -> None:  # type: ignore[type-arg]
    """So that no run waits for its pages; the report comes to its end whatever became of the batch.

    A report in a person's own DAG starts no run. So the hour is for pipelines that stand there alone.
    """
    assert report["batchledger-data-docs"]["tasks"] == {"write": []}
    assert report["batchledger-data-docs"]["timetable"] == report["batchledger-ledger-audit"]["timetable"]
    assert report["starts"] == {
        "clicks.catch_up": "clicks",
        "clicks.report": DATA_DOCS,
        "orders.catch_up": "orders",
        "orders.report": DATA_DOCS,
    }
    assert DATA_DOCS in report


def test_all_are_without_catching_up_run_one_at_a_time_and_import_nothing_heavy(report: dict) -> None:  # type: ignore[type-arg]
    for name in report.keys() - {"starts"}:
        assert report[name]["settings"] == [False, 1, ["batchledger", "upkeep"]]
        assert HEAVY.isdisjoint(report[name]["modules"])
    assert report["batchledger-ledger-audit"]["params"] == {"newest": None}


def test_no_pipeline_can_have_the_name_of_one_of_them(report: dict) -> None:  # type: ignore[type-arg]
    """The id of a pipeline's DAG is its name, which has no hyphen."""
    ids = report.keys() - {"starts"}
    assert len(ids) == 3
    assert all("-" in each for each in ids)
