"""What Airflow's triggerer runs for pipelines that start on records: one look an interval for a whole Kafka cluster.

DAG files import this module, so nothing heavy is imported here.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from typing_extensions import override

from batchledger.config.glance import find_connection

if TYPE_CHECKING:
    from batchledger.interfaces.airflow.record_watch import RecordWatch

ACTIVE_STATES = ["queued", "running"]

_listening: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
"""By shared stream, how many triggers of this process listen for each pipeline: no other pipeline is looked at."""

Starts = dict[str, dict[str, Any]]
"""What each pipeline that shall start has to do, by its name."""


class RecordsTrigger(BaseEventTrigger):
    """Fires when a run of the pipeline has something to do, and Airflow has none.

    Pipelines of one Kafka connection with the same interval share one look. An event that is lost is followed by
    another one while records wait, so nothing is kept here, and a triggerer may die at any moment.

    In the watcher of a DAG of one's own, ``dag_id`` is its id; the pipeline says which ``connection`` it reads from.
    """

    def __init__(
        self, pipeline: str, connection: str | None = None, check_every: float = 1.0, dag_id: str | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.connection = connection or find_connection(pipeline)
        self.check_every = check_every
        self.dag_id = dag_id

    @override
    def serialize(self) -> tuple[str, dict[str, Any]]:
        settings = {"pipeline": self.pipeline, "connection": self.connection, "check_every": self.check_every}
        settings |= {} if self.dag_id is None else {"dag_id": self.dag_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", settings

    @override
    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look alone: before version 3.3 Airflow shares no streams."""
        names = lambda: [self.pipeline]  # noqa: E731
        async with aclosing(_watch(self.connection, self.check_every, names, self.dag_id)) as looks:
            async for starts in looks:
                yield TriggerEvent(starts[self.pipeline])  # type: ignore[no-untyped-call]

    @override
    def shared_stream_key(self) -> Hashable:
        return ("batchledger", self.connection, self.check_every, self.dag_id)

    @override
    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Starts]:
        listening = _listening[cls(**kwargs).shared_stream_key()]
        names = partial(_list_wanted, listening)
        watch = _watch(kwargs["connection"], kwargs["check_every"], names, kwargs.get("dag_id"))
        async with aclosing(watch) as looks:
            async for starts in looks:
                yield starts

    @override
    async def filter_shared_stream(self, shared_stream: AsyncIterator[Starts]) -> AsyncIterator[TriggerEvent]:
        listening = _listening[self.shared_stream_key()]
        listening[self.pipeline] += 1
        try:
            async for starts in shared_stream:
                if self.pipeline in starts:
                    yield TriggerEvent(starts[self.pipeline])  # type: ignore[no-untyped-call]
        finally:
            listening[self.pipeline] -= 1


def _list_wanted(listening: Counter[str]) -> list[str]:
    return [name for name, count in listening.items() if count]


async def _watch(
    connection: str, check_every: float, names: Callable[[], list[str]], dag_id: str | None
) -> AsyncGenerator[Starts, None]:
    """Look every ``check_every`` seconds at the pipelines of these names; yield what is to start, if anything is.

    The runs of ``dag_id`` work on them; without it, the runs of the DAGs that are called like them.
    """
    loop = asyncio.get_running_loop()
    # The threads that all triggers share would soon wait for clusters that do not answer, each for 10 s.
    thread = ThreadPoolExecutor(1, thread_name_prefix=f"records of {connection}")
    try:
        # Its imports would hold up all triggers for a second.
        watch = await loop.run_in_executor(thread, _open_watch, connection, dag_id)
        while True:
            next_look = loop.time() + check_every
            # What it asks blocks, Airflow's API included.
            starts = await loop.run_in_executor(thread, watch.find_starts, names())
            if starts:
                yield starts
            await asyncio.sleep(max(0.0, next_look - loop.time()))
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _open_watch(connection: str, dag_id: str | None) -> "RecordWatch":
    from batchledger.interfaces.airflow.record_watch import RecordWatch

    return RecordWatch(connection, _has_run if dag_id is None else lambda _: _has_run(dag_id))


def _has_run(dag_id: str) -> bool:
    """Ask Airflow whether a run of the DAG is queued or running."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return RuntimeTaskInstance.get_dr_count(dag_id=dag_id, states=ACTIVE_STATES) > 0
