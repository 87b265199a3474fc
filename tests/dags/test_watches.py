"""The DAGs of watch files, and looks in a DAG of one's own, as Airflow reads them: one task, and nothing heavy."""

from pathlib import Path

import pytest
import yaml

from tests.dags.parsing import parse
from tests.dags.test_pipelines import CHAIN, REPORT, write_pipeline

OWN = """
from airflow.sdk import DAG, task
from batchledger.airflow import WatchOperator, WatchTaskGroup

with DAG("nightly", schedule=None, default_args={"retries": 1}):
    @task
    def load() -> None: ...

    prove = WatchTaskGroup("prove", watch="payments")
    load() >> prove >> WatchOperator(task_id="again", watch="payments", everything=True)
"""
READ_OWN = """
import sys
from airflow.dag_processing.dagbag import DagBag
before = set(sys.modules)
bag = DagBag(collect_dags=False)
bag.process_file({file!r}, only_if_updated=False)
dag = bag.dags["nightly"]
report = {{
    "errors": bag.import_errors,
    "tasks": {{task.task_id: [task.retries, sorted(task.downstream_task_ids)] for task in dag.tasks}},
    "tags": sorted(dag.tags),
    "modules": sorted(set(sys.modules) - before),
}}
"""
HEAVY = {
    "pyspark", "confluent_kafka", "great_expectations", "psycopg", "pgpq", "pyarrow", "numpy", "pandas", "grpc",
    "openlineage",
}  # fmt: skip


def write_watch(folder: Path, name: str, **changes: object) -> None:
    content = {
        "watch": name,
        "source": {"topics": [name]},
        "table": {"connection": "nowhere", "name": f"public.{name}"},
        "coordinates": "kafka_connect",
        **changes,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What is parsed of a pipeline, and of watches of all sorts."""
    folder = tmp_path_factory.mktemp("watches")
    write_pipeline(folder, "orders")
    write_watch(folder, "payments", schedule="*/30 * * * *", dag={"owner": "ana", "tags": ["shop"], "retries": 1})
    write_watch(folder, "clicks")
    write_watch(folder, "in_a_dag_of_ones_own", dag={"tasks": "none"})
    write_watch(folder, "refused", tabel={})
    return parse(folder, REPORT)


def test_each_watch_file_is_a_dag_of_one_task_and_a_refused_one_says_so_and_harms_no_other(report: dict) -> None:  # type: ignore[type-arg]
    assert report["chains"] == {
        "orders": CHAIN,
        "payments": {"look": []},
        "clicks": {"look": []},
        "refused": {"look": []},
    }
    assert report["max_active_runs"]["payments"] == 1
    assert report["catchup"]["payments"] is False
    assert (report["timetables"]["payments"], report["timetables"]["clicks"]) == (
        "CronDataIntervalTimetable", "NullTimetable",
    )  # fmt: skip
    assert report["tags"]["payments"] == ["batchledger", "shop"]
    assert report["tags"]["refused"] == ["batchledger", "refused"]
    assert report["settings"]["payments"]["look"][0] == "ana"
    assert (report["retries"]["payments"], report["retries"]["clicks"]) == ([1], [3])
    assert report["defaults"]["payments"] == {"everything": False}


def test_watch_is_no_pipeline_of_the_ledger_audit(tmp_path: Path) -> None:
    write_watch(tmp_path, "payments")
    tasks = REPORT.replace('"file"', '"audited": [task.task_id for each in found if each.dag_id == '
                           '"batchledger-ledger-audit" for task in each.tasks], "file"')  # fmt: skip
    assert parse(tmp_path, tasks)["audited"] == []


def test_nothing_heavy_is_imported_for_a_watch(report: dict) -> None:  # type: ignore[type-arg]
    assert HEAVY.isdisjoint(report["modules"])


def test_look_task_builds_no_dag_but_its_own(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "orders")
    write_watch(tmp_path, "payments")
    report = parse(tmp_path, REPORT, _AIRFLOW_PARSING_CONTEXT_DAG_ID="payments")
    assert (report["chains"], report["upkeep"]) == ({"payments": {"look": []}}, [])


def test_look_stands_behind_any_load_and_its_file_is_not_needed_to_read_the_dag(tmp_path: Path) -> None:
    dag_file = tmp_path / "nightly.py"
    dag_file.write_text(OWN)
    report = parse(tmp_path, READ_OWN.format(file=str(dag_file)))
    assert report["errors"] == {}
    assert report["tasks"] == {"load": [1, ["prove.look"]], "prove.look": [1, ["again"]], "again": [1, []]}
    assert report["tags"] == ["batchledger:payments"]
    assert HEAVY.isdisjoint(report["modules"])
