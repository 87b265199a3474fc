"""Why a Spark job failed: whether the next attempt would meet the same, or may succeed."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from batchledger.model.errors import (
    BatchledgerError,
    CertificateExpiredError,
    CertificateUntrustedError,
    ConfigurationError,
    DecoderFailedError,
    LoginRefusedError,
    RightMissingError,
    RowsRefusedError,
    SchemaChangedError,
    StagingError,
)
from batchledger.model.records.transforms import Transform
from batchledger.source.spark.reduction import CARRIED, find_tag, reduce_error
from batchledger.source.spark.starvation import StarvationError

_ACCESS = (CertificateExpiredError, CertificateUntrustedError, LoginRefusedError, RightMissingError)
_NAMED: Mapping[str, type[BatchledgerError]] = {
    each.__name__: each for each in (RowsRefusedError, ConfigurationError, SchemaChangedError, *_ACCESS)
}

_FOUND = re.compile(rf"^{CARRIED}(\[.*\])$", re.MULTILINE)

# Spark's words for the end of its connection to a worker, or the socket's if the worker had left something unread.
_DIED = re.compile(
    r"Python worker exited unexpectedly|(?:SocketException|IOException): (?:Connection reset|Broken pipe)"
)

# Spark indents what a process has said that could not start, and Python puts it into brackets if that is a module.
_MISSING = re.compile(r"(?:^\s*|\()(?:ModuleNotFoundError|ImportError): (.+?)\)?$", re.MULTILINE)

# What expressions do with values. Other data exceptions of Spark are no values: 22000 is the loss of records in Kafka.
_OF_VALUES: Mapping[str, str] = {
    "22003": "a number is out of range",
    "22007": "a text is no moment",
    "22008": "a moment is out of range",
    "22010": "a text is no time",
    "22012": "a division by zero",
    "22015": "an interval is out of range",
    "22018": "a value cannot be cast",
}


@contextmanager
def carrying_errors() -> Iterator[None]:
    """Let the driver find the three parts of an error that is raised inside, and Spark's logs no value.

    Raises what ``reduce_error`` makes of it.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- It is raised again, whatever it is.
        raise reduce_error(error, find_tag()) from None


def find_carried(error: BaseException) -> list[tuple[str, str, str, str, list[str]]]:
    """Return name, message, why, advice and refused rows of each error of ours that workers have raised.

    A worker with an older version of this package names no rows.
    """
    return [(*json.loads(carried), [])[:5] for carried in _FOUND.findall(str(error))]


def has_worker_died(error: BaseException) -> bool:
    """Whether a Python worker has ended in the middle of a task, or its decoder has failed."""
    has_failed = any(name == DecoderFailedError.__name__ for name, *_ in find_carried(error))
    return has_failed or _DIED.search(str(error)) is not None


def name_failure(error: BaseException) -> str:
    """Return what Spark's error is, without its text: that may quote a value.

    An error of the plan keeps its text, because Spark had not read any value yet.
    """
    if isinstance(error, AnalysisException | StarvationError):
        return str(error).strip().partition("\n")[0]
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName())
    if isinstance(error, grpc.Call):
        return f"Spark Connect answers {error.code().name}"
    if not isinstance(error, PySparkException):
        return type(error).__name__
    condition, sqlstate = error.getCondition(), error.getSqlState()
    parts = (type(error).__name__, condition and f"[{condition}]", sqlstate and f"(SQLSTATE {sqlstate})")
    return " ".join(part for part in parts if part)


def explain_failure(error: BaseException, otherwise: StagingError, transform: Transform | None) -> BatchledgerError:
    """Return what the next attempt would meet again, or ``otherwise``.

    An error of ours that a worker has raised, a package that the workers lack, or a value for which an expression of
    the transform has no result.
    """
    carried = find_carried(error)
    if not carried and (missing := _MISSING.search(str(error))):
        return ConfigurationError(
            f"The Python of Spark's workers lacks a package. {otherwise.message.partition('. ')[2]}",
            why=f"It says: {missing[1]}. The workers read Kafka and write rows by themselves.",
            advice="Install batchledger with the extras of the pipeline, such as batchledger[iceberg], and what the "
            "transform imports, in the Python that PYSPARK_PYTHON names on the workers.",
            batch_id=otherwise.batch_id,
        )
    for name, message, why, advice, rows in carried:
        if name in _NAMED:
            told = _NAMED[name](message, why=why, advice=advice, batch_id=otherwise.batch_id)
            if isinstance(told, RowsRefusedError):
                told.coordinates = tuple(rows)
            return told
    sqlstate = (error.getSqlState() or "") if isinstance(error, PySparkException) else ""
    what = _OF_VALUES.get(sqlstate)
    if transform is None or what is None:
        return otherwise
    return RowsRefusedError(
        f"In transform {transform} {what} (SQLSTATE {sqlstate}). Nothing was published.",
        advice="Let the transform decide on such a value, for example by try_cast, which makes it null.",
        batch_id=otherwise.batch_id,
    )
