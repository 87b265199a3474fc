"""What takes seconds to import, for the server that ``tests.forked`` forks processes from: imported there, only once.

A forked process may be a command line, so Airflow gets the settings of ``batchledger.cli.main`` before its import.
"""

import os
from importlib import import_module

from sqlalchemy.orm import configure_mappers

os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
for module in (
    "airflow.models.connection",
    "airflow.sdk",
    "airflow.providers.apache.spark.hooks.spark_connect",
    "batchledger.checks.integrity",
    "batchledger.checks.rows",
    "batchledger.local.samples.producer",
    "batchledger.ledger.migrate",
    "batchledger.source.spark.stager",
    "batchledger.wiring",
    "pyspark.sql.connect.session",
):
    import_module(module)
# Airflow's first connection would do it.
configure_mappers()
