"""Kafka Connect standalone with the connector of one order: what its contenders have in common.

There is no program that takes orders: the target shows how far a connector is. The set-up of its tasks is not timed,
because in real life they run all the time.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import httpx

from batchledger.local.stack.home import write_private
from batchledger.local.stack.kafka_broker import java_options
from batchledger.local.stack.machine import HOST, choose_free_ports, find_java
from bench.contenders.contender import Running
from bench.orders import Done, Order
from bench.process import ProgramEndedError, kill_group, spawn
from bench.services import Services

START_SECONDS = 120.0
SECONDS_BETWEEN_LOOKS = 0.25
SESSION_MILLISECONDS = "6000"
"""Kafka notices a killed worker soon, and gives its partitions to the next one."""
SECONDS_WITHOUT_ROWS = 60.0
"""A connector that adds nothing for so long is at its end, although the target may lack rows: it has lost them."""
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


@dataclass(frozen=True)
class Connector:
    """A connector: all jars, its settings for an order, how to see what it has written, and settings of its worker.

    ``reading`` lends a function that returns the next offset of every partition of which the target has rows.
    """

    jars: Callable[[Services], Sequence[Path]]
    settings: Callable[[Services, Order], Mapping[str, str]]
    reading: Callable[[Services, Order], AbstractContextManager[Callable[[], Mapping[int, int]]]]
    worker: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Connect:
    """See the role."""

    services: Services
    connector: Connector
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
        request = {"name": order.name, "config": self.connector.settings(self.services, order)}
        self.client.post("/connectors", json=request).raise_for_status()
        self._wait_for_tasks(order)
        self.order, self.began = order, perf_counter()

    def finish(self) -> Done:
        """Wait until the table has the last record of every partition, then remove the connector."""
        order = self.order
        if order is None:
            raise RuntimeError("no order was begun")
        with self.connector.reading(self.services, order) as read_ends:
            ends, changed = dict(read_ends()), perf_counter()
            while ends != order.end_by_partition and perf_counter() - changed < SECONDS_WITHOUT_ROWS:
                if self.process.poll() is not None:
                    raise ProgramEndedError("Kafka Connect ended before its order was carried out")
                time.sleep(SECONDS_BETWEEN_LOOKS)
                before, ends = ends, dict(read_ends())
                changed = changed if ends == before else perf_counter()
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
                raise RuntimeError(f"The connector does not start: {states['FAILED']['trace']}")
            if set(states) == {"RUNNING"}:
                return
            time.sleep(0.02)
        raise RuntimeError(f"The connector did not run within {START_SECONDS:.0f} s")


@contextmanager
def start(services: Services, connector: Connector) -> Iterator[Running]:
    """Start Kafka Connect; the connector is registered when an order begins."""
    folder = services.home.local / "connect"
    folder.mkdir(exist_ok=True)
    port = choose_free_ports().airflow
    properties, log_properties = folder / "worker.properties", folder / "log4j2.properties"
    settings = {**worker_settings(services, port), **connector.worker}
    write_private(properties, "".join(f"{key}={value}\n" for key, value in settings.items()))
    log_properties.write_text(LOG_PROPERTIES)
    class_path = os.pathsep.join(map(str, connector.jars(services)))
    options = ("-Xms256m", "-Xmx1g", "-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={log_properties}")
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with services.home.log_file("connect").open("ab") as log:
        process = spawn(services, (str(find_java()), *options, "-cp", class_path, main, str(properties)), log)
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60, trust_env=False) as client:
            _wait_until_up(client, process)
            yield Connect(services, connector, process, client)
    finally:
        kill_group(process)


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


def common_settings(order: Order) -> Mapping[str, str]:
    """The settings that connectors of the same records share: large polls, and the schema of all records."""
    return {
        "tasks.max": str(TASKS),
        "topics": order.topic,
        "consumer.override.max.poll.records": "10000",
        "consumer.override.max.partition.fetch.bytes": str(16 * 1024 * 1024),
        "consumer.override.fetch.max.bytes": str(64 * 1024 * 1024),
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.session.timeout.ms": SESSION_MILLISECONDS,
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
