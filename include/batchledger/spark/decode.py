"""Records into columns: JSON with an explicit schema, as Spark expressions. Undecodable records keep their bytes.

A record is set aside when it is not valid UTF-8, is not exactly one JSON object that decodes with the
declared schema, or holds what a table or its clients cannot represent (U+0000, a year outside of 1 to 9999). Everything
else is a row; a declared field that the record lacks is null. What becomes of a record without a value, a tombstone,
is the pipeline's choice.

Spark's parser stops at the end of the first value. What follows it is found by counting: the text in brackets must be
an array of one, and must end as an object does.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from batchledger.columns import DELETED_COLUMN, Column
from batchledger.quarantine import SKIPPED_TOMBSTONE
from batchledger.record_rules import TombstonePolicy
from batchledger.spark.tombstones import decodes_as_key, is_one_object, with_keys_of_tombstones

ERROR_COLUMN = "_error"
RAW_COLUMNS = ("_key", "_value", "_headers")
_CORRUPT = "_corrupt"
_NUL = "\x00"
_NUL_ESCAPED = "\\u0000"


def decode_json(
    raw: DataFrame,
    columns: Sequence[Column],
    tombstones: TombstonePolicy = TombstonePolicy.QUARANTINE,
    key: Sequence[str] = (),
    also: Sequence[str] = (),
) -> DataFrame:
    """Return the declared columns, the provenance columns, ``_error`` and, where that is set, the raw record.

    With ``DELETE`` also ``_deleted``, and in a tombstone the columns of ``key`` come from the record's key. The columns
    ``also`` are passed on as they are.
    """
    text = F.col("value").cast("string")
    schema = ", ".join(f"`{column.name}` {column.type}" for column in columns)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    decoded = raw.withColumn("_text", text).withColumn(
        "_decoded", F.from_json(F.col("_text"), f"{schema}, {_CORRUPT} string", options)
    )
    deleted = []
    if tombstones is TombstonePolicy.DELETE:
        decoded = with_keys_of_tombstones(decoded, columns, key)
        deleted = [F.col("value").isNull().alias(DELETED_COLUMN)]
    judged = decoded.withColumn(ERROR_COLUMN, _judge(columns, tombstones, key))
    is_bad = F.col(ERROR_COLUMN).isNotNull()
    return judged.select(
        *[F.col(f"_decoded.{column.name}").alias(column.name) for column in columns],
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        *deleted,
        ERROR_COLUMN,
        F.when(is_bad, F.col("key")).alias("_key"),
        F.when(is_bad, F.col("value")).alias("_value"),
        F.when(is_bad, F.coalesce(F.col("headers"), F.lit("[]"))).alias("_headers"),
        *also,
    )


def _judge(columns: Sequence[Column], tombstones: TombstonePolicy, key: Sequence[str]) -> SparkColumn:
    is_tombstone = F.col("value").isNull()
    holds_nul = _any_column(columns, ("string",), lambda value: value.contains(_NUL))
    is_out_of_time = _any_column(columns, ("date", "timestamp"), lambda value: ~F.year(value).between(1, 9999))
    tombstone = _judge_tombstone(is_tombstone, tombstones, key, holds_nul | is_out_of_time)
    return (
        tombstone.when(~F.is_valid_utf8(F.col("_text")), "the value is not valid UTF-8")
        .when(
            F.col("_decoded").isNull() | F.col(f"_decoded.{_CORRUPT}").isNotNull(),
            "the value does not decode as JSON with the declared schema",
        )
        .when(~is_one_object(F.col("_text")), "the value is more than one JSON object")
        .when(F.col("_text").contains(_NUL_ESCAPED) & holds_nul, "a string holds U+0000, which a table cannot store")
        .when(is_out_of_time, "a date lies outside of the years 1 to 9999, which clients cannot represent")
    )


def _judge_tombstone(
    is_tombstone: SparkColumn, policy: TombstonePolicy, key: Sequence[str], is_unfit: SparkColumn
) -> SparkColumn:
    """Return the beginning of a judgement, to be continued by ``when`` for records that have a value."""
    match policy:
        case TombstonePolicy.QUARANTINE:
            return F.when(is_tombstone, "the record has no value (a tombstone)")
        case TombstonePolicy.KEEP:
            return F.when(is_tombstone, None)
        case TombstonePolicy.SKIP:
            return F.when(is_tombstone, SKIPPED_TOMBSTONE)
        case TombstonePolicy.DELETE:
            fault = f"the record has no value, and its key does not decode as {', '.join(key)}"
            return F.when(is_tombstone & (~decodes_as_key(key) | is_unfit), fault).when(is_tombstone, None)


def _any_column(
    columns: Sequence[Column], types: Sequence[str], holds: Callable[[SparkColumn], SparkColumn]
) -> SparkColumn:
    """Whether the condition holds for the value of any column of these types; null counts as no."""
    condition = F.lit(False)
    for column in columns:
        if column.type in types:
            condition = condition | F.coalesce(holds(F.col(f"_decoded.{column.name}")), F.lit(False))
    return condition
