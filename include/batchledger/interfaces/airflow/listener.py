"""Import the heavy libraries once in the scheduler, before LocalExecutor forks its workers.

Great Expectations and Spark's client cost each task process 7 and 3 seconds of imports; forked workers share them.
"""

import importlib
import logging
import sys
from typing import Any

from airflow.listeners import hookimpl

logger = logging.getLogger(__name__)

PRELOADED = (
    "batchledger.interfaces.upkeep",
    "batchledger.interfaces.data_docs.site",
    "batchledger.interfaces.data_docs.pages",
    "batchledger.adapters.expectations.integrity",
    "batchledger.adapters.expectations.rows",
    "batchledger.adapters.expectations.ledger",
    "batchledger.adapters.spark.stager",
    "batchledger.adapters.spark.session",
)


@hookimpl
def on_starting(component: Any) -> None:  # noqa: ARG001 (Airflow calls it by name)
    """Run in every Airflow component and in every task; at this moment only the command line tells which one it is.

    A task is a fork of the scheduler, which has its command line, and everything loaded.
    """
    missing = [module for module in PRELOADED if module not in sys.modules]
    if "scheduler" not in sys.argv or not missing:
        return
    for module in missing:
        importlib.import_module(module)
    logger.info("preloaded %s", ", ".join(missing))
