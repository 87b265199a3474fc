"""Requests for Batchledger's pages in Airflow, from inside the process that answers; each request is timed.

No network and no browser: each request goes to the application that the plugin mounts, with the token of a user of
Airflow's own auth manager and with Airflow's own database. The rest of Airflow's API server (its middleware, its access
log) is left out.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any, cast

import httpx

PAGES_VARIABLE = "BENCH_PAGES"
"""Names the file with the questions."""
ANSWERS_VARIABLE = "BENCH_ANSWERS"
BUNDLE = "dags-folder"
PATIENCE_SECONDS = 120.0
EXPECTED_STATES = {"blocked", "unread records", "caught up"}
IS_READING = "The history is being read"


@dataclass(frozen=True)
class Asked:
    """The questions: pages by their meaning, how often, the pipeline with the long history, and all DAGs."""

    path_by_subject: dict[str, str]
    rounds: int
    long_pipeline: str
    dag_ids: list[str]
    root_by_group: dict[str, int]


@dataclass(frozen=True)
class Answers:
    """Seconds of every round: of each page at each moment, and of the work beside them."""

    start_seconds: float
    seconds_by_page: dict[str, dict[str, list[float]]]
    looks: dict[str, list[float]]
    history: dict[str, list[float]]


class Browser:
    """One logged-in user of one application."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, root_path="/batchledger"),
            base_url="http://airflow/batchledger",
            headers={"Authorization": f"Bearer {token}", "Accept": "text/html"},
            timeout=PATIENCE_SECONDS,
        )

    async def get(self, path: str) -> tuple[float, str]:
        """Return the seconds until the answer, and its text."""
        started = perf_counter()
        answer = await self._client.get(path)
        seconds = perf_counter() - started
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:2000]}")
        return seconds, answer.text


def prepare_airflow(dag_ids: Sequence[str]) -> str:
    """Fill Airflow's empty database with a DAG for each pipeline; return the token of a user."""
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    initdb()
    with create_session(scoped=False) as session:
        session.add(DagBundleModel(name=BUNDLE))
        session.flush()
        for number, dag_id in enumerate(dag_ids):
            session.add(
                cast(Any, DagModel)(
                    dag_id=dag_id,
                    bundle_name=BUNDLE,
                    is_paused=number % 10 == 9,
                    is_stale=False,
                    max_active_tasks=16,
                    max_consecutive_failed_dag_runs=0,
                    has_task_concurrency_limits=False,
                    timetable_summary="*/5 * * * *",
                )
            )
    manager = init_auth_manager()
    token: str = manager.generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
    return token


