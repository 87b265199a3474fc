"""Start the Python workers of Spark, which keep values of records out of their errors.

The module for ``spark.python.daemon.module``. Whatever a transform raises leaves a worker as type and place, with the
text sealed for the stage step (``source.spark.reduction``). Errors of other programs on the server stay as they are.

The workers have what staging needs imported already.

A worker is a fork of this process, so all workers share the memory of these packages, and a new one starts at once.
Without it each worker imports them by itself.
"""

import gc
from importlib import import_module
from typing import IO

import pandas  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker
from pyspark.daemon import manager
from pyspark.util import handle_worker_exception

import batchledger.ledger.evidence
import batchledger.source.kafka.records
import batchledger.source.spark.tasks  # noqa: F401
from batchledger.config.extras import has_extra
from batchledger.sinks.kinds import KINDS
from batchledger.source.spark.reduction import find_tag, reduce_error

for _kind in KINDS:
    if _kind.extra is None or has_extra(_kind.extra):
        for _module in _kind.worker_modules:
            import_module(_module)


def send_reduced(error: BaseException, outfile: IO[bytes]) -> None:
    """Send to Spark what a worker ended with, as Spark's own function of the same arguments does, without values."""
    tag = find_tag()
    if tag is not None and isinstance(error, Exception):
        # A trace would show the causes.
        handle_worker_exception(reduce_error(error, tag), outfile, hide_traceback=True)
    else:
        handle_worker_exception(error, outfile)


if __name__ == "__main__":
    # Otherwise each worker's first collection of garbage would write to all pages, and copy them.
    gc.freeze()
    pyspark.worker.handle_worker_exception = send_reduced  # type: ignore[assignment, attr-defined] # It has no hook.
    manager()  # type: ignore[no-untyped-call] # As pyspark ships it.
