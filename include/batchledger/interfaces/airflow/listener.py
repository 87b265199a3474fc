"""What Airflow's own processes do for us: import heavy libraries early, and show a note beside each run.

Great Expectations and Spark's client cost each task process 7 and 3 seconds of imports. The scheduler imports them
once, before LocalExecutor forks its workers, which share them.
"""

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from batchledger.interfaces.airflow.batch_of_run import leave_note

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

logger = logging.getLogger(__name__)

PRELOADED = (
    "batchledger.interfaces.upkeep",
    "batchledger.interfaces.data_docs.site",
    "batchledger.interfaces.data_docs.pages",
    "batchledger.checks.integrity",
    "batchledger.checks.rows",
    "batchledger.checks.ledger",
    "batchledger.source.spark.stager",
    "batchledger.source.spark.session",
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


@hookimpl
def on_dag_run_success(dag_run: "DagRun", msg: str) -> None:  # noqa: ARG001 (Airflow calls it by name)
    """Show what has become of the batch of a run."""
    leave_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: "DagRun", msg: str) -> None:  # noqa: ARG001 (Airflow calls it by name)
    """Do the same for a run that has failed."""
    leave_note(dag_run)
