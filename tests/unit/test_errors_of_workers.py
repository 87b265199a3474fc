"""An error that a Spark worker raises reaches people in its own words, not as Spark carries it."""

import traceback

import pytest
from pyspark.errors import PySparkException

from batchledger.adapters.spark.failures import carrying_errors, explain_failure
from batchledger.adapters.spark.stager import summarise
from batchledger.model.errors import (
    BatchledgerError,
    ConfigurationError,
    RowsRefusedError,
    ServiceUnavailableError,
    StagingError,
)


def raise_in_worker(error: BatchledgerError) -> PySparkException:
    """What the driver gets: the text of the worker's trace."""
    with pytest.raises(BatchledgerError) as caught, carrying_errors():
        raise error
    trace = "".join(traceback.format_exception(caught.value))
    return PySparkException(f"[JOB_ABORTED] Job aborted: PythonException: \n{trace}\n\n\tat org.apache.spark.Task.run")


def test_error_that_may_pass_is_told_in_its_own_words() -> None:
    failed = raise_in_worker(
        ServiceUnavailableError("The warehouse does not answer.", why="Connection refused.", advice="Look at it.")
    )
    assert summarise(failed) == "The warehouse does not answer. Connection refused. Look at it"
    otherwise = StagingError("Spark could not stage it.")
    assert explain_failure(failed, otherwise, None) is otherwise


def test_refusal_keeps_its_class_and_its_three_parts() -> None:
    refusal = RowsRefusedError("The table refuses a row.", why="It is too long.", advice="Make the column longer.")
    found = explain_failure(raise_in_worker(refusal), StagingError("Spark could not stage it.", batch_id=7), None)
    assert (type(found), str(found), found.batch_id) == (RowsRefusedError, str(refusal), 7)


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'pgpq'",
        # What Spark quotes of a process that did not start, and what Python says if it cannot find a module to run.
        "  ModuleNotFoundError: No module named 'pgpq'",
        "  python: Error while finding module specification for 'x' (ModuleNotFoundError: No module named 'pgpq')",
    ],
)
def test_package_that_the_workers_lack_is_refused_by_its_name(line: str) -> None:
    text = f"[JOB_ABORTED] Job aborted\nTraceback\n  File x\n{line}"
    otherwise = StagingError("Spark could not stage batch 7. Nothing is visible.", batch_id=7)
    found = explain_failure(PySparkException(text), otherwise, None)
    assert isinstance(found, ConfigurationError)
    assert "lacks a package. Nothing is visible.\nIt says: No module named 'pgpq'." in str(found)


def test_other_errors_are_told_without_their_traces() -> None:
    text = "[UNKNOWN] it broke\nTraceback (most recent call last):\n  File x\nValueError: no\n\tat org.apache.Spark"
    assert summarise(PySparkException(text)) == "[UNKNOWN] it broke | ValueError: no"
