"""The requests to Airflow's REST API of the demo and the tests: what its buttons send. Translation only.

Raises ServiceUnavailableError if the API server does not answer, and SetupError if it refuses.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal
from urllib.parse import quote

import httpx
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from batchledger.model.errors import ServiceUnavailableError, SetupError

ANSWER_SECONDS = 30.0
TRIES = 4
"""How often a question is asked that is not answered in time: a machine that starts all services is busy."""
NEWEST_RUNS = 100


@dataclass(frozen=True, slots=True)
class AirflowAccount:
    """The address of Airflow, the user, and the file of the simple auth manager that holds the password."""

    url: str
    user: str
    password_file: Path


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a DAG; ``state`` is queued, running, success or failed, ``kind`` for example manual or backfill."""

    run_id: str
    state: str
    kind: str = "manual"
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may still change something."""
        return self.state in ("queued", "running")


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a run; ``state`` is None before it is scheduled."""

    task_id: str
    state: str | None
    try_number: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """The intervals of a schedule that begin at ``since``, at ``until``, or between them, and have ended.

    ``reprocess`` says which existing runs of these intervals are done again. ``fields`` are the fields of the form; if
    they are None, a run that is done again keeps its own.
    """

    since: datetime
    until: datetime
    reprocess: Literal["none", "failed", "completed"] = "none"
    max_active_runs: int = 1
    run_backwards: bool = False
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class AirflowApi:
    """The API of one Airflow, logged in."""

    url: str
    client: httpx.Client = field(repr=False)

    def is_known(self, dag_id: str) -> bool:
        """Whether the DAG can be triggered: its file has been parsed without an error."""
        answer = self._ask("GET", f"/dags/{dag_id}", accepted=(httpx.codes.NOT_FOUND,))
        if answer is None or answer["is_stale"]:
            return False
        if answer["has_import_errors"]:
            raise SetupError(
                f"Airflow cannot import the DAG {dag_id}.",
                advice=f"Read Airflow's message: {self.url}/dags",
                subject=dag_id,
            )
        return True

    def wait_until_known(self, dag_id: str, seconds: float) -> None:
        """Return as soon as the DAG can be triggered. Raises ServiceUnavailableError after ``seconds``."""
        deadline = monotonic() + seconds
        while not self.is_known(dag_id):
            if monotonic() > deadline:
                raise ServiceUnavailableError(
                    f"Airflow at {self.url} does not know the DAG {dag_id} after {seconds:.0f} s.",
                    why="The log of its dag-processor says more.",
                    advice="Look at the services: batchledger status",
                    subject=dag_id,
                )
            sleep(0.5)

    def unpause(self, dag_id: str) -> None:
        """Let the DAG run; harmless if it may already."""
        self._ask("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, fields: Mapping[str, Any] | None = None) -> Run:
        """Start a run as the Trigger button does: now, without a logical date; ``fields`` are the fields of the form.

        Raises SetupError if the form refuses a field.
        """
        request = {"logical_date": None, "conf": dict(fields or {})}
        return _read_run(self._ask("POST", f"/dags/{dag_id}/dagRuns", json=request))

    def backfill(self, dag_id: str, backfill: Backfill) -> int:
        """Start a backfill as its dialog does; return its number. Raises SetupError while another one is active."""
        request = {
            "dag_id": dag_id,
            "from_date": backfill.since.isoformat(),
            "to_date": backfill.until.isoformat(),
            "reprocess_behavior": backfill.reprocess,
            "max_active_runs": backfill.max_active_runs,
            "run_backwards": backfill.run_backwards,
            "dag_run_conf": backfill.fields,
        }
        return int(self._ask("POST", "/backfills", json=request)["id"])

    def end_backfill(self, backfill_id: int) -> None:
        """End a backfill, so that another one can begin: fails its waiting runs. Harmless if it is over.

        The scheduler looks every 30 s, and ends a backfill by itself when all its runs are over.
        """
        self._ask("PUT", f"/backfills/{backfill_id}/cancel", accepted=(httpx.codes.CONFLICT,))

    def list_runs(self, dag_id: str) -> list[Run]:
        """Return the newest runs, oldest first."""
        newest = {"limit": NEWEST_RUNS, "order_by": "-run_after"}
        found = self._ask("GET", f"/dags/{dag_id}/dagRuns", params=newest)
        return [_read_run(run) for run in reversed(found["dag_runs"])]

    def list_tasks(self, dag_id: str, run_id: str) -> list[Task]:
        """Return the tasks of a run."""
        found = self._ask("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances")
        return [Task(each["task_id"], each["state"], each["try_number"]) for each in found["task_instances"]]

    def read_error(self, dag_id: str, run_id: str, task: Task) -> str:
        """Return the last error in the log of a task's latest try."""
        path = f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task.task_id}/logs/{task.try_number}"
        content = self._ask("GET", path, params={"full_content": True})["content"]
        return _find_error(content) or "its log holds no error: the task was ended from outside"

    def log_url(self, dag_id: str, run_id: str, task: Task) -> str:
        """Return the page that shows the log of a task's latest try."""
        return f"{self.url}/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task.task_id}?try_number={task.try_number}"

    def _ask(self, method: str, path: str, accepted: Sequence[int] = (), **request: Any) -> Any:
        return _ask(self.client, method, f"/api/v2{path}", accepted, **request)


