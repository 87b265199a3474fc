"""DAGs of a person's own in a running Airflow, and what a person does there to a run."""

from typing import Any
from urllib.parse import quote
from uuid import uuid4

from batchledger.local.airflow_api import AirflowApi, Run
from tests.conftest import TestServices
from tests.e2e.runs import DEADLINE_SECONDS, read_logs
from tests.support import wait_until


class OwnDags:
    """The folder of a person's own DAGs, and a running Airflow that reads it."""

    def __init__(self, airflow: AirflowApi, services: TestServices) -> None:
        self.airflow, self.services = airflow, services
        self.added: list[str] = []

    def add(self, text: str, **names: str) -> str:
        """Write the file of a DAG, wait until Airflow knows it, switch it on, and return its id."""
        dag_id = f"nightly-{uuid4().hex[:8]}"
        (self.services.home.more_dags / f"{dag_id}.py").write_text(text.format(dag_id=dag_id, **names))
        self.added.append(dag_id)
        self.airflow.wait_until_known(dag_id, DEADLINE_SECONDS)
        self.airflow.unpause(dag_id)
        return dag_id

    def run(self, *dag_ids: str) -> list[Run]:
        """Trigger a run of each, all at once, and return them when they are over."""
        asked = [(each, self.airflow.trigger(each, {})) for each in dag_ids]
        return [self.wait(*each) for each in asked]

    def states(self, dag_id: str, run: Run) -> dict[str, str | None]:
        return {each.task_id: each.state for each in self.airflow.list_tasks(dag_id, run.run_id)}

    def wait(self, dag_id: str, run: Run) -> Run:
        """Return the run when it is over."""

        def find() -> Run:
            return next(each for each in self.airflow.list_runs(dag_id) if each.run_id == run.run_id)

        wait_until(lambda: not find().is_active, DEADLINE_SECONDS, every=0.5)
        return find()

    def logs(self, dag_id: str, run: Run) -> str:
        """What the tasks of the run have written."""
        return read_logs(self.services.home.local, dag_id, run)

    def xcom(self, dag_id: str, run: Run, task_id: str) -> Any:
        """What a task has returned."""
        address = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run.run_id)}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.airflow.client.get(address, params={"deserialize": True}).raise_for_status().json()["value"]
