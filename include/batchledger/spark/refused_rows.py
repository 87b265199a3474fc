"""What a Spark job failed of: what the next attempt would meet again is told from all else."""

import re

from pyspark.errors import PySparkException

from batchledger.errors import BatchledgerError, ConfigurationError, RowsRefusedError, StagingError

_NAMED = {each.__name__: each for each in (RowsRefusedError, ConfigurationError)}

# How Python ends the trace of an error that was raised in a worker; Spark passes it on as text.
_RAISED = re.compile(rf"^{RowsRefusedError.__module__}\.(?P<name>{'|'.join(_NAMED)}): (?P<reason>.+)$", re.MULTILINE)

# SQLSTATEs of data exceptions, which Spark shares with the SQL standard.
_DATA_EXCEPTION = "22"


def explain_failure(error: BaseException, otherwise: StagingError, transform: str | None) -> BatchledgerError:
    """Return what the next attempt would meet again, or ``otherwise``.

    An error of ours that a worker has raised, or a value for which an expression of the transform has no result.
    """
    found = _RAISED.search(str(error))
    if found is not None:
        return _NAMED[found["name"]](found["reason"].strip(), **otherwise.fields)
    if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
        # Spark's message quotes the value.
        return RowsRefusedError(
            f"Spark refuses a value in transform {transform}: {error.getCondition()}, SQLSTATE {error.getSqlState()}. "
            "Nothing was published. Let the transform say what becomes of such a value, for example by try_cast, which "
            "makes it null.",
            **otherwise.fields,
        )
    return otherwise
