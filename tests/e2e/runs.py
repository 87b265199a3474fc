"""What the tests ask of Airflow and of the ledger, the history that they write, and how they spoil a target."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from batchledger.books.history import BatchSummary, DecisionRecord, list_batches, load_batch_history
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.local.stack import airflow_components, processes
from batchledger.local.stack.processes import ServiceRecord
from batchledger.looking import ledger_dsn
from tests.conftest import TestServices
from tests.support import TestPipeline, wait_until

# A machine that is busy with other work takes several times as long as an idle one.
PATIENT = pytest.mark.timeout(900)
DEADLINE_SECONDS = 480
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
KEEP_FOREVER = {"retention.ms": "-1"}


def switch_on(airflow: AirflowApi, pipeline: TestPipeline) -> None:
    """Wait until Airflow shows the pipeline, then let it run, as a person has to do once for each new DAG."""
    airflow.wait_until_known(pipeline.name, DEADLINE_SECONDS)
    airflow.unpause(pipeline.name)


def wait_until_idle(airflow: AirflowApi, pipeline: TestPipeline) -> None:
    """Wait until no run is active, those that runs have started included."""
    wait_until_over(airflow, pipeline.name)


def wait_until_over(airflow: AirflowApi, dag_id: str) -> None:
    """Wait until a DAG has no active run."""
    wait_until(lambda: not any(run.is_active for run in airflow.list_runs(dag_id)), DEADLINE_SECONDS, every=0.5)


def trigger(airflow: AirflowApi, pipeline: TestPipeline, **fields: Any) -> Run:
    """Fill in the form, press the button, wait for the end of everything that follows."""
    run = airflow.trigger(pipeline.name, fields)
    wait_until_idle(airflow, pipeline)
    return next(each for each in airflow.list_runs(pipeline.name) if each.run_id == run.run_id)


def assert_succeeded(airflow: AirflowApi, pipeline: TestPipeline, runs: Sequence[Run]) -> None:
    """Each of the runs has; the words of those tasks that have not are shown."""
    tasks = {run.run_id: airflow.list_tasks(pipeline.name, run.run_id) for run in runs if run.state != "success"}
    said = {
        (run_id, task.task_id): airflow.read_error(pipeline.name, run_id, task)
        for run_id, found in tasks.items()
        for task in found
        if task.state == "failed"
    }
    assert not tasks, said


def run_to_the_end(airflow: AirflowApi, pipeline: TestPipeline) -> list[Run]:
    """Trigger a run that catches up, wait until no run is active any more, return all of them."""
    switch_on(airflow, pipeline)
    trigger(airflow, pipeline)
    return airflow.list_runs(pipeline.name)


@dataclass(frozen=True)
class Person:
    """A person at one run of Airflow."""

    airflow: AirflowApi
    dag_id: str
    run: Run

    def mark(self, task_id: str, state: str) -> None:
        """Mark a task, and wait: Airflow runs what had failed behind it by itself."""
        self.press(task_id, state)
        wait_until_over(self.airflow, self.dag_id)

    def press(self, task_id: str, state: str) -> None:
        """Press *Mark success* or *Mark failed* on one task."""
        self._ask("PATCH", f"{self._address}/taskInstances/{task_id}", {"new_state": state})

    def clear(self, *task_ids: str) -> None:
        """Clear exactly these tasks, and wait until they have run again."""
        asked = {"dry_run": False, "dag_run_id": self.run.run_id, "task_ids": task_ids, "only_failed": False}
        self._ask("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", asked)
        wait_until_over(self.airflow, self.dag_id)

    def read_note(self) -> str | None:
        """Return what stands beside the run."""
        note: str | None = self._ask("GET", self._address)["note"]
        return note

    def write_note(self, text: str) -> None:
        """Leave a note of his own."""
        self._ask("PATCH", self._address, {"note": text})

    @property
    def _address(self) -> str:
        return f"/api/v2/dags/{self.dag_id}/dagRuns/{quote(self.run.run_id)}"

    def _ask(self, method: str, address: str, body: Any = None) -> Any:
        return self.airflow.client.request(method, address, json=body).raise_for_status().json()


def task_states(airflow: AirflowApi, pipeline: TestPipeline, run: Run) -> dict[str, str | None]:
    return {task.task_id: task.state for task in airflow.list_tasks(pipeline.name, run.run_id)}


def plan_of(airflow: AirflowApi, pipeline: TestPipeline, run: Run) -> tuple[str | None, int, str]:
    """The state of a run's first task, its number of tries, and its last error."""
    plan = next(task for task in airflow.list_tasks(pipeline.name, run.run_id) if task.task_id == "plan")
    return plan.state, plan.try_number, airflow.read_error(pipeline.name, run.run_id, plan)


def read_logs(local: Path, dag_id: str, run: Run) -> str:
    """What the tasks of a run have written, one after the other."""
    (folder,) = (local / "airflow" / "logs").glob(f"dag_id={dag_id}/run_id={run.run_id}")
    return "".join(path.read_text() for path in sorted(folder.rglob("*.log")))


def batches_of(pipeline: TestPipeline) -> list[BatchSummary]:
    """All batches, the oldest first."""
    return list(reversed(list_batches(ledger_dsn(pipeline.config), pipeline.name, limit=100)))


def decision_on(pipeline: TestPipeline, run_id: str) -> DecisionRecord:
    """What the ledger knows of who asked for the batch of a run."""
    (batch_id,) = (each.batch_id for each in batches_of(pipeline) if each.planned_by == run_id)
    (decision,) = load_batch_history(ledger_dsn(pipeline.config), batch_id).decisions
    return decision


def read_target(pipeline: TestPipeline, columns: str = "number, amount") -> list[tuple[Any, ...]]:
    """The rows that readers see, of every writer."""
    return pipeline.query(f"select message_id, _partition, _offset, {columns} from {{target}} order by 1")  # noqa: S608


def spoil_target(
    pipeline: TestPipeline, days: Sequence[int] = (0,), number: str = "number", amount: str = "amount"
) -> None:
    """Change the rows of some days, and take some away, as a wrong transform would have done."""
    for day in days:
        since, until = FIRST_DAY + day * DAY, FIRST_DAY + (day + 1) * DAY
        of_day = "_timestamp >= %s and _timestamp < %s"
        assert pipeline.query(f"update {{target}} set {amount} = -1 where {of_day} returning 1", since, until)  # noqa: S608
        pipeline.query(f"delete from {{target}} where {of_day} and {number} %% 4 = 1 returning 1", since, until)  # noqa: S608


def send_history(pipeline: TestPipeline, days: int, per_day: int = 4) -> None:
    """Write records of days long ago, round robin over two partitions, half of them out of the order of their time."""
    for number in range(days * per_day):
        late = timedelta(hours=12 if number % 4 > 1 else 0)
        moment = FIRST_DAY + number * DAY / per_day - late
        message_id = f"{pipeline.name}-old-{number}"
        value = json.dumps({"message_id": message_id, "number": number, "amount": number / 4}).encode()
        pipeline.send_raw([(number % 2, value)], timestamp=int(moment.timestamp() * 1000))
        pipeline.sent.append(message_id)


@contextmanager
def second(services: TestServices, component: str) -> Iterator[ServiceRecord]:
    """Another process of a component, on the same Airflow database."""
    name = f"second-{component}"
    command = airflow_components._COMMAND_BY_COMPONENT[component]
    record = processes.start(services.home, name, airflow_components._launch(services.home, command))
    try:
        yield record
    finally:
        processes.stop(lambda: processes.find_members(services.home, [name])[name], 10)
