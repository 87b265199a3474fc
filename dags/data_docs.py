"""Brings Data Docs up to date after runs of pipelines, beside them: no run waits for its pages."""

from datetime import timedelta

from airflow.sdk import dag, task

from batchledger.interfaces.airflow import tasks


# No pipeline can have this name.
@dag(
    dag_id="batchledger-data-docs",
    schedule=[tasks.REPORTS],
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["batchledger", "upkeep"],
    description="Writes the pages of batches and pipelines that have changed",
)
def data_docs() -> None:
    """One pass over all pipelines; reports that arrive meanwhile are one run together."""

    @task
    def write() -> None:
        tasks.write_docs()

    write()


data_docs_dag = data_docs()
