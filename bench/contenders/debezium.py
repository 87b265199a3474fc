"""The peer without code: Debezium's JDBC sink in Kafka Connect standalone.

It reads the same topic as the others: since Kafka 4.2, Connect's JSON converter takes the schema of all records from
its settings. Connect's own transforms add the coordinates. The set-up of a connector's tasks is not timed, because in
real life they run all the time.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import httpx
from psycopg.conninfo import conninfo_to_dict

from batchledger.local.stack.home import write_private
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.kafka_broker import java_options
from batchledger.local.stack.machine import HOST, choose_free_ports, find_java
from bench.contenders.contender import Contender, Running, Subject
from bench.orders import Done, Order
from bench.process import ProgramEndedError, kill_group, spawn
from bench.services import Services
from bench.targets.table import SCHEMA, watching

START_SECONDS = 120.0
SECONDS_BETWEEN_LOOKS = 0.25
TAIL_PAGES = 2000
FIELDS = {"message_id": "string", "device_id": "int32", "seq": "int64", "amount": "double", "note": "string"}
TASKS = 4
# The schema of all records, which the records do not carry.
RECORD_SCHEMA = {
    "type": "struct",
    "optional": False,
    "fields": [{"field": name, "type": type_, "optional": True} for name, type_ in FIELDS.items()],
}
LOG_PROPERTIES = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


@dataclass
class Debezium:
    """See the role. There is no program that takes orders: the table shows how far the connector is."""

    services: Services
    process: "subprocess.Popen[bytes]"
    client: httpx.Client = field(repr=False)
    began: float = 0.0
    order: Order | None = None

    @property
    def root_by_group(self) -> Mapping[str, int]:
        """The worker."""
        return {"connect": self.process.pid}

    def prepare(self, order: Order) -> None:
        """Prepare nothing."""

    def begin(self, order: Order) -> None:
        """Register the connector, and wait until its tasks are set up, as they are all the time in real life."""
        request = {"name": order.name, "config": connector_settings(self.services, order)}
        self.client.post("/connectors", json=request).raise_for_status()
        self._wait_for_tasks(order)
        self.order, self.began = order, perf_counter()

    def finish(self) -> Done:
        """Wait until the table has the last record of every partition, then remove the connector."""
        order = self.order
        if order is None:
            raise RuntimeError("no order was begun")
        with watching(self.services.dsn, order.target, TAIL_PAGES) as watch:
            while watch.look() != order.end_by_partition:
                if self.process.poll() is not None:
                    raise ProgramEndedError("Kafka Connect ended before its order was carried out")
                time.sleep(SECONDS_BETWEEN_LOOKS)
        seconds = perf_counter() - self.began
        try:
            self.client.delete(f"/connectors/{order.name}").raise_for_status()
        except httpx.TransportError as error:
            raise ProgramEndedError("Kafka Connect ended before its connector was removed") from error
        return Done(seconds)

    def kill(self) -> None:
        """Send SIGKILL to the worker."""
        kill_group(self.process)

    def _wait_for_tasks(self, order: Order) -> None:
        deadline = perf_counter() + START_SECONDS
        while perf_counter() < deadline:
            answer = self.client.get(f"/connectors/{order.name}/status")
            states = {task["state"]: task for task in answer.json()["tasks"]} if answer.is_success else {}
            if "FAILED" in states:
                raise RuntimeError(f"Debezium's sink does not start: {states['FAILED']['trace']}")
            if set(states) == {"RUNNING"}:
                return
            time.sleep(0.02)
        raise RuntimeError(f"Debezium's sink did not run within {START_SECONDS:.0f} s")


@contextmanager
def start(services: Services) -> Iterator[Running]:
    """Start Kafka Connect with no connector."""
    folder = services.home.local / "connect"
    folder.mkdir(exist_ok=True)
    port = choose_free_ports().airflow
    properties, log_properties = folder / "worker.properties", folder / "log4j2.properties"
    write_private(properties, "".join(f"{key}={value}\n" for key, value in worker_settings(services, port).items()))
    log_properties.write_text(LOG_PROPERTIES)
    class_path = os.pathsep.join(map(str, fetch_jars(services.home, "connect")))
    options = ("-Xms256m", "-Xmx1g", "-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={log_properties}")
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with services.home.log_file("connect").open("ab") as log:
        process = spawn(services, (str(find_java()), *options, "-cp", class_path, main, str(properties)), log)
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60, trust_env=False) as client:
            _wait_until_up(client, process)
            yield Debezium(services, process, client)
    finally:
        kill_group(process)


def describe() -> Contender:
    """Debezium."""
    return Contender(Subject("debezium", "Debezium JDBC sink in Kafka Connect standalone"), start)


def worker_settings(services: Services, port: int) -> Mapping[str, object]:
    """The settings of the worker: reachable from this machine only, everything else by default.

    Consumers of its connectors do not inherit the worker's own login.
    """
    folder = services.home.local / "connect"
    broker = java_options(services.kafka_options)
    return {
        **broker,
        **{f"consumer.{name}": value for name, value in broker.items()},
        "listeners": f"http://{HOST}:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": folder / "offsets",
        "plugin.discovery": "service_load",
        "connector.client.config.override.policy": "All",
    }


def connector_settings(services: Services, order: Order) -> Mapping[str, str]:
    """The settings of the connector: insert mode, batches as large as polls, one connection a task."""
    address = conninfo_to_dict(services.dsn)
    url = f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": str(TASKS),
        "topics": order.topic,
        "connection.url": f"{url}?reWriteBatchedInserts=true&currentSchema={SCHEMA}",
        "connection.username": str(address["user"]),
        "connection.password": str(address["password"]),
        "connection.pool.min_size": "1",
        "connection.pool.max_size": "2",
        "insert.mode": "insert",
        "primary.key.mode": "none",
        "schema.evolution": "none",
        "collection.name.format": order.target,
        "batch.size": "10000",
        "consumer.override.max.poll.records": "10000",
        "consumer.override.max.partition.fetch.bytes": str(16 * 1024 * 1024),
        "consumer.override.fetch.max.bytes": str(64 * 1024 * 1024),
        "consumer.override.auto.offset.reset": "earliest",
        # Kafka notices a killed worker soon, and gives its partitions to the next one.
        "consumer.override.session.timeout.ms": "6000",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": json.dumps(RECORD_SCHEMA),
        "transforms": "place,number",
        "transforms.place.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.place.topic.field": "_topic",
        "transforms.place.partition.field": "_partition",
        "transforms.place.offset.field": "_offset",
        "transforms.place.timestamp.field": "_timestamp",
        "transforms.place.static.field": "_batch_id",
        "transforms.place.static.value": "0",
        "transforms.number.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.number.spec": "_batch_id:int64",
    }


def _wait_until_up(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    deadline = perf_counter() + START_SECONDS
    while perf_counter() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if client.get("/connectors").is_success:
                return
        time.sleep(SECONDS_BETWEEN_LOOKS)
    raise RuntimeError(f"Kafka Connect ended, or did not answer within {START_SECONDS:.0f} s")
