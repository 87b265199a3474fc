"""The Kafka broker: one node that is broker and controller (KRaft), data under ``.local/kafka``."""

import base64
import os
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from batchledger.local.stack import processes
from batchledger.local.stack.home import Home, Ports, private_folder, write_private
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.machine import HOST, find_java
from batchledger.local.stack.processes import Launch
from batchledger.local.stack.service import Service, base_environment

# With 21,000 partitions, 512 MB left the broker time for nothing but collecting garbage.
_HEAP = ("-Xms128m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData")

LOG_PROPERTIES = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
logger.server.name = kafka.server
logger.server.level = error
# A broker that was killed reads its log before it answers, which may take minutes. Its progress shows that it works.
logger.recovery.name = org.apache.kafka.storage.internals.log.LogLoader
logger.recovery.level = info
logger.logs.name = kafka.log.LogManager
logger.logs.level = info
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def kafka_service(home: Home, ports: Ports, advertised: Ports | None = None) -> Service:
    """The broker; it is healthy when it answers a client. ``advertised`` is where it sends its clients."""
    return Service(
        name="kafka",
        ports=("kafka", "kafka_controller"),
        prepare=lambda: _prepare(home, ports, advertised),
        is_healthy=lambda _: _answers(bootstrap_servers(ports)),
    )


def bootstrap_servers(ports: Ports) -> str:
    """The broker's address, as clients want it."""
    return f"{HOST}:{ports.kafka}"


def server_properties(home: Home, ports: Ports, advertised: Ports | None = None) -> str:
    """One node, so every internal topic has one replica. No topic is created automatically."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{ports.kafka_controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{ports.kafka},CONTROLLER://{HOST}:{ports.kafka_controller}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap_servers(advertised or ports)}",
        "log.dirs": home.local / "kafka" / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # The controller lets a killed broker in again when its old session has expired; by default after 9 s.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 1000,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _prepare(home: Home, ports: Ports, advertised: Ports | None) -> Launch:
    folder = private_folder(home.local / "kafka")
    properties, log_properties = folder / "server.properties", folder / "log4j2.properties"
    write_private(properties, server_properties(home, ports, advertised))
    write_private(log_properties, LOG_PROPERTIES)
    java = find_java()
    class_path = os.pathsep.join(map(str, fetch_jars(home, "kafka")))
    options = (*_HEAP, f"-Dlog4j2.configurationFile={log_properties}", "-cp", class_path)

    def launch(*arguments: str) -> Launch:
        return Launch(argv=(str(java), *options, *arguments), folder=folder, environment=base_environment())

    if not (folder / "data" / "meta.properties").exists():
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties))
        processes.run(home, "kafka", launch(*tool), deadline_seconds=60)
    return launch("kafka.Kafka", str(properties))


def _answers(servers: str) -> bool:
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False
