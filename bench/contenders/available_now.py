"""The peer from Spark's manual: Structured Streaming by spark-submit; see ``programs.available_now``."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from batchledger.local.stack.jars import fetch_jars, pyspark_folder
from batchledger.local.stack.machine import HOST
from batchledger.local.stack.spark_connect import JAVA_OPTIONS
from batchledger.sinks.iceberg.catalog import spark_settings
from bench.contenders.contender import Contender, Running, Subject
from bench.contenders.one_program import OneProgram
from bench.orders import CHECKPOINTS_VARIABLE, ORDER_VARIABLE, SPARK_SETTINGS_VARIABLE, Order, Sink
from bench.process import kill_group, run_program, spawn
from bench.programs import __file__ as programs
from bench.records import KEY, SCHEMA
from bench.services import Services
from bench.targets.lake import find_catalog

COLD_SECONDS = 300
# Spark keeps consumers for five minutes. They would fill the heap with records that were fetched and not needed.
CONSUMER_CACHES = {
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
}

NAME_AND_TITLE_BY_SINK = {
    Sink.POSTGRES: ("available_now", "Spark AvailableNow, foreachBatch JDBC"),
    Sink.KAFKA: ("streaming_into_kafka", "Structured Streaming into Kafka (at-least-once)"),
    Sink.ICEBERG: ("streaming_into_iceberg", "Structured Streaming into Iceberg"),
}


@contextmanager
def start(services: Services) -> Iterator[Running]:
    """Start the JVM and its session."""
    argv, environment = _prepare(services)
    lake = {SPARK_SETTINGS_VARIABLE: json.dumps(spark_settings(find_catalog()))}
    with run_program(services, argv, "available_now", **environment, **lake) as program:
        yield OneProgram("available_now", program)


@contextmanager
def cold_run(services: Services, order: Order) -> Iterator[Callable[[], None]]:
    """Start a spark-submit that takes what the topic holds; the end of the block waits for it.

    Lends a function that raises RuntimeError if it has failed. The end of the block raises it, too.
    """
    argv, environment = _prepare(services)
    log_file = services.home.log_file("available_now_cold")
    with log_file.open("ab") as log:
        process = spawn(services, argv, log, **environment, **{ORDER_VARIABLE: order.to_json()})

        def require_alive() -> None:
            if process.poll():
                raise RuntimeError(f"spark-submit ended with exit code {process.returncode}; see {log_file}")

        try:
            yield require_alive
            process.wait(COLD_SECONDS)
            require_alive()
        finally:
            kill_group(process)


def describe(sink: Sink = Sink.POSTGRES) -> Contender:
    """AvailableNow, into one of the sinks."""
    name, title = NAME_AND_TITLE_BY_SINK[sink]
    return Contender(Subject(name, title, {"schema": SCHEMA, "key": KEY}, sink=sink), start)


def describe_avro(schema: str) -> Contender:
    """AvailableNow, which reads Avro of one schema by Spark's own function into the table."""
    return Contender(
        Subject("available_now_avro", "Avro, by Spark AvailableNow, from_avro", {"avro_schema": schema}), start
    )


def _prepare(services: Services) -> tuple[Sequence[str], Mapping[str, str]]:
    """Write the settings of the stack's own Spark server; return the command and its environment."""
    folder = services.home.local / "available_now"
    folder.mkdir(exist_ok=True)
    jars = [jar for name in ("spark", "spark_kafka", "spark_avro") for jar in fetch_jars(services.home, name)]
    settings = {
        "spark.master": f"local[{2 * (os.cpu_count() or 1)}]",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.local.dir": folder / "tmp",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.session.timeZone": "UTC",
        **CONSUMER_CACHES,
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    shutil.copy(services.home.local / "spark" / "log4j2.properties", folder)
    home = pyspark_folder()
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        CHECKPOINTS_VARIABLE: str(folder / "checkpoints"),
    }
    program = Path(programs).with_name("available_now.py")
    return (str(home / "bin" / "spark-submit"), str(program)), environment
