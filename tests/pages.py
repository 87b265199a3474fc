"""People at the pages, without Airflow: who they are, what it lets them do, and what its database would say.

Also what they find there: a pipeline that has published something, or is blocked.
"""

import html
import re
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
import uvicorn
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api import security
from airflow.api_fastapi.core_api.security import get_user
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from httpx import Response

from batchledger.interfaces.page import (
    access,
    acting,
    airflow_runs,
    app,
    dag_views,
    overview,
    pipeline_view,
    reading,
    watch_view,
)
from batchledger.interfaces.page.airflow_state import HostDag, choose_hosts
from batchledger.interfaces.page.app import build_app
from batchledger.lifecycle import run_batch
from batchledger.model.errors import BatchBlockedError
from batchledger.model.runs import FILE_TAG, HOST_TAG
from tests.support import TestPipeline, Workplace, wait_until

OWN_PAGE = {"HX-Request": "true", "Sec-Fetch-Site": "same-origin"}
HTML = {"Accept": "text/html"}
# Longer than anything takes that a page waits for; the wait ends when it is there.
PATIENT_SECONDS = 30.0


@dataclass(frozen=True)
class User:
    """A user who is logged in; ``dags`` are those that he may see, None for all of them."""

    user_id: str
    may_enter: bool = True
    may_read: bool = True
    may_act: bool = True
    dags: frozenset[str] | None = None

    def get_id(self) -> str:
        return self.user_id

    def get_name(self) -> str:
        return f"{self.user_id} of operations"


ANA, BEN = User("ana"), User("ben")
VIEWER = User("viewer", may_act=False)


class Auth:
    """Airflow's auth manager, which lets each user see and do as much as it says of him."""

    def is_authorized_view(self, *, access_view: Any, user: User) -> bool:
        return user.may_enter

    def is_authorized_dag(self, *, method: str, details: Any, user: User, access_entity: Any = None) -> bool:
        assert access_entity is (DagAccessEntity.RUN if method == "POST" else None)
        may = user.may_act if method == "POST" else user.may_read
        return may and (user.dags is None or details.id in user.dags)

    def get_authorized_dag_ids(self, *, user: User) -> Collection[str]:
        return user.dags or frozenset()

    def get_url_login(self, next_url: str, **_: Any) -> str:
        return f"/auth/login?next={quote(next_url, safe='')}"


class NoTeams:
    """Stands for the table of DAGs in Airflow's database."""

    @staticmethod
    def get_team_name(_: str) -> None:
        return None


