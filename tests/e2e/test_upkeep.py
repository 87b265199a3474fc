"""The DAGs of the audit and of housekeeping in a real Airflow, beside the pipelines of the other tests."""

import psycopg

from batchledger.lifecycle import run_batch
from batchledger.local.airflow_api import AirflowApi, Run, Task
from tests.e2e.runs import DEADLINE_SECONDS, PATIENT
from tests.runner import RUNNER
from tests.support import TestPipeline, Workplace, wait_until

pytestmark = PATIENT

AUDIT, HOUSEKEEPING = "batchledger-ledger-audit", "batchledger-housekeeping"


def run_of(airflow: AirflowApi, dag_id: str) -> Run:
    """Trigger the DAG and wait until its run is over."""
    airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
    airflow.unpause(dag_id)
    run = airflow.trigger(dag_id)

    def ended() -> list[Run]:
        return [each for each in airflow.list_runs(dag_id) if each.run_id == run.run_id and not each.is_active]

    wait_until(ended, DEADLINE_SECONDS, every=0.5)
    (done,) = ended()
    return done


def audit_of(airflow: AirflowApi, pipeline: TestPipeline) -> tuple[Task, str]:
    """Audit all pipelines; return the task of this one and its error, as soon as Airflow has noticed its file.

    Airflow's scheduler keeps a DAG for 2 s before it looks whether a DAG without runs was rewritten in place
    (DBDagBag). A run within these 2 s has the task of a new file as `removed`, and the next run audits it.
    """
    found: list[tuple[Task, str]] = []

    def audit() -> bool:
        run = run_of(airflow, AUDIT)
        tasks = airflow.list_tasks(AUDIT, run.run_id)
        mine = [each for each in tasks if each.task_id == pipeline.name and each.state != "removed"]
        found.extend((each, airflow.read_error(AUDIT, run.run_id, each)) for each in mine)
        return bool(found)

    wait_until(audit, DEADLINE_SECONDS, every=1)
    return found[-1]


def test_audit_succeeds_on_an_exact_pipeline_and_fails_once_for_good_when_a_row_is_missing(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    pipeline = workplace.create()
    pipeline.send(20)
    run_batch.run_once(pipeline.platform(), "run")
    task, _ = audit_of(airflow, pipeline)
    assert (task.state, task.try_number) == ("success", 1)
    pipeline.query("delete from {target} where (_partition, _offset) = (0, 3) returning 1")
    task, error = audit_of(airflow, pipeline)
    assert (task.state, task.try_number) == ("failed", 1)
    assert "the ledger accepted 10 rows, the target holds 9" in error


def test_housekeeping_removes_what_a_killed_process_has_left_and_writes_small_files_together(
    airflow: AirflowApi, workplace: Workplace
) -> None:
    lake = workplace.create(into="lake", partitions=1, limits={"max_records": 4})
    lake.send(20, partitions=1)
    for run in range(5):
        run_batch.run_once(lake.platform(), f"run-{run}")
    assert len(lake.list_files()) == 5
    pipeline = workplace.create()
    pipeline.send(20)
    done = run_batch.run_once(pipeline.platform(), "run")
    assert done is not None
    left = f"b{done.batch_id}_a{done.attempt}_rows"
    with psycopg.connect(workplace.dsn) as connection:
        connection.execute(f"create unlogged table batchledger_staging.{left} (a int)".encode())
        # Housekeeping drops what its login may drop.
        connection.execute(f"alter table batchledger_staging.{left} owner to {RUNNER}".encode())
        earlier = "update batchledger.batch set published_at = now() - interval '2 h' where batch_id = %s"
        connection.execute(earlier, [done.batch_id])
    assert pipeline.list_staging() == [left]
    assert run_of(airflow, HOUSEKEEPING).state == "success"
    assert pipeline.list_staging() == []
    assert len(lake.list_files()) == 1
    lake.assert_exact()