async def read_page(token: str, path: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of one page: cold, when nothing was looked up yet; warm; and while all is looked up again.

    ``cpu`` is the CPU of the process for a warm page, without other work. Each cold page has a new application, which
    has looked up nothing.
    """
    from batchledger.interfaces.page.app import build_app

    cold, warm, busy, cpu = [], [], [], []
    for _ in range(rounds):
        newcomer = Browser(build_app(), token)
        cold.append((await newcomer.get(path))[0])
        # Otherwise the next request would wait for the work of this one.
        await rest(newcomer.app.state.lookout)
    browser = Browser(build_app(), token)
    lookout = browser.app.state.lookout
    await settle(browser, path)
    for _ in range(rounds):
        await rest(lookout)
        keep_fresh(lookout)
        began = process_time()
        warm.append((await browser.get(path))[0])
        cpu.append(process_time() - began)
        expire(lookout)
        busy.append((await browser.get(path))[0])
    await rest(lookout)
    return {"cold": cold, "warm": warm, "busy": busy, "cpu": cpu}


def list_watches(lookout: Any) -> list[Any]:
    """Return everything that is looked up in the background."""
    return [lookout.overview, *lookout._sources.values(), *lookout._helds.values()]


async def rest(lookout: Any) -> None:
    """Wait until nothing is being looked up."""
    for watch in list_watches(lookout):
        await asyncio.to_thread(watch._done.wait, PATIENCE_SECONDS)


def keep_fresh(lookout: Any) -> None:
    """Keep the next request from looking anything up."""
    for watch in list_watches(lookout):
        with watch._lock:
            watch._due_at = float("inf")


def expire(lookout: Any) -> None:
    """Let the next request look everything up that it needs. All pipelines begin now, as on another user's page."""
    for watch in list_watches(lookout):
        with watch._lock:
            watch._due_at = monotonic()
    lookout.overview.look(0)


async def settle(browser: Browser, path: str) -> None:
    """Ask until the page is complete."""
    until = perf_counter() + PATIENCE_SECONDS
    while perf_counter() < until:
        await rest(browser.app.state.lookout)
        _, text = await browser.get(path)
        if IS_READING not in text and "being looked at" not in text:
            return
    raise RuntimeError(f"{path} was not complete after {PATIENCE_SECONDS:.0f} s")


async def read_history(token: str, path: str, rounds: int) -> dict[str, list[float]]:
    """Return how long the history of a new pipeline is read, and how long its page takes meanwhile."""
    from batchledger.interfaces.page.app import build_app

    complete, page = [], []
    for _ in range(rounds):
        browser, started = Browser(build_app(), token), perf_counter()
        slowest, is_reading = 0.0, True
        while is_reading and perf_counter() - started < PATIENCE_SECONDS:
            seconds, text = await browser.get(path)
            slowest, is_reading = max(slowest, seconds), IS_READING in text
        complete.append(perf_counter() - started)
        page.append(slowest)
    return {"seconds": complete, "page_seconds": page}


def look_around(rounds: int, used: Callable[[], dict[str, float]]) -> dict[str, list[float]]:
    """Return the seconds of a look at all pipelines: of the first, which reads all files, and of the next ones."""
    from batchledger.interfaces.page.overview import OverviewFinder

    found: dict[str, list[float]] = {}
    finder, overview = OverviewFinder(), None
    for number in range(rounds + 1):
        if overview is not None:
            finder.want([each.name for each in overview.standings[:50]])
        began, cpu, others = perf_counter(), process_time(), used()
        overview = finder.find(overview)
        prefix = "first_" if number == 0 else ""
        found.setdefault(f"{prefix}seconds", []).append(perf_counter() - began)
        found.setdefault(f"{prefix}cpu_seconds", []).append(process_time() - cpu)
        for group, seconds in used().items():
            found.setdefault(f"{prefix}{group}_cpu_seconds", []).append(seconds - others[group])
    states = {str(each.health.state) for each in overview.standings} if overview else set()
    if states != EXPECTED_STATES:
        raise RuntimeError(f"expected pipelines that are {EXPECTED_STATES}, found {states}")
    return found


@contextmanager
def timed(told: list[float]) -> Iterator[None]:
    """Note the seconds of the block."""
    started = perf_counter()
    yield
    told.append(perf_counter() - started)


async def main(asked: Asked) -> Answers:
    """Ask all questions."""
    from bench.measuring import cpu_by_group

    token = prepare_airflow(asked.dag_ids)
    start: list[float] = []
    with timed(start):
        from batchledger.interfaces.page.app import build_app

        await Browser(build_app(), token).get("/static/style.css")
    seconds = {}
    for subject, path in asked.path_by_subject.items():
        seconds[subject] = await read_page(token, path, asked.rounds)
    history = await read_history(token, f"/pipelines/{asked.long_pipeline}", asked.rounds)
    looks = look_around(asked.rounds, lambda: cpu_by_group(asked.root_by_group))
    return Answers(start[0], seconds, looks, history)


if __name__ == "__main__":
    answers = asyncio.run(main(Asked(**json.loads(Path(os.environ[PAGES_VARIABLE]).read_text()))))
    Path(os.environ[ANSWERS_VARIABLE]).write_text(json.dumps(asdict(answers)))
    # The threads of Kafka's clients end with the process.
    sys.stdout.flush()
