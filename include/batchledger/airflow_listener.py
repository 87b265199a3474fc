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
    "batchledger.upkeep",
    "batchledger.docs.site",
    "batchledger.docs.pages",
    "batchledger.checks.integrity",
    "batchledger.checks.rows",
    "batchledger.checks.ledger_audit",
    "batchledger.spark.stager",
    "batchledger.spark.session",
)


@hookimpl
def on_starting(component: Any) -> None:  # noqa: ARG001 (Airflow calls it by name)
    """Run in every Airflow component; at this moment only the command line tells which one it is."""
    if "scheduler" not in sys.argv:
        return
    for module in PRELOADED:
        importlib.import_module(module)
    logger.info("preloaded %s", ", ".join(PRELOADED))
