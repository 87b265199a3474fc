"""Removes every day what runs have left behind: orphaned staging, expired message keys and quarantine, old results.

Iceberg tables are kept fit with it.
"""

from datetime import timedelta

from airflow.sdk import dag, task

from batchledger.interfaces.airflow import tasks


# No pipeline can have this name.
@dag(
    dag_id="batchledger-housekeeping",
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    tags=["batchledger", "upkeep"],
    description="Removes orphaned staging, expired keys and quarantine, and old results; keeps Iceberg tables fit",
)
def housekeeping() -> None:
    """One bounded pass over the ledgers of all pipelines, and one over their sinks."""

    @task
    def tidy() -> None:
        tasks.keep_house()

    tidy()


housekeeping_dag = housekeeping()
