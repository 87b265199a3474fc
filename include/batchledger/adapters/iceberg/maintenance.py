"""What keeps a table fit, by Spark's own procedures: small files are written together, old states and lost files go.

Iceberg keeps what branches and tags hold, so that staged batches and the newest commit of a pipeline stay. How old a
state may become, properties of the table say (``history.expire.max-snapshot-age-ms``, five days unless they do).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from batchledger.adapters.iceberg.catalog import SPARK_CATALOG, LakeCatalog, spark_settings
from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError
from batchledger.model.housekeeping import Leftover

ORPHANED_FOR = timedelta(days=3)
"""So old are files before nobody is believed to be writing them, as Iceberg's own default says."""
CLOCKS_DIFFER_BY = timedelta(days=1)
"""That of the files and that of the ledger; Iceberg itself takes no file that is younger than that."""


def maintain(
    session: SparkSession, catalog: LakeCatalog, identifier: tuple[str, ...], unlisted_since: datetime | None
) -> dict[Leftover, int]:
    """Run the procedures; return how many files and states went. See ``LakeTable.maintain``."""
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
    # The rest of the text is where in Spark it has happened, which names the class as well.
    if SPARK_CATALOG in reason:
        return ConfigurationError(
            f"the Spark server cannot maintain table {table}: it has no Iceberg ({reason}). Start it with "
            "iceberg-spark-runtime for its version of Spark on its class path, and, for a catalog in PostgreSQL, with "
            "the driver of PostgreSQL; those of the local stack are in include/batchledger/local/stack/ivy/spark.xml.",
            subject=catalog,
        )
    return ServiceUnavailableError(
        f"Spark could not maintain table {table}: {reason}. What it had not committed is left to the next run; batches "
        "go on.",
        subject=table,
    )
