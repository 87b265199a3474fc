"""The DAG file is parsed with every service down, import nothing heavy, and one bad file harms no other."""

from functools import partial
from pathlib import Path

import pytest
import yaml

from batchledger.config.pipeline_file import find_pipeline_files
from batchledger.interfaces.airflow.upkeep_dags import BUILDERS, DATA_DOCS
from batchledger.interfaces.trigger_form import Field, RunFacts, read_request
from batchledger.lifecycle.orders import CatchUp, Request
from tests.conftest import ROOT
from tests.dags import parsing
from tests.support import SCHEMA

REPORT = """
import sys
import airflow.sdk
before = set(sys.modules)
import batchledger_dags
found = [each for each in vars(batchledger_dags).values() if isinstance(each, airflow.sdk.DAG)]
dags = {each.dag_id: each for each in found if "upkeep" not in each.tags}
report = {
    "chains": {
        name: {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} for name, dag in dags.items()
    },
    "max_active_runs": {name: dag.max_active_runs for name, dag in dags.items()},
    "retries": {name: [task.retries for task in dag.tasks] for name, dag in dags.items()},
    "tags": {name: sorted(dag.tags) for name, dag in dags.items()},
    "defaults": {name: dag.params.validate() for name, dag in dags.items()},
    "timetables": {name: type(dag.timetable).__name__ for name, dag in dags.items()},
    "catchup": {name: dag.catchup for name, dag in dags.items()},
    "assets": {
        name: {task.task_id: [[each.name for each in task.inlets], [each.name for each in task.outlets]]
                for task in dag.tasks if task.inlets or task.outlets}
        for name, dag in dags.items()
    },
    "settings": {
        name: {task.task_id: [task.owner, task.pool, task.queue, task.priority_weight, task.retries,
            task.retry_delay.total_seconds(), bool(task.on_failure_callback)] for task in dag.tasks}
        for name, dag in dags.items()
    },
    "file": batchledger_dags.__file__,
    "upkeep": sorted(each.dag_id for each in found if "upkeep" in each.tags),
    "modules": sorted(set(sys.modules) - before),
}
"""
parse = partial(parsing.parse, program=REPORT)
CHAIN = {
    "plan": ["stage"], "stage": ["audit"], "audit": ["publish"], "publish": ["catch_up", "report"], "catch_up": [],
    "report": [],
}  # fmt: skip


def write_pipeline(folder: Path, name: str, **changes: object) -> None:
    content = {"name": name, "source": {"topics": [name], "schema": SCHEMA}, "sink": {"table": name}, **changes}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> dict:  # type: ignore[type-arg]
    """What is parsed of two files."""
    folder = tmp_path_factory.mktemp("two")
    write_pipeline(folder, "orders", schedule="*/5 * * * *")
    write_pipeline(folder, "clicks")
    return parse(folder)


def test_assets_are_named_by_the_file_alone_so_that_no_connection_is_looked_up_and_pipelines_meet_in_a_topic(
    tmp_path: Path,
) -> None:
    """None of these connections exists; whether it does may change from minute to minute, and no DAG may change so."""
    write_pipeline(tmp_path, "raw", sink={"type": "kafka", "connection": "nowhere", "topic": "clean"})
    write_pipeline(tmp_path, "clean", source={"topics": ["clean"], "connection": "nowhere", "schema": SCHEMA})
    write_pipeline(tmp_path, "lake", sink={"type": "iceberg", "catalog": "nowhere", "table": "shop.orders"})
    assert parse(tmp_path)["assets"] == {
        "raw": {"publish": [["kafka_default/raw"], ["nowhere/clean"]]},
        "clean": {"publish": [["nowhere/clean"], ["warehouse/public.clean"]]},
        "lake": {"publish": [["kafka_default/lake"], ["nowhere/shop.orders"]]},
    }


@pytest.fixture(scope="module")
def of_the_project() -> dict:  # type: ignore[type-arg]
    """What is parsed of the project's own files."""
    return parse(ROOT / "include" / "pipelines")


def test_each_file_is_a_dag_with_the_visible_chain(of_two: dict) -> None:  # type: ignore[type-arg]
    assert of_two["chains"] == {"orders": CHAIN, "clicks": CHAIN}
    assert of_two["max_active_runs"] == {"orders": 1, "clicks": 1}
    assert all(retries > 0 for dag in of_two["retries"].values() for retries in dag)


def test_each_dag_has_a_form_of_its_own_that_may_be_left_as_it_is(of_two: dict) -> None:  # type: ignore[type-arg]
    orders, clicks = of_two["defaults"]["orders"], of_two["defaults"]["clicks"]
    assert list(orders) == list(clicks) == [field.value for field in Field]
    assert read_request(orders, RunFacts("scheduled__1"), ["orders"]) == Request(CatchUp())


