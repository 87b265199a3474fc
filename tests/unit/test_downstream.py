"""The demo's DAG that reads each batch: what it waits for, and how long the demo waits for it."""

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.config.places import PACKAGE
from batchledger.interfaces.airflow.assets import name_target
from batchledger.local import downstream
from batchledger.local.airflow_api import Run
from batchledger.local.demo import PIPELINE_FILES, choose_sums
from batchledger.local.downstream import settle

RUNNING, DONE = Run("first", "running"), Run("first", "success")
Seen = tuple[tuple[int, ...], Sequence[Run]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "POLL_SECONDS", 0)


@pytest.mark.parametrize("file", [PACKAGE / "pipelines" / "flights.yaml", PIPELINE_FILES / "flights_avro.yaml"])
def test_dag_waits_for_the_target_of_the_demos_pipeline_and_may_have_several_runs(file: Path, tmp_path: Path) -> None:
    pipeline = read_pipeline_file(file)
    sums = choose_sums(pipeline)
    assert sums is not None
    sums.add_dag(tmp_path)
    made = runpy.run_path(str(tmp_path / f"{sums.dag_id}.py"))
    assert made["FLIGHTS"] == name_target(pipeline)
    dag = made[sums.dag_id]()
    assert (dag.dag_id, dag.catchup) == (f"{pipeline.name}_by_carrier", False)
    assert dag.max_active_runs > 1


@pytest.mark.parametrize("name", ["flights_kafka", "flights_iceberg"])
def test_topic_and_iceberg_table_have_no_such_dag(name: str) -> None:
    assert choose_sums(read_pipeline_file(PACKAGE / "pipelines" / f"{name}.yaml")) is None


def in_turn(*seen: Seen) -> Callable[[], Seen]:
    waiting = iter(seen)
    return lambda: next(waiting)


def test_waiting_ends_as_soon_as_no_batch_differs() -> None:
    look = in_turn(((1, 2), [RUNNING]), ((2,), [DONE]), ((), [DONE]))
    assert settle(look) == ()
    with pytest.raises(StopIteration):
        look()


def test_batch_that_no_run_is_left_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "QUIET_SECONDS", 0)
    assert settle(lambda: ((4,), [DONE])) == (4,)


def test_active_run_has_more_patience_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downstream, "QUIET_SECONDS", 0)
    assert settle(in_turn(*[((4,), [RUNNING])] * 3, ((), [DONE]))) == ()
    monkeypatch.setattr(downstream, "STALL_SECONDS", 0)
    assert settle(lambda: ((4,), [RUNNING])) == (4,)
