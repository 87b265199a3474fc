"""Structured Streaming as its manual shows it, with trigger AvailableNow. Run by spark-submit.

foreachBatch and JDBC append write a table: the rows of each of the four partitions are a transaction of their own, and
the checkpoint is written after them. Spark's own sinks write topics and Iceberg tables.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery

from bench.orders import (
    CATALOG,
    CHECKPOINTS_VARIABLE,
    DSN_VARIABLE,
    JAVA_KAFKA_VARIABLE,
    NAMESPACE,
    SPARK_SETTINGS_VARIABLE,
    Order,
    Sink,
    serve,
)
from bench.targets.table import SCHEMA

PARTITIONS = 4
# The tuning of Batchledger's own reads.
KAFKA_OPTIONS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(64 * 1024 * 1024),
    "kafka.fetch.max.wait.ms": "10",
}
# The tuning of Batchledger's own producer.
PRODUCER_OPTIONS = {
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    "kafka.batch.size": str(1024 * 1024),
    "kafka.buffer.memory": str(128 * 1024 * 1024),
}
VALUE_AFTER_FRAME = "substring(value, 6)"
"""Confluent's frame is a byte 0 and four bytes of a schema id. Spark's function does not know it."""
PROVENANCE = ("_topic", "_partition", "_offset", "_timestamp")


def drain(order: Order) -> Mapping[str, float]:
    """Trigger again and again until the checkpoint has every partition at its end."""
    checkpoint = Path(os.environ[CHECKPOINTS_VARIABLE], order.name)
    rows = _read(order)
    while not _is_drained(checkpoint, order):
        _start(rows, order, checkpoint).awaitTermination()
    return {}


def _read(order: Order) -> DataFrame:
    source = {**_broker_options(), "subscribe": order.topic, **KAFKA_OPTIONS}
    if "records_per_commit" in order.settings:
        source["maxOffsetsPerTrigger"] = order.settings["records_per_commit"]
    read = _session().readStream.format("kafka").options(startingOffsets="earliest", **source).load()
    return read.select(
        _decode(order.settings).alias("record"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    ).select("record.*", *PROVENANCE)


def _broker_options() -> dict[str, str]:
    """The broker's address and login."""
    return {f"kafka.{name}": value for name, value in json.loads(os.environ[JAVA_KAFKA_VARIABLE]).items()}


def _decode(settings: Mapping[str, str]) -> Column:
    """The fields of the records. All records of Avro have one schema, whatever id is in their frame."""
    if "avro_schema" in settings:
        return from_avro(F.expr(VALUE_AFTER_FRAME), settings["avro_schema"])
    return F.from_json(F.col("value").cast("string"), settings["schema"])


def _start(rows: DataFrame, order: Order, checkpoint: Path) -> StreamingQuery:
    match order.sink:
        case Sink.POSTGRES:
            jdbc = _jdbc_options(order.target)

            def append(batch: DataFrame, batch_id: int) -> None:
                numbered = batch.withColumn("_batch_id", F.lit(batch_id).cast("long"))
                numbered.write.format("jdbc").options(**jdbc).mode("append").save()

            writer = rows.writeStream.foreachBatch(append)
        case Sink.KAFKA:
            target = {**_broker_options(), "topic": order.target}
            writer = _as_records(rows, order).writeStream.format("kafka").options(**target, **PRODUCER_OPTIONS)
        case Sink.ICEBERG:
            # These sinks do not get the number of a batch.
            numbered = rows.withColumnRenamed("_partition", "_kafka_partition").withColumn("_batch_id", F.lit(0))
            writer = numbered.writeStream.format("iceberg").outputMode("append")
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    if order.sink is Sink.ICEBERG:
        return writer.toTable(f"{CATALOG}.{NAMESPACE}.{order.target}")
    return writer.start()


def _as_records(rows: DataFrame, order: Order) -> DataFrame:
    """The columns that the Kafka sink takes."""
    fields = [each for each in rows.columns if each not in PROVENANCE]
    header_by_name = {
        "_topic": F.col("_topic"),
        "_partition": F.col("_partition"),
        "_offset": F.col("_offset"),
        "_timestamp": F.unix_millis("_timestamp"),
        "_batch_id": F.lit(0),
    }
    headers = [_header(name, value) for name, value in header_by_name.items()]
    return rows.select(
        F.col(order.settings["key"]).cast("string").alias("key"),
        F.to_json(F.struct(*fields)).alias("value"),
        F.array(*headers).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


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
    """Whether the newest micro-batch that the checkpoint has as committed ends at the end of every partition."""
    numbers = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
    if not numbers:
        return False
    text = (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()[-1]
    reached = json.loads(text)[order.topic]
    return all(reached.get(str(partition), 0) >= end for partition, end in order.end_by_partition.items())


def _session() -> SparkSession:
    """Return the settings of the lake's catalog. They hold a password, so no file has them."""
    return SparkSession.builder.config(map=json.loads(os.environ.get(SPARK_SETTINGS_VARIABLE, "{}"))).getOrCreate()


if __name__ == "__main__":
    # The environment of the bench names a Spark Connect server.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    # Before the first order: a warm program has its session.
    _session()
    serve(drain)