def test_runs_of_a_cron_schedule_stand_for_the_interval_that_has_ended(tmp_path: Path) -> None:
    """So that a backfill knows which records to publish again; a bare cron expression has intervals of length zero."""
    timetable_by_schedule = {
        "*/5 * * * *": "CronDataIntervalTimetable",
        "@daily": "CronDataIntervalTimetable",
        "@once": "OnceTimetable",
        "@continuous": "ContinuousTimetable",
        None: "NullTimetable",
    }
    for number, schedule in enumerate(timetable_by_schedule):
        write_pipeline(tmp_path, f"pipeline_{number}", schedule=schedule)
    report = parse(tmp_path)
    assert list(report["timetables"].values()) == list(timetable_by_schedule.values())
    assert set(report["catchup"].values()) == {False}


def test_file_says_who_owns_its_dag_and_how_its_tasks_run_and_the_dag_file_what_the_others_are(tmp_path: Path) -> None:
    own = {
        "tasks": "one", "owner": "ana", "tags": ["shop"], "pool": "kafka", "queue": "spark", "priority": 7,
        "retries": 1, "retry_delay": "1m", "on_failure": "nowhere.alerts:call_ana",
    }  # fmt: skip
    write_pipeline(tmp_path, "orders", dag=own)
    write_pipeline(tmp_path, "clicks")
    write_pipeline(tmp_path, "in_a_dag_of_ones_own", dag={"tasks": "none"})
    defaults = REPORT.replace(
        "import batchledger_dags",
        "import types\n"
        "from batchledger.interfaces.airflow.dags import build_dags\n"
        "batchledger_dags = types.SimpleNamespace(__file__='', **build_dags({'owner': 'team', 'pool': 'p'}, ['all']))",
    )
    report = parsing.parse(tmp_path, defaults)
    assert report["chains"] == {"orders": {"batch": ["report"], "report": []}, "clicks": CHAIN}
    told = ["ana", "kafka", "spark", 7, 1, 60.0, True]
    assert report["settings"]["orders"] == {"batch": told, "report": told}
    assert set(map(tuple, report["settings"]["clicks"].values())) == {("team", "p", "default", 1, 3, 10.0, False)}
    assert report["tags"] == {"orders": ["all", "batchledger", "shop"], "clicks": ["all", "batchledger"]}
    assert report["assets"]["orders"] == {"batch": [["kafka_default/orders"], ["warehouse/public.orders"]]}


def test_fifty_files_are_parsed_without_importing_spark_kafka_or_checks(tmp_path: Path) -> None:
    for number in range(50):
        write_pipeline(tmp_path, f"pipeline_{number}")
    report = parse(tmp_path)
    assert len(report["chains"]) == 50
    heavy = {"pyspark", "confluent_kafka", "great_expectations", "psycopg", "pgpq", "pyarrow", "grpc", "openlineage"}
    assert heavy.isdisjoint(report["modules"])


def test_a_task_builds_no_dag_but_its_own(tmp_path: Path) -> None:
    for name in ("orders", "clicks"):
        write_pipeline(tmp_path, name)
    (tmp_path / "broken one.yaml").write_text("name: [")
    for dag_id, chain in {"clicks": CHAIN, "broken_one": {"plan": []}}.items():
        report = parse(tmp_path, _AIRFLOW_PARSING_CONTEXT_DAG_ID=dag_id)
        assert (report["chains"], report["upkeep"]) == ({dag_id: chain}, [])
    for dag_id in BUILDERS:
        report = parse(tmp_path, _AIRFLOW_PARSING_CONTEXT_DAG_ID=dag_id)
        assert (report["chains"], report["upkeep"]) == ({}, [dag_id])


def test_refused_file_becomes_a_dag_that_says_so_and_harms_no_other(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "good")
    write_pipeline(tmp_path, "bad", shedule="@daily")
    report = parse(tmp_path)
    assert report["chains"] == {"good": CHAIN, "bad": {"plan": []}}
    assert report["tags"]["bad"] == ["batchledger", "refused"]


def test_pipeline_may_have_any_legal_name_and_an_unreadable_file_harms_no_other(tmp_path: Path) -> None:
    names = ["airflow_tasks", "dag", "path", "re", "task", "zebra_"]
    for name in names:
        write_pipeline(tmp_path, name)
    (tmp_path / "zebra~.yaml").write_text("another of the same id")
    (tmp_path / "broken.yaml").write_bytes(b"name: \xff")
    report = parse(tmp_path)
    assert report["chains"] == {**dict.fromkeys(names, CHAIN), "broken": {"plan": []}}


def test_refused_file_takes_neither_the_place_of_an_upkeep_dag_nor_a_name_of_the_dag_file(tmp_path: Path) -> None:
    for name in (DATA_DOCS, "__file__"):
        (tmp_path / f"{name}.yaml").write_text("name: [")
    report = parse(tmp_path)
    assert report["file"].endswith("batchledger_dags.py")
    assert (report["chains"], report["upkeep"]) == ({"__file__": {"plan": []}}, sorted(BUILDERS))


@pytest.mark.parametrize("name", [path.stem for path in find_pipeline_files(ROOT / "include" / "pipelines")])
def test_pipelines_of_the_project_are_accepted(of_the_project: dict, name: str) -> None:  # type: ignore[type-arg]
    assert of_the_project["chains"][name] == CHAIN
