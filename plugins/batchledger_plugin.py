"""Registers Batchledger with Airflow; the code is in the installed package."""

from typing import ClassVar

from airflow.plugins_manager import AirflowPlugin

from batchledger import airflow_listener


class BatchledgerPlugin(AirflowPlugin):
    """The scheduler's preloading listener."""

    name = "batchledger"
    listeners: ClassVar = [airflow_listener]
