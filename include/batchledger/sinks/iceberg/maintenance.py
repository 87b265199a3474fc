"""Keeps a table fit by Iceberg's procedures in Spark: writes small files together, removes old states and lost files.

Iceberg keeps what branches and tags hold, so staged batches and the newest commit of a pipeline stay. A property of
the table says how old a state may become (``history.expire.max-snapshot-age-ms``, by default five days).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError
from batchledger.model.housekeeping import Leftover
from batchledger.sinks.iceberg.catalog import SPARK_CATALOG, LakeCatalog, spark_settings

ORPHANED_FOR = timedelta(days=3)
"""Files that are older count as no longer being written: Iceberg's own default."""
CLOCKS_DIFFER_BY = timedelta(days=1)
"""At most, the clocks of files and ledger; Iceberg itself removes no file that is younger than a day."""


def maintain(
    session: SparkSession, catalog: LakeCatalog, identifier: tuple[str, ...], unlisted_since: datetime | None
) -> dict[Leftover, int]:
    """Run the procedures; return how many files and states are gone. See ``IcebergTable.maintain``."""
    table = ".".join((catalog.name, *identifier))
    written_before = datetime.now(UTC) - ORPHANED_FOR
    if unlisted_since is not None:
        written_before = min(written_before, unlisted_since - CLOCKS_DIFFER_BY)
    try:
        for name, value in spark_settings(catalog).items():
            session.conf.set(name, value)
        (written,) = _call(session, catalog, identifier, "rewrite_data_files")
        (expired,) = _call(session, catalog, identifier, "expire_snapshots")
        older_than = f"older_than => timestamp '{written_before:%Y-%m-%d %H:%M:%SZ}'"
        orphaned = _call(session, catalog, identifier, "remove_orphan_files", older_than)
    except PySparkException as error:
        raise _explain(error, table, catalog.name) from error
    return {
        Leftover.SMALL_FILE: int(written.rewritten_data_files_count),
        Leftover.SNAPSHOT: int(expired.deleted_manifest_lists_count),
        Leftover.ORPHANED_FILE: len(orphaned),
    }


def _call(
    session: SparkSession, catalog: LakeCatalog, identifier: tuple[str, ...], procedure: str, *arguments: str
) -> Sequence[Row]:
    table = ".".join(f"`{each}`" for each in identifier)
    given = ", ".join((f"table => '{table}'", *arguments))
    return session.sql(f"call `{catalog.name}`.system.{procedure}({given})").collect()


def _explain(error: PySparkException, table: str, catalog: str) -> BatchledgerError:
    reason = str(error).strip().split("\n", 1)[0]
    # The rest of the text is a stack trace, which names the class as well.
    if SPARK_CATALOG in reason:
        return ConfigurationError(
            f"The Spark server cannot maintain table {table}: it has no Iceberg.",
            why=f"{reason}.",
            advice="Start it with iceberg-spark-runtime for its version of Spark on its class path, and, for a "
            "catalog in PostgreSQL, with the driver of PostgreSQL. The list of the local stack: "
            "include/batchledger/local/stack/ivy/spark.xml",
            subject=catalog,
        )
    return ServiceUnavailableError(
        f"Spark could not maintain table {table}. Batches go on.",
        why=f"{reason}.",
        advice="The next run does what is left.",
        subject=table,
    )