@contextmanager
def open_airflow(account: AirflowAccount) -> Iterator[AirflowApi]:
    """Log in with user and password, as a person would, and lend the API."""
    headers = {"Accept": "application/json"}
    # The services of this machine are never behind a proxy, whatever the environment says.
    with httpx.Client(base_url=account.url, headers=headers, timeout=ANSWER_SECONDS, trust_env=False) as client:
        login = {"username": account.user, "password": _read_password(account)}
        token = _ask(client, "POST", "/auth/token", json=login)["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield AirflowApi(account.url, client)


def _ask(client: httpx.Client, method: str, path: str, accepted: Sequence[int] = (), **request: Any) -> Any:
    """Return the JSON of the answer, None for a status in ``accepted``. A question may be asked again, an order not."""
    tries = TRIES if method == "GET" else 1
    ask = retry(retry=retry_if_exception_type(httpx.TimeoutException), stop=stop_after_attempt(tries), reraise=True)
    try:
        answer = ask(client.request)(method, path, **request)
    except httpx.TransportError as error:
        is_late = isinstance(error, httpx.TimeoutException)
        raise ServiceUnavailableError(
            f"Airflow at {client.base_url} does not answer.",
            why=str(error),
            advice="Its runs go on. Run the same command again: it takes up what is done."
            if is_late
            else "Start it: batchledger up",
        ) from error
    if answer.status_code in accepted:
        return None
    if answer.is_server_error:
        raise ServiceUnavailableError(f"Airflow failed at {method} {path}.", why=_quote(answer))
    if answer.is_error:
        raise SetupError(f"Airflow refused {method} {path}.", why=_quote(answer))
    return answer.json()


def _quote(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:500]}"


def _read_password(account: AirflowAccount) -> str:
    try:
        return str(json.loads(account.password_file.read_text(encoding="utf-8"))[account.user])
    except (OSError, ValueError, KeyError) as error:
        raise SetupError(
            f"The password of user {account.user} could not be read from {account.password_file}.",
            why=repr(error),
            advice="Let it be written: batchledger up",
        ) from error


def _read_run(run: Any) -> Run:
    started_at, ended_at = (run[key] and datetime.fromisoformat(run[key]) for key in ("start_date", "end_date"))
    return Run(run["dag_run_id"], run["state"], run["run_type"], started_at, ended_at)


def _find_error(content: Sequence[Any]) -> str | None:
    """Return the message of the last exception, else the last line at level error."""
    lines = [line for line in content if isinstance(line, dict)]
    for line in reversed(lines):
        if line.get("error_detail"):
            exception = line["error_detail"][0]
            return f"{exception['exc_type']}: {exception['exc_value']}"
    errors = [str(line["event"]) for line in lines if line.get("level") in ("error", "critical")]
    return errors[-1] if errors else None
