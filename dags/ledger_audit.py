"""A periodic proof of every pipeline, and a look at what is stuck, lost or left behind: one task per pipeline file."""

from datetime import timedelta

from airflow.sdk import Param, dag, task

from batchledger.config.pipeline_file import find_pipeline_files, name_in_airflow
from batchledger.interfaces.airflow import tasks

NEWEST = Param(
    None,
    type=["null", "integer"],
    minimum=0,
    title="Newest batches",
    description="Prove what so many of the newest batches have published; 0 proves the whole history. Empty: as the "
    "pipeline's file says (audit.newest), which is the whole history by default.",
)


# No pipeline can have this name.
@dag(
    dag_id="batchledger-ledger-audit",
    schedule="*/15 * * * *",
    params={"newest": NEWEST},
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["batchledger", "upkeep"],
    description="Proves the ledger against the target, and looks for what is stuck or left behind",
)
def ledger_audit() -> None:
    """Audit each pipeline by itself; none waits for another."""

    @task
    def audit(name: str, params: dict[str, int | None]) -> None:
        tasks.audit_ledger(name, params["newest"])

    for path in find_pipeline_files():
        audit.override(task_id=name_in_airflow(path))(path.stem)


audit_dag = ledger_audit()
