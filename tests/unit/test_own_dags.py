"""Groups and sensors in a DAG of one's own, as Airflow reads the DAG and as its triggerer runs a sensor."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import FailFastDagInvalidTriggerRule

from batchledger.airflow import BatchledgerTaskGroup, expand_groups
from batchledger.config.places import PIPELINES_VARIABLE
from batchledger.interfaces.airflow import sensor


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
