"""What a Spark job failed of: what the next attempt would meet again is told from all else."""

import re
from collections.abc import Mapping

from pyspark.errors import PySparkException

from batchledger.model.errors import BatchledgerError, ConfigurationError, RowsRefusedError, StagingError

_NAMED = {each.__name__: each for each in (RowsRefusedError, ConfigurationError)}

# How Python ends the trace of an error that was raised in a worker; Spark passes it on as text.
_RAISED = re.compile(rf"^{RowsRefusedError.__module__}\.(?P<name>{'|'.join(_NAMED)}): (?P<reason>.+)$", re.MULTILINE)

# Of what expressions do with values; among the other data exceptions of Spark is the loss of records in Kafka (22000).
_OF_VALUES: Mapping[str, str] = {
    "22003": "a number is out of range",
    "22007": "a text is no moment",
    "22008": "a moment is out of range",
    "22010": "a text is no time",
    "22012": "a division by zero",
    "22015": "an interval is out of range",
    "22018": "a value cannot be cast",
}


def explain_failure(error: BaseException, otherwise: StagingError, transform: str | None) -> BatchledgerError:
    """Return what the next attempt would meet again, or ``otherwise``.

    An error of ours that a worker has raised, or a value for which an expression of the transform has no result.
    """
    found = _RAISED.search(str(error))
    if found is not None:
        return _NAMED[found["name"]](found["reason"].strip(), batch_id=otherwise.batch_id)
    sqlstate = (error.getSqlState() or "") if isinstance(error, PySparkException) else ""
    what = _OF_VALUES.get(sqlstate)
    if transform is None or what is None:
        return otherwise
    # Spark's message quotes the value.
    return RowsRefusedError(
        f"in transform {transform} {what} (SQLSTATE {sqlstate}). Nothing was published. Let the transform say what "
        "becomes of such a value, for example by try_cast, which makes it null.",
        batch_id=otherwise.batch_id,
    )
