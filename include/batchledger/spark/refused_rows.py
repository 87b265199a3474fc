"""What a Spark job failed of: what the next attempt would meet again is told from all else."""

import re

from batchledger.errors import BatchledgerError, ConfigurationError, RowsRefusedError, StagingError

_NAMED = {each.__name__: each for each in (RowsRefusedError, ConfigurationError)}

# How Python ends the trace of an error that was raised in a worker; Spark passes it on as text.
_RAISED = re.compile(rf"^{RowsRefusedError.__module__}\.(?P<name>{'|'.join(_NAMED)}): (?P<reason>.+)$", re.MULTILINE)


def explain_failure(error: BaseException, otherwise: StagingError) -> BatchledgerError:
    """Return the error of ours that a worker has raised, which the next attempt would meet again, or ``otherwise``."""
    found = _RAISED.search(str(error))
    return otherwise if found is None else _NAMED[found["name"]](found["reason"].strip(), **otherwise.fields)
