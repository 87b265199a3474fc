"""Groups and sensors in a DAG of one's own, as Airflow reads the DAG and as its triggerer runs a sensor."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import FailFastDagInvalidTriggerRule
from airflow.sdk.execution_time.context import set_current_context

from batchledger.airflow import BatchledgerTaskGroup, expand_groups
from batchledger.config.places import PIPELINES_VARIABLE
from batchledger.interfaces.airflow import sensor
from batchledger.interfaces.airflow.batch_of_run import find_gates
from tests.unit.test_airflow_tasks import CONFIG, task_instance


@pytest.mark.parametrize("fail_fast", [False, True])
def test_last_steps_of_a_group_run_after_a_skip_unless_the_dag_fails_fast_which_allows_no_such_rule(
    fail_fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PIPELINES_VARIABLE, str(tmp_path))
    with DAG("nightly", schedule=None, fail_fast=fail_fast) as dag:
        BatchledgerTaskGroup("load", pipeline="orders", until_caught_up=True)
        expand_groups("many", pipeline=["orders", "visits"])
    rules = {each.task_id: each.trigger_rule.value for each in dag.tasks}
    last = ("load.publish", "load.catch_up", "many.publish")
    assert {rules[each] for each in last} == {"all_success" if fail_fast else "none_failed"}
    if fail_fast:
        with dag, pytest.raises(FailFastDagInvalidTriggerRule):
            EmptyOperator(task_id="negative_control", trigger_rule="none_failed")


def gate_after(gate: Any, load: Any) -> Any:
    """Something between the two may run although the gate has failed, and then ``stage`` does."""
    gate >> load.get_child_by_label("publish")
    return EmptyOperator(task_id="after")


GATES = {
    "nothing": (lambda load, gate: gate >> load, []),
    "behind audit": (lambda load, gate: load.get_child_by_label("audit") >> gate >> load.last, ["gate"]),
    "beside the steps": (lambda load, gate: gate >> load.last, ["gate"]),
    "beside the audit": (lambda load, gate: load.get_child_by_label("stage") >> gate >> load.last, ["gate"]),
    "after all": (lambda load, gate: load >> gate, []),
    "before all, and once more": (lambda load, gate: gate >> load >> gate_after(gate, load), ["gate"]),
}


@pytest.mark.parametrize(("tie", "gates"), GATES.values(), ids=GATES)
def test_task_that_stands_before_publish_and_not_before_stage_is_a_gate(tie: Any, gates: list[str]) -> None:
    """Rows must not be visible before an approval."""
    with DAG("nightly", schedule=None) as dag:
        tie(BatchledgerTaskGroup("load", pipeline=CONFIG), EmptyOperator(task_id="gate"))
    context: Any = {"dag": dag, "ti": task_instance("load.stage"), "dag_run": SimpleNamespace(run_id="manual__1")}
    with set_current_context(context):
        assert find_gates() == gates


def test_sensor_hears_of_its_batch_while_other_triggers_hold_all_threads_that_they_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"pipeline": "orders", "batch_ids": [17]}
    monkeypatch.setattr(sensor, "find_published", lambda *_: found)
    may_end = threading.Event()

    async def look() -> tuple[Any, bool]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        held = asyncio.create_task(asyncio.to_thread(may_end.wait))
        behind = asyncio.create_task(asyncio.to_thread(lambda: None))
        try:
            event = await anext(sensor.BatchPublishedTrigger("orders", "2026-11-21T00:00:00Z", 1.0).run())
            return event.payload, behind.done()
        finally:
            may_end.set()
            await asyncio.gather(held, behind)

    assert asyncio.run(look()) == (found, False)
