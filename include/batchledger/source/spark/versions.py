"""PySpark and its client have to be one version: both packages write the same files, and pip keeps no watch on that."""

from importlib.metadata import version

from batchledger.model.errors import ConfigurationError

PACKAGES = ("pyspark", "pyspark-client")


def require_one_version() -> None:
    """Refuse an environment with two versions before anything of Spark is imported. Raises ConfigurationError."""
    spark, client = map(version, PACKAGES)
    if spark != client:
        raise ConfigurationError(
            f"pyspark is {spark} here, and pyspark-client is {client}. Nothing was staged.",
            why="Each has written over files of the other, so either may fail, or do something else than it says.",
            advice=f'Install one version of both: pip install --force-reinstall --no-deps "pyspark=={client}" '
            f'"pyspark-client=={client}"',
            subject="pyspark",
        )
