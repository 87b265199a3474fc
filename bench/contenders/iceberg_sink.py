"""Apache Iceberg's own sink in Kafka Connect standalone: files by its tasks, commits by the one that coordinates them.

It reads as Debezium's sink does, and writes the table of the lake. Tasks tell the coordinator of their files in
transactions of a control topic, and a snapshot says up to which offset of this topic it goes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from batchledger.local.samples.admin import ensure_topic
from batchledger.local.stack.jars import fetch_jars, pyspark_folder
from batchledger.local.stack.kafka_broker import java_options
from batchledger.sinks.iceberg.catalog import spark_settings
from bench.contenders import connect
from bench.contenders.contender import Contender, Subject
from bench.orders import CATALOG, NAMESPACE, Order, Sink
from bench.services import Services
from bench.targets.lake import find_catalog, plain_table

COMMIT_MILLISECONDS = 1_000
# A task whose topic is at its end hears only so often that a commit has begun; a minute by default.
WORKER = {"offset.flush.interval.ms": "1000"}
TRANSACTION_MILLISECONDS = 10_000
"""A transaction that a killed task has left open ends after it; until then the coordinator sees nothing behind it."""


def describe() -> Contender:
    """Iceberg's sink."""
    return _describe("iceberg_sink", "Iceberg sink in Kafka Connect standalone", {})


def describe_from_earliest() -> Contender:
    """Iceberg's sink, whose coordinator reads all of the control topic if it has committed nothing yet."""
    title = "Iceberg sink, its control topic read from earliest"
    return _describe("iceberg_sink_from_earliest", title, {"iceberg.kafka.auto.offset.reset": "earliest"})


def _describe(name: str, title: str, settings: Mapping[str, str]) -> Contender:
    connector = connect.Connector(_find_jars, connector_settings, _reading, WORKER)
    return Contender(Subject(name, title, settings, sink=Sink.ICEBERG), partial(connect.start, connector=connector))


def connector_settings(services: Services, order: Order) -> Mapping[str, str]:
    """The settings of the connector: a control topic of its own, and a commit a second."""
    control, prefix = f"{order.name}_control", f"spark.sql.catalog.{CATALOG}."
    ensure_topic(services.kafka_options, control, 1, {})
    catalog = {name: value for name, value in spark_settings(find_catalog()).items() if name.startswith(prefix)}
    return {
        **connect.common_settings(order),
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "transforms.place.partition.field": "_kafka_partition",
        # The sink's own transform, whose columns a watch reads; the bench's own count reads the ones of Connect's.
        "transforms": "place,number,metadata",
        "transforms.metadata.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables": f"{NAMESPACE}.{order.target}",
        "iceberg.catalog": CATALOG,
        **{f"iceberg.catalog.{name.removeprefix(prefix)}": value for name, value in catalog.items()},
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(COMMIT_MILLISECONDS),
        **{f"iceberg.kafka.{name}": value for name, value in java_options(services.kafka_options).items()},
        **order.settings,
        "iceberg.kafka.session.timeout.ms": connect.SESSION_MILLISECONDS,
        "iceberg.kafka.transaction.timeout.ms": str(TRANSACTION_MILLISECONDS),
    }


def _find_jars(services: Services) -> Sequence[Path]:
    """Connect, the sink, and Hadoop's client, which pyspark has: it writes the files."""
    lists = [jar for name in ("connect", "connect_iceberg") for jar in fetch_jars(services.home, name)]
    return [*lists, *(pyspark_folder() / "jars").glob("hadoop-client-*.jar")]


@contextmanager
def _reading(services: Services, order: Order) -> Iterator[Callable[[], Mapping[int, int]]]:
    with plain_table(services.home, order.target) as table:
        yield table.read_ends
