"""What Airflow's triggerer runs, in an event loop of the test: looks at one cluster do not wait for another one."""

import asyncio
import json
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from socket import create_server
from typing import Any

import pytest

from batchledger.interfaces.airflow import records_trigger
from batchledger.interfaces.airflow.record_watch import RecordWatch
from batchledger.interfaces.airflow.records_trigger import RecordsTrigger
from batchledger.lifecycle import plans
from tests.endpoints import HOST
from tests.support import Workplace

SILENT, ALIVE = "kafka_that_is_silent", "kafka_default"
LOOKS = 5
EVERY = 0.1


def look_at_both(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how many looks have ended, by connection, when the first at the silent one has, or enough at the other.

    The silent one accepts connections and says nothing, so a look at it takes 10 s. It begins first.
    """
    alive = workplace.create(start_on_records={})
    assert plans.plan(alive.platform(), "first") is None
    silent = workplace.create(start_on_records={}, source={"connection": SILENT})
    looks: Counter[str] = Counter()

    async def run() -> Counter[str]:
        loop, enough, find_starts = asyncio.get_running_loop(), asyncio.Event(), RecordWatch.find_starts
        ended: list[Counter[str]] = []

        def count(watch: RecordWatch, names: Collection[str]) -> dict[str, dict[str, Any]]:
            found = find_starts(watch, names)
            looks[watch.connection] += 1
            if not ended and (looks[ALIVE] == LOOKS or looks[SILENT]):
                ended.append(looks.copy())
                loop.call_soon_threadsafe(enough.set)
            return found

        with create_server((HOST, 0)) as server, monkeypatch.context() as patches:
            server.setblocking(False)
            options = {"bootstrap.servers": f"{HOST}:{server.getsockname()[1]}"}
            patches.setenv(f"AIRFLOW_CONN_{SILENT.upper()}", json.dumps({"conn_type": "kafka", "extra": options}))
            patches.setattr(RecordWatch, "find_starts", count)
            first = asyncio.ensure_future(anext(RecordsTrigger(silent.name, SILENT, EVERY).run()))
            connection, _ = await loop.sock_accept(server)
            with connection:
                other = asyncio.ensure_future(anext(RecordsTrigger(alive.name, ALIVE, EVERY).run()))
                await enough.wait()
                for each in (first, other):
                    each.cancel()
                await asyncio.wait([first, other])
                return ended[0]

    # A browser that an earlier test opened keeps a loop at work in this thread.
    with ThreadPoolExecutor(1) as own:
        return own.submit(asyncio.run, run()).result()


def test_silent_cluster_holds_back_no_look_at_another(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_at_both(workplace, monkeypatch) == {ALIVE: LOOKS}


def test_negative_control_in_a_thread_that_both_share_a_silent_cluster_holds_the_other_one_back(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ThreadPoolExecutor(1)
    monkeypatch.setattr(records_trigger, "ThreadPoolExecutor", lambda *_, **__: shared)
    assert look_at_both(workplace, monkeypatch) == {SILENT: 1}
