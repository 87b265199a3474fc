"""A bound for a job that no executor works at; Spark itself would wait for ever, most often without a word.

A Spark Connect server tells its client every two seconds (``spark.connect.progress.reportInterval``) which stages a job
has and how many of its tasks run. A job with work left and no running task waits for executors: they have died, were
never there, or other jobs hold all of them.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql.connect.shell.progress import StageInfo

# Longer than a cluster takes to start its executors on demand.
STARVED_SECONDS = 600.0


class StarvationError(PySparkException):
    """No executor works at a job. The text holds no value of a record."""


@dataclass
class StarvationWatch:
    """Ends a job, by StarvationError, when none of its tasks has run for ``seconds``; the client then releases it."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    starved_since_by_job: dict[str | None, float] = field(default_factory=dict)

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Take one report of the server, as a progress handler of pyspark."""
        if done or inflight_tasks or all(stage.done for stage in stages or ()):
            self.starved_since_by_job.pop(operation_id, None)
            return
        since = self.starved_since_by_job.setdefault(operation_id, self.clock())
        if self.clock() - since >= self.seconds:
            raise StarvationError(
                f"no task of the job has run for {self.seconds:.0f} s, because no executor takes one. Workers of the "
                "Spark cluster are down or cannot be reached, or other jobs hold all of their cores: look at the "
                "cluster manager's page, then start workers or give them more cores"
            )