@dataclass
class AirflowDatabase:
    """What of Airflow's database the pages read: states of runs by DAG and id, what is switched off, and tags.

    ``own`` are pairs of a person's own DAG and a pipeline in it. ``known`` are pipelines whose file has a DAG, too.
    Airflow no longer reads DAGs that are ``stale``.
    """

    state_by_run: dict[tuple[str, str], str] = field(default_factory=dict)
    switched_off: set[str] = field(default_factory=set)
    own: list[tuple[str, str]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    stale: set[str] = field(default_factory=set)

    def find_hosts(self, pipelines: Collection[str]) -> Mapping[str, tuple[HostDag, ...]]:
        tagged = [(HOST_TAG + name, dag_id) for dag_id, name in self.own]
        return choose_hosts(pipelines, [*tagged, *((FILE_TAG, each) for each in self.known)], self.stale)

    def list_hosted(self, dag_id: str | None = None) -> list[str]:
        return sorted({name for host, name in self.own if dag_id in (None, host)})

    def find_active_runs(self, dag_ids: Collection[str]) -> set[tuple[str, str]]:
        active = {run for run, state in self.state_by_run.items() if state in ("queued", "running")}
        return {run for run in active if run[0] in dag_ids}

    def find_run_state(self, dag_id: str, run_id: str) -> str | None:
        return self.state_by_run.get((dag_id, run_id))

    def find_switched_off(self, dag_ids: Collection[str]) -> set[str]:
        return self.switched_off & set(dag_ids)


def stand_in(patches: pytest.MonkeyPatch, database: AirflowDatabase) -> None:
    """Let the pages read this instead of Airflow's database."""
    for module in (access, acting, dag_views, overview, reading, watch_view):
        for name in ("find_active_runs", "find_hosts", "find_run_state", "find_switched_off", "list_hosted"):
            if hasattr(module, name):
                patches.setattr(module, name, getattr(database, name))


def let_in(patches: pytest.MonkeyPatch, *users: User) -> FastAPI:
    """Return the real application; a request names which of these has sent it, the first one when it names none."""
    stand_in(patches, AirflowDatabase())
    for module in (security, access, app):
        patches.setattr(module, "get_auth_manager", Auth)
    patches.setattr(access, "DagModel", NoTeams)
    by_id = {each.user_id: each for each in users}

    def find_user(request: Request) -> User:
        return by_id[request.headers.get("x-user", users[0].user_id)]

    pages = build_app()
    pages.dependency_overrides[get_user] = find_user
    return pages


@contextmanager
def serving(pages: FastAPI) -> Iterator[str]:
    """Serve the application to a real browser; yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(pages, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def open_browser(pages: FastAPI, user: User) -> TestClient:
    """Return a browser of a user whom the application knows."""
    headers = {"x-user": user.user_id}
    return TestClient(pages, follow_redirects=False, raise_server_exceptions=False, headers=headers)


@dataclass(frozen=True)
class AskedRun:
    """A run that was asked for. ``run_id`` is None if Airflow is to choose one."""

    dag_id: str
    fields: Mapping[str, Any]
    run_id: str | None


@dataclass
class Desk:
    """The pages over real services, with Airflow stood in for: ``asked`` are the runs that would have been started."""

    pages: FastAPI
    airflow: AirflowDatabase = field(default_factory=AirflowDatabase)
    asked: list[AskedRun] = field(default_factory=list)

    def trigger(self, _: Request, dag_id: str, fields: Mapping[str, Any], run_id: str | None = None) -> str:
        """Stand for Airflow's public API."""
        self.asked.append(AskedRun(dag_id, fields, run_id))
        run_id = run_id or f"manual__{len(self.asked)}"
        self.airflow.state_by_run.setdefault((dag_id, run_id), "queued")
        return run_id

    def get(self, address: str, user: User = ANA, below: str = "/pipelines") -> Response:
        """Look at an address below ``/pipelines``."""
        return open_browser(self.pages, user).get(f"{below}{address}", headers=HTML)

    def preview(self, pipeline: TestPipeline, kind: str, user: User = ANA, **fields: Any) -> Response:
        """Ask what an order would change, for a reason unless another one is given."""
        return self._post(f"{pipeline.name}/decisions/{kind}/preview", user, {"reason": "agreed", **fields})

    def confirm(self, pipeline: TestPipeline, kind: str, approval: str, user: User = ANA, **fields: Any) -> Response:
        """Press the button below what was shown."""
        return self._post(f"{pipeline.name}/decisions/{kind}", user, {"approval": approval, **fields})

    def end(
        self, pipeline: TestPipeline, number: int, step: str, user: User, reason: str = "I have looked"
    ) -> Response:
        """Confirm or withdraw a request."""
        return self._post(f"{pipeline.name}/requests/{number}", user, {"step": step, "reason": reason})

    def follow(self, pipeline: TestPipeline, run_id: str, approval: str, user: User = ANA) -> Response:
        """Ask how far a dry run is."""
        return self._post(f"{pipeline.name}/dry-runs/{run_id}", user, {"approval": approval})

    def _post(self, address: str, user: User, fields: Mapping[str, Any]) -> Response:
        return open_browser(self.pages, user).post(f"/pipelines/{address}", headers=OWN_PAGE, data=dict(fields))


def open_desk(patches: pytest.MonkeyPatch, *users: User) -> Desk:
    """Return the pages for these users, which wait for what they look at, so that the first answer has it."""
    desk = Desk(let_in(patches, *users))
    stand_in(patches, desk.airflow)
    patches.setattr(airflow_runs, "trigger", desk.trigger)
    for module in (reading, pipeline_view):
        patches.setattr(module, "_PATIENCE_SECONDS", PATIENT_SECONDS)
    return desk


def read_approval(answer: Response) -> str:
    """Return what was signed, which a button or the clock of the page would send."""
    found = re.search(r'name="approval" value="([^"]+)"', answer.text)
    assert found, words(answer)
    return found[1]


def offers(answer: Response) -> bool:
    """Whether there is a button to do it."""
    return 'class="act"' in answer.text


def words(answer: Response) -> str:
    """Return what a person reads on a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def publish(pipeline: TestPipeline) -> int:
    """Publish what waits; return the batch."""
    batch = run_batch.run_once(pipeline.platform(), "run")
    assert batch is not None
    return batch.batch_id


def block(workplace: Workplace, run: str = "run") -> tuple[TestPipeline, int]:
    """A pipeline and its blocked batch: of two offsets one is a marker, which the pipeline does not declare."""
    pipeline = workplace.create(partitions=1)
    pipeline.send_in_transaction([b"{}"], partition=0, commit=True)
    with pytest.raises(BatchBlockedError) as blocked:
        run_batch.run_once(pipeline.platform(), run)
    return pipeline, blocked.value.batch_id
