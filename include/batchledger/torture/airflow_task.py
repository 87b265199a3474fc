"""Kill the process that runs a task of Airflow, in the middle of its work."""

from batchledger.airflow_api import AirflowApi
from batchledger.torture.rig import Rig


def kill_airflow_task(rig: Rig, airflow: AirflowApi, pipeline: str, step: str) -> bool:
    """Trigger the pipeline, wait until the step runs, kill its processes; whether that came in time."""
    raise NotImplementedError
