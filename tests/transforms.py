"""Transforms of the tests' pipelines."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from batchledger.model.errors import ConfigurationError
from batchledger.source.spark.failures import carrying_errors


def keep_even(rows: DataFrame) -> DataFrame:
    """Drop odd numbers, add a column."""
    return rows.where(F.col("number") % 2 == 0).withColumn("doubled", F.col("number") * 2)


def keep_all(rows: DataFrame) -> DataFrame:
    """Change nothing."""
    return rows


def with_more_types(rows: DataFrame) -> DataFrame:
    """Add columns of types that no declared column has, and of some with types within."""
    moment = F.lit("2026-11-22T12:00:00.5").cast("timestamp_ntz")
    parts = F.struct(F.col("number").alias("n"), F.array(F.col("amount"), F.lit(None)).alias("amounts"))
    return rows.withColumns(
        {
            "local": moment,
            "whole": F.col("number").cast("decimal(38,0)"),
            "parts": parts,
            "by_name": F.create_map(F.lit("k"), parts),
        }
    )


def with_a_dash(rows: DataFrame) -> DataFrame:
    """Add a column with a name that is none in Avro."""
    return rows.withColumn("a-b", F.lit(1))


def forget_offsets(rows: DataFrame) -> DataFrame:
    """Break the contract."""
    return rows.drop("_offset")


def with_a_nul(rows: DataFrame) -> DataFrame:
    """Turn one value into a text that PostgreSQL does not know."""
    return rows.withColumn("message_id", F.when(F.col("number") == 3, F.lit("a\0b")).otherwise(F.col("message_id")))


def as_number(rows: DataFrame) -> DataFrame:
    """Cast a text that is no number."""
    return rows.withColumn("number", F.col("message_id").cast("int"))


def as_day(rows: DataFrame) -> DataFrame:
    """Read a day from a text that is none. Java's own error, the cause of Spark's, quotes it once more."""
    return rows.withColumn("number", F.year(F.to_date("message_id", "yyyy-MM-dd")))


def as_number_by_sql(rows: DataFrame) -> DataFrame:
    """Cast a text that is no number, in SQL."""
    return rows.withColumn("number", F.expr("cast(message_id as int)"))


def host_of_a_url(rows: DataFrame) -> DataFrame:
    """Read an address that is none. An error of ``java.net`` is the cause of Spark's, and quotes it once more."""
    return rows.withColumn("message_id", F.parse_url(F.concat(F.lit("http://a b/"), "message_id"), F.lit("HOST")))


def as_number_of_lines(rows: DataFrame) -> DataFrame:
    """Cast a text of two lines, the second of which begins as a line of a trace does."""
    return rows.withColumn("number", F.concat(F.lit("1\n at "), "message_id").cast("int"))


def at_a_limit(rows: DataFrame) -> DataFrame:
    """Meet, in a worker, what the next attempt would meet again."""

    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carrying_errors():
            for _ in batches:
                raise ConfigurationError("could not write a row.", why="It says: canceling statement.")
        yield from ()

    return rows.mapInArrow(refuse, rows.schema)


def quote_a_value(rows: DataFrame) -> DataFrame:
    """Raise a value, in a function of Python."""

    @F.udf("string")
    def refuse(message_id: str) -> str:
        raise ValueError(f"bad {message_id}")

    return rows.withColumn("message_id", refuse("message_id"))


def return_a_value(rows: DataFrame) -> DataFrame:
    """Let Spark's own code meet a value of another type than was declared."""

    def change(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield batch.assign(number=batch["message_id"])

    return rows.mapInPandas(change, rows.schema)


def collect_a_value(rows: DataFrame) -> DataFrame:
    """Raise a value in the stage step itself."""
    (row,) = rows.collect()
    raise ValueError(f"bad {row.message_id}")


def nothing(rows: DataFrame) -> DataFrame:
    """Drop everything, in a way that lets Spark read nothing at all."""
    return rows.where(F.lit(False))


def mark_late(rows: DataFrame) -> DataFrame:
    """Add a column, keep everything else: ``_deleted`` too."""
    return rows.withColumn("is_late", F.col("delay") > 15)


def forget_deletions(rows: DataFrame) -> DataFrame:
    """Break the contract of a pipeline whose tombstones delete."""
    return rows.drop("_deleted")


def with_total(rows: DataFrame) -> DataFrame:
    """Use the rows twice: every row gets the number of all."""
    return rows.crossJoin(rows.agg(F.count("*").alias("total")))


def twice(rows: DataFrame) -> DataFrame:
    """Break the contract: every row comes twice."""
    return rows.union(rows)


def fail_in_partition_1(rows: DataFrame) -> DataFrame:
    """Fail in one task only, and late: the other one has long written its rows."""
    is_bad = (F.col("_partition") == 1) & (F.col("_offset") == 2999)
    return rows.withColumn("number", F.when(is_bad, F.raise_error(F.lit("planted"))).otherwise(F.col("number")))


def corrected(rows: DataFrame) -> DataFrame:
    """Drop one record, change another."""
    amount = F.when(F.col("number") == 6, F.lit(0.0)).otherwise(F.col("amount"))
    return rows.where(F.col("number") != 4).withColumn("amount", amount)


def twice_the_even(rows: DataFrame) -> DataFrame:
    """Break the contract: every second row comes twice."""
    return rows.union(rows.where(F.col("number") % 2 == 0))


def wait_for_file(rows: DataFrame) -> DataFrame:
    """Keep everything, once the file that the environment names is there: until then the stage step goes on."""
    file = Path(os.environ["BATCHLEDGER_TEST_WAITS_FOR"])
    while not file.exists():
        Event().wait(0.05)
    return rows


def mark_nothing(rows: DataFrame) -> DataFrame:
    """Change nothing; the rows take the way of those that are transformed all the same."""
    return rows


def take_tax(rows: DataFrame) -> DataFrame:
    """Take a field out of what is kept, and put something else in its place."""
    tax = F.get_json_object("_rest", "$.tax")
    rest = F.when(F.col("_rest").isNotNull(), F.lit('{"was": ["tax"]}'))
    return rows.withColumn("tax", tax).withColumn("_rest", rest)


def quote_an_email(rows: DataFrame) -> DataFrame:
    """Fail at the first row, and quote its columns."""

    def refuse(email: str, card: str) -> str:
        raise ValueError(f"bad {email} {card}")

    return rows.withColumn("email", F.udf(refuse, "string")("email", "card"))


def die(rows: DataFrame) -> DataFrame:
    """End the process of the worker."""
    return rows.mapInArrow(_die, rows.schema)


def _die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in batches:
        os.kill(os.getpid(), signal.SIGKILL)
        yield each
