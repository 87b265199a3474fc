"""What a Spark job failed of: a row that its staging does not take is told from all else."""

import re

from batchledger.errors import BatchledgerError, RowsRefusedError, StagingError

# How Python ends the trace of an error that was raised in a worker; Spark passes it on as text.
_REFUSED = re.compile(rf"^(?:\w+\.)*{RowsRefusedError.__name__}: (?P<reason>.+)$", re.MULTILINE)


def explain_failure(error: BaseException, otherwise: StagingError) -> BatchledgerError:
    """Return the refusal of a row that a worker has met, which would be the same the next time, or ``otherwise``."""
    found = _REFUSED.search(str(error))
    return otherwise if found is None else RowsRefusedError(found["reason"].strip(), **otherwise.fields)
