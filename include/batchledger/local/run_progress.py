"""Follow the Airflow runs of a pipeline until nothing is left to publish, and show how far they are.

It judges by two facts only: which runs Airflow calls active, and how far the ledger's positions are from the readable
ends of the topics. It changes nothing.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from batchledger.lifecycle.platform import Platform
from batchledger.local.airflow_api import AirflowApi, Run
from batchledger.model.errors import ServiceUnavailableError

POLL_SECONDS = 0.5
STALL_SECONDS = 900.0

_WORKING_STATES = ("running", "queued", "scheduled", "up_for_retry")


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much of a pipeline's topics is published, in offsets."""

    readable: int
    published: int

    @property
    def unread(self) -> int:
        """What is left to publish."""
        return self.readable - self.published


@dataclass(frozen=True, slots=True)
class Observation:
    """The runs that are followed, the tasks at work in them (``stage running``), and the backlog after them."""

    runs: tuple[Run, ...]
    work: str
    backlog: Backlog

    @property
    def failed(self) -> Run | None:
        """The first run that failed."""
        return next((run for run in self.runs if run.state == "failed"), None)

    @property
    def is_idle(self) -> bool:
        """Whether no run is left that could publish anything."""
        return not any(run.is_active for run in self.runs)


Observe = Callable[[], Observation]


def measure_backlog(platform: Platform) -> Backlog:
    """Compare the pipeline's positions with the readable ends of its topics."""
    log = platform.source.read_log(platform.rules.topics).log_by_partition
    positions = {each.partition: each.next_offset for each in platform.ledger.load_positions(platform.rules.name)}
    return Backlog(
        readable=sum(held.end - held.log_start for held in log.values()),
        published=sum(positions.get(each, held.log_start) - held.log_start for each, held in log.items()),
    )


def observe(airflow: AirflowApi, platform: Platform, ignored_runs: Collection[str]) -> Observation:
    """Look at the runs, their tasks, and after them the backlog.

    The order matters. A run that leaves records behind starts the next one before it is over itself. So if records are
    unread after the last run was over, no run will take them.
    """
    name = platform.rules.name
    runs = tuple(run for run in airflow.list_runs(name) if run.run_id not in ignored_runs)
    working = [
        f"{task.task_id} {task.state}"
        for run in runs
        if run.is_active
        for task in airflow.list_tasks(name, run.run_id)
        if task.state in _WORKING_STATES
    ]
    return Observation(runs, ", ".join(working) or "between tasks", measure_backlog(platform))


def follow(look: Observe, console: Console) -> Run | None:
    """Show what ``look`` sees until everything is published and no run is active; return the first run that fails.

    Raises ServiceUnavailableError if records stay unread though no run is left, or if nothing moves any more.
    """
    announced: set[str] = set()
    # The fixed width keeps room for the bar and the numbers, however many tasks are at work.
    work = TextColumn("{task.description}", table_column=Column(width=20, no_wrap=True, overflow="ellipsis"))
    columns = (SpinnerColumn(), work, BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("records published"), TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("", total=None)
        for seen in _watch(look):
            backlog = seen.backlog
            progress.update(bar, description=seen.work, completed=backlog.published, total=backlog.readable)
            for run in seen.runs:
                if not run.is_active and run.run_id not in announced:
                    announced.add(run.run_id)
                    console.print(f"Run {run.run_id}: {run.state}", highlight=False, soft_wrap=True)
            if seen.failed is not None:
                return seen.failed
    return None


def _watch(look: Observe) -> Iterator[Observation]:
    """Yield what is seen, ending with the first observation in which all is published and nothing runs."""
    latest, moved_at = None, monotonic()
    while True:
        seen = look()
        yield seen
        if seen.is_idle:
            if seen.backlog.unread > 0:
                raise _stopped(seen, "no run is left to publish them")
            return
        if seen != latest:
            latest, moved_at = seen, monotonic()
        elif monotonic() - moved_at > STALL_SECONDS:
            raise _stopped(seen, f"nothing has moved for {STALL_SECONDS:.0f} s ({seen.work})")
        sleep(POLL_SECONDS)


def _stopped(seen: Observation, reason: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"{seen.backlog.unread:,} records are unread and {reason}. What was published stays published.",
        advice="Look at the services: batchledger status\nThen go on: batchledger demo",
    )
