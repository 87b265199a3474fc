"""The local services: a broker, PostgreSQL, Spark and Airflow on 127.0.0.1, started and stopped as one stack."""

from batchledger.local.stack.clients import environment, environment_without_services
from batchledger.local.stack.home import Home, local_folder

__all__ = ["Home", "environment", "environment_without_services", "local_folder"]
