"""Structured Streaming as its manual has it: trigger AvailableNow, foreachBatch, JDBC append. Run by spark-submit.

The rows of each of the four partitions are a transaction of their own, and the checkpoint is written after them.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.orders import CHECKPOINTS_VARIABLE, DSN_VARIABLE, KAFKA_VARIABLE, Order, serve
from bench.target import SCHEMA

PARTITIONS = 4
# As Batchledger's own reads are tuned.
KAFKA_OPTIONS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.fetch.max.wait.ms": "10",
}


def drain(order: Order) -> Mapping[str, float]:
    """Trigger again and again until the checkpoint has every partition at its end."""
    spark = SparkSession.builder.getOrCreate()
    checkpoint = Path(os.environ[CHECKPOINTS_VARIABLE], order.name)
    jdbc = _jdbc_options(order.table)

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.withColumn("_batch_id", F.lit(batch_id).cast("long")).write.format("jdbc").options(**jdbc).mode(
            "append"
        ).save()

    source = {"kafka.bootstrap.servers": os.environ[KAFKA_VARIABLE], "subscribe": order.topic, **KAFKA_OPTIONS}
    read = spark.readStream.format("kafka").options(startingOffsets="earliest", **source).load()
    rows = read.select(
        F.from_json(F.col("value").cast("string"), order.settings["schema"]).alias("record"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    ).select("record.*", "_topic", "_partition", "_offset", "_timestamp")
    while not _is_drained(checkpoint, order):
        query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return {}


def _jdbc_options(table: str) -> dict[str, str]:
    address = conninfo_to_dict(os.environ[DSN_VARIABLE])
    url = f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
    return {
        "url": f"{url}?reWriteBatchedInserts=true",
        "driver": "org.postgresql.Driver",
        "user": str(address["user"]),
        "password": str(address["password"]),
        "dbtable": f"{SCHEMA}.{table}",
        "batchsize": "10000",
        "numPartitions": str(PARTITIONS),
    }


def _is_drained(checkpoint: Path, order: Order) -> bool:
    """Whether the newest micro-batch that the checkpoint has as committed ends where every partition does."""
    numbers = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
    if not numbers:
        return False
    text = (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()[-1]
    reached = json.loads(text)[order.topic]
    return all(reached.get(str(partition), 0) >= end for partition, end in order.end_by_partition.items())


if __name__ == "__main__":
    # The bench has used Spark Connect before, and its environment says so.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    # Before the first order: a warm program has its session.
    SparkSession.builder.getOrCreate()
    serve(drain)
