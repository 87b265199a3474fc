"""Kill the processes that run a task of Airflow, in the middle of its work.

Airflow starts a task in a process of its own below one of the scheduler's workers; both are
killed at once, as when the machine's memory runs out. The rest is left to the run that takes the batch over.
"""

import signal
import time

import psutil

from batchledger.local.airflow_api import AirflowApi
from batchledger.local.torture.rig import Rig, send_signal
from batchledger.local.torture.schedule import Fault

_PARSE_SECONDS = 60.0
_RUN_SECONDS = 60.0
_POLL_SECONDS = 0.02
_IDLE = "<idle>"


def kill_airflow_task(rig: Rig, airflow: AirflowApi, pipeline: str, fault: Fault) -> bool:
    """Trigger the pipeline, wait until its batch is in the state that the fault names, then kill the task.

    Returns whether there was something to kill. Raises ServiceUnavailableError if Airflow does not answer.
    """
    airflow.wait_until_known(pipeline, _PARSE_SECONDS)
    airflow.unpause(pipeline)
    airflow.trigger(pipeline)
    deadline = time.monotonic() + _RUN_SECONDS
    while time.monotonic() < deadline:
        if rig.attempted_state(pipeline) == fault.point:
            time.sleep(fault.seconds)
            victims = _at_work(rig)
            for process in victims:
                send_signal(process, signal.SIGKILL)
            return bool(victims)
        time.sleep(_POLL_SECONDS)
    return False


def _at_work(rig: Rig) -> list[psutil.Process]:
    """Return the scheduler's busy workers and their tasks, found by their titles."""
    titled = [(each, _title(each)) for each in rig.descendants("scheduler")]
    return [each for each, title in titled if title.startswith("airflow worker") and _IDLE not in title]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
