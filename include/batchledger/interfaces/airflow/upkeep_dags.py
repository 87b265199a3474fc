"""The DAGs beside the pipelines: the audit of the ledger, housekeeping, and Data Docs.

No pipeline can have the name of one of them, because the name of a pipeline has no hyphen.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from batchledger.config.pipeline_file import find_pipeline_files, name_in_airflow
from batchledger.interfaces.airflow import tasks

LEDGER_AUDIT = "batchledger-ledger-audit"
HOUSEKEEPING = "batchledger-housekeeping"
DATA_DOCS = "batchledger-data-docs"
TAGS = ["batchledger", "upkeep"]
NEWEST = Param(
    None,
    type=["null", "integer"],
    minimum=0,
    title="Newest batches",
    description="Prove what so many of the newest batches have published; 0 proves the whole history. Empty: as the "
    "pipeline's file says (audit.newest), which is the whole history by default.",
)


def build_ledger_audit() -> DAG:
    """Prove every pipeline every 15 minutes, and look for what is stuck, lost or left behind."""
    told = "Proves the ledger against the target, and looks for what is stuck or left behind"
    doc = "Audit each pipeline by itself; none waits for another."
    with _open(LEDGER_AUDIT, "*/15 * * * *", timedelta(seconds=30), told, doc, params={"newest": NEWEST}) as dag:

        @task
        def audit(name: str, params: dict[str, int | None]) -> None:
            tasks.audit_ledger(name, params["newest"])

        for path in find_pipeline_files():
            audit.override(task_id=name_in_airflow(path))(path.stem)
    return dag


def build_housekeeping() -> DAG:
    """Remove every day what runs have left behind: orphaned staging, expired keys and quarantine, old results."""
    told = "Removes orphaned staging, expired keys and quarantine, and old results; keeps Iceberg tables fit"
    doc = "One bounded pass over the ledgers of all pipelines, and one over their sinks."
    with _open(HOUSEKEEPING, "@daily", timedelta(minutes=5), told, doc) as dag:

        @task
        def tidy() -> None:
            tasks.keep_house()

        tidy()
    return dag


def build_data_docs() -> DAG:
    """Bring Data Docs up to date, in a run that the last task of a pipeline's run starts and does not wait for.

    Each hour, too, because a group in a person's own DAG starts no other DAG.
    """
    told = "Writes the pages of batches and pipelines that have changed"
    doc = "One pass over all pipelines; reports that come while a run waits are this run together."
    with _open(DATA_DOCS, "@hourly", timedelta(seconds=30), told, doc) as dag:

        @task
        def write() -> None:
            tasks.write_docs()

        write()
    return dag


def _open(dag_id: str, schedule: str | None, retry_delay: timedelta, description: str, doc: str, **more: Any) -> DAG:
    """Return a DAG of upkeep, of which one run goes on at a time."""
    return DAG(
        dag_id,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 2, "retry_delay": retry_delay},
        tags=TAGS,
        description=description,
        doc_md=doc,
        **more,
    )


BUILDERS: Mapping[str, Callable[[], DAG]] = {
    LEDGER_AUDIT: build_ledger_audit,
    HOUSEKEEPING: build_housekeeping,
    DATA_DOCS: build_data_docs,
}
