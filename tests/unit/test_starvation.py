"""A job is ended when none of its tasks has run for too long, and no other."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.shell.progress import StageInfo

from batchledger.source.spark.starvation import StarvationWatch

SECONDS = 10.0


class Reports:
    """What a server reports of the jobs of one session, at moments that the test chooses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watch = StarvationWatch(SECONDS, clock=lambda: self.now)

    def report(self, now: float, tasks: int, job: str = "job", is_staged: bool = False, is_over: bool = False) -> None:
        """``tasks`` of the job run; ``is_staged``: its only stage is done."""
        self.now = now
        self.watch([StageInfo(0, 4, 1, 0, is_staged)], tasks, job, is_over)


@pytest.fixture
def server() -> Reports:
    return Reports()


def test_job_is_ended_when_none_of_its_tasks_has_run_for_too_long(server: Reports) -> None:
    server.report(0, tasks=2)
    server.report(100, tasks=0)
    server.report(109, tasks=0)
    with pytest.raises(PySparkException, match=r"no task .* run for 10 s.*start workers"):
        server.report(110, tasks=0)


def test_job_whose_tasks_run_may_take_as_long_as_it_takes(server: Reports) -> None:
    for now in range(0, 1000, 2):
        server.report(now, tasks=1)


def test_wait_begins_anew_when_a_task_has_run_in_between(server: Reports) -> None:
    server.report(0, tasks=0)
    server.report(9, tasks=1)
    server.report(11, tasks=0)
    server.report(20, tasks=0)


def test_job_that_has_nothing_left_to_do_is_left_alone(server: Reports) -> None:
    server.report(0, tasks=0, is_staged=True)
    server.report(100, tasks=0, is_staged=True)
    server.watch([], 0, "job", False)
    server.report(200, tasks=0)
    server.report(300, tasks=0, is_over=True)


def test_each_job_is_judged_by_its_own_tasks(server: Reports) -> None:
    server.report(0, tasks=0, job="waiting")
    server.report(9, tasks=1, job="running")
    server.report(10, tasks=0, job="running")
    with pytest.raises(PySparkException):
        server.report(10, tasks=0, job="waiting")
