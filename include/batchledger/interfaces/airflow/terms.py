"""Errors in Airflow's terms: what is tried again, what fails for good, what is skipped and why."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from batchledger.interfaces.airflow.batch_of_run import IDLE, is_another_place
from batchledger.lifecycle.orders import Request
from batchledger.model.errors import AtWorkError, BatchledgerError, FencedError

logger = logging.getLogger(__name__)


def fail(error: BatchledgerError) -> None:
    """Fail the task with a refused pipeline file's own message."""
    raise AirflowFailException(str(error)) from error


def skip(reason: str) -> AirflowSkipException:
    """Return what ends a task as skipped, and say why in its log: Airflow does not show its own reason there."""
    logger.info("%s", reason)
    return AirflowSkipException(reason)


def skip_run(reason: str) -> AirflowSkipException:
    """Do the same in the task that plans, for all tasks of the batch that there is none of."""
    get_current_context()["ti"].xcom_push(key=IDLE, value=reason)
    return skip(reason)


@contextmanager
def in_airflow_terms(asked: Request | None = None) -> Iterator[None]:
    """Let Airflow retry what may succeed later, and nothing else; skip what another run or place does as well.

    The log of a task shows the causes of an error, too. A cause may quote a row, so none is left.
    """
    try:
        yield
    except BatchledgerError as error:
        error.__cause__, error.__suppress_context__ = None, True
        if asked is not None and _is_left_to_others(asked, error):
            raise skip_run(str(error)) from error
        if error.retryable:
            raise
        raise AirflowFailException(str(error)) from error


def _is_left_to_others(asked: Request, error: BatchledgerError) -> bool:
    """Whether the error says that what was asked for is, or was, another's work.

    A run that only catches up leaves that to any run. An order of a run is for all places of a pipeline in it, and one
    of them carries it out: a backfill publishes its interval once.
    """
    if isinstance(error, AtWorkError):
        return asked.is_catching_up or is_another_place(error.other.run)
    return isinstance(error, FencedError) and error.run is not None and is_another_place(error.run)
