"""An error that a Spark worker raises reaches people in its own words, not as Spark carries it, and without values."""

import copy
import importlib
import io
import json
import traceback
from collections.abc import Callable
from functools import partial

import pytest
from pyspark.errors import AnalysisException, PySparkException
from typing_extensions import override

from batchledger.jobs import python_workers
from batchledger.model.errors import (
    BatchledgerError,
    ConfigurationError,
    DecoderFailedError,
    RowsRefusedError,
    ServiceUnavailableError,
    StagingError,
)
from batchledger.source.spark.failures import carrying_errors, explain_failure, has_worker_died
from batchledger.source.spark.reduction import CARRIED, Seal, reduce_error
from batchledger.source.spark.stager import summarise


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


def test_refusal_keeps_its_class_its_three_parts_and_its_rows() -> None:
    refusal = RowsRefusedError(
        "The table refuses a row.", why="It is too long.", advice="Make it longer.", coordinates=("orders[0]@9 (code)",)
    )
    found = explain_failure(raise_in_worker(refusal), StagingError("Spark could not stage it.", batch_id=7), None)
    assert (type(found), str(found), found.batch_id) == (RowsRefusedError, str(refusal), 7)
    assert found.where == {"batch_id": 7, "coordinates": ["orders[0]@9 (code)"]}


def test_refusal_of_a_worker_with_an_older_version_names_no_rows_and_keeps_its_words() -> None:
    parts = ["RowsRefusedError", "The table refuses a row.", "It is too long.", "Make it longer."]
    failed = PySparkException(f"[JOB_ABORTED]\n{CARRIED}{json.dumps(parts)}\n\tat org.apache.spark.Task.run")
    found = explain_failure(failed, StagingError("Spark could not stage it."), None)
    assert str(found) == str(RowsRefusedError(parts[1], why=parts[2], advice=parts[3]))
    assert found.where == {}
    assert summarise(failed) == "The table refuses a row. It is too long. Make it longer"


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


@pytest.mark.parametrize(
    ("error", "has_died"),
    [
        (PySparkException("SparkException: Python worker exited unexpectedly (crashed)"), True),
        (PySparkException("java.net.SocketException: Connection reset"), True),
        (raise_in_worker(DecoderFailedError("Decoding ended with KeyError.")), True),
        (raise_in_worker(StagingError("ValueError was raised in transforms.py, line 7.")), False),
        (PySparkException("[DIVIDE_BY_ZERO] Division by zero"), False),
    ],
)
def test_only_a_dead_worker_or_a_failed_decoder_lets_records_be_looked_at_again(
    error: PySparkException, has_died: bool
) -> None:
    assert has_worker_died(error) is has_died


CANARY = "canary-4111-1111"


class Told(PySparkException):
    """An error of Spark that has a condition."""

    @override
    def getCondition(self) -> str:
        """See Spark."""
        return "CAST_INVALID_INPUT"

    @override
    def getSqlState(self) -> str:
        """See Spark."""
        return "22018"


def test_other_errors_are_told_by_name_condition_and_code_and_never_in_their_words() -> None:
    assert summarise(Told(f"[CAST_INVALID_INPUT] The value '{CANARY}' of the type")) == (
        "Told [CAST_INVALID_INPUT] (SQLSTATE 22018)"
    )
    text = f"it broke\nTraceback (most recent call last):\n  File x\nValueError: {CANARY}\n\tat org.apache.Spark"
    assert summarise(PySparkException(text)) == "PySparkException"


def test_error_of_the_plan_keeps_its_words_because_no_record_was_read() -> None:
    text = "[UNRESOLVED_COLUMN] A column with name `amonut` cannot be resolved.\n\tat org.apache.Spark"
    assert summarise(AnalysisException(text)) == "[UNRESOLVED_COLUMN] A column with name `amonut` cannot be resolved."


def quote(value: str) -> None:
    """Raise the value, as a transform may, with a cause that has it, too."""
    try:
        {}[value]
    except KeyError as error:
        raise ValueError(f"bad {value}") from error


def read_raised(run: Callable[[], None], tag: str | None = None) -> str:
    """All that Spark learns of an error in a worker."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("batchledger.source.spark.failures.find_tag", lambda: tag)
        with pytest.raises(Exception) as caught, carrying_errors():  # noqa: PT011 -- The text is what is asked for.
            run()
    return "".join(traceback.format_exception(caught.value))


def test_worker_says_type_and_place_of_an_error_and_no_value() -> None:
    text = read_raised(partial(quote, CANARY))
    line = quote.__code__.co_firstlineno + 5
    assert f"ValueError was raised in {__file__}, line {line}" in summarise(PySparkException(text))
    assert CANARY not in text


def test_place_of_an_error_is_the_line_of_the_transform_and_not_one_of_a_library() -> None:
    text = read_raised(lambda: json.loads(CANARY))
    line = test_place_of_an_error_is_the_line_of_the_transform_and_not_one_of_a_library.__code__.co_firstlineno + 1
    assert f"json.decoder.JSONDecodeError was raised in {__file__}, line {line}" in text


def test_error_of_ours_leaves_a_worker_without_its_cause() -> None:
    def refuse() -> None:
        try:
            quote(CANARY)
        except ValueError as error:
            raise RowsRefusedError("The table refuses a row.") from error

    text = read_raised(refuse)
    assert "The table refuses a row." in text
    assert CANARY not in text


def test_stage_step_alone_opens_the_whole_text_that_a_worker_has_sealed() -> None:
    seal, other = Seal(), Seal()
    text = read_raised(partial(quote, CANARY), seal.tag)
    assert CANARY not in text
    assert f"ValueError: bad {CANARY}" in seal.open(text)
    assert CANARY not in other.open(text)
    assert CANARY not in seal.open(text.replace("batchledger sealed: ", "batchledger sealed: A"))


def test_error_that_was_reduced_is_not_reduced_again() -> None:
    seal = Seal()
    with pytest.raises(StagingError) as caught:
        raise reduce_error(ValueError(CANARY), seal.tag)
    assert reduce_error(caught.value, seal.tag) is caught.value


@pytest.mark.parametrize("tag", [Seal().tag, None], ids=["a job of ours", "another program"])
def test_workers_of_spark_send_errors_of_other_programs_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tag: str | None
) -> None:
    """A Spark Connect server may have other users. The negative control: without a tag the value is sent."""
    monkeypatch.setattr(python_workers, "find_tag", lambda: tag)
    sent = io.BytesIO()
    try:
        quote(CANARY)
    except ValueError as error:
        python_workers.send_reduced(error, sent)
    assert (CANARY.encode() in sent.getvalue()) == (tag is None)
    assert b"ValueError" in sent.getvalue()


def test_package_that_is_missing_is_named_by_a_worker_too() -> None:
    text = read_raised(lambda: importlib.import_module("there_is_none"))
    assert "ModuleNotFoundError: No module named 'there_is_none'" in text


def test_whole_text_is_in_no_message_and_not_in_what_is_stored_of_a_refusal() -> None:
    error = copy.copy(RowsRefusedError("The table refuses a row.", quoted=CANARY))
    assert error.quoted == CANARY
    assert CANARY not in f"{error} {error!r} {error.where}"
