"""Start Spark's Python workers with what staging needs imported already: the module for ``spark.python.daemon.module``.

A worker is a fork of this process, so all workers share the memory of these packages, and a new one starts at once.
Without it each worker imports them by itself.
"""

import gc

import pandas  # noqa: F401
import pyspark.sql.pandas.serializers  # noqa: F401
from pyspark.daemon import manager

import batchledger.adapters.iceberg.files
import batchledger.adapters.kafka.records
import batchledger.adapters.postgres.ledger.evidence
import batchledger.adapters.postgres.sinks.lake_writer
import batchledger.adapters.spark.tasks  # noqa: F401

if __name__ == "__main__":
    # Otherwise each worker's first collection of garbage would write to all pages, and copy them.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call] # As pyspark ships it.
