"""Waits in a DAG of one's own until a batch of a pipeline is published, in a worker or in the triggerer.

DAG files import this module, so nothing heavy is imported here.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from typing_extensions import override

if TYPE_CHECKING:
    from airflow.sdk import Context

RUN_WAS_DUE = "{{ dag_run.run_after.isoformat() }}"
# The threads that all triggers share may wait for other systems, and a ledger that does not answer would hold them up.
_THREADS = ThreadPoolExecutor(8, thread_name_prefix="published batches")
Found = dict[str, Any]
"""``pipeline``, ``batch_ids`` and ``published_at`` of the newest of them, as JSON."""


class BatchPublishedSensor(BaseSensorOperator):
    """Succeeds when a batch of a pipeline has been published since a moment; returns its number, and of those after it.

    ``pipeline`` is the name of a pipeline file. ``since`` is a moment with a zone; without it, the one at which the run
    of this DAG was due. The clock of the ledger's database says when a batch was published. ``deferrable``: wait in the
    triggerer, where waiting takes no slot of a worker.
    """

    template_fields = ("pipeline", "since")

    def __init__(
        self,
        *,
        pipeline: str,
        since: str = RUN_WAS_DUE,
        deferrable: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.pipeline, self.since, self.deferrable = pipeline, since, deferrable

    @override
    def poke(self, context: "Context") -> PokeReturnValue:
        from batchledger.interfaces.airflow import terms

        with terms.in_airflow_terms():
            found = find_published(self.pipeline, self.since)
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    @override
    def execute(self, context: "Context") -> Any:
        """Look at once. If there is nothing yet, look again from a worker or from the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context).xcom_value
        if found is None:
            trigger = BatchPublishedTrigger(self.pipeline, self.since, float(self.poke_interval))
            self.defer(trigger=trigger, method_name="take_found", timeout=self.timeout)
        return found

    def take_found(self, context: "Context", event: Found) -> Found:  # noqa: ARG002 (Airflow passes it)
        """Return what the triggerer has found. Raises what has ended its wait."""
        if "error" in event:
            raise AirflowFailException(event["error"])
        return event


class BatchPublishedTrigger(BaseTrigger):
    """Asks the ledger every ``every`` seconds whether a batch has been published since a moment."""

    def __init__(self, pipeline: str, since: str, every: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline, self.since, self.every = pipeline, since, every

    @override
    def serialize(self) -> tuple[str, dict[str, Any]]:
        settings = {"pipeline": self.pipeline, "since": self.since, "every": self.every}
        return f"{type(self).__module__}.{type(self).__qualname__}", settings

    @override
    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, and wait. An error that may pass ends no wait; any other one ends this try of the task."""
        from batchledger.model.errors import BatchledgerError

        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.run_in_executor(_THREADS, find_published, self.pipeline, self.since)
            except BatchledgerError as error:
                found = None if error.retryable else {"error": str(error)}
            if found is not None:
                yield TriggerEvent(found)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.every)


def find_published(pipeline: str, since: str) -> Found | None:
    """Return which batches of a pipeline have been published since a moment; None if none has.

    They are the newest ones, as many as ``list_published_since`` returns, the oldest of them first.
    """
    from batchledger.books.overview import list_published_since
    from batchledger.config.pipeline_file import load_pipeline
    from batchledger.interfaces.trigger_form import read_moment
    from batchledger.looking import ledger_dsn

    moment = read_moment("since", since)
    found = list_published_since(ledger_dsn(load_pipeline(pipeline)), pipeline, moment)
    if not found:
        return None
    return {"pipeline": pipeline, "batch_ids": [*found], "published_at": max(found.values()).isoformat()}
